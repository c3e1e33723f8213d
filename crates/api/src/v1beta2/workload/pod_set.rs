//! Sets of equal pods, and where their pods want to be placed.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DEFAULT_POD_SET;
use crate::schema::{PodSetName, rule};
use crate::v1beta2::pod_template::PodTemplateSchema;

/// A set of equal pods.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "!has(self.minCount) || self.minCount <= self.count",
    "minCount must not be above count",
)]))]
pub struct PodSet {
    /// Name of the set, unique in the workload.
    #[schemars(with = "PodSetName")]
    #[serde(default = "default_name")]
    pub name: String,
    /// The pods. What they ask for decides about quota and flavor; of the metadata only labels and annotations count.
    #[schemars(with = "PodTemplateSchema")]
    pub template: PodTemplateSpec,
    /// Number of pods.
    #[schemars(range(min = 0))]
    #[serde(default = "one")]
    pub count: i32,
    /// The fewest pods that the workload accepts to start with when all do not fit. Absent means all. One set of a
    /// workload can have this.
    #[schemars(range(min = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// Where the pods want to be placed in relation to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

impl Default for PodSet {
    fn default() -> Self {
        Self {
            name: default_name(),
            template: PodTemplateSpec::default(),
            count: one(),
            min_count: None,
            topology_request: None,
        }
    }
}

pub(super) fn default_name() -> String {
    DEFAULT_POD_SET.to_owned()
}

fn one() -> i32 {
    1
}

/// Where the pods of a set want to be placed in relation to each other.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetTopologyRequest {
    /// Label of the topology level within one domain of which all pods must be.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// Label of the topology level within one domain of which all pods should be, if that is possible.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Whether the pods may be anywhere in the topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Label of the pods that numbers them.
    #[schemars(length(max = 317))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Label of the pods that numbers the groups that they are made in, such as the Jobs of a JobSet.
    #[schemars(length(max = 317))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// Number of such groups.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Name that sets share which must get the same flavor.
    #[schemars(length(max = 256))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Label of the topology level within one domain of which each slice of the set must be.
    #[schemars(length(max = 63))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Number of pods of one slice.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_size: Option<i32>,
    /// Slices within slices: each constraint divides the slices of the one before it.
    #[schemars(length(max = 3))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    // The API writes this one name with a small "set".
    #[serde(
        rename = "podsetSliceRequiredTopologyConstraints",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub pod_set_slice_required_topology_constraints: Vec<PodSetSliceConstraint>,
}

/// Pods of which each so many must be within one domain.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSetSliceConstraint {
    /// Label of the topology level.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
    /// Number of pods of one slice.
    #[schemars(range(min = 1))]
    pub size: i32,
}
