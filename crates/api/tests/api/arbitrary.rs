//! Arbitrary objects of every kind and version, made from the schemas of the CRDs themselves.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

/// Name of fields that no schema has: those of a release to come.
pub(crate) const NEWER: &str = "fieldOfANewerRelease";

pub(crate) fn crds() -> &'static [CustomResourceDefinition] {
    static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| sluice_api::crds().unwrap());
    &CRDS
}

pub(crate) fn schema(kind: &str, version: &str) -> &'static Value {
    static SCHEMAS: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
        let versions = crds()
            .iter()
            .flat_map(|crd| crd.spec.versions.iter().map(|version| (&crd.spec.names.kind, version)));
        versions
            .map(|(kind, version)| {
                let schema = serde_json::to_value(&version.schema).unwrap()["openAPIV3Schema"].clone();
                (format!("{kind} {}", version.name), schema)
            })
            .collect()
    });
    let wanted = format!("{kind} {version}");
    &SCHEMAS.iter().find(|(name, _)| *name == wanted).unwrap().1
}

/// Choices, drawn from bytes; the plainest one when there are no bytes left, so that failures shrink.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    fn up_to(&mut self, most: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first) % (most + 1)
    }

    fn maybe(&mut self) -> bool {
        self.up_to(3) > 1
    }
}

/// An object that the schema admits, as far as it says it without CEL.
pub(crate) fn object(kind: &str, version: &str, choices: &mut Choices<'_>) -> Value {
    let mut object = value(schema(kind, version), "", choices);
    object["apiVersion"] = format!("kueue.x-k8s.io/{version}").into();
    object["kind"] = kind.into();
    object["metadata"] = json!({ "name": "any", "labels": { "team": "a" } });
    if choices.maybe() {
        object["metadata"]["annotations"] = json!({ "example.com/note": "kept" });
    }
    keep_rules(&mut object, version, choices);
    object
}

fn value(schema: &Value, path: &str, choices: &mut Choices<'_>) -> Value {
    // A pod's own fields are the same in both versions, and too many to vary.
    if path.ends_with(".template") {
        return json!({ "spec": { "containers": [{ "name": "main", "image": format!("i{}", choices.up_to(9)) }] } });
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[choices.up_to(values.len() - 1)].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return [json!(1), json!("500m"), json!("3Gi")][choices.up_to(2)].clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => choices.maybe().into(),
        "integer" => (1 + choices.up_to(200)).into(),
        "string" if schema["format"] == "date-time" => "2026-01-02T03:04:05Z".into(),
        "string" => ["a", "b", "c-d", "rack-1"][choices.up_to(3)].into(),
        "array" => {
            let least = schema["minItems"]
                .as_u64()
                .map_or(0, |least| usize::try_from(least).unwrap());
            let items = least.max(choices.up_to(3));
            let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let set = schema["x-kubernetes-list-type"] == "set";
            (0..items)
                .map(|at| {
                    let mut item = value(&schema["items"], &format!("{path}[*]"), choices);
                    for key in &keys {
                        item[key] = format!("n{at}").into();
                    }
                    if set { format!("n{at}").into() } else { item }
                })
                .collect()
        }
        _ => structure(schema, path, choices),
    }
}

fn structure(schema: &Value, path: &str, choices: &mut Choices<'_>) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut object = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&json!(name)) || choices.maybe() {
            object.insert(name.clone(), value(property, &format!("{path}.{name}"), choices));
        }
    }
    if let Some(below) = schema.get("additionalProperties") {
        for at in 0..choices.up_to(2) {
            object.insert(format!("key-{at}"), value(below, &format!("{path}{{*}}"), choices));
        }
    } else if choices.up_to(15) == 15 {
        object.insert(NEWER.to_owned(), json!({ "is": ["kept", 1.5, null] }));
    }
    object.into()
}

/// Puts right what only CEL rules keep right.
fn keep_rules(object: &mut Value, version: &str, choices: &mut Choices<'_>) {
    let mut none = Value::Null;
    let spec = object.get_mut("spec").unwrap_or(&mut none);
    let ways = ["kubeConfig", "clusterProfileRef"];
    for owner in ["", "/clusterSource"] {
        let Some(Value::Object(source)) = spec.pointer_mut(owner) else {
            continue;
        };
        if ways.iter().all(|way| source.contains_key(*way)) {
            source.remove(ways[choices.up_to(1)]);
        } else if owner == "/clusterSource" && source.is_empty() {
            source.insert("clusterProfileRef".to_owned(), json!({ "name": "worker" }));
        }
    }
    if let Some(class) = spec.get_mut("priorityClassRef") {
        let kinds = [
            ("kueue.x-k8s.io", "WorkloadPriorityClass"),
            ("scheduling.k8s.io", "PriorityClass"),
        ];
        let (group, kind) = kinds[choices.up_to(1)];
        *class = json!({ "group": group, "kind": kind, "name": "high" });
    }
    let assignments = object.pointer_mut("/status/admission/podSetAssignments");
    for assignment in assignments.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(placement) = assignment.get_mut("topologyAssignment") {
            *placement = if version == "v1beta2" {
                columns(choices)
            } else {
                rows(choices)
            };
        }
    }
}

fn name_of_a_domain(choices: &mut Choices<'_>) -> String {
    ["node-1", "node-2", "nodule", "", "x"][choices.up_to(4)].to_owned()
}

fn rows(choices: &mut Choices<'_>) -> Value {
    let levels = 1 + choices.up_to(1);
    let domains: Vec<Value> = (0..choices.up_to(4))
        .map(|_| {
            let values: Vec<String> = (0..levels).map(|_| name_of_a_domain(choices)).collect();
            json!({ "values": values, "count": 1 + choices.up_to(3) })
        })
        .collect();
    json!({ "levels": levels_of(levels), "domains": domains })
}

fn levels_of(count: usize) -> Vec<String> {
    (0..count).map(|level| format!("level-{level}")).collect()
}

fn columns(choices: &mut Choices<'_>) -> Value {
    let levels = 1 + choices.up_to(1);
    let slices: Vec<Value> = (0..choices.up_to(2))
        .map(|_| {
            let domains = 1 + choices.up_to(3);
            let mut values: Vec<Value> = (0..levels)
                .map(|_| {
                    if choices.maybe() {
                        return json!({ "universal": name_of_a_domain(choices) });
                    }
                    let roots: Vec<String> = (0..domains).map(|_| name_of_a_domain(choices)).collect();
                    let mut individual = json!({ "roots": roots });
                    for part in ["prefix", "suffix"] {
                        if choices.maybe() {
                            individual[part] = name_of_a_domain(choices).into();
                        }
                    }
                    json!({ "individual": individual })
                })
                .collect();
            // Domains that differ in nothing are no several domains.
            if domains > 1 && values.iter().all(|values| values.get("universal").is_some()) {
                let roots: Vec<String> = (0..domains).map(|at| at.to_string()).collect();
                values[0] = json!({ "individual": { "roots": roots } });
            }
            let counts = if choices.maybe() {
                json!({ "universal": 1 + choices.up_to(3) })
            } else {
                json!({ "individual": (0..domains).map(|_| 1 + choices.up_to(3)).collect::<Vec<_>>() })
            };
            json!({ "domainCount": domains, "valuesPerLevel": values, "podCounts": counts })
        })
        .collect();
    json!({ "levels": levels_of(levels), "slices": slices })
}
