//! The schema of a pod template, derived from Kubernetes' own types.
//!
//! Kubernetes' types say what the fields are; which lists merge by which keys, and what stays whole, they do not say,
//! so that is written down here. Fields are not described: `kubectl explain pod.spec` does that, and their
//! descriptions would make up nine tenths of the CRD.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::quantity_text::quantity;

/// Lists that merge by keys, by type and field; all others are replaced as a whole.
const MAP_LISTS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    (
        "PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("PodSpec", "volumes", &["name"]),
    ("ResourceRequirements", "claims", &["name"]),
];

/// Types that are replaced as a whole.
const ATOMIC: &[&str] = &[
    "ConfigMapKeySelector",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretKeySelector",
    "TypedLocalObjectReference",
];

/// Values that the API server fills in: parts of keys by which lists merge.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("ContainerPort", "protocol", "TCP"),
    ("LocalObjectReference", "name", ""),
];

/// `v1.PodTemplateSpec`.
pub(super) struct PodTemplateSchema;

impl JsonSchema for PodTemplateSchema {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let root = generator.subschema_for::<PodTemplateSpec>();
        let types = generator.take_definitions(true);
        let name = reference(root.as_value()).unwrap_or_default().to_owned();
        Schema::try_from(of_type(&name, &types)).unwrap_or_default()
    }
}

/// The type that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

/// The schema of one of Kubernetes' types with everything below it in place.
fn of_type(full_name: &str, types: &Map<String, Value>) -> Value {
    let name = full_name.rsplit('.').next().unwrap_or_default();
    match name {
        "Quantity" => return Value::from(quantity()),
        "ObjectMeta" => return metadata(),
        _ => {}
    }
    let Some(Value::Object(definition)) = types.get(full_name) else {
        return json!({ "type": "object" });
    };
    let mut schema = inlined(definition, types);
    let Some(object) = schema.as_object_mut() else {
        return schema;
    };
    if ATOMIC.contains(&name) {
        object.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for (field, property) in properties {
            complete(name, field, property);
        }
    }
    schema
}

/// Adds to one field of a type what Kubernetes' types do not say of it.
fn complete(owner: &str, field: &str, property: &mut Value) {
    let Some(property) = property.as_object_mut() else {
        return;
    };
    if property.get("type") == Some(&json!("array")) {
        let keys = MAP_LISTS
            .iter()
            .find(|(of, list, _)| (*of, *list) == (owner, field))
            .map(|(_, _, keys)| *keys);
        let kind = if keys.is_some() { "map" } else { "atomic" };
        property.insert("x-kubernetes-list-type".into(), kind.into());
        if let Some(keys) = keys {
            property.insert("x-kubernetes-list-map-keys".into(), json!(keys));
        }
    }
    if (owner, field) == ("PodSpec", "nodeSelector") {
        property.insert("x-kubernetes-map-type".into(), "atomic".into());
    }
    for (_, _, value) in DEFAULTS.iter().filter(|(of, name, _)| (*of, *name) == (owner, field)) {
        property.insert("default".into(), (*value).into());
    }
}

/// A schema without descriptions, and with types in place of references to them.
fn inlined(schema: &Map<String, Value>, types: &Map<String, Value>) -> Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return of_type(name.rsplit('/').next().unwrap_or_default(), types);
    }
    let below = |value: &Value| match value {
        Value::Object(schema) => inlined(schema, types),
        other => other.clone(),
    };
    let kept = schema.iter().filter(|(key, _)| *key != "description");
    kept.map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), below(property)))
                .collect(),
            ("items" | "additionalProperties", schema) => below(schema),
            (_, other) => other.clone(),
        };
        (key.clone(), value)
    })
    .collect()
}

/// What a template may say of its pods' metadata.
fn metadata() -> Value {
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json!({
        "type": "object",
        "properties": {
            "annotations": texts,
            "finalizers": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
            "labels": texts,
            "name": { "type": "string" },
            "namespace": { "type": "string" },
        },
    })
}
