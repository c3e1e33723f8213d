//! Condition types and reasons that Sluice writes in the status of queue objects.
//!
//! Types and reasons that Kueue has keep Kueue's spelling, so that dashboards and `kubectl wait` work on.

/// Condition of a ClusterQueue or LocalQueue: whether it can admit.
pub const ACTIVE: &str = "Active";
/// Value of a condition that holds.
pub const TRUE: &str = "True";
/// Value of a condition that does not hold.
pub const FALSE: &str = "False";

/// Reasons of [`ACTIVE`] on a ClusterQueue.
pub mod cluster_queue {
    /// True: the queue can admit.
    pub const READY: &str = "Ready";
    /// False: the queue is being deleted and only waits for its running jobs.
    pub const TERMINATING: &str = "Terminating";
    /// False: `stopPolicy` holds the queue.
    pub const STOPPED: &str = "Stopped";
    /// False: a flavor that the queue names does not exist.
    pub const FLAVOR_NOT_FOUND: &str = "FlavorNotFound";
    /// False: an admission check that the queue names does not exist.
    pub const ADMISSION_CHECK_NOT_FOUND: &str = "AdmissionCheckNotFound";
    /// False: an admission check that the queue names has no working controller.
    pub const ADMISSION_CHECK_INACTIVE: &str = "AdmissionCheckInactive";
    /// False: a topology that one of the queue's flavors names does not exist.
    pub const TOPOLOGY_NOT_FOUND: &str = "TopologyNotFound";
    /// False: the queue uses a field that Sluice does not act on yet. The message names it. Sluice's own reason.
    pub const UNSUPPORTED_FIELD: &str = "UnsupportedField";
    /// False: the stored object cannot be used as it is (a broken quantity, a flavor listed twice). Sluice's own reason.
    pub const INVALID_SPEC: &str = "InvalidSpec";
}

/// Reasons of [`ACTIVE`] on a LocalQueue.
pub mod local_queue {
    /// True: the queue passes its jobs on to an active ClusterQueue.
    pub const READY: &str = "Ready";
    /// False: `stopPolicy` holds the queue.
    pub const STOPPED: &str = "Stopped";
    /// False: the ClusterQueue it points to does not exist.
    pub const CLUSTER_QUEUE_DOES_NOT_EXIST: &str = "ClusterQueueDoesNotExist";
    /// False: the ClusterQueue it points to is not active.
    pub const CLUSTER_QUEUE_IS_INACTIVE: &str = "ClusterQueueIsInactive";
    /// False: the queue uses a field that Sluice does not act on yet. The message names it. Sluice's own reason.
    pub const UNSUPPORTED_FIELD: &str = "UnsupportedField";
    /// False: the stored object cannot be used as it is. Sluice's own reason.
    pub const INVALID_SPEC: &str = "InvalidSpec";
}
