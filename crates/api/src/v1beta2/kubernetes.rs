//! Schemas of Kubernetes' own types inside the queue objects, with the rules that their Go types carry.

use std::borrow::Cow;

use crate::schema::rule;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// Declares types that only carry a schema.
macro_rules! schemas {
    ($($(#[$meta:meta])* $name:ident => $body:ident;)+) => {
        $(
            $(#[$meta])*
            pub(super) struct $name;

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }

                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    $body()
                }
            }
        )+
    };
}

schemas! {
    /// `metav1.Condition`.
    ConditionSchema => condition;
    /// `metav1.LabelSelector`.
    LabelSelectorSchema => label_selector;
    /// `metav1.Time`.
    TimeSchema => time;
    /// `v1.Taint`.
    TaintSchema => taint;
    /// `v1.Toleration`.
    TolerationSchema => toleration;
}

fn condition() -> Schema {
    json_schema!({
        "type": "object",
        "description": "One aspect of the state.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {
                "type": "string", "format": "date-time",
                "description": "When the status last changed.",
            },
            "message": { "type": "string", "maxLength": 32768, "description": "Details for people." },
            "observedGeneration": {
                "type": "integer", "format": "int64", "minimum": 0,
                "description": "The generation of the object that this condition was found for.",
            },
            "reason": {
                "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "Why the status is as it is, in one word for programs.",
            },
            "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds." },
            "type": {
                "type": "string", "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                "description": "The aspect.",
            },
        },
    })
}

fn label_selector() -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "description": "Requirements that all must hold.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "description": "The label." },
                        "operator": {
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "How the label's value relates to values.",
                        },
                        "values": {
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string" },
                            "description": "Values for In and NotIn; empty for Exists and DoesNotExist.",
                        },
                    },
                    "x-kubernetes-validations": [rule(
                        "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 \
                         : !has(self.values) || size(self.values) == 0",
                        "In and NotIn need at least one value, Exists and DoesNotExist take none",
                    )],
                },
            },
            "matchLabels": {
                "type": "object",
                "additionalProperties": { "type": "string" },
                "description": "Labels that must have just these values.",
            },
        },
    })
}

fn time() -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

fn taint() -> Schema {
    json_schema!({
        "type": "object",
        "required": ["effect", "key"],
        "properties": {
            "effect": {
                "type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                "description": "What happens to pods that do not tolerate the taint.",
            },
            "key": { "type": "string", "minLength": 1, "maxLength": 316, "description": "The key of the taint." },
            "timeAdded": { "type": "string", "format": "date-time", "description": "When the taint was added." },
            "value": { "type": "string", "maxLength": 63, "description": "The value of the taint." },
        },
        "x-kubernetes-validations": [
            rule("!format.qualifiedName().validate(self.key).hasValue()", "the key is no taint key"),
            rule(
                "!has(self.value) || !format.labelValue().validate(self.value).hasValue()",
                "the value is no taint value",
            ),
        ],
    })
}

fn toleration() -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "effect": {
                "type": "string", "enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
                "description": "The effect that is tolerated; empty for all.",
            },
            "key": { "type": "string", "maxLength": 316, "description": "The key that is tolerated; empty, with operator Exists, for all." },
            "operator": {
                "type": "string", "enum": ["", "Equal", "Exists"],
                "description": "Equal compares the value, Exists accepts any. Equal when absent.",
            },
            "tolerationSeconds": {
                "type": "integer", "format": "int64",
                "description": "How long a NoExecute taint is tolerated; absent for ever.",
            },
            "value": { "type": "string", "maxLength": 63, "description": "The value that is tolerated." },
        },
        "x-kubernetes-validations": [
            rule(
                "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
                "an empty key needs the operator Exists",
            ),
            rule(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "tolerationSeconds needs the effect NoExecute",
            ),
            rule(
                "!(has(self.operator) && self.operator == 'Exists') || !has(self.value) || self.value == ''",
                "the operator Exists takes no value",
            ),
        ],
    })
}
