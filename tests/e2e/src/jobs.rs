//! Jobs, read back from the API server.

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Where a Job is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Suspended.
    Held,
    /// Admitted and not finished.
    Running,
    /// Complete.
    Completed,
    /// Failed.
    Failed,
}

/// Where a Job is.
pub fn stage(job: &Job) -> Stage {
    let ended = |kind: &str| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == kind && one.status == "True"))
    };
    if ended("Complete") {
        Stage::Completed
    } else if ended("Failed") {
        Stage::Failed
    } else if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
        Stage::Held
    } else {
        Stage::Running
    }
}

/// The admission record of a Job, if it has one.
///
/// # Errors
/// A record that is no JSON.
pub fn record(job: &Job) -> Result<Option<Value>> {
    let annotations = job.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get("sluice.internal/admission"))
        .map(|text| serde_json::from_str(text).context("the admission record is no JSON"))
        .transpose()
}

/// Seconds from the creation of a Job to its admission, by its record.
pub fn waited(job: &Job) -> Option<f64> {
    let admitted: Timestamp = record(job).ok()??["admittedAt"].as_str()?.parse().ok()?;
    let created = job.metadata.creation_timestamp.as_ref()?.0;
    Some(admitted.duration_since(created).as_secs_f64().max(0.0))
}
