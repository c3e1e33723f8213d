//! From Jobs to engine units: what each Job's standing means for the engine, and which write it calls for.

use k8s_openapi::jiff::Timestamp;
use sluice_api::{DEFAULT_LOCAL_QUEUE, labels};
use sluice_engine::{Amount, ChargedUnit, Event, LocalQueueKey, Phase, Time, Uid};
use sluice_jobs::managed::{self, JobFacts, NamespaceFacts, OwnerJob};
use sluice_jobs::record::{Record, State};
use sluice_jobs::view::JobView;
use sluice_jobs::{requests, status};
use sluice_quantity::Quantity;

use crate::Index;
use crate::answer::Happening;
use crate::ask::Held;
use crate::standing::{Hold, Memory, SetAside, Standing, is_held, recorded, standing};
use crate::stop::Stopping;
use crate::unit::Goal;

impl Index {
    /// Brings the engine's view of one unit, and the index's intent for it, up to date with the Job.
    pub(crate) fn relower(&mut self, uid: Uid, now: Time) {
        let Some(unit) = self.units.get(&uid) else { return };
        if unit.is_sent() && !unit.shows_intent() && !unit.departed {
            // The engine charges it as decided until the answer is known.
            return;
        }
        let job = unit.job.clone();
        let memory = Memory {
            pods_gone: unit.pods_gone,
            departed: unit.departed,
        };
        let adopt = self.namespaces.predates_opt_in(job.namespace(), created_at(&job));
        let standing = standing(&job, recorded(&job), memory, self.is_managed(&job), adopt);
        if !standing.awaits_pods() {
            self.cancel_probe(uid);
        }
        match standing {
            Standing::Absent => self.absent(uid, now),
            Standing::Waiting { record, set_aside } => self.waits(uid, &job, record.as_deref(), set_aside, now),
            Standing::Holding { record, hold } => self.holds(uid, &job, &record, hold, now),
            Standing::Adopted => self.adopt(uid, &job, now),
            Standing::Unaccounted { why, leaving } => self.charge_unaccounted(uid, &job, why, leaving, now),
            Standing::Runaway => self.runs_unadmitted(uid),
        }
    }

    fn absent(&mut self, uid: Uid, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        let was_charged = std::mem::take(&mut unit.charged);
        let finished = status::finished(&unit.job.status).is_some();
        let record = recorded(&unit.job).ours();
        let in_flight = unit.is_sent();
        if !in_flight {
            unit.intent = None;
        }
        let forget = unit.departed && !in_flight;
        let counts = finished && !unit.departed && record.is_some();
        let local_queue = local_queue_of(&unit.job);
        if was_charged && let Some(record) = &record {
            self.quota_returned(uid, record, now);
        }
        if was_charged && finished {
            let admitted_at = record.and_then(|record| record.admitted_at);
            let ran_ms = admitted_at.map_or(0, |at| now.0.saturating_sub(time_of(at).0).max(0));
            self.notice(uid, Happening::Finished { ran_ms });
        }
        if in_flight {
            // An admission that may still land must stay charged until it is known that it did not.
            return;
        }
        self.tell(Event::RemoveUnit(uid));
        if counts {
            self.tallies.finished(uid, &local_queue);
        }
        if forget {
            self.drop_unit(uid);
        }
    }

    /// Notes that what an evicted unit held is free again.
    fn quota_returned(&mut self, uid: Uid, record: &Record, now: Time) {
        let Some(eviction) = record
            .eviction
            .as_ref()
            .filter(|_| matches!(record.state, State::Evicting | State::Deactivated))
        else {
            return;
        };
        let happening = Happening::QuotaReturned {
            reason: eviction.reason.clone(),
            after_ms: now.0.saturating_sub(time_of(eviction.at).0).max(0),
        };
        self.notice_in(uid, Some(record.cluster_queue.as_str().into()), happening);
    }

    fn waits(&mut self, uid: Uid, job: &JobView, record: Option<&Record>, set_aside: Option<SetAside>, now: Time) {
        let spec = self.unit_spec(uid, job, record, set_aside);
        let Some(unit) = self.units.get_mut(&uid) else { return };
        let was_charged = std::mem::take(&mut unit.charged);
        if let Some(record) = record {
            unit.remember_eviction(record);
            if was_charged {
                self.quota_returned(uid, record, now);
            }
        }
        let Some(unit) = self.units.get_mut(&uid) else { return };
        if unit
            .intent
            .as_ref()
            .is_some_and(|intent| matches!(intent.goal, Goal::Admit(_)))
        {
            // Decided and not sent yet: a report of the Job's status is no reason to decide again.
            return;
        }
        unit.intent = None;
        self.tell(Event::SetWaiting(spec));
    }

