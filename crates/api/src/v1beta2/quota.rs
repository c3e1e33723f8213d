//! Quotas of a ClusterQueue, and their usage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::QuantityText;
use crate::quantity_text::NonNegativeQuantity;
use crate::schema::{ObjectName, ResourceName, rule};

/// Resources that are assigned together: a pod set takes all of them from one flavor of the group.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule(
        "self.flavors.all(f, f.resources.map(r, r.name) == self.coveredResources)",
        "each flavor must list the resources of coveredResources, in the same order",
    ),
    rule(
        "size(self.flavors) * size(self.coveredResources) <= 512",
        "a group has at most 512 pairs of flavor and resource",
    ),
]))]
pub struct ResourceGroup {
    /// Names of the resources that this group pays for, such as cpu, memory or example.com/gpu. A resource belongs
    /// to at most one group of a queue.
    #[schemars(with = "Vec<ResourceName>", length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = [rule("self.all(r, self.exists_one(o, o == r))", "a resource is listed once")]))]
    pub covered_resources: Vec<String>,
    /// Flavors that provide the resources, tried in this order. A flavor belongs to at most one group of a queue.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors: Vec<FlavorQuotas>,
}

/// The quota that one flavor provides.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// Name of a ResourceFlavor. While it does not exist, the queue is not active.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// Quota per resource: the names and the order of coveredResources.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one resource in one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Name of the resource.
    #[schemars(with = "ResourceName")]
    pub name: String,
    /// How much of the resource the queue can use at any time out of its own quota.
    #[schemars(with = "NonNegativeQuantity")]
    pub nominal_quota: QuantityText,
    /// How much more the queue can take from unused quota of its cohort. Absent means without limit, 0 means nothing.
    #[schemars(with = "Option<NonNegativeQuantity>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<QuantityText>,
    /// How much of the nominal quota others in the cohort can borrow while it is unused. Absent means all of it.
    #[schemars(with = "Option<NonNegativeQuantity>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<QuantityText>,
}

/// What is used of one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// Name of the flavor.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// Usage per resource.
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ResourceUsage>,
}

/// What is used of one resource in one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// The whole amount in use, what is borrowed included.
    #[serde(default)]
    pub total: QuantityText,
    /// The part of the total that is above the nominal quota, taken from the cohort.
    #[serde(default)]
    pub borrowed: QuantityText,
}

/// The rule that only a holder of quota that names the cohort above it, in `parent`, has this limit.
pub(super) fn limit_rule(parent: &str, limit: &str, use_of_it: &str) -> Value {
    rule(
        &format!(
            "has(self.{parent}) || !has(self.resourceGroups) || self.resourceGroups.all(g, \
             g.flavors.all(f, f.resources.all(r, !has(r.{limit}))))"
        ),
        &format!("{limit} needs a {parent}: there is nobody to {use_of_it}"),
    )
}

/// The rules that the resource groups of one `holder` keep between them.
pub(super) fn group_rules(holder: &str) -> [Value; 4] {
    [
        rule(
            "self.all(g, self.exists_one(h, sets.intersects(g.coveredResources, h.coveredResources)))",
            "a resource belongs to one group alone",
        ),
        rule(
            "self.all(g, self.exists_one(h, sets.intersects(g.flavors.map(f, f.name), h.flavors.map(f, f.name))))",
            "a flavor belongs to one group alone",
        ),
        rule(
            "self.map(g, size(g.flavors)).sum() <= 256",
            &format!("a {holder} has at most 256 flavors"),
        ),
        rule(
            "self.map(g, size(g.coveredResources)).sum() <= 256",
            &format!("a {holder} covers at most 256 resources"),
        ),
    ]
}
