//! Keys of the labels that Sluice reads and writes.

/// On a Job: the LocalQueue, in the Job's namespace, that the Job waits in.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// On a Job: the WorkloadPriorityClass that orders it in its queue. The pods' own priority stays as it is.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// On a Namespace: the opt-in. With the value [`MANAGED_NAMESPACE_VALUE`] every Job of the namespace is managed.
pub const MANAGED_NAMESPACE: &str = "kueue.x-k8s.io/managed-namespace";
/// The one value of [`MANAGED_NAMESPACE`] that opts a namespace in.
pub const MANAGED_NAMESPACE_VALUE: &str = "true";
/// On a Job: the name of an existing Workload that the Job takes as its own.
/// The annotation of the same key wins and is needed for names longer than a label value.
pub const PREBUILT_WORKLOAD_NAME: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// On a Job: the longest time, in seconds, that it may run; a positive 32-bit integer.
pub const MAX_EXEC_TIME_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// On admitted pods: the name of the pod set they belong to.
pub const PODSET: &str = "kueue.x-k8s.io/podset";
/// On admitted pods: the LocalQueue they came through, when its name is a valid label value.
pub const LOCAL_QUEUE_NAME: &str = "kueue.x-k8s.io/local-queue-name";
/// On admitted pods: the ClusterQueue that pays for them, when its name is a valid label value.
pub const CLUSTER_QUEUE_NAME: &str = "kueue.x-k8s.io/cluster-queue-name";
/// On a Workload: the uid of the job that owns it.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// On pods, ProvisioningRequests and PodTemplates: written `true` by the queueing system that handles them.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// On a Job or a pod of a multi-cluster worker: where it was dispatched from.
pub const MULTIKUEUE_ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// Written by Kubernetes on every Namespace: its own name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
