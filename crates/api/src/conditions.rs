//! Condition types and reasons in the status of queue objects and Workloads.
//!
//! Types and reasons that Kueue has keep Kueue's spelling, so that dashboards and `kubectl wait` work on.

/// Condition of a ClusterQueue or LocalQueue: whether it can admit.
pub const ACTIVE: &str = "Active";
/// Condition of a ClusterQueue that uses rules beyond Kueue's: which these are. Sluice's own.
pub const EXTRA_RULES: &str = "ExtraRules";
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

/// Reasons of [`EXTRA_RULES`] on a ClusterQueue.
pub mod extra_rules {
    /// True: the annotations that the message names are acted on.
    pub const IN_FORCE: &str = "InForce";
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

/// Types and reasons of the conditions of a Workload.
///
/// A condition that stops to hold keeps its message behind the words "Previously: ".
pub mod workload {
    /// It holds quota. Admission comes after the admission checks.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// It may run.
    pub const ADMITTED: &str = "Admitted";
    /// Its pods are ready, or were and have succeeded.
    pub const PODS_READY: &str = "PodsReady";
    /// It must stop, and gives its quota back once it has.
    pub const EVICTED: &str = "Evicted";
    /// It was evicted for the sake of another one.
    pub const PREEMPTED: &str = "Preempted";
    /// It is back in its queue after an eviction; false while something must be waited out.
    pub const REQUEUED: &str = "Requeued";
    /// It is to be deactivated. Removed when that is done.
    pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
    /// It has ended, well or not. Never taken back.
    pub const FINISHED: &str = "Finished";
    /// A preemption gate keeps it from preempting.
    pub const BLOCKED_ON_PREEMPTION_GATES: &str = "BlockedOnPreemptionGates";
    /// It waits for pods of its group that are missing.
    pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";

    /// Reasons of [`QUOTA_RESERVED`].
    pub mod quota_reserved {
        /// True: it holds quota. Also the reason with which evictions and preemptions are taken back.
        pub const QUOTA_RESERVED: &str = "QuotaReserved";
        /// False: no flavor of the queue suits it.
        pub const NO_MATCHING_FLAVOR: &str = "NoMatchingFlavor";
        /// False: the quota is in use.
        pub const WAITING_FOR_QUOTA: &str = "WaitingForQuota";
        /// False: it asks for more than there can ever be.
        pub const EXCEEDS_MAX_QUOTA: &str = "ExceedsMaxQuota";
        /// False: the topology has no place for it.
        pub const TOPOLOGY_PLACEMENT_FAILED: &str = "TopologyPlacementFailed";
        /// False: others were evicted for it and have not stopped yet.
        pub const WAITING_FOR_PREEMPTED_WORKLOADS: &str = "WaitingForPreemptedWorkloads";
        /// False: pods of others must be ready first.
        pub const WAITING_FOR_PODS_READY: &str = "WaitingForPodsReady";
        /// False: nobody has looked at it yet.
        pub const PENDING_EVALUATION: &str = "PendingEvaluation";
        /// False: its queue or flavor is not as it should be.
        pub const MISCONFIGURED: &str = "Misconfigured";
        /// False: its job is suspended by its owner.
        pub const SUSPENDED: &str = "Suspended";
        /// False: somebody gates its admission.
        pub const ADMISSION_GATED: &str = "AdmissionGated";
        /// False: its queue is stopped.
        pub const ON_HOLD: &str = "OnHold";
        /// False: it takes no part in queueing.
        pub const DEACTIVATED: &str = "Deactivated";
        /// False: the coarse reason that older dashboards know for all that may change by itself.
        pub const PENDING: &str = "Pending";
        /// False: the coarse reason for a queue that is missing or inactive.
        pub const INADMISSIBLE: &str = "Inadmissible";
    }

    /// Reasons of [`ADMITTED`].
    pub mod admitted {
        /// True: it may run.
        pub const ADMITTED: &str = "Admitted";
        /// False: it holds no quota.
        pub const NO_RESERVATION: &str = "NoReservation";
        /// False: admission checks are not ready.
        pub const UNSATISFIED_ADMISSION_CHECKS: &str = "UnsatisfiedAdmissionChecks";
        /// False: a delayed placement is not done.
        pub const PENDING_DELAYED_TOPOLOGY_REQUESTS: &str = "PendingDelayedTopologyRequests";
    }

