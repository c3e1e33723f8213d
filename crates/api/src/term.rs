//! Term: the number of the current leadership, which fences writes of earlier leaders.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::rule;

/// Name of the one Term of a cluster.
pub const TERM_NAME: &str = "scheduler";

/// Who leads, counted.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "sluice.internal",
    version = "v1alpha1",
    kind = "Term",
    plural = "terms",
    category = "sluice",
    derive = "Default",
    derive = "PartialEq",
    doc = "The number of the current leadership. An admission policy takes it as its parameter and refuses what an earlier leader writes late.",
    printcolumn(
        name = "Term",
        type_ = "integer",
        json_path = ".spec.term",
        description = "Number of the leadership"
    ),
    printcolumn(
        name = "Holder",
        type_ = "string",
        json_path = ".spec.holder",
        description = "Identity of the leader"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct TermSpec {
    /// Grows by at least one with each leadership and never falls.
    #[schemars(range(min = 0))]
    #[schemars(extend("x-kubernetes-validations" = [rule(
        "self >= oldSelf",
        "term never falls",
    )]))]
    pub term: i64,
    /// Identity of the leader: its pod's name and a random part.
    #[schemars(length(max = 317))]
    pub holder: String,
    /// When the leadership began.
    #[schemars(with = "Option<AcquiredAt>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acquired_at: Option<MicroTime>,
}

/// Schema of the time at which a leadership began.
struct AcquiredAt;

impl JsonSchema for AcquiredAt {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MicroTime".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}
