//! Workload: what some job asks for, and how its admission stands.
#![allow(clippy::duplicated_attributes, reason = "several printer columns have the same type")]

mod admission;
mod pod_set;
mod rules;
mod status;
mod topology;
mod validation;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent::default_when_absent;
use crate::open_enum::open_enum;
use crate::schema::{ObjectName, PriorityClassName, rule};

pub use admission::{Admission, DelayedTopologyRequest, PodSetAssignment};
pub use pod_set::{PodSet, PodSetSliceConstraint, PodSetTopologyRequest};
pub(crate) use rules::{old_root_rules, root_rules};
pub use status::{
    AdmissionCheckState, CheckState, Eviction, GatePosition, PodSetRequest, PodSetUpdate, PreemptionGateState,
    ReclaimablePod, RequeueState, SchedulingStats, UnhealthyNode, WorkloadStatus,
};
pub use topology::{
    IndividualValues, PodCounts, TopologyAssignment, TopologyAssignmentSlice, TopologyDomain, Uneven, Values,
};

/// Name of a pod set that is given none.
pub const DEFAULT_POD_SET: &str = "main";

/// The desired state of a Workload.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Workload",
    plural = "workloads",
    namespaced,
    shortname = "kwl",
    shortname = "kueueworkload",
    shortname = "kueueworkloads",
    category = "sluice",
    status = "WorkloadStatus",
    selectable = ".status.admission.clusterQueue",
    derive = "Default",
    derive = "PartialEq",
    doc = "What a job asks for, in sets of equal pods, and how its admission stands. Written for a job by its controller, or by hand.",
    printcolumn(
        name = "Queue",
        type_ = "string",
        json_path = ".spec.queueName",
        description = "LocalQueue that the workload waits in"
    ),
    printcolumn(
        name = "Reserved in",
        type_ = "string",
        json_path = ".status.admission.clusterQueue",
        description = "ClusterQueue whose quota the workload holds"
    ),
    printcolumn(
        name = "Admitted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Admitted')].status",
        description = "Whether the workload is admitted"
    ),
    printcolumn(
        name = "Finished",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Finished')].status",
        description = "Whether the workload is finished"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "!has(self.priorityClassRef) || has(self.priority)",
    "priorityClassRef needs a priority: the value of that class",
)]))]
pub struct WorkloadSpec {
    /// The pods that the workload is made of, in sets of equal pods. They cannot change while the workload holds quota.
    #[schemars(length(min = 1, max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue, in the workload's namespace, that the workload waits in. Cannot change while the workload holds
    /// quota.
    #[schemars(with = "Option<ObjectName>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// The class that the priority was taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// The priority in the queue. Workloads of higher priority go first; absent means 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether the workload takes part in queueing. Setting it to false evicts a workload that runs.
    pub active: bool,
    /// Longest time, in seconds, that the workload may be admitted before it is deactivated. Absent means without limit.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep the workload from preempting others. Each is opened in the status by whoever owns it.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGate>,
}

default_when_absent!(WorkloadSpec);

impl Default for WorkloadSpec {
    fn default() -> Self {
        Self {
            pod_sets: Vec::new(),
            queue_name: None,
            priority_class_ref: None,
            priority: None,
            active: true,
            maximum_execution_time_seconds: None,
            preemption_gates: Vec::new(),
        }
    }
}

open_enum! {
    /// API group of a priority class.
    pub enum PriorityClassGroup {
        /// That of WorkloadPriorityClass.
        Kueue = "kueue.x-k8s.io",
        /// That of Kubernetes' own PriorityClass.
        Scheduling = "scheduling.k8s.io",
    }
}

open_enum! {
    /// Kind of a priority class.
    pub enum PriorityClassKind {
        /// A priority in the queue alone.
        WorkloadPriorityClass,
        /// Kubernetes' own, the priority of the pods.
        PriorityClass,
    }
}

/// The class that a priority was taken from.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
    "the group kueue.x-k8s.io has the kind WorkloadPriorityClass, scheduling.k8s.io has PriorityClass",
)]))]
pub struct PriorityClassRef {
    /// API group of the class.
    pub group: PriorityClassGroup,
    /// Kind of the class.
    pub kind: PriorityClassKind,
    /// Name of the class.
    #[schemars(with = "PriorityClassName")]
    pub name: String,
}

/// A gate that keeps a workload from preempting others.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}
