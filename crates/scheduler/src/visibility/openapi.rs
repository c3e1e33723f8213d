//! The schema of the API, for `kubectl explain` and for clients that generate code.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};
use sluice_api::visibility::discovery::{CARRIERS, Carrier};
use sluice_api::visibility::{DEFAULT_LIMIT, GROUP, MAX_LIMIT, PENDING_WORKLOADS, PendingWorkloadsSummary, Version};

/// Which generation of OpenAPI: they differ in where schemas stand and how parameters say their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    Two,
    Three,
}

impl Generation {
    fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::Two => "definitions",
            Self::Three => "components/schemas",
        };
        json!({"$ref": format!("#/{place}/{name}")})
    }

    fn parameter(self, place: &str, name: &str, schema: Value, description: &str) -> Value {
        let mut parameter = json!({"name": name, "in": place, "required": place == "path", "description": description});
        match (self, schema) {
            (Self::Two, Value::Object(schema)) => {
                for (key, value) in schema {
                    parameter[key] = value;
                }
            }
            (_, schema) => parameter["schema"] = schema,
        }
        parameter
    }

    fn answers(self, schema: Value) -> Value {
        let ok = match self {
            Self::Two => json!({"description": "OK", "schema": schema}),
            Self::Three => json!({"description": "OK", "content": {"application/json": {"schema": schema}}}),
        };
        json!({"200": ok, "401": {"description": "Unauthorized"}})
    }
}

fn schema_name(version: Version, kind: &str) -> String {
    format!("io.x-k8s.kueue.visibility.{}.{kind}", version.name())
}

fn group_version_kind(version: Version, kind: &str) -> Value {
    json!({"group": GROUP, "version": version.name(), "kind": kind})
}

fn schemas(version: Version, generation: Generation, into: &mut Map<String, Value>) {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "format": "int32", "description": description});
    let object = |description: &str| json!({"type": "object", "description": description});
    let workload = schema_name(version, "PendingWorkload");
    let kind = PendingWorkloadsSummary::KIND;
    into.insert(
        schema_name(version, kind),
        json!({
            "type": "object",
            "description": "A part of the jobs that wait in a queue, in queue order.",
            "properties": {
                "kind": text("The kind of this object."),
                "apiVersion": text("Group and version of this object."),
                "metadata": object("The queue's name, and the resourceVersion that the answer rests on."),
                "items": {
                    "type": "array",
                    "description": "The jobs.",
                    "items": generation.reference(&workload),
                },
            },
            "required": ["items"],
            "x-kubernetes-group-version-kind": [group_version_kind(version, kind)],
        }),
    );
    into.insert(
        workload,
        json!({
            "type": "object",
            "description": "A job that waits. Positions count from 0.",
            "properties": {
                "metadata": object("Name, namespace, uid, creation time and owner of what waits."),
                "priority": number("Its priority."),
                "localQueueName": text("The LocalQueue that it waits in."),
                "positionInClusterQueue": number("How many are ahead of it in its ClusterQueue."),
                "positionInLocalQueue": number("How many are ahead of it in its LocalQueue."),
            },
            "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
        }),
    );
    for carrier in &CARRIERS {
        into.insert(
            schema_name(version, carrier.kind),
            json!({
                "type": "object",
                "description": "A queue, only as the carrier of what waits in it.",
                "x-kubernetes-group-version-kind": [group_version_kind(version, carrier.kind)],
            }),
        );
    }
}

fn paths(version: Version, generation: Generation, into: &mut Map<String, Value>) {
    for carrier in &CARRIERS {
        let scope = if carrier.namespaced {
            "namespaces/{namespace}/"
        } else {
            ""
        };
        let path = format!(
            "/apis/{}/{scope}{}/{{name}}/{PENDING_WORKLOADS}",
            version.api_version(),
            carrier.resource
        );
        into.insert(path, operation(version, generation, carrier));
    }
}

