//! Cohort: a group of ClusterQueues and cohorts that share quota, with quota of its own.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::{FairSharing, FairSharingStatus};
use super::quota::{ResourceGroup, group_rules, limit_rule};
use crate::absent::default_when_absent;
use crate::schema::ObjectName;

/// The desired state of a Cohort.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Cohort",
    plural = "cohorts",
    shortname = "co",
    category = "sluice",
    status = "CohortStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A group of ClusterQueues and other Cohorts that share unused quota, with quota and a place in a tree of its own. ClusterQueues name it in cohortName. A cohort that ClusterQueues name exists without an object, with no quota of its own and no parent."
)]
#[schemars(extend("x-kubernetes-validations" = [
    limit_rule("parentName", "borrowingLimit", "borrow from"),
    limit_rule("parentName", "lendingLimit", "lend to")]))]
pub struct CohortSpec {
    /// The Cohort that this one is a member of. Absent means that it is the root of its tree. Members of a cohort in a
    /// cycle, or whose parent does not exist, admit nothing.
    #[schemars(with = "Option<ObjectName>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    /// Quotas of the cohort itself, for all its members. borrowingLimit and lendingLimit speak of the cohort with all
    /// its members, so a lendingLimit may be above the nominalQuota here.
    #[schemars(length(max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[schemars(extend("x-kubernetes-validations" = group_rules("cohort")))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_groups: Vec<ResourceGroup>,
    /// The weight of the cohort among the members of its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

default_when_absent!(CohortSpec);

/// The observed state of a Cohort.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortStatus {
    /// How much of the unused quota of its parent the cohort takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
