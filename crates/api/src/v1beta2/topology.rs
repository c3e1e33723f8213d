//! Topology: the levels at which nodes lie close together.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{LevelName, rule};

/// The desired state of a Topology.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Topology",
    plural = "topologies",
    shortname = "topo",
    category = "sluice",
    derive = "Default",
    derive = "PartialEq",
    doc = "The levels at which nodes lie close together, such as zone, rack and host. ResourceFlavors name it in topologyName."
)]
pub struct TopologySpec {
    /// The levels, from the widest to the narrowest. They can change only while the last one is kubernetes.io/hostname.
    #[schemars(length(min = 1, max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [
        rule("self.all(l, self.exists_one(o, o.nodeLabel == l.nodeLabel))", "a level is listed once"),
        rule(
            "!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname') \
             || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "kubernetes.io/hostname can only be the last level",
        ),
        rule(
            "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' \
             && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
            "levels can change only while kubernetes.io/hostname is the last one, before and after",
        ),
    ]))]
    pub levels: Vec<TopologyLevel>,
}

/// One level of a Topology.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Label of the nodes: those with the same value are one domain of the level.
    #[schemars(with = "LevelName")]
    pub node_label: String,
}
