//! From decisions to writes: the engine's admissions and the index's own intents, raised one by one to guarded patches.
//!
//! A pass may decide on twenty thousand units at once. Their patches are built only when there is room to send them,
//! from the newest view of each Job, so that memory stays flat.

use json_patch::Patch;
use sluice_engine::{Action, Admission, Name, Step, Time, Uid};
use sluice_jobs::patch::{self, PatchError, Stop};
use sluice_jobs::record::{Record, State};
use sluice_jobs::view::JobView;

use crate::standing::recorded;
use crate::stop::{Stopping, Then};
use crate::unit::{Goal, Intent};
use crate::{Index, Reign, lower};

/// A patch of one Job, to be sent as it is or not at all.
#[derive(Debug, Clone)]
pub struct Write {
    /// The unit, for [`Index::answer`].
    pub uid: Uid,
    /// Tells this write from every other, for [`Index::answer`].
    pub ticket: u64,
    /// What it is for.
    pub kind: WriteKind,
    /// The Job's namespace.
    pub namespace: Name,
    /// The Job's name.
    pub name: Name,
    /// What must be written to the Job's status before, if anything: see [`patch::clear_start_time`].
    pub status_patch: Option<Patch>,
    /// The guarded JSON Patch.
    pub patch: Patch,
    /// The ClusterQueue concerned, for logs.
    pub queue: Name,
    /// Why, for logs.
    pub why: String,
}

/// What a [`Write`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteKind {
    /// Start a Job.
    Admit,
    /// Stop an admitted Job.
    Evict,
    /// Stop a Job that runs although nobody admitted it.
    SuspendLate,
    /// Write the record of a Job that ran when its namespace opted in.
    Adopt,
    /// Note that its owner suspended it.
    Hold,
    /// Note when its pods were ready.
    Note,
}

impl WriteKind {
    /// One word, for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Evict => "evict",
            Self::SuspendLate => "suspend-late",
            Self::Adopt => "adopt",
            Self::Hold => "hold",
            Self::Note => "note",
        }
    }
}

/// A question: does a pod of this Job still run?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The unit, for [`Index::probed`].
    pub unit: Uid,
    /// When it was asked for, for [`Index::probed`].
    pub epoch: u64,
    /// The Job's namespace.
    pub namespace: Name,
    /// The Job's uid: the value of the pod label `batch.kubernetes.io/controller-uid`.
    pub uid: String,
}

/// How long a stopped or deleted Job's report is given to settle before its pods are listed, in milliseconds.
const SETTLE_MS: i64 = 5_000;
/// The pause between pod lists of one Job, in milliseconds.
const PROBE_INTERVAL_MS: i64 = 2_000;

impl Index {
    /// Lets the engine decide, as long as fewer than `backlog` writes wait to be sent: what is decided is soon written, so
    /// that it never rests on queues as they were long ago. On a standby nothing is decided.
    ///
    /// Returns the next instant at which time alone changes a decision.
    pub fn pass(&mut self, now: Time, backlog: usize) -> Option<Time> {
        if self.reign.is_none() {
            self.engine.settle(now);
            self.note(|| Step::Settle { now });
            return None;
        }
        let limit = backlog.saturating_sub(self.backlog.len());
        let pass = self.engine.pass_at_most(now, limit);
        self.note(|| Step::Pass {
            now,
            limit,
            actions: pass.actions.clone(),
            next: pass.next,
        });
        for action in pass.actions {
            match action {
                Action::Admit(admission) => {
                    self.tallies.clear(admission.uid);
                    self.intend(admission.uid, Goal::Admit(admission));
                }
                Action::Evict(eviction) => self.owe(&eviction, now),
                _ => {}
            }
        }
        pass.next
    }

