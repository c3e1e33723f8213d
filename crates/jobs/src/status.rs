//! What a Job's status says: whether it has finished, whether its pods run, how much of its quota it still needs.

use crate::Timestamp;
use crate::record::Record;
use crate::requests::pods_count;
use crate::view::{ConditionView, JobView, StatusView};

const INDEXED: &str = "Indexed";

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Whether it completed; otherwise it failed.
    pub succeeded: bool,
    /// The Job controller's sentence about it.
    pub message: String,
    /// When.
    pub at: Option<Timestamp>,
}

/// Whether the Job has ended, and how. Its pods may still be terminating: see [`pods_gone`].
pub fn finished(status: &StatusView) -> Option<Finish> {
    let end = |kind: &str, succeeded| {
        let condition = condition(status, kind).filter(|condition| condition.status == "True")?;
        Some(Finish {
            succeeded,
            message: condition.message.clone().unwrap_or_default(),
            at: transition(condition),
        })
    };
    end("Failed", false).or_else(|| end("Complete", true))
}

/// Whether the Job has no pod left that uses anything.
///
/// Both numbers count: `active` alone falls to 0 while pods still terminate.
pub fn pods_gone(status: &StatusView) -> bool {
    status.active.unwrap_or(0) == 0 && status.terminating.unwrap_or(0) == 0
}

/// Whether the Job controller has acknowledged that the Job may run.
///
/// It shows by a condition Suspended=False, or by a start time on a Job that never was suspended.
pub fn start_acknowledged(status: &StatusView) -> bool {
    match condition(status, "Suspended") {
        Some(condition) => condition.status != "True",
        None => status.start_time.is_some(),
    }
}

/// The transition time of the condition Suspended, if it is True.
pub fn suspended_since(status: &StatusView) -> Option<Timestamp> {
    condition(status, "Suspended")
        .filter(|condition| condition.status == "True")
        .and_then(transition)
}

/// Whether the quota of a stopped Job has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaReturn {
    /// Its pods are gone: the quota is free.
    Returned,
    /// Its pods are still there, or the Job controller has not acknowledged the stop yet: the next event tells more.
    Pending,
    /// It was stopped before its start had been acknowledged, so no event need ever acknowledge the stop: charge it for
    /// the settle time, then list its pods.
    Unacknowledged,
}

/// Whether the quota of a Job whose record says that it was stopped has come back.
///
/// Status and record must come from the same version of the Job. The status at the time of the stop may be stale (right
/// after an admission it still says Suspended=True, with no active pods), so a condition that the Job carried already
/// when it was admitted acknowledges nothing.
pub fn quota_return(record: &Record, status: &StatusView) -> QuotaReturn {
    let Some(eviction) = &record.eviction else {
        return QuotaReturn::Unacknowledged;
    };
    let suspended = condition(status, "Suspended").filter(|condition| condition.status == "True");
    let stale = |condition| {
        record
            .suspended_before
            .is_none_or(|before| transition(condition) == Some(before))
    };
    match suspended {
        Some(condition) if !eviction.started && stale(condition) => QuotaReturn::Unacknowledged,
        Some(_) if pods_gone(status) => QuotaReturn::Returned,
        None if !eviction.started => QuotaReturn::Unacknowledged,
        _ => QuotaReturn::Pending,
    }
}

/// The number of pods that a running Job still has to be charged for, out of `count` in its record.
///
/// Pods that succeeded give their quota back early: no more pods can run than completions are missing. Pods that the Job
/// still has, the terminating ones included, are charged in any case.
pub fn charged_pods(job: &JobView, count: i64) -> i64 {
    let Some(completions) = job.spec.completions else {
        return count;
    };
    let remaining = completions.saturating_sub(ended(job)).max(0);
    let present = job
        .status
        .active
        .unwrap_or(0)
        .saturating_add(job.status.terminating.unwrap_or(0));
    remaining.max(present).min(count)
}

/// Whether all pods that may run at a time are ready or have succeeded, those included that are not counted yet.
pub fn pods_ready(job: &JobView) -> bool {
    let status = &job.status;
    let uncounted = status
        .uncounted_terminated_pods
        .as_ref()
        .map_or(0, |pods| pods.succeeded);
    let ready = [status.ready.unwrap_or(0), status.succeeded.unwrap_or(0), uncounted];
    ready.into_iter().fold(0, i64::saturating_add) >= pods_count(&job.spec)
}

