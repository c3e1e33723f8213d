//! A new Job: held in its queue.

use serde_json::json;
use sluice_api::annotations::{ADMISSION, ADMISSION_MAX_BYTES, CREATED_RUNNING};
use sluice_api::labels::QUEUE_NAME;
use sluice_jobs::{Managed, Record};

use crate::job::Job;
use crate::managed_reason;
use crate::patch::Edits;
use crate::queue::{default_queue, trouble};
use crate::reply::Verdict;
use crate::review::{Request, ReviewError};
use crate::template::strip_delta;
use crate::world::World;

const TRUE: &str = "true";

pub(crate) fn mutate(request: &Request, world: &World) -> Result<Verdict, ReviewError> {
    let job = Job::read(&request.object, "request.object")?;
    if job.being_deleted {
        return Ok(Verdict::untouched("the Job is being deleted"));
    }
    if let Managed::No(why) = world.managed(&request.namespace, &job) {
        return Ok(Verdict::untouched(managed_reason(why)));
    }
    let mut edits = Edits::of(&request.object);
    let is_copy = strip_bookkeeping(&mut edits, &job);
    if !job.suspended {
        edits.set(&["spec", "suspend"], json!(true));
        edits.set(&["metadata", "annotations", CREATED_RUNNING], json!(TRUE));
    }
    let queue = job.queue_name().or_else(|| default_queue(world, &request.namespace));
    if let Some(name) = queue {
        edits.set(&["metadata", "labels", QUEUE_NAME], json!(name));
    }
    let reason = match (queue, is_copy) {
        (Some(name), false) => format!("held in queue {}", crate::shown::Shown(name)),
        (Some(name), true) => format!(
            "held in queue {} without the record it was copied with",
            crate::shown::Shown(name)
        ),
        (None, _) => "held without a queue".to_owned(),
    };
    let warnings = trouble(world, &request.namespace, queue).into_iter().collect();
    Ok(Verdict::Allow {
        patch: edits.into_patch(),
        warnings,
        reason,
    })
}

/// Takes away what a copied or restored Job says about an admission that never was its own.
///
/// The note `created-running` goes only together with a record. Alone it is most likely our own, from an earlier round
/// of the same request: the API server asks again after other webhooks changed the Job, and by then it is suspended.
fn strip_bookkeeping(edits: &mut Edits<'_>, job: &Job<'_>) -> bool {
    let Some(text) = job.annotations.get(ADMISSION) else {
        return false;
    };
    edits.remove(&["metadata", "annotations", ADMISSION]);
    if job.suspended {
        edits.remove(&["metadata", "annotations", CREATED_RUNNING]);
    }
    if text.len() <= ADMISSION_MAX_BYTES
        && let Ok(record) = serde_json::from_str::<Record>(text)
    {
        strip_delta(edits, job.raw, &record.delta);
    }
    true
}
