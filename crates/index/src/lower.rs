//! From Jobs to engine units: what each Job's standing means for the engine, and which write it calls for.

use k8s_openapi::jiff::Timestamp;
use sluice_api::{DEFAULT_LOCAL_QUEUE, labels};
use sluice_engine::{
    Amount, Charge, ChargedUnit, Event, Gate, LocalQueueKey, Name, Phase, PodSetSpec, Time, Uid, UnitSpec,
};
use sluice_jobs::managed::{self, JobFacts, NamespaceFacts, OwnerJob};
use sluice_jobs::patch::POD_SET;
use sluice_jobs::priority::{self, Priority, PriorityError};
use sluice_jobs::record::Record;
use sluice_jobs::requests::{self, RequestsError};
use sluice_jobs::view::JobView;
use sluice_jobs::{status, unsupported};
use sluice_quantity::Quantity;

use crate::Index;
use crate::answer::Happening;
use crate::standing::{Hold, Memory, SetAside, Standing, held, recorded, standing};
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
            Standing::Waiting { record, set_aside } => self.waits(uid, &job, record.as_deref(), set_aside),
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
        let admitted_at = recorded(&unit.job).ours().and_then(|record| record.admitted_at);
        let in_flight = unit.is_sent();
        if !in_flight {
            unit.intent = None;
        }
        let forget = unit.departed && !in_flight;
        if was_charged && finished {
            let ran_ms = admitted_at.map_or(0, |at| now.0.saturating_sub(time_of(at).0).max(0));
            self.notice(uid, Happening::Finished { ran_ms });
        }
        if in_flight {
            // An admission that may still land must stay charged until it is known that it did not.
            return;
        }
        self.engine.apply(Event::RemoveUnit(uid));
        if forget {
            self.drop_unit(uid);
        }
    }

    fn waits(&mut self, uid: Uid, job: &JobView, record: Option<&Record>, set_aside: Option<SetAside>) {
        let spec = self.unit_spec(uid, job, record, set_aside);
        let Some(unit) = self.units.get_mut(&uid) else { return };
        unit.charged = false;
        if unit
            .intent
            .as_ref()
            .is_some_and(|intent| matches!(intent.goal, Goal::Admit(_)))
        {
            // Decided and not sent yet: a report of the Job's status is no reason to decide again.
            return;
        }
        unit.intent = None;
        self.engine.apply(Event::SetWaiting(spec));
    }

    fn holds(&mut self, uid: Uid, job: &JobView, record: &Record, hold: Hold, now: Time) {
        let (pods, phase) = match hold {
            Hold::Running => (running_pods(job, record), Phase::Admitted),
            Hold::Stopped | Hold::Stopping { .. } => (pods_of(record), Phase::Evicting),
            Hold::Leaving => (pods_of(record), Phase::Leaving),
        };
        let Some(unit) = self.units.get_mut(&uid) else { return };
        unit.charged = true;
        let departed = unit.departed;
        if !unit.is_sent() {
            unit.intent = None;
        }
        if hold == Hold::Running {
            unit.pods_gone = false;
        }
        self.engine
            .apply(Event::SetCharged(self.charged_unit(uid, job, record, pods, phase)));
        match hold {
            Hold::Stopped => self.stopped_by_others(uid, job),
            Hold::Stopping { unacknowledged: true } => self.schedule_probe(uid, now, false),
            Hold::Stopping { unacknowledged: false } => {}
            Hold::Leaving => self.schedule_probe(uid, now, departed),
            Hold::Running => self.watch_running(uid, job, record),
        }
    }

    /// An admitted Job that somebody else suspended: a hold if the webhook marked it as its owner's, else an eviction.
    /// Without the mark its owner has taken the suspension back already, or no webhook saw it.
    fn stopped_by_others(&mut self, uid: Uid, job: &JobView) {
        if self.reign.is_none() {
            return;
        }
        if held(job).is_some() {
            self.intend(uid, Goal::Hold);
        } else {
            let message = "spec.suspend was set to true by another client; it is queued again".to_owned();
            self.intend(
                uid,
                Goal::Evict {
                    reason: "Suspended",
                    message,
                },
            );
        }
    }

    /// What a running Job must not do: grow beyond its record, or appear under an ended term.
    fn watch_running(&mut self, uid: Uid, job: &JobView, record: &Record) {
        let Some(reign) = self.reign else { return };
        let Some(unit) = self.units.get(&uid) else { return };
        let (wanted, admitted) = (requests::pods_count(&job.spec), pods_of(record).min(unit.least_pods));
        if wanted > admitted {
            let message = format!(
                "it is charged for {admitted} pods and now wants {wanted}; it is queued again with its new size"
            );
            let reason = "Grown";
            self.intend(uid, Goal::Evict { reason, message });
        } else if record.term < reign.term && unit.record_seen > reign.barrier {
            let message = format!("it was admitted under term {}, which had ended", record.term);
            let reason = "StaleTerm";
            self.intend(uid, Goal::Evict { reason, message });
        }
    }

    fn adopt(&mut self, uid: Uid, job: &JobView, now: Time) {
        let Some(reign) = self.reign else {
            return self.absent(uid, now);
        };
        let spec = self.unit_spec(uid, job, None, None);
        let Some(admission) = self.engine.place_over_quota(&spec) else {
            // Its queue or flavors are not there yet: it is looked at again when they come, and runs meanwhile.
            self.engine.apply(Event::RemoveUnit(uid));
            if let Some(unit) = self.units.get_mut(&uid)
                && !unit.is_sent()
            {
                unit.intent = None;
            }
            return;
        };
        let record = self.admission_record(job, &admission, reign, now);
        self.engine.apply(Event::SetCharged(self.charged_unit(
            uid,
            job,
            &record,
            pods_of(&record),
            Phase::Admitted,
        )));
        self.intend(uid, Goal::Adopt(Box::new(record)));
    }

    fn charge_unaccounted(&mut self, uid: Uid, job: &JobView, why: String, leaving: bool, now: Time) {
        let spec = self.unit_spec(uid, job, None, None);
        let placed = self.engine.place_over_quota(&spec);
        if let Some(admission) = &placed {
            let record = self.admission_record(job, admission, self.reign.unwrap_or_default(), now);
            let phase = if leaving { Phase::Leaving } else { Phase::Admitted };
            self.engine.apply(Event::SetCharged(self.charged_unit(
                uid,
                job,
                &record,
                pods_of(&record),
                phase,
            )));
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
        self.engine.apply(Event::RemoveUnit(uid));
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

    fn unit_spec(&self, uid: Uid, job: &JobView, record: Option<&Record>, set_aside: Option<SetAside>) -> UnitSpec {
        let priority = priority::resolve(job, &self.objects);
        let amounts = requests::job_requests(job, None);
        let gate = gate(job, set_aside, &priority, &amounts);
        let (per_pod, count) = amounts.unwrap_or_default();
        let per_pod = per_pod
            .into_iter()
            .map(|(resource, amount)| (Name::from(resource), Amount::new(amount)))
            .collect();
        let constraints = crate::objects::constraints(job, record).into();
        let aside = self.units.get(&uid).and_then(|unit| unit.aside.as_ref());
        UnitSpec {
            uid,
            local_queue: local_queue_of(job),
            priority: priority.map_or(0, |priority| priority.value),
            queued_at: queued_at(job, record),
            pod_sets: vec![PodSetSpec {
                name: POD_SET.into(),
                count,
                min_count: None,
                per_pod,
                constraints,
            }],
            gate,
            not_before: aside.map(|aside| aside.until),
            runs_at_most_ms: None,
        }
    }

    fn charged_unit(&self, uid: Uid, job: &JobView, record: &Record, pods: i64, phase: Phase) -> ChargedUnit {
        let mut charges = Vec::new();
        for set in &record.pod_sets {
            for (resource, total) in &set.usage {
                let Some(flavor) = set.flavors.get(resource) else {
                    continue;
                };
                charges.push(Charge {
                    flavor: flavor.as_str().into(),
                    resource: resource.as_str().into(),
                    amount: share(amount_of_text(resource, total), pods, set.count),
                });
            }
        }
        ChargedUnit {
            uid,
            queue: record.cluster_queue.as_str().into(),
            local_queue: LocalQueueKey::new(job.namespace(), record.local_queue.as_str()),
            priority: priority::resolve(job, &self.objects).map_or(0, |priority| priority.value),
            queued_at: queued_at(job, Some(record)),
            reserved_at: record.admitted_at.map_or(Time(0), time_of),
            deadlines: Vec::new(),
            ends_at: None,
            pods_ready: true,
            charges,
            phase,
        }
    }
}

fn gate(
    job: &JobView,
    set_aside: Option<SetAside>,
    priority: &Result<Priority, PriorityError>,
    amounts: &Result<(std::collections::BTreeMap<String, i64>, i64), RequestsError>,
) -> Option<Gate> {
    let gate = |reason: &str, message: String| {
        Some(Gate {
            reason: reason.into(),
            message: message.into(),
        })
    };
    match set_aside {
        Some(SetAside::Held) => {
            return gate(
                "OnHold",
                "its owner suspended it while it ran; set spec.suspend to false, or remove the annotation \
                 sluice.internal/hold, to queue it again"
                    .to_owned(),
            );
        }
        Some(SetAside::Deactivated) => return gate("Deactivated", "it was deactivated".to_owned()),
        None => {}
    }
    let asked = unsupported::unsupported(job);
    if !asked.is_empty() {
        return gate(
            "Unsupported",
            format!("it asks for what Sluice does not support yet: {}", asked.join(", ")),
        );
    }
    if let Err(error) = priority {
        return gate("Misconfigured", error.to_string());
    }
    if let Err(error) = amounts {
        return gate("Misconfigured", error.to_string());
    }
    None
}

/// The pods that a record charges for.
fn pods_of(record: &Record) -> i64 {
    record
        .pod_sets
        .iter()
        .fold(0, |pods, set| pods.saturating_add(set.count))
}

/// The pods that a running Job is charged for: those it may still have, by its parallelism, its missing completions and
/// the pods that are there; never more than its record says.
fn running_pods(job: &JobView, record: &Record) -> i64 {
    let present = job
        .status
        .active
        .unwrap_or(0)
        .saturating_add(job.status.terminating.unwrap_or(0));
    let bound = requests::pods_count(&job.spec).max(present).min(pods_of(record));
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

/// `total` of `count` pods, as `pods` of them hold it; rounded up.
fn share(total: Amount, pods: i64, count: i64) -> Amount {
    if count <= 0 || pods >= count {
        return total;
    }
    let count = i128::from(count);
    let part = i128::from(total.get())
        .saturating_mul(i128::from(pods.max(0)))
        .saturating_add(count - 1)
        / count;
    Amount::new(i64::try_from(part).unwrap_or(i64::MAX))
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
fn amount_of_text(resource: &str, text: &str) -> Amount {
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
