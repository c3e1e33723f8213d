//! How the admission of a workload stands.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::admission::Admission;
use crate::QuantityText;
use crate::open_enum::open_enum;
use crate::schema::{CheckName, ClusterName, PodSetName, rule};
use crate::v1beta2::kubernetes::{ConditionSchema, TimeSchema, TolerationSchema};

/// The observed state of a Workload. [`conditions::workload`](crate::conditions::workload) has the types and reasons of
/// its conditions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    rule(
        "!has(oldSelf.clusterName) || !has(self.clusterName) || self.clusterName == oldSelf.clusterName",
        "clusterName cannot change once it is set",
    ),
    rule(
        "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
        "clusterName and nominatedClusterNames exclude each other",
    ),
]))]
pub struct WorkloadStatus {
    /// Conditions. QuotaReserved says whether the workload holds quota, Admitted whether it may run, Evicted whether it
    /// must stop, and Finished that it has ended.
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The quota that the workload holds. Absent while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// How often the workload went back to its queue because its pods were not ready in time, and when it may try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that need their quota no more, per pod set.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// The admission checks that the workload must pass, and how each stands.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What each pod set asks for, all its pods together, while the workload waits.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_requests: Vec<PodSetRequest>,
    /// Time, in seconds, that the workload was admitted in all, before its latest admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// What happened to the workload so far, counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that may take the workload.
    #[schemars(with = "Vec<ClusterName>", length(max = 20))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominated_cluster_names: Vec<String>,
    /// The worker cluster that has the workload.
    #[schemars(with = "Option<ClusterName>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Nodes that failed under pods of the workload and for which others are looked for.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// Which of the preemption gates are open.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// How often a workload went back to its queue, and when it may try again.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RequeueState {
    /// How often.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// When it may try again.
    #[schemars(with = "Option<TimeSchema>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods of one set that need their quota no more.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// Name of the pod set.
    #[schemars(with = "PodSetName")]
    pub name: String,
    /// Number of pods.
    #[schemars(range(min = 0))]
    pub count: i32,
}

open_enum! {
    /// How an admission check stands for one workload.
    #[derive(Default)]
    pub enum CheckState {
        /// It is not decided.
        #[default]
        Pending,
        /// The workload may run, as far as the check is concerned.
        Ready,
        /// The workload must give its quota back and may try again.
        Retry,
        /// The workload will never pass: it is deactivated.
        Rejected,
    }
}

/// How one admission check stands. Its own controller writes it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Name of the AdmissionCheck.
    #[schemars(with = "CheckName")]
    pub name: String,
    /// How it stands.
    pub state: CheckState,
    /// When the state last changed.
    #[schemars(with = "TimeSchema")]
    pub last_transition_time: Time,
    /// Details for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// How long to wait, in seconds, before the check is tried again, when the state is Retry.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i32>,
    /// How often the check was tried again.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// What the check adds to the pods when they start.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// What is added to the pods of one set. Nothing that is there may be changed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Name of the pod set.
    #[schemars(with = "PodSetName")]
    pub name: String,
    /// Labels of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels of nodes that the pods need.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of the pods.
    #[schemars(with = "Vec<TolerationSchema>", length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// What one pod set asks for.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Name of the pod set.
    #[schemars(with = "PodSetName")]
    pub name: String,
    /// Amount per resource, all pods together, with what LimitRanges and runtime classes add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, QuantityText>,
}

/// What happened to a workload so far, counted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingStats {
    /// Evictions by reason and cause.
    #[schemars(length(max = 256))]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["reason", "underlyingCause"],
    ))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Eviction>,
}

/// How often a workload was evicted for one reason.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// The reason of the condition Evicted.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What was behind that reason, such as the reason of a preemption. May be empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// How often.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A node that failed under pods of a workload.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Name of the node.
    #[schemars(length(max = 63))]
    pub name: String,
}

open_enum! {
    /// Whether a gate lets something pass.
    pub enum GatePosition {
        /// It does.
        Open,
        /// It does not.
        Closed,
    }
}

/// Whether one preemption gate is open.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whether it is open.
    pub position: GatePosition,
    /// When the position last changed.
    #[schemars(with = "TimeSchema")]
    pub last_transition_time: Time,
}
