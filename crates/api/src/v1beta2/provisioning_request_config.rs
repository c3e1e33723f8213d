//! ProvisioningRequestConfig: how capacity is asked for from a cluster autoscaler.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::schema::{DetailText, LabelKey, ObjectName, ParameterText, ResourceName};

/// The desired state of a ProvisioningRequestConfig.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ProvisioningRequestConfig",
    plural = "provisioningrequestconfigs",
    shortname = "prc",
    category = "sluice",
    derive = "Default",
    derive = "PartialEq",
    doc = "How capacity for a job is asked for from a cluster autoscaler, by a ProvisioningRequest. AdmissionChecks name it in their parameters."
)]
pub struct ProvisioningRequestConfigSpec {
    /// The provisioning class of the requests.
    #[schemars(with = "ObjectName")]
    pub provisioning_class_name: String,
    /// Parameters of the class.
    #[schemars(with = "BTreeMap<String, ParameterText>", extend("maxProperties" = 100))]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Resources that are provisioned: pod sets that ask for none of them need no request. Empty means that all pod sets
    /// do.
    #[schemars(with = "Vec<ResourceName>", length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<String>,
    /// How often, and how soon, a failed request is made again.
    #[schemars(extend("default" = {}))]
    #[serde(default)]
    pub retry_strategy: ProvisioningRetryStrategy,
    /// What is added to the pods of a request that was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningPodSetUpdates>,
    /// Which pod sets share one pod template in a request. Absent means that each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// How often, and how soon, a failed request is made again.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRetryStrategy {
    /// How often a request is made again before the check is rejected.
    pub backoff_limit_count: i32,
    /// Seconds before the first time; each later one waits twice as long.
    pub backoff_base_seconds: i32,
    /// Longest time, in seconds, before a request is made again.
    pub backoff_max_seconds: i32,
}

impl Default for ProvisioningRetryStrategy {
    fn default() -> Self {
        Self {
            backoff_limit_count: 3,
            backoff_base_seconds: 60,
            backoff_max_seconds: 1800,
        }
    }
}

/// What is added to the pods of a request that was granted.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningPodSetUpdates {
    /// Labels of nodes that the pods need.
    #[schemars(length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<ProvisioningNodeSelector>,
}

/// A label of nodes whose value the granted request says.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningNodeSelector {
    /// The label.
    #[schemars(with = "LabelKey")]
    pub key: String,
    /// Name of the detail, in the status of the request, that holds the value.
    #[schemars(with = "DetailText")]
    pub value_from_provisioning_class_detail: String,
}

open_enum! {
    /// Which pod sets share one pod template in a request.
    pub enum PodSetMergePolicy {
        /// Those whose templates are the same.
        IdenticalPodTemplates,
        /// Those whose templates ask for the same resources and nodes.
        IdenticalWorkloadSchedulingRequirements,
    }
}
