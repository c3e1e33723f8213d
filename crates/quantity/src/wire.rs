//! The JSON form: written as a string, read from a string, a number or null, as the API server reads it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::amount::Quantity;

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text() {
            Some(text) => serializer.serialize_str(text),
            None => serializer.serialize_str(&self.canonical()),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl QuantityVisitor {
    fn read<E: Error>(text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }
}

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"500m\", \"1.5Gi\" or 2")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
        Self::read(text.trim())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
        Self::read(&number.to_string())
    }

    // The shortest text of a double is what its author wrote; no arithmetic is done on the double itself.
    fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
        Self::read(&number.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Quantity, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn strings_numbers_and_null_are_read_as_the_api_server_reads_them() {
        assert_eq!(read("\"1.5Gi\"").unwrap().value(), 1_610_612_736);
        assert_eq!(read("\" 2 \"").unwrap().value(), 2);
        assert_eq!(read("2").unwrap().value(), 2);
        assert_eq!(read("-3").unwrap().value(), -3);
        assert_eq!(
            read("18446744073709551615").unwrap().to_string(),
            "18446744073709551615"
        );
        assert_eq!(read("0.1").unwrap().milli_value(), 100);
        assert_eq!(read("1e300").unwrap().value(), i64::MAX);
        assert!(read("null").unwrap().is_zero());
    }

    #[test]
    fn other_json_is_refused_with_a_reason() {
        for json in ["true", "{}", "[]", "\"\"", "\"much\""] {
            assert!(read(json).is_err(), "{json}");
        }
        assert!(read("\"1gb\"").unwrap_err().to_string().contains("not a quantity"));
    }

    #[test]
    fn it_is_written_as_a_string_in_the_notation_it_was_read_in() {
        assert_eq!(
            serde_json::to_string(&Quantity::parse("010Mi").unwrap()).unwrap(),
            "\"010Mi\""
        );
        assert_eq!(serde_json::to_string(&Quantity::from(3)).unwrap(), "\"3\"");
    }
}