/// Completions that no further pod will work on.
fn ended(job: &JobView) -> i64 {
    let status = &job.status;
    if job.spec.completion_mode.as_deref() != Some(INDEXED) {
        return status.succeeded.unwrap_or(0);
    }
    let indexes = |text: &Option<String>| text.as_deref().map_or(0, count_indexes);
    indexes(&status.completed_indexes).saturating_add(indexes(&status.failed_indexes))
}

/// Counts the indexes of a list such as `1,3-5`. A part that cannot be read counts nothing: that charges more, not less.
fn count_indexes(list: &str) -> i64 {
    let count = |part: &str| -> Option<i64> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        Some(i64::from(last.checked_sub(first)?) + 1)
    };
    list.split(',').filter_map(count).fold(0, i64::saturating_add)
}

fn condition<'a>(status: &'a StatusView, kind: &str) -> Option<&'a ConditionView> {
    status
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.kind == kind)
}

fn transition(condition: &ConditionView) -> Option<Timestamp> {
    condition.last_transition_time.as_ref().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::record::{Eviction, State};

    const BEFORE: &str = "2026-11-30T10:00:00Z";
    const AFTER: &str = "2026-11-30T10:00:05Z";

    fn status(status: Value) -> StatusView {
        serde_json::from_value(status).unwrap()
    }

    fn suspended(value: &str, since: &str, active: i64, terminating: i64) -> StatusView {
        status(json!({
            "conditions": [{"type": "Suspended", "status": value, "lastTransitionTime": since}],
            "active": active,
            "terminating": terminating
        }))
    }

    fn evicted(started: bool, suspended_before: Option<&str>) -> Record {
        let eviction = Eviction {
            reason: "Preempted".into(),
            cause: String::new(),
            message: String::new(),
            at: "2026-11-30T10:00:03Z".parse().unwrap(),
            started,
        };
        Record {
            eviction: Some(eviction),
            suspended_before: suspended_before.map(|time| time.parse().unwrap()),
            ..Record::new("1", 1, State::Evicting)
        }
    }

    fn job(spec: Value, status: Value) -> JobView {
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn complete_and_failed_end_a_job_only_when_true() {
        let with = |kind: &str, value: &str| {
            status(
                json!({"conditions": [{"type": kind, "status": value, "message": "why", "lastTransitionTime": AFTER}]}),
            )
        };
        let end = finished(&with("Complete", "True")).unwrap();
        assert_eq!(
            (end.succeeded, end.message.as_str(), end.at),
            (true, "why", Some(AFTER.parse().unwrap()))
        );
        assert!(!finished(&with("Failed", "True")).unwrap().succeeded);
        assert_eq!(finished(&with("Complete", "False")), None);
        assert_eq!(finished(&with("FailureTarget", "True")), None);
        assert_eq!(finished(&StatusView::default()), None);
    }

    #[test]
    fn quota_returns_once_the_stop_is_acknowledged_and_no_pod_is_left() {
        let record = evicted(true, Some(BEFORE));
        assert_eq!(
            quota_return(&record, &suspended("True", AFTER, 0, 0)),
            QuotaReturn::Returned
        );
    }

    #[test]
    fn quota_stays_while_pods_are_active_or_terminating() {
        let record = evicted(true, Some(BEFORE));
        assert_eq!(
            quota_return(&record, &suspended("True", AFTER, 1, 0)),
            QuotaReturn::Pending
        );
        assert_eq!(
            quota_return(&record, &suspended("True", AFTER, 0, 1)),
            QuotaReturn::Pending
        );
    }

    #[test]
    fn quota_stays_until_the_stop_is_acknowledged() {
        let record = evicted(true, Some(BEFORE));
        assert_eq!(
            quota_return(&record, &suspended("False", BEFORE, 0, 0)),
            QuotaReturn::Pending
        );
        assert_eq!(quota_return(&record, &StatusView::default()), QuotaReturn::Pending);
    }

    #[test]
    fn the_condition_from_before_the_admission_acknowledges_nothing() {
        let record = evicted(false, Some(BEFORE));
        assert_eq!(
            quota_return(&record, &suspended("True", BEFORE, 0, 0)),
            QuotaReturn::Unacknowledged
        );
        assert_eq!(
            quota_return(&record, &suspended("True", AFTER, 0, 0)),
            QuotaReturn::Returned
        );
    }

    #[test]
    fn a_first_condition_after_an_unacknowledged_start_acknowledges_nothing() {
        let record = evicted(false, None);
        assert_eq!(
            quota_return(&record, &suspended("True", AFTER, 0, 0)),
            QuotaReturn::Unacknowledged
        );
        assert_eq!(
            quota_return(&record, &StatusView::default()),
            QuotaReturn::Unacknowledged
        );
    }

    #[test]
    fn a_second_stop_within_the_same_second_is_acknowledged_when_the_start_was() {
        let record = evicted(true, Some(BEFORE));
        assert_eq!(
            quota_return(&record, &suspended("True", BEFORE, 0, 0)),
            QuotaReturn::Returned
        );
    }

    #[test]
    fn a_start_is_acknowledged_by_the_condition_or_by_the_start_time_of_a_job_never_suspended() {
        assert!(start_acknowledged(&suspended("False", BEFORE, 1, 0)));
        assert!(!start_acknowledged(&suspended("True", BEFORE, 0, 0)));
        assert!(start_acknowledged(&status(json!({"startTime": BEFORE}))));
        assert!(!start_acknowledged(&StatusView::default()));
    }

    #[test]
    fn pods_that_succeeded_give_their_quota_back_once_fewer_completions_than_pods_are_missing() {
        let charged = |succeeded: i64, active: i64| {
            let status = json!({"succeeded": succeeded, "active": active});
            charged_pods(&job(json!({"parallelism": 4, "completions": 6}), status), 4)
        };
        assert_eq!(charged(0, 4), 4);
        assert_eq!(charged(2, 4), 4);
        assert_eq!(charged(3, 3), 3);
        assert_eq!(charged(5, 1), 1);
        assert_eq!(charged(6, 0), 0);
    }

    #[test]
    fn pods_still_present_stay_charged_whatever_has_succeeded() {
        let status = json!({"succeeded": 5, "active": 1, "terminating": 2});
        assert_eq!(
            charged_pods(&job(json!({"parallelism": 4, "completions": 6}), status), 4),
            3
        );
    }

    #[test]
    fn indexes_that_succeeded_or_failed_for_good_both_count() {
        let spec = json!({"parallelism": 5, "completions": 6, "completionMode": "Indexed"});
        let status = json!({"completedIndexes": "0,2-3", "failedIndexes": "1", "succeeded": 3});
        assert_eq!(charged_pods(&job(spec, status), 5), 2);
    }

    #[test]
    fn an_index_list_that_cannot_be_read_gives_nothing_back() {
        assert_eq!(count_indexes("1,3-5,7"), 5);
        for broken in ["", "x", "5-3", "-1", "99999999999", "1-"] {
            assert_eq!(count_indexes(broken), 0, "{broken}");
        }
    }

    #[test]
    fn a_work_queue_without_completions_stays_charged_in_full() {
        assert_eq!(
            charged_pods(&job(json!({"parallelism": 4}), json!({"succeeded": 3})), 4),
            4
        );
    }

    #[test]
    fn pods_are_ready_when_ready_and_succeeded_ones_make_up_the_parallelism() {
        let ready = |ready: i64, succeeded: i64| {
            let status = json!({"ready": ready, "succeeded": succeeded});
            pods_ready(&job(json!({"parallelism": 3, "completions": 9}), status))
        };
        assert!(ready(3, 0));
        assert!(ready(1, 2));
        assert!(!ready(2, 0));
    }

    #[test]
    fn a_pod_that_succeeded_and_is_not_counted_yet_still_makes_up_the_parallelism() {
        let ready = |uncounted: Value| {
            let status = json!({"ready": 1, "uncountedTerminatedPods": uncounted});
            pods_ready(&job(json!({"parallelism": 2}), status))
        };
        assert!(ready(json!({"succeeded": ["uid-1"]})));
        assert!(!ready(json!({"failed": ["uid-1"]})));
        assert!(!ready(json!({"succeeded": null})));
    }
}
