//! Whether the pods of an admitted Job are ready, and since when they are not.
//!
//! The Job's status says only what is now. When its pods were ready first, and since when one is missing, is noted in the
//! record, so that a new leader counts on from there. Nobody notes anything as long as nobody waits for pods.

use sluice_engine::{Deadline, Overdue, Time};
use sluice_jobs::record::{PodsReady, Record};
use sluice_jobs::view::JobView;
use sluice_jobs::{limits, status};

use crate::Index;
use crate::lower::{time_of, timestamp};
use crate::settings::milliseconds;

/// What is so now, from what the record says, what was seen since, and what the status says.
pub(crate) fn observe(
    recorded: Option<PodsReady>,
    seen: Option<PodsReady>,
    ready: bool,
    now: Time,
) -> Option<PodsReady> {
    let since = recorded.or(seen).map(|earlier| earlier.since);
    if ready {
        return Some(PodsReady {
            since: since.unwrap_or_else(|| timestamp(now)),
            lost_at: None,
        });
    }
    // What was seen last counts: the record may still tell of a loss that is over.
    let lost_at = seen.or(recorded)?.lost_at;
    Some(PodsReady {
        since: since?,
        lost_at: Some(lost_at.unwrap_or_else(|| timestamp(now))),
    })
}

impl Index {
    /// The same for a running Job; none while its pods were never ready, or nobody waits for that.
    pub(crate) fn readiness(
        &self,
        job: &JobView,
        record: &Record,
        seen: Option<PodsReady>,
        now: Time,
    ) -> Option<PodsReady> {
        self.configuration.wait_for_pods_ready.as_ref()?;
        observe(record.pods_ready, seen, status::pods_ready(job), now)
    }

    /// When a running Job is to be evicted, and why.
    pub(crate) fn deadlines(&self, job: &JobView, record: &Record, readiness: Option<PodsReady>) -> Vec<Deadline> {
        let execution = limits::execution_deadline(job, record).map(|at| Deadline {
            at: time_of(at),
            cause: Overdue::ExecutionTime,
        });
        let pods = self.configuration.wait_for_pods_ready.as_ref().and_then(|wait| {
            let (from, pause, cause) = match readiness {
                None => (record.admitted_at?, wait.timeout, Overdue::PodsReady),
                Some(ready) => (ready.lost_at?, wait.recovery_timeout?, Overdue::Recovery),
            };
            let at = Time(time_of(from).0.saturating_add(milliseconds(pause)));
            Some(Deadline { at, cause })
        });
        execution.into_iter().chain(pods).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(since: i64, lost_at: Option<i64>) -> PodsReady {
        PodsReady {
            since: timestamp(Time(since)),
            lost_at: lost_at.map(|at| timestamp(Time(at))),
        }
    }

    #[test]
    fn pods_that_were_never_ready_are_not() {
        assert_eq!(observe(None, None, false, Time(9)), None);
        assert_eq!(observe(None, None, true, Time(9)), Some(pods(9, None)));
    }

    #[test]
    fn a_loss_counts_from_when_it_was_first_seen_and_ends_with_the_recovery() {
        assert_eq!(
            observe(Some(pods(1, None)), None, false, Time(9)),
            Some(pods(1, Some(9)))
        );
        assert_eq!(
            observe(Some(pods(1, None)), Some(pods(1, Some(5))), false, Time(9)),
            Some(pods(1, Some(5)))
        );
        assert_eq!(
            observe(None, Some(pods(1, Some(5))), false, Time(9)),
            Some(pods(1, Some(5)))
        );
        assert_eq!(
            observe(Some(pods(1, Some(5))), None, false, Time(9)),
            Some(pods(1, Some(5)))
        );
        assert_eq!(
            observe(Some(pods(1, Some(5))), None, true, Time(9)),
            Some(pods(1, None))
        );
    }

    #[test]
    fn a_loss_that_is_over_and_not_noted_so_is_not_counted_on_from() {
        assert_eq!(
            observe(Some(pods(1, Some(3))), Some(pods(1, None)), false, Time(9)),
            Some(pods(1, Some(9)))
        );
        assert_eq!(
            observe(Some(pods(1, None)), Some(pods(2, None)), true, Time(9)),
            Some(pods(1, None))
        );
    }
}
