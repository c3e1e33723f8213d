//! The wire types of the visibility API: who waits in a queue, and at which position.
//!
//! It is an aggregated API of its own group, served by the scheduler and stored nowhere. ClusterQueues and LocalQueues are
//! there only as carriers of the subresource [`PENDING_WORKLOADS`]. Its versions have the same schema.

pub mod discovery;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// API group of the visibility API.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// The subresource of ClusterQueues and LocalQueues that lists who waits.
pub const PENDING_WORKLOADS: &str = "pendingworkloads";
/// Resource name of ClusterQueues.
pub const CLUSTER_QUEUES: &str = "clusterqueues";
/// Resource name of LocalQueues.
pub const LOCAL_QUEUES: &str = "localqueues";
/// How many items are listed if `limit` is absent or 0.
pub const DEFAULT_LIMIT: u32 = 1_000;
/// How many items are listed at most.
pub const MAX_LIMIT: u32 = 100_000;

/// A version of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `v1beta1`.
    V1Beta1,
    /// `v1beta2`, the preferred one.
    V1Beta2,
}

impl Version {
    /// All versions, the preferred one first.
    pub const ALL: [Self; 2] = [Self::V1Beta2, Self::V1Beta1];

    /// The version as it stands in paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }

    /// Group and version, as `apiVersion` has them.
    pub fn api_version(self) -> String {
        format!("{GROUP}/{}", self.name())
    }

    /// Name of the APIService of this version.
    pub fn api_service(self) -> String {
        format!("{}.{GROUP}", self.name())
    }

    /// The version of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }
}

/// A part of the jobs that wait in a queue, in queue order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkloadsSummary {
    /// Always [`PendingWorkloadsSummary::KIND`].
    pub kind: String,
    /// Group and version.
    pub api_version: String,
    /// `resourceVersion`: that of the newest job that the answer rests on. The annotation
    /// [`REPLICA_ROLE`](crate::annotations::REPLICA_ROLE) says which replica answered.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The jobs.
    pub items: Vec<PendingWorkload>,
}

impl PendingWorkloadsSummary {
    /// The kind of the answer.
    pub const KIND: &'static str = "PendingWorkloadsSummary";
}

/// A job that waits. Positions count from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkload {
    /// Name, namespace, uid and creation time of what waits: a Workload, or a job that is queued without one. Its
    /// owner reference leads to the job either way.
    pub metadata: ObjectMeta,
    /// Its priority.
    pub priority: i32,
    /// The LocalQueue that it waits in.
    pub local_queue_name: String,
    /// How many are ahead of it in its ClusterQueue.
    pub position_in_cluster_queue: i32,
    /// How many are ahead of it in its LocalQueue.
    pub position_in_local_queue: i32,
}
