//! Keys of the annotations that Sluice reads and writes.
//!
//! Keys under `kueue.x-k8s.io` are shared with manifests written for Kueue; keys under
//! `sluice.internal` are Sluice's own and no part of that contract.

/// Prefix of all annotations that are Sluice's own.
pub const SLUICE_PREFIX: &str = "sluice.internal/";
/// On a managed Job: the admission record, JSON of at most [`ADMISSION_MAX_BYTES`]. Only the scheduler writes it.
pub const ADMISSION: &str = "sluice.internal/admission";
/// The longest admission record that is written or read, in bytes.
pub const ADMISSION_MAX_BYTES: usize = 8 * 1024;
/// On a managed Job: its manifest did not ask for `suspend: true` when it was created, so a later
/// suspend by its owner means a hold. Written by the webhook at creation, with the value `true`.
pub const CREATED_RUNNING: &str = "sluice.internal/created-running";
/// On a managed Job: it takes no part in queueing until this annotation is removed.
pub const HOLD: &str = "sluice.internal/hold";
/// On a managed Job: the scheduler took it out of queueing, and why, in one word; removing this annotation queues it again.
pub const DEACTIVATED: &str = "sluice.internal/deactivated";
/// On an answer of the visibility API: the role of the replica that gave it, `leader` or `follower`.
pub const REPLICA_ROLE: &str = "sluice.internal/replica-role";

/// On a ClusterQueue: `true` lets jobs pass a head that does not fit where that does not delay it, and no others.
pub const BACKFILL: &str = "sluice.internal/backfill";
/// On a StrictFIFO ClusterQueue: `true` lets a head that does not fit block only those that could use a flavor it waits for.
pub const FIFO_PER_POOL: &str = "sluice.internal/fifo-per-pool";
/// On a ClusterQueue: a duration; waiting for so long is worth one step of priority.
pub const AGEING_INTERVAL: &str = "sluice.internal/ageing-interval";
/// On a ClusterQueue with [`AGEING_INTERVAL`]: how many steps waiting is worth at most, a positive integer.
pub const AGEING_MAX_STEPS: &str = "sluice.internal/ageing-max-steps";
/// On a ClusterQueue: a duration; a job that has run for less is not preempted.
pub const MINIMUM_RUN_TIME: &str = "sluice.internal/minimum-run-time";
/// On a ClusterQueue: a duration; when quota is lowered, usage above it is evicted after that.
pub const SHRINK_TO_QUOTA_AFTER: &str = "sluice.internal/shrink-to-quota-after";

/// On a Job: the smallest parallelism it accepts when its full parallelism does not fit; a positive integer.
pub const JOB_MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// On an Indexed Job: `true` keeps `completions` equal to `parallelism` when parallelism is reduced.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// On a Job: `true` lets its parallelism change while it runs; immutable.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";
/// On a Job: comma-separated names of controllers that must let it go first; entries may only be removed.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// On a Job: a suspension was issued and its pod template is not restored yet. Written by Kueue.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// On a Job: the name of an existing Workload that the Job takes as its own; wins over the label of the same key.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// On a Workload: signed integer added to its priority.
pub const PRIORITY_BOOST: &str = "kueue.x-k8s.io/priority-boost";
/// Prefix of annotations on Jobs that are handed on as ProvisioningRequest parameters.
pub const PROVISIONING_REQUEST_PREFIX: &str = "provreq.kueue.x-k8s.io/";

/// On a pod template: the node label level inside which all pods must be placed.
pub const PODSET_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-required-topology";
/// On a pod template: the node label level inside which all pods should be placed.
pub const PODSET_PREFERRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-preferred-topology";
/// On a pod template: `true` asks for topology accounting without a constraint.
pub const PODSET_UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
/// On a pod template: the node label level inside which each slice of pods must be placed.
pub const PODSET_SLICE_REQUIRED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-slice-required-topology";
/// On a pod template: the number of pods in a slice.
pub const PODSET_SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
/// On a pod template: JSON list of `{"topology", "size"}` pairs, from the widest level to the narrowest.
pub const PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS: &str =
    "kueue.x-k8s.io/podset-slice-required-topology-constraints";
/// On a pod template: pod sets with the same value are placed together.
pub const PODSET_GROUP_NAME: &str = "kueue.x-k8s.io/podset-group-name";
/// On a pod template: shifts the numbering of ranks inside the pod set.
pub const POD_INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
/// On a pod template: the Workload the pods belong to.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// On a pod template: the first Workload of an elastic job's chain.
pub const WORKLOAD_SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";

/// Every annotation on a pod template that asks for topology aware scheduling.
pub const TOPOLOGY_REQUESTS: &[&str] = &[
    PODSET_REQUIRED_TOPOLOGY,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_UNCONSTRAINED_TOPOLOGY,
    PODSET_SLICE_REQUIRED_TOPOLOGY,
    PODSET_SLICE_SIZE,
    PODSET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
    PODSET_GROUP_NAME,
    POD_INDEX_OFFSET,
];
