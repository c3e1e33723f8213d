//! Why an admitted Job is stopped, in Kueue's words, and what becomes of it then.
//!
//! What the engine decides is *owed* until the Job shows it: a report of its status, an edit, or a write that is still
//! under way do not undo it. A refusal by the API server does, and the engine decides anew.

use sluice_api::configuration::RequeuingTimestamp;
use sluice_engine::{Eviction, EvictionCause, Name, Overdue, PreemptionReason, Time, Uid};
use sluice_jobs::limits;
use sluice_jobs::record::{Record, Requeue, State};
use sluice_jobs::view::JobView;

use crate::settings::pause_ms;
use crate::standing::recorded;
use crate::unit::Goal;
use crate::{Index, lower};

/// Why a Job is stopped, and what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stopping {
    /// One word.
    pub(crate) reason: &'static str,
    /// A second word that says more, or nothing.
    pub(crate) cause: &'static str,
    /// A sentence.
    pub(crate) message: String,
    /// The ClusterQueue of the unit that gets the room, if one does.
    pub(crate) preemptor: Option<Name>,
    pub(crate) then: Then,
}

/// What becomes of a stopped Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It waits again, in the place that its creation gives it.
    Wait,
    /// It is tried again after a pause.
    BackOff {
        /// How often it was sent back so, this time included.
        count: u32,
        pause_ms: i64,
        /// It queues by the time of its eviction.
        by_eviction: bool,
    },
    /// It is out of queueing until a person puts it back.
    Deactivate,
}

impl Stopping {
    /// A stop after which the Job waits in its old place.
    pub(crate) fn to_wait(reason: &'static str, message: String) -> Self {
        Self {
            reason,
            cause: "",
            message,
            preemptor: None,
            then: Then::Wait,
        }
    }

    fn to_deactivate(cause: &'static str, message: String) -> Self {
        Self {
            reason: "Deactivated",
            cause,
            message,
            preemptor: None,
            then: Then::Deactivate,
        }
    }

    /// What the record of a stopped Job says about its return to the queue.
    pub(crate) fn requeued(&self, job: &JobView, record: Record, now: Time) -> Record {
        let created = Some(lower::timestamp(lower::created_at(job)));
        match self.then {
            Then::Wait | Then::Deactivate => Record {
                queued_at: created,
                ..record
            },
            Then::BackOff {
                count,
                pause_ms,
                by_eviction,
            } => Record {
                queued_at: if by_eviction {
                    Some(lower::timestamp(now))
                } else {
                    created
                },
                requeue: Some(Requeue {
                    count,
                    at: Some(lower::timestamp(Time(now.0.saturating_add(pause_ms)))),
                }),
                ..record
            },
        }
    }
}

impl Index {
    /// Takes the engine's decision to stop a unit.
    pub(crate) fn owe(&mut self, eviction: &Eviction, now: Time) {
        let uid = eviction.uid;
        let Some(unit) = self.units.get_mut(&uid) else { return };
        if let Some(Goal::Admit(_)) = unit.intent.as_ref().map(|intent| &intent.goal) {
            // Sent: whether it was admitted at all shows first. Not sent: it never starts.
            if !unit.is_sent() {
                unit.intent = None;
                self.relower(uid, now);
            }
            return;
        }
        let job = unit.job.clone();
        let running = |record: &Record| record.state == State::Admitted && !job.is_suspended();
        let Some(record) = recorded(&job).ours().filter(|record| running(record)) else {
            return self.relower(uid, now);
        };
        let stopping = self.stopping(eviction, &job, &record);
        if let Some(unit) = self.units.get_mut(&uid) {
            unit.owed = Some(stopping.clone());
        }
        self.intend(uid, Goal::Evict(stopping));
    }

    /// Sends what is owed, if it is not on its way.
    pub(crate) fn pay(&mut self, uid: Uid) {
        let Some(unit) = self.units.get(&uid).filter(|unit| unit.intent.is_none()) else {
            return;
        };
        if let Some(owed) = unit.owed.clone() {
            self.intend(uid, Goal::Evict(owed));
        }
    }

