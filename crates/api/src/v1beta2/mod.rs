//! The queue objects of `kueue.x-k8s.io/v1beta2`, the version that is stored.
//!
//! Every field of the API is declared, also those that are not acted on yet, so that nothing a user wrote is lost;
//! `unsupported_fields` names the ones in use. Decoding is tolerant where a value can be wrong without the object
//! being unreadable: quantities stay text ([`QuantityText`](crate::QuantityText)), enumerations keep unknown
//! values, and an absent spec is an empty one. `validate` says what is wrong with an object that was decoded.

mod admission_check;
mod author;
mod cluster_queue;
mod cohort;
mod extras;
mod kubernetes;
mod local_queue;
mod multikueue;
mod pod_template;
mod policy;
mod provisioning_request_config;
mod quota;
mod resource_flavor;
mod support;
mod topology;
mod validation;
mod workload;
mod workload_priority_class;

pub use admission_check::{AdmissionCheck, AdmissionCheckParameters, AdmissionCheckSpec, AdmissionCheckStatus};
pub use cluster_queue::{
    AdmissionCheckRule, AdmissionChecksStrategy, ClusterQueue, ClusterQueueSpec, ClusterQueueStatus,
};
pub use cohort::{Cohort, CohortSpec, CohortStatus};
pub use extras::{Ageing, Extras};
pub use local_queue::{
    AdmissionFairSharingStatus, LocalQueue, LocalQueueFairSharingStatus, LocalQueueFlavorUsage,
    LocalQueueResourceUsage, LocalQueueSpec, LocalQueueStatus,
};
pub use multikueue::{
    ClusterProfileReference, ClusterSource, KubeConfig, LocationType, MultiKueueCluster, MultiKueueClusterSpec,
    MultiKueueClusterStatus, MultiKueueConfig, MultiKueueConfigSpec, QuotaManagement,
};
pub use policy::{
    AdmissionMode, AdmissionScope, BorrowWithinCohort, BorrowWithinCohortPolicy, ClusterQueuePreemption,
    ConcurrentAdmissionConstraints, ConcurrentAdmissionMigration, ConcurrentAdmissionMode, ConcurrentAdmissionPolicy,
    FairSharing, FairSharingStatus, FlavorFungibility, FlavorFungibilityPreference, FungibilityPolicy,
    QueueingStrategy, ReclaimWithinCohort, StopPolicy, WithinClusterQueue,
};
pub use provisioning_request_config::{
    PodSetMergePolicy, ProvisioningNodeSelector, ProvisioningPodSetUpdates, ProvisioningRequestConfig,
    ProvisioningRequestConfigSpec, ProvisioningRetryStrategy,
};
pub use quota::{FlavorQuotas, FlavorUsage, ResourceGroup, ResourceQuota, ResourceUsage};
pub use resource_flavor::{ResourceFlavor, ResourceFlavorSpec};
pub use topology::{Topology, TopologyLevel, TopologySpec};
pub use validation::{Problem, Violation};
pub use workload::{
    Admission, AdmissionCheckState, CheckState, DEFAULT_POD_SET, DelayedTopologyRequest, Eviction, GatePosition,
    IndividualValues, PodCounts, PodSet, PodSetAssignment, PodSetRequest, PodSetSliceConstraint, PodSetTopologyRequest,
    PodSetUpdate, PreemptionGate, PreemptionGateState, PriorityClassGroup, PriorityClassKind, PriorityClassRef,
    ReclaimablePod, RequeueState, SchedulingStats, TopologyAssignment, TopologyAssignmentSlice, TopologyDomain, Uneven,
    UnhealthyNode, Values, Workload, WorkloadSpec, WorkloadStatus,
};
pub(crate) use workload::{old_root_rules as old_workload_rules, root_rules as workload_rules};
pub use workload_priority_class::{WorkloadPriorityClass, WorkloadPriorityClassSpec};

/// The version that the types of this module describe.
pub const VERSION: &str = "v1beta2";
