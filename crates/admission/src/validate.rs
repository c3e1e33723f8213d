//! What neither the CRDs' schemas nor the chart's policies can say: a malformed queue name, with the reason.

use sluice_api::labels::QUEUE_NAME;
use sluice_jobs::Managed;

use crate::job::Job;
use crate::managed_reason;
use crate::queue::malformed;
use crate::reply::{Denial, Verdict};
use crate::review::{Operation, Request, ReviewError};
use crate::world::World;

pub(crate) fn validate(request: &Request, world: &World) -> Result<Verdict, ReviewError> {
    if !request.sub_resource.is_empty() || matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Ok(Verdict::untouched("only Jobs that are created or updated are judged"));
    }
    let job = Job::read(&request.object, "request.object")?;
    let old = match request.operation {
        Operation::Update => Some(Job::read(&request.old_object, "request.oldObject")?),
        _ => None,
    };
    if job.being_deleted {
        return Ok(Verdict::untouched("the Job is being deleted"));
    }
    if let Managed::No(why) = world.managed(&request.namespace, &job) {
        return Ok(Verdict::untouched(managed_reason(why)));
    }
    let Some(name) = job.queue_name() else {
        return Ok(Verdict::untouched("the Job names no queue"));
    };
    // A name that was stored before it could be judged must not block what finishes or removes the Job.
    if old.is_some_and(|old| old.queue_name() == Some(name)) {
        return Ok(Verdict::untouched("the queue name is as it was"));
    }
    match malformed(name) {
        Some(problem) => Ok(Verdict::Deny(Denial::invalid(vec![(
            format!("metadata.labels[{QUEUE_NAME}]"),
            problem,
        )]))),
        None => Ok(Verdict::untouched("the queue name is well formed")),
    }
}
