//! The guarded JSON patches, one for each state change.
//!
//! Each patch starts with `test` operations on what the decision was made on, so that the API server refuses it as a
//! whole when somebody else was faster. It then changes only the paths it means.

mod builder;
mod pods;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use json_patch::Patch;
use serde_json::{Value, json};
use sluice_api::{annotations, labels};
use thiserror::Error;

use self::builder::Builder;
use crate::Timestamp;
use crate::record::{Delta, Eviction, Hold, Record, RecordError, State, VERSION};
use crate::status;
use crate::view::JobView;

/// The name of a Job's only pod set.
pub const POD_SET: &str = "main";
const TRUE: &str = "true";

/// Why no patch can be built.
#[derive(Debug, Error)]
pub enum PatchError {
    /// The Job was never read from an API server.
    #[error("the Job has no {0}")]
    Incomplete(&'static str),
    /// The user's template already says something else.
    #[error("{field} is already {present:?} and the admission needs {wanted:?}")]
    Conflict {
        /// The field, key included.
        field: String,
        /// What the user's template says.
        present: String,
        /// What the admission would put there.
        wanted: String,
    },
    /// The Job's record allows no such step.
    #[error("a Job whose record is {from} cannot become {to}")]
    Transition {
        /// Where it stands.
        from: State,
        /// Where it was meant to go.
        to: State,
    },
    /// A Job without a record allows no such step.
    #[error("a Job without a record cannot become {0}")]
    NoRecord(State),
    /// The record cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A patch, and the record as it writes it.
#[derive(Clone, Debug)]
pub struct Write {
    /// What to send.
    pub patch: Patch,
    /// The record that the patch writes.
    pub record: Record,
    /// The same as the text of the annotation, by which the write is recognised when it comes back in an event.
    pub annotation: String,
}

/// What an admission puts into the pod template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmissionPlan {
    /// Node labels of the flavors.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the flavors.
    pub tolerations: Vec<Value>,
    /// Labels of the pods; see [`pod_labels`].
    pub labels: BTreeMap<String, String>,
    /// The queue label for a Job that has none; ignored for a Job that has one.
    pub queue_label: Option<String>,
    /// How many pods it may run, where that is fewer than it asks for.
    pub parallelism: Option<i64>,
}

/// Why and when a Job is stopped.
#[derive(Clone, Debug)]
pub struct Stop {
    /// A word for machines.
    pub reason: String,
    /// A second word that says more, or nothing.
    pub cause: String,
    /// A sentence for people.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// The labels that admitted pods carry. A queue whose name is no label value gives none.
pub fn pod_labels(local_queue: &str, cluster_queue: &str) -> BTreeMap<String, String> {
    let mut pod_labels = BTreeMap::from([(labels::PODSET.to_owned(), POD_SET.to_owned())]);
    for (key, value) in [
        (labels::LOCAL_QUEUE_NAME, local_queue),
        (labels::CLUSTER_QUEUE_NAME, cluster_queue),
    ] {
        if !value.is_empty() && is_label_value(value) {
            pod_labels.insert(key.to_owned(), value.to_owned());
        }
    }
    pod_labels
}

/// Whether Kubernetes accepts the text as the value of a label.
pub fn is_label_value(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Admits a suspended Job: starts it, puts the plan into its template and writes the record, all in one write.
///
/// What an earlier admission had put into the template is taken out in the same write. Guarded by uid, generation,
/// suspension, queue label, priority label, hold, deactivation and the record as last seen; the generation covers the
/// whole spec. State, delta and eviction of `record` are set here.
///
/// # Errors
/// [`PatchError::Conflict`] when the user's template holds a key of the plan with another value: the Job has to wait and
/// say so. [`PatchError::Transition`] when the Job is deactivated.
pub fn admit(job: &JobView, plan: &AdmissionPlan, record: &Record) -> Result<Write, PatchError> {
    let mut builder = Builder::new(job)?;
    let old = builder.enter(State::Admitted)?;
    if job.annotation(annotations::DEACTIVATED).is_some() {
        return Err(PatchError::Transition {
            from: State::Deactivated,
            to: State::Admitted,
        });
    }
    builder.guard_generation()?;
    builder.guard_suspend();
    builder.guard_label(labels::QUEUE_NAME);
    builder.guard_label(labels::PRIORITY_CLASS);
    builder.guard_annotation(annotations::HOLD);
    builder.guard_annotation(annotations::DEACTIVATED);

    builder.set_suspend(false);
    let old_delta = old.map(|old| old.delta).unwrap_or_default();
    let (changes, mut delta) = template::change(&job.spec.template, &old_delta, plan)?;
    builder.extend(changes);
    if let Some(pods) = plan.parallelism {
        pods::lower(&mut builder, job, pods, &mut delta);
    }
    if let Some(queue) = plan
        .queue_label
        .as_deref()
        .filter(|_| job.label(labels::QUEUE_NAME).is_none())
    {
        builder.set_label(labels::QUEUE_NAME, queue);
    }
    let record = Record {
        state: State::Admitted,
        delta,
        suspended_before: status::suspended_since(&job.status),
        eviction: None,
        hold: None,
        ..record.clone()
    };
    builder.finish(record)
}

/// Suspends an admitted Job. Guarded by uid, the suspension as last seen and the exact record.
///
/// The template stays as it is: it cannot change before the Job controller has acknowledged the suspension, and the next
/// [`admit`] takes the old delta out. Parallelism and completions that an admission lowered are the owner's again at once.
///
/// # Errors
/// [`PatchError::Transition`] when the Job is not admitted.
pub fn evict(job: &JobView, record: &Record, stop: Stop) -> Result<Write, PatchError> {
    end(job, record, stop, State::Evicting)
}

/// As [`evict`], and takes the Job out of queueing: marks it with the annotation that a person removes to queue it again.
/// It then starts afresh, so its retries and its run time are forgotten.
///
/// # Errors
/// [`PatchError::Transition`] when the Job is not admitted.
pub fn deactivate(job: &JobView, record: &Record, stop: Stop) -> Result<Write, PatchError> {
    end(job, record, stop, State::Deactivated)
}

fn end(job: &JobView, record: &Record, stop: Stop, state: State) -> Result<Write, PatchError> {
    let mut builder = Builder::new(job)?;
    let old = builder.enter(state)?;
    builder.guard_suspend();
    builder.set_suspend(true);
    let mut record = stopped(&mut builder, job, record, old, stop.at);
    record.state = state;
    record.evictions = record.evictions.saturating_add(1);
    if state == State::Deactivated {
        let why = if stop.cause.is_empty() {
            &stop.reason
        } else {
            &stop.cause
        };
        builder.guard_annotation(annotations::DEACTIVATED);
        builder.set_annotation(annotations::DEACTIVATED, why);
        record.requeue = None;
        record.accumulated_seconds = 0;
    }
    record.eviction = Some(eviction(job, stop));
    builder.finish(record)
}

/// Notes on an admitted Job when its pods were ready. Nothing else of the record may differ from what the Job carries.
///
/// # Errors
/// [`PatchError::Transition`] when the Job is not admitted.
pub fn note(job: &JobView, record: &Record) -> Result<Write, PatchError> {
    let mut builder = Builder::new(job)?;
    match builder.enter(State::Admitted)? {
        Some(old) if old.state == State::Admitted => {}
        Some(old) => {
            return Err(PatchError::Transition {
                from: old.state,
                to: State::Admitted,
            });
        }
        None => return Err(PatchError::NoRecord(State::Admitted)),
    }
    builder.guard_suspend();
    builder.finish(record.clone())
}

/// Suspends a managed Job that runs and was not admitted: it slipped past the webhook, or somebody started it while it waited.
///
/// A Job without a record gets what the webhook would have given it: the queue label, and the note that its owner created
/// it running. A record that it has keeps its state.
///
/// # Errors
/// [`PatchError::Transition`] when the Job is admitted.
pub fn suspend_late(job: &JobView, record: &Record, queue_label: Option<&str>) -> Result<Write, PatchError> {
    let mut builder = Builder::new(job)?;
    let state = match Record::parse(job.record_text().unwrap_or_default(), job.uid()) {
        Ok(old) if old.state == State::Admitted => {
            return Err(PatchError::Transition {
                from: old.state,
                to: State::Waiting,
            });
        }
        Ok(old) => Some(old.state),
        Err(_) => None,
    };
    builder.guard_annotation(annotations::ADMISSION);
    builder.guard_suspend();
    builder.guard_label(labels::QUEUE_NAME);
    builder.set_suspend(true);
    if let Some(queue) = queue_label.filter(|_| job.label(labels::QUEUE_NAME).is_none()) {
        builder.set_label(labels::QUEUE_NAME, queue);
    }
    if state.is_none() {
        builder.set_annotation(annotations::CREATED_RUNNING, TRUE);
    }
    builder.finish(Record {
        state: state.unwrap_or(State::Waiting),
        ..record.clone()
    })
}

/// Clears the start time of a suspended Job, through its status: while it is set, some servers accept no change of where
/// the pods may run. The Job controller clears it itself where the feature gate
/// `MutableSchedulingDirectivesForSuspendedJobs` (1.36) is on. None where there is nothing to clear.
pub fn clear_start_time(job: &JobView) -> Option<Patch> {
    let start_time = job.status.start_time.as_ref().filter(|_| job.is_suspended())?;
    Some(Patch(vec![
        builder::test(&["metadata", "uid"], json!(job.uid())),
        builder::test(&["spec", "suspend"], json!(true)),
        builder::test(&["status", "startTime"], json!(start_time)),
        builder::remove(&["status", "startTime"]),
    ]))
}

/// Writes a record on a running Job without touching its spec: it ran before its namespace was opted in. That its owner
/// created it running is noted, so that the owner can hold it; and the queue label is added to a Job that has none, since
/// the term fence looks at labelled Jobs.
///
/// # Errors
/// [`PatchError::Transition`] when the Job has a record.
pub fn adopt(job: &JobView, record: &Record, queue_label: &str) -> Result<Write, PatchError> {
    let mut builder = Builder::new(job)?;
    if let Some(old) = builder.enter(State::Admitted)? {
        return Err(PatchError::Transition {
            from: old.state,
            to: State::Admitted,
        });
    }
    builder.guard_suspend();
    builder.set_annotation(annotations::CREATED_RUNNING, TRUE);
    builder.guard_label(labels::QUEUE_NAME);
    if job.label(labels::QUEUE_NAME).is_none() {
        builder.set_label(labels::QUEUE_NAME, queue_label);
    }
    let record = Record {
        state: State::Admitted,
        delta: Delta::default(),
        suspended_before: None,
        ..record.clone()
    };
    builder.finish(record)
}

/// Holds a Job that its owner suspended while it ran: marks it as held and keeps its quota charged until its pods are gone.
///
/// # Errors
/// [`PatchError::Transition`] when the record allows no hold.
pub fn hold(job: &JobView, record: &Record, stop: Stop) -> Result<Write, PatchError> {
    let mut builder = Builder::new(job)?;
    let old = builder.enter(State::Held)?;
    builder.guard_suspend();
    if !job.is_suspended() {
        builder.set_suspend(true);
    }
    builder.set_annotation(annotations::HOLD, TRUE);
    let hold = Hold {
        at: stop.at,
        message: stop.message.clone(),
    };
    // A Job that had been stopped already keeps the stop by which its quota comes back.
    let earlier = old.as_ref().filter(|old| old.state != State::Admitted);
    let earlier = earlier.map(|old| old.eviction.clone());
    let record = stopped(&mut builder, job, record, old, stop.at);
    builder.finish(Record {
        state: State::Held,
        eviction: earlier.unwrap_or_else(|| Some(eviction(job, stop))),
        hold: Some(hold),
        ..record
    })
}

/// The record of a Job that is stopped: what only an admission may change stays as it is on the Job, its run time is
/// added up, and it gets back the numbers of pods that its owner had asked for.
fn stopped(builder: &mut Builder<'_>, job: &JobView, record: &Record, old: Option<Record>, at: Timestamp) -> Record {
    let Some(old) = old else { return record.clone() };
    let ran = old.admitted_at.filter(|_| old.state == State::Admitted);
    let ran = ran.map_or(0, |since| seconds_up(since, at));
    pods::restore(builder, job, &old);
    Record {
        accumulated_seconds: old.accumulated_seconds.saturating_add(ran),
        pods_ready: None,
        delta: Delta {
            parallelism: None,
            completions: None,
            ..old.delta
        },
        suspended_before: old.suspended_before,
        ..record.clone()
    }
}

/// The seconds from one time to another, a part of one counting whole: no number of stops lets a Job run longer than it may.
fn seconds_up(from: Timestamp, to: Timestamp) -> u64 {
    let milliseconds = to.as_millisecond().saturating_sub(from.as_millisecond());
    u64::try_from(milliseconds).unwrap_or(0).div_ceil(1_000)
}

fn eviction(job: &JobView, stop: Stop) -> Eviction {
    let started = status::start_acknowledged(&job.status);
    Eviction {
        reason: stop.reason,
        cause: stop.cause,
        message: stop.message,
        at: stop.at,
        started,
    }
}

/// Every record that is written belongs to the Job and has this crate's version.
fn stamped(job: &JobView, record: Record) -> Record {
    Record {
        v: VERSION,
        uid: job.uid().to_owned(),
        ..record
    }
}
