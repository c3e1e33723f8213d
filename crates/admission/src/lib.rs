//! What the webhook says about batch/v1 Jobs and queue objects: AdmissionReviews in, verdicts out, bytes to bytes.
//!
//! ```text
//! bytes -> review -> Request --+-- create   a new Job is held in its queue
//!                              +-- update   what the scheduler owns stays as stored
//!                              +-- validate malformed queue names are refused
//!                              '-- quota    ClusterQueues and Cohorts that make no sense are refused
//!                     World ---'                 |
//!                                                v
//!                                     Verdict -> Reply (bytes, and a Decision to log)
//! ```
//!
//! The crate never does I/O, reads no clock, and has no side effects, so dry runs need no rule of their own. It edits
//! raw JSON by patches that name only the paths they mean: fields that it does not know survive. It trusts nothing in a
//! review; whatever comes in, the answer says what is wrong with it.
//!
//! Entry points: [`mutate_job`] and [`validate_job`], with a [`World`] that whoever watches the cluster keeps, and
//! [`validate_cluster_queue`] and [`validate_cohort`], which need to know nothing.
#![deny(missing_docs)]

mod create;
mod job;
mod patch;
mod queue;
mod quota;
mod reply;
mod review;
mod shown;
mod template;
mod update;
mod validate;
mod world;

use sluice_jobs::managed::LeftAlone;

pub use reply::{Decision, Outcome, Reply};
pub use review::{Operation, ReviewError};
pub use world::{KnownJob, Settings, World};

use reply::{Denial, Verdict};
use review::{CLUSTER_QUEUES, COHORTS, JOBS, Request, Reviewed};
use sluice_api::v1beta2::{ClusterQueue, Cohort};

/// Answers a review at `/mutate-batch-v1-job`.
pub fn mutate_job(body: &[u8], world: &World) -> Reply {
    answer(body, &JOBS, |request| {
        if !request.sub_resource.is_empty() {
            return Ok(Verdict::untouched("a subresource of the Job"));
        }
        match request.operation {
            Operation::Create => create::mutate(request, world),
            Operation::Update => update::mutate(request, world),
            Operation::Delete | Operation::Connect => Ok(Verdict::untouched("the Job itself does not change")),
        }
    })
}

/// Answers a review at `/validate-batch-v1-job`.
pub fn validate_job(body: &[u8], world: &World) -> Reply {
    answer(body, &JOBS, |request| validate::validate(request, world))
}

/// Answers a review at `/validate-kueue-x-k8s-io-v1beta2-clusterqueue`.
pub fn validate_cluster_queue(body: &[u8]) -> Reply {
    answer(body, &CLUSTER_QUEUES, |request| {
        Ok(quota::validate::<ClusterQueue>(request))
    })
}

/// Answers a review at `/validate-kueue-x-k8s-io-v1beta2-cohort`.
pub fn validate_cohort(body: &[u8]) -> Reply {
    answer(body, &COHORTS, |request| Ok(quota::validate::<Cohort>(request)))
}

fn answer(
    body: &[u8],
    reviewed: &'static Reviewed,
    judge: impl FnOnce(&Request) -> Result<Verdict, ReviewError>,
) -> Reply {
    let request = match review::read(body, reviewed) {
        Ok(request) => request,
        Err(unreadable) => return Reply::to_unreadable(&unreadable, reviewed),
    };
    match judge(&request) {
        Ok(verdict) => Reply::to(request, verdict),
        Err(error) => Reply::to(request, Verdict::Deny(Denial::bad_request(error.to_string()))),
    }
}

fn managed_reason(why: LeftAlone) -> &'static str {
    match why {
        LeftAlone::SystemNamespace => "not managed: kube-system",
        LeftAlone::OwnNamespace => "not managed: Sluice's own namespace",
        LeftAlone::ForeignController => "not managed: spec.managedBy names another controller",
        LeftAlone::ManagedOwner => "not managed: a managed Job owns it",
        LeftAlone::NotOptedIn => "not managed: neither the namespace nor the Job opted in",
    }
}
