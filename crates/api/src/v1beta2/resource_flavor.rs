//! ResourceFlavor: a kind of node that quota is given for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kubernetes::{TaintSchema, TolerationSchema};
use crate::absent::default_when_absent;
use crate::schema::{LabelValue, ObjectName, rule};

/// The desired state of a ResourceFlavor.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ResourceFlavor",
    plural = "resourceflavors",
    shortname = "flavor",
    shortname = "flavors",
    shortname = "rf",
    category = "sluice",
    derive = "Default",
    derive = "PartialEq",
    doc = "A kind of node that quota is given for: how its nodes are found, and what pods need to run there."
)]
#[schemars(extend("x-kubernetes-validations" = [rule(
        "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
        "topologyName needs at least one node label",
    ), rule(
        "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "topologyName cannot change once it is set",
    )]))]
pub struct ResourceFlavorSpec {
    /// Labels of the flavor's nodes. They become node selectors of the pods of every job admitted to this flavor; a
    /// job whose pods ask for other values of these labels does not match the flavor.
    #[schemars(with = "BTreeMap<String, LabelValue>", extend("maxProperties" = 8))]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [
        rule("self.all(k, !format.qualifiedName().validate(k).hasValue())", "a node label has a key that no node can have"),
    ]))]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the flavor's nodes. Only jobs whose pods tolerate the NoSchedule and NoExecute ones match the flavor.
    #[schemars(with = "Vec<TaintSchema>", length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [
        rule("self.all(t, self.exists_one(o, o.key == t.key && o.effect == t.effect))", "a pair of key and effect is listed once"),
    ]))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    /// Tolerations that are added to the pods of every job admitted to this flavor.
    #[schemars(with = "Vec<TolerationSchema>", length(max = 8))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The Topology that the flavor's nodes are placed in.
    #[schemars(with = "Option<ObjectName>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_name: Option<String>,
}

default_when_absent!(ResourceFlavorSpec);
