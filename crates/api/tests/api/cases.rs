//! The cases of `tests/cases`, without an API server: what objects say of themselves once they are decoded.
//!
//! What the API server answers to the same cases is an end-to-end test.

use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::Term;
use sluice_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    spec: Value,
    #[serde(default)]
    update: Option<Value>,
    #[serde(default)]
    refused: Option<String>,
    #[serde(default)]
    reported: Option<Value>,
}

fn check<K: Resource<DynamicType = ()> + DeserializeOwned>(yaml: &str, report: impl Fn(&K) -> Vec<String>) {
    let cases: Vec<Case> = serde_saphyr::from_str(yaml).unwrap();
    assert!(!cases.is_empty());
    for Case {
        name,
        spec,
        update,
        refused,
        reported,
    } in cases
    {
        assert_ne!(refused.as_deref(), Some(""), "{name}: an empty text is in every answer");
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": { "name": "case" },
            "spec": update.unwrap_or(spec),
        });
        let found = match serde_json::from_value::<K>(object) {
            Ok(object) => json!(report(&object)),
            Err(_) => json!("undecodable"),
        };
        if let Some(reported) = reported {
            assert_eq!(found, reported, "{name}");
        }
    }
}

fn lines(violations: Vec<sluice_api::v1beta2::Violation>) -> Vec<String> {
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn cluster_queues_say_what_is_wrong_with_them() {
    check(include_str!("../cases/cluster-queue.yaml"), |queue: &ClusterQueue| {
        lines(queue.validate())
    });
}

#[test]
fn cohorts_say_what_is_wrong_with_them() {
    check(include_str!("../cases/cohort.yaml"), |cohort: &Cohort| {
        lines(cohort.validate())
    });
}

#[test]
fn local_queues_say_what_is_wrong_with_them() {
    check(include_str!("../cases/local-queue.yaml"), |queue: &LocalQueue| {
        lines(queue.validate())
    });
}

#[test]
fn resource_flavors_say_what_is_wrong_with_them() {
    check(
        include_str!("../cases/resource-flavor.yaml"),
        |flavor: &ResourceFlavor| lines(flavor.validate()),
    );
}

#[test]
fn terms_decode_when_complete() {
    check(include_str!("../cases/term.yaml"), |_: &Term| Vec::new());
}
