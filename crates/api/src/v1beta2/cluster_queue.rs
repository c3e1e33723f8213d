//! ClusterQueue: a pool of quota, and the rules by which it is given out.
#![allow(clippy::duplicated_attributes, reason = "several printer columns have the same type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kubernetes::{ConditionSchema, LabelSelectorSchema};
use super::policy::{
    AdmissionScope, ClusterQueuePreemption, ConcurrentAdmissionPolicy, FairSharing, FairSharingStatus,
    FlavorFungibility, QueueingStrategy, StopPolicy,
};
use super::quota::{FlavorUsage, ResourceGroup, group_rules, limit_rule};
use crate::absent::default_when_absent;
use crate::schema::{CheckName, ObjectName, rule};

/// The desired state of a ClusterQueue.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterQueue",
    plural = "clusterqueues",
    shortname = "cq",
    category = "sluice",
    status = "ClusterQueueStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A pool of quota for jobs, and the rules by which it is given out. Jobs reach it through LocalQueues.",
    printcolumn(
        name = "Cohort",
        type_ = "string",
        json_path = ".spec.cohortName",
        description = "Cohort that the queue shares unused quota with"
    ),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.queueingStrategy",
        priority = "1",
        description = "What a job that does not fit means for those behind it"
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
        priority = "1",
        description = "Number of jobs that are admitted and not finished"
    )
)]
#[schemars(extend("x-kubernetes-validations" = [
    limit_rule("cohortName", "borrowingLimit", "borrow from"),
    limit_rule("cohortName", "lendingLimit", "lend to"), rule(
        "has(self.concurrentAdmissionPolicy) == has(oldSelf.concurrentAdmissionPolicy) \
         && (!has(self.concurrentAdmissionPolicy) || self.concurrentAdmissionPolicy == oldSelf.concurrentAdmissionPolicy)",
        "concurrentAdmissionPolicy cannot change",
    )]))]
pub struct ClusterQueueSpec {
    /// Quotas, in groups of resources that are assigned together.
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = group_rules("queue")))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort that the queue belongs to. Queues of one cohort can use each other's unused quota. Absent means the
    /// queue stands alone.
    #[schemars(with = "Option<ObjectName>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_name: Option<String>,
    /// What a job that does not fit means for those behind it. With StrictFIFO it blocks them, with BestEffortFIFO
    /// jobs that fit pass it.
    pub queueing_strategy: QueueingStrategy,
    /// Namespaces whose jobs the queue accepts, by their labels. Absent means none, an empty selector means all.
    #[schemars(with = "Option<LabelSelectorSchema>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// In which order flavors are taken when a job fits without further ado in none of them.
    #[schemars(extend("default" = {}))]
    pub flavor_fungibility: FlavorFungibility,
    /// Which admitted jobs may be evicted to make room for a pending one.
    #[schemars(extend("default" = {}))]
    pub preemption: ClusterQueuePreemption,
    /// Admission checks that a job must pass before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether the queue admits, and what happens to the jobs it has admitted. Hold stops admission, HoldAndDrain also
    /// evicts what is admitted.
    pub stop_policy: StopPolicy,
    /// The weight of the queue among those of its cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// What the order of admission takes into account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Trying several flavors for the same job at once. Cannot change after creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

default_when_absent!(ClusterQueueSpec);

/// Admission checks, each for all flavors or for some.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckRule>,
}

/// One admission check, and the flavors it concerns.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckRule {
    /// Name of an AdmissionCheck.
    #[schemars(with = "CheckName")]
    pub name: String,
    /// Flavors that the check concerns. Absent or empty means all of them.
    #[schemars(with = "Vec<ObjectName>", length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_flavors: Vec<String>,
}

/// The observed state of a ClusterQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueStatus {
    /// Conditions. The condition Active says whether the queue admits, and if not, why.
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What jobs with a quota reservation take, per flavor.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// What admitted jobs take, per flavor.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Number of jobs that wait.
    pub pending_workloads: i32,
    /// Number of jobs that hold a quota reservation and are not finished.
    pub reserving_workloads: i32,
    /// Number of jobs that are admitted and not finished.
    pub admitted_workloads: i32,
    /// How much of the unused quota the queue takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