    /// Decides on a write. The latest intent of a unit that was not sent yet wins. While its writes are refused it is
    /// not sent before the pause is over.
    pub(crate) fn intend(&mut self, uid: Uid, goal: Goal) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        if unit.is_sent() {
            return;
        }
        self.tickets += 1;
        let not_before = unit.aside.as_ref().map_or(Time(i64::MIN), |aside| aside.until);
        unit.intent = Some(Intent::new(goal, self.tickets, &unit.job, not_before));
        self.line_up(uid);
    }

    /// Puts the intent of a unit in line: now, or when its time has come.
    pub(crate) fn line_up(&mut self, uid: Uid) {
        let Some(intent) = self.units.get(&uid).and_then(|unit| unit.intent.as_ref()) else {
            return;
        };
        if intent.not_before == Time(i64::MIN) {
            self.backlog.push_back((intent.ticket, uid));
        } else {
            self.later.insert((intent.not_before, intent.ticket, uid));
        }
    }

    /// How many decided writes wait to be sent.
    pub fn backlog_len(&self) -> usize {
        self.backlog.len()
    }

    pub(crate) fn next_backlog_time(&self) -> Option<Time> {
        let now = self.backlog.front().map(|_| Time(i64::MIN));
        now.or_else(|| self.later.first().map(|&(at, _, _)| at))
    }

    /// The next write to send. The caller reports what came of it to [`Index::answer`].
    pub fn next_write(&mut self, now: Time) -> Option<Write> {
        let reign = self.reign?;
        while let Some(&(at, ticket, uid)) = self.later.first()
            && at <= now
        {
            self.later.pop_first();
            self.backlog.push_back((ticket, uid));
        }
        while let Some((ticket, uid)) = self.backlog.pop_front() {
            let intent = self.units.get(&uid).and_then(|unit| unit.intent.as_ref());
            if intent.is_some_and(|intent| intent.ticket == ticket && intent.sent.is_none())
                && let Some(write) = self.raise(uid, reign, now)
            {
                return Some(write);
            }
        }
        None
    }

    fn raise(&mut self, uid: Uid, reign: Reign, now: Time) -> Option<Write> {
        let unit = self.units.get(&uid)?;
        let job = unit.job.clone();
        let goal = unit.intent.as_ref()?.goal.clone();
        let kind = goal.kind();
        let built = self.build(&job, &goal, reign, now);
        match built {
            Ok(built) => {
                let unit = self.units.get_mut(&uid)?;
                let intent = unit.intent.as_mut()?;
                intent.sent = Some(built.record.clone());
                let ticket = intent.ticket;
                let (namespace, name) = crate::key_of(&job);
                let status_patch = if kind == WriteKind::Admit {
                    patch::clear_start_time(&job)
                } else {
                    None
                };
                let Built { patch, queue, why, .. } = built;
                Some(Write {
                    uid,
                    ticket,
                    kind,
                    namespace,
                    name,
                    status_patch,
                    patch,
                    queue,
                    why,
                })
            }
            Err(error) => {
                self.set_aside(uid, kind, error.to_string(), now);
                None
            }
        }
    }

    fn build(&self, job: &JobView, goal: &Goal, reign: Reign, now: Time) -> Result<Built, PatchError> {
        let stop = |reason: &str, cause: &str, message: &str| Stop {
            reason: reason.to_owned(),
            cause: cause.to_owned(),
            message: message.to_owned(),
            at: lower::timestamp(now),
        };
        // What is written over is stamped with the present term.
        let record = |state| Record {
            term: reign.term,
            ..recorded(job).ours().map_or_else(
                || Record {
                    queued_at: Some(lower::timestamp(lower::queued_at(job, recorded(job).ours().as_deref()))),
                    ..Record::new(job.uid(), reign.term, state)
                },
                |record| *record,
            )
        };
        let (write, why) = match goal {
            Goal::Admit(admission) => {
                let record = self.admission_record(job, admission, reign, now);
                let why = flavors_in_words(admission);
                (patch::admit(job, &self.admission_plan(job, admission), &record)?, why)
            }
            Goal::Evict(stopping) => {
                let Stopping {
                    reason, cause, message, ..
                } = stopping;
                let end = match stopping.then {
                    Then::Deactivate => patch::deactivate,
                    Then::Wait | Then::BackOff { .. } => patch::evict,
                };
                let record = stopping.requeued(job, record(State::Evicting), now);
                let write = end(job, &record, stop(reason, cause, message))?;
                (write, format!("{reason}: {message}"))
            }
            Goal::SuspendLate => {
                let local_queue = lower::local_queue_of(job);
                let write = patch::suspend_late(job, &record(State::Waiting), Some(&*local_queue.name))?;
                (write, "it runs without having been admitted".to_owned())
            }
            Goal::Adopt(adopted) => {
                let record = Record {
                    term: reign.term,
                    ..(**adopted).clone()
                };
                (
                    patch::adopt(job, &record, &record.local_queue)?,
                    "it ran when its namespace opted in".to_owned(),
                )
            }
            Goal::Hold => {
                let message = "its owner suspended it";
                (
                    patch::hold(job, &record(State::Held), stop("Held", "", message))?,
                    message.to_owned(),
                )
            }
            Goal::Note(readiness) => {
                let noted = Record {
                    pods_ready: Some(*readiness),
                    ..record(State::Admitted)
                };
                let why = match readiness.lost_at {
                    None => "its pods are ready",
                    Some(_) => "a pod of it was lost",
                };
                (patch::note(job, &noted)?, why.to_owned())
            }
        };
        let queue = write.record.cluster_queue.as_str().into();
        Ok(Built {
            patch: write.patch,
            record: write.annotation,
            queue,
            why,
        })
    }

    /// Asks for a pod list of the unit, after the time that its report may take to settle.
    pub(crate) fn schedule_probe(&mut self, uid: Uid, now: Time, settled: bool) {
        let pause = if settled { 0 } else { SETTLE_MS };
        self.probe_in(uid, now, pause);
    }

    fn probe_in(&mut self, uid: Uid, now: Time, pause: i64) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        if unit.probe_at.is_some() {
            return;
        }
        let at = Time(now.0.saturating_add(pause));
        unit.probe_at = Some(at);
        self.probes.insert((at, uid));
    }

    /// Pods of the unit no longer matter: an answer that is on its way is ignored.
    pub(crate) fn cancel_probe(&mut self, uid: Uid) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        unit.probe_epoch += 1;
        if let Some(at) = unit.probe_at.take() {
            self.probes.remove(&(at, uid));
        }
    }

    /// The next pod list that is due. The caller reports what it showed to [`Index::probed`].
    pub fn next_probe(&mut self, now: Time) -> Option<Probe> {
        let &(at, uid) = self.probes.first()?;
        if at > now {
            return None;
        }
        self.probes.remove(&(at, uid));
        let unit = self.units.get_mut(&uid)?;
        unit.probe_at = None;
        let (namespace, _) = crate::key_of(&unit.job);
        Some(Probe {
            unit: uid,
            epoch: unit.probe_epoch,
            namespace,
            uid: unit.job.metadata.uid.clone()?,
        })
    }

    /// What a pod list showed: `Some(true)` if a pod still runs, `None` if the list failed.
    pub fn probed(&mut self, uid: Uid, epoch: u64, pods_left: Option<bool>, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        if unit.probe_epoch != epoch {
            return;
        }
        if pods_left == Some(false) {
            unit.pods_gone = true;
            self.relower(uid, now);
        } else {
            self.probe_in(uid, now, PROBE_INTERVAL_MS);
        }
    }
}

/// What an admission got, for logs.
pub(crate) fn flavors_in_words(admission: &Admission) -> String {
    let sets = admission.pod_sets.iter().map(|set| {
        let flavors: Vec<String> = set
            .flavors
            .iter()
            .map(|(resource, flavor)| format!("{resource}={flavor}"))
            .collect();
        format!("{} x{}: {}", set.name, set.count, flavors.join(" "))
    });
    sets.collect::<Vec<_>>().join("; ")
}

struct Built {
    patch: Patch,
    record: String,
    queue: Name,
    why: String,
}
