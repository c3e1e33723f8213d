//! The queue objects of `kueue.x-k8s.io/v1beta2`, the version that is stored.
//!
//! Every field of the API is declared, also those that are not acted on yet, so that nothing a user wrote is lost;
//! `unsupported_fields` names the ones in use. Decoding is tolerant where a value can be wrong without the object
//! being unreadable: quantities stay text ([`QuantityText`](crate::QuantityText)), enumerations keep unknown
//! values, and an absent spec is an empty one. `validate` says what is wrong with an object that was decoded.

mod cluster_queue;
mod cohort;
mod extras;
mod kubernetes;
mod local_queue;
mod policy;
mod quota;
mod resource_flavor;
mod support;
mod validation;
mod workload_priority_class;

pub use cluster_queue::{
    AdmissionCheckRule, AdmissionChecksStrategy, ClusterQueue, ClusterQueueSpec, ClusterQueueStatus,
};
pub use cohort::{Cohort, CohortSpec, CohortStatus};
pub use extras::{Ageing, Extras};
pub use local_queue::{
    AdmissionFairSharingStatus, LocalQueue, LocalQueueFairSharingStatus, LocalQueueFlavorUsage,
    LocalQueueResourceUsage, LocalQueueSpec, LocalQueueStatus,
};
pub use policy::{
    AdmissionMode, AdmissionScope, BorrowWithinCohort, BorrowWithinCohortPolicy, ClusterQueuePreemption,
    ConcurrentAdmissionConstraints, ConcurrentAdmissionMigration, ConcurrentAdmissionMode, ConcurrentAdmissionPolicy,
    FairSharing, FairSharingStatus, FlavorFungibility, FlavorFungibilityPreference, FungibilityPolicy,
    QueueingStrategy, ReclaimWithinCohort, StopPolicy, WithinClusterQueue,
};
pub use quota::{FlavorQuotas, FlavorUsage, ResourceGroup, ResourceQuota, ResourceUsage};
pub use resource_flavor::{ResourceFlavor, ResourceFlavorSpec};
pub use validation::{Problem, Violation};
pub use workload_priority_class::{WorkloadPriorityClass, WorkloadPriorityClassSpec};

/// The version that the types of this module describe.
pub const VERSION: &str = "v1beta2";
