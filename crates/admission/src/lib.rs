//! What the webhook says about batch/v1 Jobs and queue objects: AdmissionReviews and ConversionReviews in, answers out,
//! bytes to bytes.
//!
//! ```text
//! bytes -> review -> Request --+-- create   a new Job is held in its queue
//!                              +-- update   what the scheduler owns stays as stored
//!                              +-- validate malformed queue names are refused
//!                              '-- objects  queues, flavors and Workloads that make no sense are refused
//!                     World ---'                 |
//!                                                v
//!                                     Verdict -> Reply (bytes, and a Decision to log)
//! bytes -> convert -> Reply                objects of one version, in another
//! ```
//!
//! The crate never does I/O, reads no clock, and has no side effects, so dry runs need no rule of their own. It edits
//! raw JSON by patches that name only the paths they mean: fields that it does not know survive. It trusts nothing in a
//! review; whatever comes in, the answer says what is wrong with it.
//!
//! Entry points: [`mutate_job`] and [`validate_job`], with a [`World`] that whoever watches the cluster keeps, and the
//! others, which need to know nothing: [`convert`], and one for each kind that is judged.
#![deny(missing_docs)]

mod convert;
mod create;
mod job;
mod objects;
mod patch;
mod queue;
mod reply;
mod review;
mod shown;
mod template;
mod update;
mod validate;
mod world;

use sluice_jobs::managed::LeftAlone;

pub use convert::convert;
pub use reply::{Decision, Outcome, Reply};
pub use review::{Operation, ReviewError};
pub use world::{KnownJob, Settings, World};

use reply::{Denial, Verdict};
use review::{CLUSTER_QUEUES, COHORTS, JOBS, LOCAL_QUEUES, RESOURCE_FLAVORS, Request, Reviewed, WORKLOADS};
use sluice_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload};

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
    validate_object::<ClusterQueue>(body, &CLUSTER_QUEUES)
}

/// Answers a review at `/validate-kueue-x-k8s-io-v1beta2-cohort`.
pub fn validate_cohort(body: &[u8]) -> Reply {
    validate_object::<Cohort>(body, &COHORTS)
}

/// Answers a review at `/validate-kueue-x-k8s-io-v1beta2-localqueue`.
pub fn validate_local_queue(body: &[u8]) -> Reply {
    validate_object::<LocalQueue>(body, &LOCAL_QUEUES)
}

/// Answers a review at `/validate-kueue-x-k8s-io-v1beta2-resourceflavor`.
pub fn validate_resource_flavor(body: &[u8]) -> Reply {
    validate_object::<ResourceFlavor>(body, &RESOURCE_FLAVORS)
}

/// Answers a review at `/validate-kueue-x-k8s-io-v1beta2-workload`, of the object or of its status.
pub fn validate_workload(body: &[u8]) -> Reply {
    validate_object::<Workload>(body, &WORKLOADS)
}

/// Answers a review at `/mutate-kueue-x-k8s-io-v1beta2-clusterqueue`, which Kueue's own configuration names.
pub fn mutate_cluster_queue(body: &[u8]) -> Reply {
    answer(body, &CLUSTER_QUEUES, |_| Ok(objects::mutate()))
}

/// Answers a review at `/mutate-kueue-x-k8s-io-v1beta2-resourceflavor`, which Kueue's own configuration names.
pub fn mutate_resource_flavor(body: &[u8]) -> Reply {
    answer(body, &RESOURCE_FLAVORS, |_| Ok(objects::mutate()))
}

/// Answers a review at `/mutate-kueue-x-k8s-io-v1beta2-workload`, which Kueue's own configuration names.
pub fn mutate_workload(body: &[u8]) -> Reply {
    answer(body, &WORKLOADS, |_| Ok(objects::mutate()))
}

fn validate_object<K: objects::Judged>(body: &[u8], reviewed: &'static Reviewed) -> Reply {
    answer(body, reviewed, |request| Ok(objects::validate::<K>(request)))
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