    fn holds(&mut self, uid: Uid, job: &JobView, record: &Record, hold: Hold, now: Time) {
        let Some(unit) = self.units.get(&uid) else { return };
        let running = hold == Hold::Running;
        let readiness = self.readiness(job, record, unit.readiness, now).filter(|_| running);
        let Some(unit) = self.units.get_mut(&uid) else { return };
        unit.charged = true;
        unit.remember_eviction(record);
        unit.readiness = readiness;
        if running {
            unit.pods_gone = false;
        } else {
            unit.owed = None;
        }
        let (departed, owed) = (unit.departed, unit.owed.is_some());
        if !unit.is_sent() && !owed {
            unit.intent = None;
        }
        let (pods, phase) = match hold {
            Hold::Running if owed => (running_pods(job, record), Phase::Evicting),
            Hold::Running => (running_pods(job, record), Phase::Admitted),
            Hold::Stopped | Hold::Stopping { .. } => (record.pods(), Phase::Evicting),
            Hold::Leaving => (record.pods(), Phase::Leaving),
        };
        let held = Held { pods, phase, readiness };
        self.tell(Event::SetCharged(self.charged_unit(uid, job, record, held)));
        match hold {
            Hold::Stopped => self.stopped_by_others(uid, job),
            Hold::Stopping { unacknowledged: true } => self.schedule_probe(uid, now, false),
            Hold::Stopping { unacknowledged: false } => {}
            Hold::Leaving => self.schedule_probe(uid, now, departed),
            Hold::Running if owed => self.pay(uid),
            Hold::Running => self.watch_running(uid, job, record),
        }
    }

    /// An admitted Job that somebody else suspended: a hold if the webhook marked it as its owner's, else an eviction.
    /// Without the mark its owner has taken the suspension back already, or no webhook saw it.
    fn stopped_by_others(&mut self, uid: Uid, job: &JobView) {
        if self.reign.is_none() {
            return;
        }
        if is_held(job) {
            self.intend(uid, Goal::Hold);
        } else {
            let message = "spec.suspend was set to true by another client; it is queued again".to_owned();
            self.intend(uid, Goal::Evict(Stopping::to_wait("Suspended", message)));
        }
    }

    /// What a running Job must not do: grow beyond its record, or appear under an ended term. And what is to be noted of it.
    fn watch_running(&mut self, uid: Uid, job: &JobView, record: &Record) {
        let Some(reign) = self.reign else { return };
        let Some(unit) = self.units.get(&uid) else { return };
        let (wanted, admitted) = (requests::pods_count(&job.spec), record.pods().min(unit.least_pods));
        if wanted > admitted {
            let message = format!(
                "it is charged for {admitted} pods and now wants {wanted}; it is queued again with its new size"
            );
            self.intend(uid, Goal::Evict(Stopping::to_wait("Grown", message)));
        } else if record.term < reign.term && unit.record_seen > reign.barrier {
            let message = format!("it was admitted under term {}, which had ended", record.term);
            self.intend(uid, Goal::Evict(Stopping::to_wait("StaleTerm", message)));
        } else if unit.readiness != record.pods_ready
            && let Some(readiness) = unit.readiness
        {
            self.intend(uid, Goal::Note(readiness));
        }
    }

    fn adopt(&mut self, uid: Uid, job: &JobView, now: Time) {
        let Some(reign) = self.reign else {
            return self.absent(uid, now);
        };
        let spec = self.running_spec(uid, job);
        let Some(admission) = self.engine.place_over_quota(&spec) else {
            // Its queue or flavors are not there yet: it is looked at again when they come, and runs meanwhile.
            self.tell(Event::RemoveUnit(uid));
            if let Some(unit) = self.units.get_mut(&uid)
                && !unit.is_sent()
            {
                unit.intent = None;
            }
            return;
        };
        let record = self.admission_record(job, &admission, reign, now);
        let held = Held {
            pods: record.pods(),
            phase: Phase::Admitted,
            readiness: self.readiness(job, &record, None, now),
        };
        self.tell(Event::SetCharged(self.charged_unit(uid, job, &record, held)));
        self.intend(uid, Goal::Adopt(Box::new(record)));
    }

