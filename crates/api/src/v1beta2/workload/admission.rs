//! What a workload was given: quota in flavors, and a place in a topology.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_set::default_name;
use super::topology::TopologyAssignment;
use crate::QuantityText;
use crate::open_enum::open_enum;
use crate::schema::{ObjectName, PodSetName};

/// The quota that a workload holds. It is set and taken back as a whole; only topology fields change in between.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// The ClusterQueue whose quota it is.
    #[schemars(with = "Option<ObjectName>")]
    pub cluster_queue: String,
    /// What each pod set was given.
    #[schemars(length(max = 18))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What one pod set was given.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[schemars(with = "PodSetName")]
    #[serde(default = "default_name")]
    pub name: String,
    /// Name of the ResourceFlavor for each resource.
    #[schemars(with = "BTreeMap<String, ObjectName>")]
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// What all pods of the set together take of each resource. It stays as it was admitted when pods end early.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, QuantityText>,
    /// Number of pods that were admitted. It stays as it was admitted when pods end early.
    #[schemars(range(min = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Where the pods go, when the flavor has a topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Whether the place of the pods is found only after the admission checks, and whether that has been done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequest>,
}

impl Default for PodSetAssignment {
    fn default() -> Self {
        Self {
            name: default_name(),
            flavors: BTreeMap::new(),
            resource_usage: BTreeMap::new(),
            count: None,
            topology_assignment: None,
            delayed_topology_request: None,
        }
    }
}

open_enum! {
    /// How far a delayed placement is.
    pub enum DelayedTopologyRequest {
        /// The pods have no place yet.
        Pending,
        /// The pods have their place.
        Ready,
    }
}