    fn stopping(&self, eviction: &Eviction, job: &JobView, record: &Record) -> Stopping {
        match &eviction.cause {
            EvictionCause::Preempted { by, queue, reason } => self.preempted(*by, queue, *reason),
            EvictionCause::ClusterQueueStopped => Stopping::to_wait(
                "ClusterQueueStopped",
                format!("ClusterQueue {} is drained by its stopPolicy", eviction.queue),
            ),
            EvictionCause::LocalQueueStopped => Stopping::to_wait(
                "LocalQueueStopped",
                format!("LocalQueue {} is drained by its stopPolicy", record.local_queue),
            ),
            EvictionCause::Overdue(Overdue::ExecutionTime) => {
                let limit = limits::max_execution_seconds(job).ok().flatten().unwrap_or_default();
                let message = format!("it has run for its maximum execution time of {limit} s");
                Stopping::to_deactivate("MaximumExecutionTimeExceeded", message)
            }
            EvictionCause::Overdue(Overdue::PodsReady) => self.too_slow(record, "WaitForStart"),
            EvictionCause::Overdue(Overdue::Recovery) => self.too_slow(record, "WaitForRecovery"),
            EvictionCause::QuotaShrunk => Stopping::to_wait(
                "QuotaShrunk",
                format!(
                    "ClusterQueue {} used more than its quota, which was lowered, for longer than its grace time",
                    eviction.queue
                ),
            ),
        }
    }

    fn preempted(&self, by: Uid, queue: &Name, reason: PreemptionReason) -> Stopping {
        let preemptor = self.units.get(&by).map_or_else(
            || format!("a Job with uid {by}"),
            |unit| format!("{}/{}", unit.job.namespace(), unit.job.name()),
        );
        let right = match reason {
            PreemptionReason::InClusterQueue => "it goes first in the same ClusterQueue",
            PreemptionReason::InCohortReclamation => "the quota had been lent and is taken back",
            PreemptionReason::InCohortFairSharing => "this queue has the larger share",
            PreemptionReason::InCohortReclaimWhileBorrowing => "its priority in the cohort is higher",
        };
        let word = reason.as_str();
        Stopping {
            cause: word,
            preemptor: Some(queue.clone()),
            ..Stopping::to_wait(
                "Preempted",
                format!("preempted by {preemptor} in ClusterQueue {queue}: {word} ({right})"),
            )
        }
    }

    fn too_slow(&self, record: &Record, cause: &'static str) -> Stopping {
        let Some(wait) = &self.configuration.wait_for_pods_ready else {
            return Stopping::to_wait("PodsReadyTimeout", "its pods were not ready in time".to_owned());
        };
        let happened = match wait.recovery_timeout.filter(|_| cause == "WaitForRecovery") {
            Some(timeout) => format!("a pod of it was lost and not replaced within {} s", timeout.as_secs()),
            None => format!("its pods were not ready within {} s", wait.timeout.as_secs()),
        };
        let earlier = record.requeue.as_ref().map_or(0, |requeue| requeue.count);
        let (count, strategy) = (earlier.saturating_add(1), &wait.requeuing_strategy);
        if let Some(limit) = strategy.backoff_limit_count.filter(|limit| count > *limit) {
            let message = format!("{happened}, and was queued again for that {earlier} times already, of {limit}");
            return Stopping::to_deactivate("RequeuingLimitExceeded", message);
        }
        let pause_ms = pause_ms(strategy, count);
        let message = format!("{happened}; it is tried again in {} s", pause_ms / 1_000);
        Stopping {
            cause,
            then: Then::BackOff {
                count,
                pause_ms,
                by_eviction: strategy.timestamp == RequeuingTimestamp::Eviction,
            },
            ..Stopping::to_wait("PodsReadyTimeout", message)
        }
    }
}