    fn charge_unaccounted(&mut self, uid: Uid, job: &JobView, why: String, leaving: bool, now: Time) {
        let spec = self.running_spec(uid, job);
        let placed = self.engine.place_over_quota(&spec);
        if let Some(admission) = &placed {
            let record = self.admission_record(job, admission, self.reign.unwrap_or_default(), now);
            let phase = if leaving { Phase::Leaving } else { Phase::Admitted };
            let held = Held {
                pods: record.pods(),
                phase,
                readiness: None,
            };
            // Nobody knows since when it runs, so it is late for nothing and nobody waits for it.
            let charged = ChargedUnit {
                deadlines: Vec::new(),
                pods_ready: true,
                ..self.charged_unit(uid, job, &record, held)
            };
            self.tell(Event::SetCharged(charged));
        }
        let Some(unit) = self.units.get_mut(&uid) else { return };
        unit.charged = placed.is_some();
        let departed = unit.departed;
        if !std::mem::replace(&mut unit.unreadable, true) {
            self.notice(uid, Happening::UnreadableRecord { message: why });
        }
        if leaving {
            self.schedule_probe(uid, now, departed);
        }
    }

    fn runs_unadmitted(&mut self, uid: Uid) {
        self.tell(Event::RemoveUnit(uid));
        if let Some(unit) = self.units.get_mut(&uid) {
            unit.charged = false;
        }
        if self.reign.is_some() {
            self.intend(uid, Goal::SuspendLate);
        }
    }

    fn is_managed(&self, job: &JobView) -> bool {
        let namespace = NamespaceFacts {
            name: job.namespace(),
            opt_in: self.namespaces.opt_in(job.namespace()),
            own_namespace: &self.own_namespace,
        };
        let owner = managed::resolve_owner(&namespace, job.controlling_owner(), |name| {
            let uid = self.by_name.get(&(job.namespace().into(), name.into()))?;
            Some(OwnerJob::of(&self.units.get(uid)?.job))
        });
        managed::managed(&namespace, &JobFacts::of(job), owner).is_managed()
    }
}

/// The pods that a running Job is charged for: those it may still have, by its parallelism, its missing completions and
/// the pods that are there; never more than its record says.
fn running_pods(job: &JobView, record: &Record) -> i64 {
    let present = job
        .status
        .active
        .unwrap_or(0)
        .saturating_add(job.status.terminating.unwrap_or(0));
    let bound = requests::pods_count(&job.spec).max(present).min(record.pods());
    status::charged_pods(job, bound)
}

/// The LocalQueue that a Job waits in, or would.
pub(crate) fn local_queue_of(job: &JobView) -> LocalQueueKey {
    let label = job.label(labels::QUEUE_NAME).filter(|name| !name.is_empty());
    LocalQueueKey::new(job.namespace(), label.unwrap_or(DEFAULT_LOCAL_QUEUE))
}

/// The queue time: that of the Job's record, if it has one; else its creation.
pub(crate) fn queued_at(job: &JobView, record: Option<&Record>) -> Time {
    record
        .and_then(|record| record.queued_at)
        .map_or_else(|| created_at(job), time_of)
}

/// An amount of the engine as Kubernetes writes it.
pub(crate) fn quantity_of(resource: &str, amount: Amount) -> Quantity {
    requests::quantity(resource, amount.get())
}

/// The engine's amount of a quantity: cpu in milli-units, everything else in whole units, rounded up.
pub(crate) fn amount_of(resource: &str, quantity: &Quantity) -> Amount {
    Amount::new(requests::amount(resource, quantity))
}

/// The engine's amount of a quantity in a record. A text that is no quantity counts as all there is, so that a damaged
/// record never frees quota.
pub(crate) fn amount_of_text(resource: &str, text: &str) -> Amount {
    Quantity::parse(text).map_or(Amount::MAX, |quantity| amount_of(resource, &quantity))
}

pub(crate) fn created_at(job: &JobView) -> Time {
    job.metadata
        .creation_timestamp
        .as_ref()
        .map_or(Time(0), |time| time_of(time.0))
}

pub(crate) fn time_of(timestamp: Timestamp) -> Time {
    Time(timestamp.as_millisecond())
}

pub(crate) fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or_default()
}