    /// Reasons of [`PODS_READY`].
    pub mod pods_ready {
        /// True: all pods got ready.
        pub const STARTED: &str = "Started";
        /// True: all pods are ready again.
        pub const RECOVERED: &str = "Recovered";
        /// False: some pod was never ready since the admission.
        pub const WAIT_FOR_START: &str = "WaitForStart";
        /// False: all were ready, and some pod failed.
        pub const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
    }

    /// Reasons of [`EVICTED`].
    pub mod evicted {
        /// For the sake of another one.
        pub const PREEMPTED: &str = "Preempted";
        /// Its pods were not ready in time.
        pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
        /// An admission check took its word back.
        pub const ADMISSION_CHECK: &str = "AdmissionCheck";
        /// The ClusterQueue is drained.
        pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
        /// The LocalQueue is drained.
        pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
        /// Nodes under its pods failed.
        pub const NODE_FAILURES: &str = "NodeFailures";
        /// It was deactivated by hand.
        pub const DEACTIVATED: &str = "Deactivated";
        /// Put before the reason of [`DEACTIVATION_TARGET`](super::DEACTIVATION_TARGET) when that was the cause.
        pub const DEACTIVATED_DUE_TO: &str = "DeactivatedDueTo";
        /// It moves to a better flavor.
        pub const FLAVOR_MIGRATION: &str = "FlavorMigration";
    }

    /// Reasons of [`PREEMPTED`].
    pub mod preempted {
        /// By one of its own ClusterQueue.
        pub const IN_CLUSTER_QUEUE: &str = "InClusterQueue";
        /// By one whose queue takes its quota back.
        pub const IN_COHORT_RECLAMATION: &str = "InCohortReclamation";
        /// By one whose queue has less than its fair share.
        pub const IN_COHORT_FAIR_SHARING: &str = "InCohortFairSharing";
        /// By one whose queue borrows for it.
        pub const IN_COHORT_RECLAIM_WHILE_BORROWING: &str = "InCohortReclaimWhileBorrowing";
    }

    /// Reasons of [`REQUEUED`].
    pub mod requeued {
        /// True: its back-off is over.
        pub const BACKOFF_FINISHED: &str = "BackoffFinished";
        /// True: it was made active again.
        pub const REACTIVATED: &str = "Reactivated";
        /// True: its ClusterQueue works again.
        pub const CLUSTER_QUEUE_RESTARTED: &str = "ClusterQueueRestarted";
        /// True: its LocalQueue works again.
        pub const LOCAL_QUEUE_RESTARTED: &str = "LocalQueueRestarted";
        /// True: it was preempted and may try again at once.
        pub const PREEMPTED: &str = "Preempted";
        /// True: it looks for other nodes.
        pub const NODE_FAILURES: &str = "NodeFailures";
        /// False: its queue is missing or inactive. The other false reasons are those of the eviction.
        pub const INADMISSIBLE: &str = "Inadmissible";
    }

    /// Reasons of [`DEACTIVATION_TARGET`].
    pub mod deactivation_target {
        /// It was evicted more often than is allowed.
        pub const REQUEUING_LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";
        /// It ran for as long as it may.
        pub const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
        /// An admission check rejected it.
        pub const ADMISSION_CHECK: &str = "AdmissionCheck";
        /// It was evicted in the cluster that manages it.
        pub const EVICTED_ON_MANAGER_CLUSTER: &str = "EvictedOnManagerCluster";
    }

    /// Reasons of [`FINISHED`].
    pub mod finished {
        /// Its job succeeded.
        pub const SUCCEEDED: &str = "Succeeded";
        /// Its job failed.
        pub const FAILED: &str = "Failed";
        /// It is not what its job asks for.
        pub const OUT_OF_SYNC: &str = "OutOfSync";
        /// Its job is gone.
        pub const OWNER_NOT_FOUND: &str = "OwnerNotFound";
        /// Another slice of the same job took its place.
        pub const WORKLOAD_SLICE_REPLACED: &str = "WorkloadSliceReplaced";
        /// Its job could not be started.
        pub const FAILED_TO_START: &str = "FailedToStart";
    }

    /// Reason of [`BLOCKED_ON_PREEMPTION_GATES`]: a gate is closed.
    pub const PREEMPTION_GATED: &str = "PreemptionGated";
}
