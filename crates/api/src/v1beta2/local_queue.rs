//! LocalQueue: a namespace's door to a ClusterQueue.
#![allow(clippy::duplicated_attributes, reason = "several printer columns have the same type")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kubernetes::{ConditionSchema, TimeSchema};
use super::policy::{FairSharing, StopPolicy};
use crate::QuantityText;
use crate::absent::default_when_absent;
use crate::schema::{ObjectName, rule};

/// The desired state of a LocalQueue.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "LocalQueue",
    plural = "localqueues",
    namespaced,
    shortname = "queue",
    shortname = "queues",
    shortname = "lq",
    category = "sluice",
    status = "LocalQueueStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A namespace's door to a ClusterQueue. Jobs name it in the label kueue.x-k8s.io/queue-name.",
    printcolumn(
        name = "ClusterQueue",
        type_ = "string",
        json_path = ".spec.clusterQueue",
        description = "ClusterQueue that pays for the jobs"
    ),
    printcolumn(
        name = "Pending Workloads",
        type_ = "integer",
        json_path = ".status.pendingWorkloads",
        description = "Number of jobs that wait"
    ),
    printcolumn(
        name = "Admitted Workloads",
        type_ = "integer",
        json_path = ".status.admittedWorkloads",
        description = "Number of jobs that are admitted and not finished"
    )
)]
pub struct LocalQueueSpec {
    /// The ClusterQueue that pays for the jobs of this queue. Cannot change after creation.
    #[schemars(with = "Option<ObjectName>")]
    #[schemars(extend("x-kubernetes-validations" = [rule(
        "self == oldSelf",
        "clusterQueue cannot change: create another LocalQueue",
    )]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    /// Whether the queue passes jobs on, and what happens to those already admitted through it. Hold stops admission,
    /// HoldAndDrain also evicts what is admitted.
    pub stop_policy: StopPolicy,
    /// The weight of the queue among those of its ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

default_when_absent!(LocalQueueSpec);

/// The observed state of a LocalQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueStatus {
    /// Conditions. The condition Active says whether jobs of the queue can be admitted, and if not, why.
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Number of jobs that wait.
    pub pending_workloads: i32,
    /// Number of jobs that hold a quota reservation and are not finished.
    pub reserving_workloads: i32,
    /// Number of jobs that are admitted and not finished.
    pub admitted_workloads: i32,
    /// What jobs with a quota reservation take, per flavor.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// What admitted jobs take, per flavor.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors_usage: Vec<LocalQueueFlavorUsage>,
    /// The queue's standing among those of its ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// What jobs of the queue use of one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorUsage {
    /// Name of the flavor.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// Usage per resource.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// What jobs of the queue use of one resource in one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// The amount in use.
    #[serde(default)]
    pub total: QuantityText,
}

/// The queue's standing among those of its ClusterQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// The largest share over all resources, in thousandths, divided by the weight.
    pub weighted_share: i64,
    /// Past usage, as far as it counts for the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Past usage of a LocalQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Usage per resource, decayed over time.
    pub consumed_resources: BTreeMap<String, QuantityText>,
    /// When the usage was last brought up to date.
    #[schemars(with = "TimeSchema")]
    pub last_update: Time,
}
