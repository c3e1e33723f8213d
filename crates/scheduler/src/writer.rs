//! Carries out writes, a bounded number at a time, and finds out what came of each.
//!
//! A write is sent only while enough of the lease is left that it must be over before the lease is, and with a timeout.
//! An answer that says neither yes nor no is followed by a quorum read until the API server answers.

use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::core::Status;
use sluice_index::{Answer, Write};
use sluice_jobs::view::JobView;
use sluice_runtime::lease::Hold;
use sluice_runtime::watch::Backoff;

/// The policy that fences writes by term, as it names itself in a refusal. It says nothing about the Job.
const TERM_FENCE: &str = "ValidatingAdmissionPolicy 'term.sluice.internal'";
/// Pause before the first repeated read, doubled up to [`LONGEST_READ_PAUSE`].
const FIRST_READ_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between repeated reads.
const LONGEST_READ_PAUSE: Duration = Duration::from_secs(2);

/// How writes are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Longest that one request may take.
    pub(crate) timeout: Duration,
    /// Least that must be left of the lease when a write is sent. More than `timeout`.
    pub(crate) margin: Duration,
}

/// What one request came to, before it is known what to make of it.
#[derive(Debug, PartialEq, Eq)]
enum Verdict<T> {
    Done(T),
    GuardFailed,
    Refused(String),
    Delayed,
    Unknown,
}

/// Sends one write and returns what came of it.
pub(crate) async fn carry_out(client: Client, write: Write, hold: Hold, limits: Limits) -> Answer {
    if hold.remaining(Instant::now()) <= limits.margin {
        return Answer::Delayed;
    }
    let jobs: Api<JobView> = Api::namespaced(client, &write.namespace);
    if let Some(patch) = write.status_patch {
        match prepare(&jobs, &write.name, patch, limits).await {
            Verdict::Done(()) => {}
            Verdict::Refused(message) => return Answer::Refused { message },
            Verdict::GuardFailed => {
                let read = read(&jobs, &write.name, &hold, limits).await;
                return read.map_or(Answer::Delayed, Answer::GuardFailed);
            }
            // Nothing was started yet, and clearing the start time twice does no harm.
            Verdict::Delayed | Verdict::Unknown => return Answer::Delayed,
        }
        if hold.remaining(Instant::now()) <= limits.margin {
            return Answer::Delayed;
        }
    }
    let patch: Patch<()> = Patch::Json(write.patch);
    let sent = tokio::time::timeout(limits.timeout, jobs.patch(&write.name, &PatchParams::default(), &patch)).await;
    match sent.map_or(Verdict::Unknown, verdict) {
        Verdict::Done(job) => Answer::Applied(Box::new(job)),
        Verdict::Refused(message) => Answer::Refused { message },
        Verdict::Delayed => Answer::Delayed,
        Verdict::GuardFailed => match read(&jobs, &write.name, &hold, limits).await {
            Some(job) => Answer::GuardFailed(job),
            None => Answer::Delayed,
        },
        Verdict::Unknown => match read(&jobs, &write.name, &hold, limits).await {
            Some(job) => Answer::Unknown(job),
            None => Answer::Delayed,
        },
    }
}

/// The write to the status that some servers need before an admission.
async fn prepare(jobs: &Api<JobView>, name: &str, patch: json_patch::Patch, limits: Limits) -> Verdict<()> {
    let patch: Patch<()> = Patch::Json(patch);
    let params = PatchParams::default();
    let sent = tokio::time::timeout(limits.timeout, jobs.patch_status(name, &params, &patch)).await;
    sent.map_or(Verdict::Unknown, |result| verdict(result.map(drop)))
}

/// Reads a Job with quorum until the API server answers. `None` when the lease ran out before it did.
async fn read(jobs: &Api<JobView>, name: &str, hold: &Hold, limits: Limits) -> Option<Option<Box<JobView>>> {
    let mut backoff = Backoff::new(FIRST_READ_PAUSE, LONGEST_READ_PAUSE);
    while !hold.remaining(Instant::now()).is_zero() {
        if let Ok(Ok(job)) = tokio::time::timeout(limits.timeout, jobs.get_opt(name)).await {
            return Some(job.map(Box::new));
        }
        tokio::time::sleep(backoff.pause()).await;
    }
    None
}

fn verdict<T>(result: kube::Result<T>) -> Verdict<T> {
    match result {
        Ok(value) => Verdict::Done(value),
        Err(kube::Error::Api(status)) => of_status(&status),
        Err(_) => Verdict::Unknown,
    }
}

/// What an error of the API server says about a guarded patch: a definite no, a no of someone else, not yet, or nothing.
fn of_status<T>(status: &Status) -> Verdict<T> {
    match status.code {
        404 | 409 => Verdict::GuardFailed,
        422 if is_failed_guard(status) => Verdict::GuardFailed,
        401 | 429 => Verdict::Delayed,
        400..=499 if status.message.contains(TERM_FENCE) => Verdict::Delayed,
        400..=499 => Verdict::Refused(status.message.clone()),
        _ => Verdict::Unknown,
    }
}

/// A `test` of a JSON Patch that does not hold is answered with 422, like a validation error, but with this sentence and
/// no details (tried on 1.36.3).
fn is_failed_guard(status: &Status) -> bool {
    status
        .message
        .contains("the server rejected our request due to an error in our request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u16, message: &str) -> Verdict<()> {
        of_status(&Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        })
    }

    #[test]
    fn a_failed_guard_is_told_from_a_validation_error_of_the_same_code() {
        assert_eq!(
            of(422, "the server rejected our request due to an error in our request"),
            Verdict::GuardFailed
        );
        assert!(matches!(
            of(422, "Job.batch \"a\" is invalid: spec.template: field is immutable"),
            Verdict::Refused(_)
        ));
    }

    #[test]
    fn a_refusal_of_the_term_fence_says_nothing_about_the_job() {
        let message = "jobs.batch \"a\" is forbidden: ValidatingAdmissionPolicy 'term.sluice.internal' with binding \
                       'term.sluice.internal' denied request: this start was decided in an earlier term";
        assert_eq!(of(403, message), Verdict::Delayed);
    }

    #[test]
    fn each_kind_of_answer_has_its_verdict() {
        for (code, verdict) in [
            (404, Verdict::GuardFailed),
            (409, Verdict::GuardFailed),
            (401, Verdict::Delayed),
            (429, Verdict::Delayed),
        ] {
            assert_eq!(of(code, "no"), verdict, "{code}");
        }
        for code in [400, 403, 413, 422] {
            assert_eq!(of(code, "no"), Verdict::Refused("no".to_owned()), "{code}");
        }
        for code in [500, 502, 503, 504] {
            assert_eq!(of(code, "no"), Verdict::Unknown, "{code}");
        }
    }
}
