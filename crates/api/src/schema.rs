//! How derived schemas are brought into the form that the API server and its users expect.
//!
//! ```text
//! Rust types --schemars, kube derive--> schema --tidy()--> the schema of the CRD
//! ```
//!
//! Derived schemas say `nullable: true` on optional fields (a client that sends null would then store null), carry
//! titles, and leave out what the API server implies. Everything is corrected here, in one place.

use serde_json::{Map, Value, json};

/// Brings the schema of a whole object into its final form.
pub(crate) fn tidy_root(root: &mut Value) {
    tidy(root);
    let Some(object) = root.as_object_mut() else { return };
    // An object without a spec is legal (a ResourceFlavor without labels is the common one), unless its spec has
    // fields that must be there.
    let spec_may_be_absent = object
        .get("properties")
        .and_then(|p| p.get("spec")?.get("required"))
        .is_none();
    if let Some(required) = object.get_mut("required").and_then(Value::as_array_mut)
        && spec_may_be_absent
    {
        required.retain(|field| field != "spec");
        if required.is_empty() {
            object.remove("required");
        }
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert(
            "apiVersion".into(),
            json!({ "type": "string", "description": API_VERSION }),
        );
        properties.insert("kind".into(), json!({ "type": "string", "description": KIND }));
        properties.insert("metadata".into(), json!({ "type": "object" }));
        for (field, description) in [("spec", SPEC), ("status", STATUS)] {
            if let Some(schema) = properties.get_mut(field).and_then(Value::as_object_mut) {
                schema.insert("description".into(), description.into());
            }
        }
        if let Some(status) = properties.get_mut("status") {
            drop_defaults(status);
        }
    }
}

const API_VERSION: &str = "The version of the schema that this object is written in.";
const KIND: &str = "The kind of this object.";
const SPEC: &str = "The desired state.";
const STATUS: &str = "The observed state.";

/// What was not observed is absent: the API server must not fill it in. Keys by which a list merges must be there.
fn drop_defaults(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("default");
    }
    let keys: Vec<String> = schema["x-kubernetes-list-map-keys"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|key| key.as_str().map(ToOwned::to_owned))
        .collect();
    let kept: Vec<(String, Value)> = keys
        .into_iter()
        .filter_map(|key| {
            let value = schema["items"]["properties"].get(&key)?.get("default")?.clone();
            Some((key, value))
        })
        .collect();
    subschemas(schema).for_each(drop_defaults);
    for (key, value) in kept {
        schema["items"]["properties"][key]["default"] = value;
    }
}

/// The schemas directly below one.
fn subschemas(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let keyed = schema.as_object_mut().into_iter().flatten();
    keyed.flat_map(|(key, value)| -> Box<dyn Iterator<Item = &mut Value>> {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => Box::new(properties.values_mut()),
            ("anyOf", Value::Array(schemas)) => Box::new(schemas.iter_mut()),
            ("items" | "additionalProperties", schema) => Box::new(std::iter::once(schema)),
            _ => Box::new(std::iter::empty()),
        }
    })
}

fn tidy(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("nullable");
    object.remove("title");
    tidy_enum(object);
    tidy_description(object);
    // kube's rewriting of subschemas takes the types out of these two.
    if object.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        object.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
    }
    subschemas(schema).for_each(tidy);
}

fn tidy_enum(object: &mut Map<String, Value>) {
    if let Some(values) = object.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
}

/// Lines inside a paragraph are an accident of source formatting; paragraphs are meant.
fn tidy_description(object: &mut Map<String, Value>) {
    let Some(Value::String(text)) = object.get_mut("description") else {
        return;
    };
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    *text = paragraphs.join("\n\n");
}

/// One CEL rule, as the API server takes it in `x-kubernetes-validations`.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// Declares types that only carry the schema of a string.
macro_rules! string_schemas {
    ($($(#[$meta:meta])* $name:ident { $($key:literal : $value:expr),+ $(,)? })+) => {
        $(
            $(#[$meta])*
            pub(crate) struct $name;

            impl schemars::JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> std::borrow::Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                    schemars::json_schema!({ "type": "string", $($key: $value),+ })
                }
            }
        )+
    };
}

pub(crate) use string_schemas;

string_schemas! {
    /// The name of an object: a DNS subdomain.
    ObjectName {
        "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    }
    /// The name of a resource: a label key, such as `cpu` or `example.com/gpu`.
    ResourceName {
        "minLength": 1,
        "maxLength": 317,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    }
    /// The label of a topology level.
    LevelName {
        "minLength": 1,
        "maxLength": 316,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    }
    /// The key of a label.
    LabelKey {
        "minLength": 1,
        "maxLength": 317,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    }
    /// The name of an object that is a DNS label.
    LabelName { "minLength": 1, "maxLength": 63, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" }
    /// The kind of an object.
    KindName { "minLength": 1, "maxLength": 63, "pattern": r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$" }
    /// The value of a provisioning parameter.
    ParameterText { "maxLength": 255 }
    /// The name of a detail of a provisioning class.
    DetailText { "maxLength": 32768 }
    /// The name of a priority class.
    PriorityClassName {
        "minLength": 1,
        "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    }
    /// The name of a pod set: a DNS label.
    PodSetName { "maxLength": 63, "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" }
    /// The name of a cluster that takes workloads.
    ClusterName { "maxLength": 256 }
    /// A reference to an admission check.
    CheckName { "minLength": 1, "maxLength": 316 }
    /// The value of a node label.
    LabelValue { "maxLength": 63, "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$" }
}
