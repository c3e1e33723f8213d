//! Manifests in the variety that users bring, in both versions: each is what its schema admits, means something, and comes
//! back from the other version as it was.
//!
//! The same manifests are sent to a real API server by an end-to-end test.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::conversion::{Version, convert};
use sluice_api::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, MultiKueueConfig, ProvisioningRequestConfig,
    ResourceFlavor, Topology, Violation, Workload, WorkloadPriorityClass,
};

use crate::arbitrary::schema;

const FILES: &[&str] = &[
    include_str!("../../../../tests/manifests/v1beta1/others.yaml"),
    include_str!("../../../../tests/manifests/v1beta1/queues.yaml"),
    include_str!("../../../../tests/manifests/v1beta2/others.yaml"),
    include_str!("../../../../tests/manifests/v1beta2/queues.yaml"),
];

pub(crate) fn manifests() -> Vec<(String, Version, Value)> {
    let all = FILES
        .iter()
        .flat_map(|file| serde_saphyr::from_multiple::<Value>(file).unwrap());
    all.map(|manifest| {
        let version = Version::of(manifest["apiVersion"].as_str().unwrap()).unwrap();
        let name = format!(
            "{} {} {}",
            version.as_str(),
            manifest["kind"],
            manifest["metadata"]["name"]
        );
        (name, version, manifest)
    })
    .collect()
}

fn to(version: Version, object: &Value) -> Value {
    let mut converted = object.clone();
    convert(&mut converted, version).unwrap();
    converted
}

/// What the API server checks of a value before any CEL rule.
fn assert_admitted(path: &str, value: &Value, schema: &Value) {
    if path.ends_with(".metadata") {
        return;
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{path}: {value}");
    }
    match value {
        Value::Object(fields) => {
            assert_eq!(schema["type"], "object", "{path}");
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap();
                let filled_in = schema["properties"][name].get("default").is_some();
                assert!(fields.contains_key(name) || filled_in, "{path}.{name} is required");
            }
            for (name, value) in fields {
                let below = schema["properties"]
                    .get(name)
                    .or_else(|| schema.get("additionalProperties"));
                let path = format!("{path}.{name}");
                assert_admitted(&path, value, below.unwrap_or_else(|| panic!("{path} is not known")));
            }
        }
        Value::Array(items) => {
            assert_eq!(schema["type"], "array", "{path}");
            let within = |key: &str, limit: usize| schema[key].as_u64().map_or(limit, |n| usize::try_from(n).unwrap());
            assert!(
                (within("minItems", 0)..=within("maxItems", usize::MAX)).contains(&items.len()),
                "{path}"
            );
            for item in items {
                assert_admitted(&format!("{path}[*]"), item, &schema["items"]);
            }
        }
        _ if schema["x-kubernetes-int-or-string"] == true => assert!(value.is_i64() || value.is_string(), "{path}"),
        Value::String(_) => assert_eq!(schema["type"], "string", "{path}"),
        Value::Number(_) => assert_eq!(schema["type"], "integer", "{path}"),
        Value::Bool(_) => assert_eq!(schema["type"], "boolean", "{path}"),
        Value::Null => panic!("{path} is null"),
    }
}

fn read<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{object}: {error}"))
}

/// What is wrong with an object in the version that is stored.
fn violations(object: &Value) -> Vec<Violation> {
    match object["kind"].as_str().unwrap() {
        "ClusterQueue" => {
            let queue: ClusterQueue = read(object);
            [queue.validate(), queue.validate_references()].concat()
        }
        "Cohort" => read::<Cohort>(object).validate(),
        "LocalQueue" => read::<LocalQueue>(object).validate(),
        "ResourceFlavor" => read::<ResourceFlavor>(object).validate(),
        "Workload" => read::<Workload>(object).validate(),
        "AdmissionCheck" => none::<AdmissionCheck>(object),
        "MultiKueueCluster" => none::<MultiKueueCluster>(object),
        "MultiKueueConfig" => none::<MultiKueueConfig>(object),
        "ProvisioningRequestConfig" => none::<ProvisioningRequestConfig>(object),
        "Topology" => none::<Topology>(object),
        "WorkloadPriorityClass" => none::<WorkloadPriorityClass>(object),
        other => panic!("no type for {other}"),
    }
}

fn none<K: DeserializeOwned>(object: &Value) -> Vec<Violation> {
    read::<K>(object);
    Vec::new()
}

#[test]
fn there_are_manifests_of_every_kind_in_both_versions() {
    let manifests = manifests();
    assert!(manifests.len() >= 60, "{}", manifests.len());
    for crd in crate::arbitrary::crds()
        .iter()
        .filter(|crd| crd.spec.group == sluice_api::GROUP)
    {
        for version in [Version::V1beta1, Version::V1beta2] {
            let kind = crd.spec.names.kind.as_str();
            let found = manifests
                .iter()
                .any(|(_, of, manifest)| *of == version && manifest["kind"] == kind);
            assert!(found, "{} {kind}", version.as_str());
        }
    }
}

#[test]
fn every_manifest_is_admitted_by_the_schema_of_its_version_and_of_the_other() {
    for (name, version, manifest) in manifests() {
        let kind = manifest["kind"].as_str().unwrap();
        assert_admitted(&name, &manifest, schema(kind, version.as_str()));
        for other in [Version::V1beta1, Version::V1beta2] {
            let mut converted = to(other, &manifest);
            if kind == "AdmissionCheck" && other == Version::V1beta2 && version != other {
                // Pruned by the API server: it has no effect, and its CRD needs no webhook for its sake.
                converted["spec"].as_object_mut().unwrap().remove("retryDelayMinutes");
            }
            assert_admitted(&name, &converted, schema(kind, other.as_str()));
        }
    }
}

#[test]
fn nothing_is_wrong_with_any_manifest_once_it_is_stored() {
    for (name, _, manifest) in manifests() {
        let found = violations(&to(Version::V1beta2, &manifest));
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn every_manifest_comes_back_from_the_other_version_as_it_was() {
    for (name, version, manifest) in manifests() {
        let other = match version {
            Version::V1beta1 => Version::V1beta2,
            Version::V1beta2 => Version::V1beta1,
        };
        assert_eq!(to(version, &to(other, &manifest)), manifest, "{name}");
    }
}
