//! MultiKueueConfig and MultiKueueCluster: worker clusters that take jobs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kubernetes::ConditionSchema;
use crate::open_enum::open_enum;
use crate::schema::{ClusterName, rule};

/// The desired state of a MultiKueueConfig.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "MultiKueueConfig",
    plural = "multikueueconfigs",
    shortname = "mkconf",
    category = "sluice",
    derive = "Default",
    derive = "PartialEq",
    doc = "The worker clusters among which jobs are given out. AdmissionChecks name it in their parameters."
)]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters, in the order in which they are tried.
    #[schemars(with = "Vec<ClusterName>", length(min = 1, max = 20))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [rule("self.all(c, self.exists_one(o, o == c))", "a cluster is listed once")]))]
    pub clusters: Vec<String>,
    /// Who sets the quota of the queues that give their jobs to the clusters. Absent means Manual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

open_enum! {
    /// Who sets the quota of the queues that give their jobs to worker clusters.
    pub enum QuotaManagement {
        /// Whoever writes the ClusterQueue.
        Manual,
        /// It follows the quota of the worker clusters.
        Automated,
    }
}

/// The desired state of a MultiKueueCluster.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "MultiKueueCluster",
    plural = "multikueueclusters",
    shortname = "mkc",
    category = "sluice",
    status = "MultiKueueClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A worker cluster that takes jobs, and how it is reached.",
    printcolumn(
        name = "Connected",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Active')].status",
        description = "Whether the cluster can be reached"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct MultiKueueClusterSpec {
    /// How the cluster is reached.
    pub cluster_source: ClusterSource,
}

/// How a worker cluster is reached: in one way of those below.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.kubeConfig) != has(self.clusterProfileRef)",
    "either kubeConfig or clusterProfileRef must be set",
)]))]
pub struct ClusterSource {
    /// By a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// By a ClusterProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Where a kubeconfig is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of the Secret, in the namespace of the queueing system, whose key kubeconfig holds it; or path of a file.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// What the location is.
    #[serde(default)]
    pub location_type: LocationType,
}

open_enum! {
    /// What the location of a kubeconfig is.
    #[derive(Default)]
    pub enum LocationType {
        /// Name of a Secret.
        #[default]
        Secret,
        /// Path of a file.
        Path,
    }
}

/// Name of a ClusterProfile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// The name, in the namespace of the queueing system.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// The observed state of a MultiKueueCluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueClusterStatus {
    /// Conditions. The condition Active says whether the cluster can be reached.
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
