//! Quantities as they stand in an object: not yet checked.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_quantity::{ParseError, Quantity};

/// A quantity as its author wrote it.
///
/// A custom resource is stored as it was sent, so `4` arrives as a number and `"4"` as a string; both are kept as
/// the text `4`. Text that is no quantity is kept as well: one broken amount must not stop the watch that brings it.
/// [`QuantityText::parse`] tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuantityText(String);

impl QuantityText {
    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The amount that the text stands for.
    ///
    /// # Errors
    /// When the text is no quantity in a notation that Kubernetes accepts.
    pub fn parse(&self) -> Result<Quantity, ParseError> {
        Quantity::parse(self.0.trim())
    }
}

impl From<&Quantity> for QuantityText {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl From<&str> for QuantityText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for QuantityText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for QuantityText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for QuantityText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::open_enum::text(deserializer).map(Self)
    }
}

/// Everything after the sign: digits, then a binary, decimal or exponent suffix.
const UNSIGNED_PATTERN: &str = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?";

impl JsonSchema for QuantityText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        quantity()
    }
}

/// Schema of any quantity.
pub(crate) fn quantity() -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": format!(r"^(\+|-)?{UNSIGNED_PATTERN}$"),
        "x-kubernetes-int-or-string": true,
    })
}

/// Schema of a quantity that must not be negative.
pub(crate) struct NonNegativeQuantity;

impl JsonSchema for NonNegativeQuantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NonNegativeQuantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "minimum": 0,
            "pattern": format!(r"^\+?{UNSIGNED_PATTERN}$"),
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> QuantityText {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn numbers_and_strings_mean_the_same_amount() {
        assert_eq!(read("4"), read("\"4\""));
        assert_eq!(read("4").parse().unwrap().value(), 4);
        assert_eq!(read("\"1.5Gi\"").parse().unwrap().value(), 1_610_612_736);
    }

    #[test]
    fn broken_text_is_kept_and_reported_only_when_it_is_parsed() {
        for json in ["\"much\"", "\"\"", "true", "{}", "[\"1\"]", "null"] {
            assert!(read(json).parse().is_err(), "{json}");
        }
        assert_eq!(read("\"much\"").as_str(), "much");
    }

    #[test]
    fn it_is_written_as_it_was_read() {
        assert_eq!(serde_json::to_string(&read("\"010Mi\"")).unwrap(), "\"010Mi\"");
        assert_eq!(serde_json::to_string(&read("4")).unwrap(), "\"4\"");
    }
}
