//! How long a Job may run, and when what it holds is free again at the latest.

use k8s_openapi::jiff::SignedDuration;
use sluice_api::labels;
use thiserror::Error;

use crate::Timestamp;
use crate::record::Record;
use crate::view::JobView;

/// The grace period of a pod that names none, in seconds: Kubernetes' own default.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const MILLISECONDS: i64 = 1_000;

/// A label that is no time limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the label {} is {value:?}: it must be a whole number of seconds from 1 to {}",
    labels::MAX_EXEC_TIME_SECONDS,
    i32::MAX
)]
pub struct LimitError {
    /// What it says.
    value: String,
}

/// The seconds that a Job may run in all its admissions together, if it says so in its label.
///
/// # Errors
/// When the label is no positive 32-bit integer.
pub fn max_execution_seconds(job: &JobView) -> Result<Option<i64>, LimitError> {
    let Some(text) = job.label(labels::MAX_EXEC_TIME_SECONDS) else {
        return Ok(None);
    };
    match text.parse::<i32>() {
        Ok(seconds) if seconds > 0 => Ok(Some(i64::from(seconds))),
        _ => Err(LimitError { value: text.to_owned() }),
    }
}

/// What is left of the maximum execution time after earlier admissions, in seconds. A label that is none limits nothing.
fn remaining_seconds(job: &JobView, accumulated_seconds: u64) -> Option<i64> {
    let limit = max_execution_seconds(job).ok()??;
    let used = i64::try_from(accumulated_seconds).unwrap_or(i64::MAX);
    Some(limit.saturating_sub(used).max(0))
}

/// The milliseconds that pods which are told to stop may still take.
pub fn grace_ms(job: &JobView) -> i64 {
    let seconds = job.spec.template.spec.termination_grace_period_seconds;
    seconds
        .unwrap_or(DEFAULT_GRACE_SECONDS)
        .max(0)
        .saturating_mul(MILLISECONDS)
}

/// The most milliseconds that a waiting Job can hold quota once it is admitted, if that is known: until its maximum
/// execution time or its active deadline is over, and its pods are gone.
pub fn runs_at_most_ms(job: &JobView, accumulated_seconds: u64) -> Option<i64> {
    let execution = remaining_seconds(job, accumulated_seconds);
    let active = job.spec.active_deadline_seconds.map(|seconds| seconds.max(0));
    let seconds = [execution, active].into_iter().flatten().min()?;
    Some(seconds.saturating_mul(MILLISECONDS).saturating_add(grace_ms(job)))
}

/// When an admitted Job has run for as long as its label allows, if it has one.
pub fn execution_deadline(job: &JobView, record: &Record) -> Option<Timestamp> {
    let left = remaining_seconds(job, record.accumulated_seconds)?;
    Some(later(record.admitted_at?, left.saturating_mul(MILLISECONDS)))
}

/// The latest instant at which the pods of an admitted Job are gone, if that is known.
pub fn ends_at(job: &JobView, record: &Record) -> Option<Timestamp> {
    let active = job.spec.active_deadline_seconds.and_then(|seconds| {
        // A start time may be left from an earlier run until the Job controller has seen the new one.
        let admitted_at = record.admitted_at?;
        let started = job.status.start_time.as_ref().map_or(admitted_at, |time| time.0);
        Some(later(
            started.max(admitted_at),
            seconds.max(0).saturating_mul(MILLISECONDS),
        ))
    });
    let end = [execution_deadline(job, record), active].into_iter().flatten().min()?;
    Some(later(end, grace_ms(job)))
}

