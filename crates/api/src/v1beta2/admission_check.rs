//! AdmissionCheck: somebody who must agree before a job starts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kubernetes::ConditionSchema;
use crate::schema::{KindName, LabelName, ObjectName, rule};

/// The desired state of an AdmissionCheck.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "AdmissionCheck",
    plural = "admissionchecks",
    shortname = "ac",
    category = "sluice",
    status = "AdmissionCheckStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Somebody who must agree before a job starts, beside the quota. ClusterQueues name it in admissionChecksStrategy, and a controller of its own answers for each job."
)]
pub struct AdmissionCheckSpec {
    /// The controller that answers for this check; it need not be a Kubernetes object. Cannot change after creation.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("x-kubernetes-validations" = [rule(
        "self == oldSelf",
        "controllerName cannot change: create another AdmissionCheck",
    )]))]
    pub controller_name: String,
    /// The object that holds the settings of the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParameters>,
}

/// The object that holds the settings of a check.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParameters {
    /// API group of the object.
    #[schemars(with = "ObjectName")]
    pub api_group: String,
    /// Kind of the object.
    #[schemars(with = "KindName")]
    pub kind: String,
    /// Name of the object.
    #[schemars(with = "LabelName")]
    pub name: String,
}

/// The observed state of an AdmissionCheck.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckStatus {
    /// Conditions. The check's own controller says in the condition Active whether it works.
    #[schemars(with = "Vec<ConditionSchema>", length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
