//! WorkloadPriorityClass: a named priority in the queue.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fields of a WorkloadPriorityClass. They stand at the top level of the object, which has no spec.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "WorkloadPriorityClass",
    plural = "workloadpriorityclasses",
    no_spec,
    shortname = "wpc",
    category = "sluice",
    derive = "Default",
    derive = "PartialEq",
    doc = "A named priority that orders jobs in their queue without touching the priority of their pods. Jobs name it in the label kueue.x-k8s.io/priority-class.",
    printcolumn(
        name = "Value",
        type_ = "integer",
        json_path = ".value",
        description = "The priority"
    )
)]
pub struct WorkloadPriorityClassSpec {
    /// The priority. Jobs of higher priority go first.
    pub value: i32,
    /// When this class should be used, for people.
    #[schemars(length(max = 2048))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}