fn later(from: Timestamp, milliseconds: i64) -> Timestamp {
    from.checked_add(SignedDuration::from_millis(milliseconds))
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;
    use crate::record::State;

    const ADMITTED: &str = "2026-11-30T10:00:00.25Z";

    fn job(change: impl FnOnce(&mut Value)) -> JobView {
        let mut job = fixture::waiting_job();
        change(&mut job);
        fixture::view(&job)
    }

    fn limited(seconds: &str) -> JobView {
        job(|job| job["metadata"]["labels"][labels::MAX_EXEC_TIME_SECONDS] = json!(seconds))
    }

    fn admitted(accumulated_seconds: u64) -> Record {
        Record {
            admitted_at: Some(ADMITTED.parse().unwrap()),
            accumulated_seconds,
            ..Record::new("1", 1, State::Admitted)
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_limit_is_a_positive_number_of_seconds_and_anything_else_is_named() {
        assert_eq!(max_execution_seconds(&job(|_| ())), Ok(None));
        assert_eq!(max_execution_seconds(&limited("60")), Ok(Some(60)));
        assert_eq!(max_execution_seconds(&limited("2147483647")), Ok(Some(2_147_483_647)));
        for text in ["0", "-1", "", "1m", "1.5", "2147483648", " 60"] {
            let error = max_execution_seconds(&limited(text)).unwrap_err().to_string();
            assert!(
                error.contains("max-exec-time-seconds") && error.contains(text),
                "{error}"
            );
        }
    }

    #[test]
    fn what_earlier_admissions_used_of_the_execution_time_is_gone() {
        let job = limited("60");
        assert_eq!(
            execution_deadline(&job, &admitted(0)),
            Some(at("2026-11-30T10:01:00.25Z"))
        );
        assert_eq!(
            execution_deadline(&job, &admitted(45)),
            Some(at("2026-11-30T10:00:15.25Z"))
        );
        assert_eq!(execution_deadline(&job, &admitted(90)), Some(at(ADMITTED)));
        assert_eq!(runs_at_most_ms(&job, 45), Some(45_000));
        assert_eq!(runs_at_most_ms(&job, u64::MAX), Some(30_000));
    }

    #[test]
    fn a_job_without_limits_has_no_known_end() {
        let job = job(|_| ());
        assert_eq!(runs_at_most_ms(&job, 0), None);
        assert_eq!(execution_deadline(&job, &admitted(0)), None);
        assert_eq!(ends_at(&job, &admitted(0)), None);
    }

    #[test]
    fn the_earlier_limit_counts_and_the_grace_period_comes_on_top() {
        let job = |active: i64| {
            job(|job| {
                job["metadata"]["labels"][labels::MAX_EXEC_TIME_SECONDS] = json!("60");
                job["spec"]["activeDeadlineSeconds"] = json!(active);
                job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(5);
            })
        };
        assert_eq!(runs_at_most_ms(&job(20), 0), Some(25_000));
        assert_eq!(runs_at_most_ms(&job(600), 0), Some(65_000));
        assert_eq!(ends_at(&job(20), &admitted(0)), Some(at("2026-11-30T10:00:25.25Z")));
        assert_eq!(ends_at(&job(600), &admitted(0)), Some(at("2026-11-30T10:01:05.25Z")));
    }

    #[test]
    fn the_active_deadline_counts_from_the_start_and_a_start_of_an_earlier_run_is_none() {
        let started = |start: &str| {
            let job = job(|job| {
                job["spec"]["activeDeadlineSeconds"] = json!(60);
                job["status"]["startTime"] = json!(start);
            });
            ends_at(&job, &admitted(0))
        };
        assert_eq!(started("2026-11-30T10:00:10Z"), Some(at("2026-11-30T10:01:40Z")));
        assert_eq!(started("2026-11-30T09:00:00Z"), Some(at("2026-11-30T10:01:30.25Z")));
    }

    #[test]
    fn times_beyond_the_calendar_are_its_end() {
        let job = job(|job| job["spec"]["activeDeadlineSeconds"] = json!(i64::MAX));
        assert_eq!(ends_at(&job, &admitted(0)), Some(Timestamp::MAX));
        assert_eq!(runs_at_most_ms(&job, 0), Some(i64::MAX));
    }
}