fn operation(version: Version, generation: Generation, carrier: &Carrier) -> Value {
    let text = || json!({"type": "string", "uniqueItems": true});
    let number = |most: u32| json!({"type": "integer", "minimum": 0, "maximum": most, "uniqueItems": true});
    let mut parameters = vec![generation.parameter("path", "name", text(), "Name of the queue.")];
    if carrier.namespaced {
        parameters.push(generation.parameter("path", "namespace", text(), "Namespace of the queue."));
    }
    let limit = format!("How many to list at most; 0 stands for {DEFAULT_LIMIT}.");
    parameters.extend([
        generation.parameter("query", "limit", number(MAX_LIMIT), &limit),
        generation.parameter(
            "query",
            "offset",
            number(i32::MAX.unsigned_abs()),
            "The first position to list.",
        ),
    ]);
    let kind = PendingWorkloadsSummary::KIND;
    let mut get = json!({
        "description": format!("Who waits in a {}, in queue order.", carrier.kind),
        "operationId": format!("readVisibilityKueueXK8sIo{}{}Pendingworkloads", title(version.name()), carrier.kind),
        "tags": ["visibilityKueueXK8sIo_".to_owned() + version.name()],
        "parameters": parameters,
        "responses": generation.answers(generation.reference(&schema_name(version, kind))),
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": group_version_kind(version, kind),
    });
    if generation == Generation::Two {
        get["produces"] = json!(["application/json"]);
        get["schemes"] = json!(["https"]);
    }
    json!({"get": get})
}

fn title(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_ascii_uppercase() + rest
}

fn info() -> Value {
    json!({"title": "Sluice visibility", "version": env!("CARGO_PKG_VERSION")})
}

/// `/openapi/v2`
pub(super) fn v2() -> Value {
    let (mut all_paths, mut definitions) = (Map::new(), Map::new());
    for version in Version::ALL {
        paths(version, Generation::Two, &mut all_paths);
        schemas(version, Generation::Two, &mut definitions);
    }
    json!({"swagger": "2.0", "info": info(), "paths": all_paths, "definitions": definitions})
}

/// `/openapi/v3/apis/GROUP/VERSION`
pub(super) fn v3(version: Version) -> Value {
    let (mut all_paths, mut all_schemas) = (Map::new(), Map::new());
    paths(version, Generation::Three, &mut all_paths);
    schemas(version, Generation::Three, &mut all_schemas);
    json!({"openapi": "3.0.0", "info": info(), "paths": all_paths, "components": {"schemas": all_schemas}})
}

/// `/openapi/v3`
pub(super) fn index() -> Value {
    let paths: Map<String, Value> = Version::ALL
        .into_iter()
        .map(|version| {
            let path = format!("apis/{}", version.api_version());
            let address = format!("/openapi/v3/{path}?hash={}", fingerprint(&v3(version)));
            (path, json!({"serverRelativeURL": address}))
        })
        .collect();
    json!({"paths": paths})
}

/// Changes with the document: clients keep what they have seen under it.
pub(super) fn fingerprint(document: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_finds_its_schema() {
        for document in [v2(), v3(Version::V1Beta1), v3(Version::V1Beta2)] {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(!found.is_empty());
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
    }

    #[test]
    fn both_generations_have_a_path_for_each_queue_and_version() {
        let two = v2();
        assert_eq!(two["paths"].as_object().unwrap().len(), 4);
        for version in Version::ALL {
            let three = v3(version);
            let paths = three["paths"].as_object().unwrap();
            assert_eq!(paths.len(), 2);
            for (path, operations) in paths {
                assert!(two["paths"].get(path).is_some(), "{path}");
                let named = operations["get"]["parameters"].as_array().unwrap();
                let in_path = named.iter().filter(|parameter| parameter["in"] == "path").count();
                assert_eq!(in_path, path.matches('{').count(), "{path}");
            }
        }
    }

    #[test]
    fn the_index_leads_to_each_version_by_a_name_that_changes_with_it() {
        let index = index();
        let entry = &index["paths"]["apis/visibility.kueue.x-k8s.io/v1beta2"];
        let address = entry["serverRelativeURL"].as_str().unwrap();
        let hash = fingerprint(&v3(Version::V1Beta2));
        assert_eq!(
            address,
            format!("/openapi/v3/apis/visibility.kueue.x-k8s.io/v1beta2?hash={hash}")
        );
        assert_ne!(hash, fingerprint(&v3(Version::V1Beta1)));
    }
}
