//! Enumerations that keep values they do not know.
//!
//! The CRD schema lists the allowed values, so the API server refuses all others. A stored object can still hold
//! one (written by a newer release, or before the schema was tightened); it must neither stop the watch that
//! delivers it nor lose its text, so it is kept and reported when the object is lowered for the engine.

use serde::Deserialize;

/// Reads any JSON value as text: a string as it is, everything else as it is written in JSON.
pub(crate) fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    })
}

/// How a variant is written: by its own name, or as the text that it is given.
macro_rules! written {
    ($variant:ident) => {
        stringify!($variant)
    };
    ($variant:ident $text:literal) => {
        $text
    };
}
pub(crate) use written;

/// Declares an enum whose variants are written as their own names, or as the text behind them, with a last variant for
/// unknown values.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident $(= $text:literal)?,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A value outside the schema, kept as it was written.
            Unknown(String),
        }

        impl $name {
            /// The values that the CRD schema allows.
            pub const VALUES: &'static [&'static str] = &[$($crate::open_enum::written!($variant $($text)?)),+];

            /// The value as it is written in manifests.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $crate::open_enum::written!($variant $($text)?),)+
                    Self::Unknown(text) => text,
                }
            }

            /// The text of a value outside the schema, if this is one.
            pub fn unknown(&self) -> Option<&str> {
                match self {
                    Self::Unknown(text) => Some(text),
                    _ => None,
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($crate::open_enum::written!($variant $($text)?) => Self::$variant,)+
                    _ => Self::Unknown(text),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::open_enum::text(deserializer).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::VALUES })
            }
        }
    };
}
pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    use crate::v1beta2::StopPolicy;

    #[test]
    fn known_values_are_read_and_written_by_name() {
        assert_eq!(
            serde_json::from_str::<StopPolicy>("\"Hold\"").unwrap(),
            StopPolicy::Hold
        );
        assert_eq!(
            serde_json::to_string(&StopPolicy::HoldAndDrain).unwrap(),
            "\"HoldAndDrain\""
        );
        assert_eq!(StopPolicy::Hold.unknown(), None);
        assert_eq!(StopPolicy::VALUES, ["None", "Hold", "HoldAndDrain"]);
    }

    #[test]
    fn unknown_values_of_any_json_type_are_kept_as_text() {
        for (json, text) in [
            ("\"hold\"", "hold"),
            ("7", "7"),
            ("true", "true"),
            ("[1]", "[1]"),
            ("\"\"", ""),
        ] {
            let policy: StopPolicy = serde_json::from_str(json).unwrap();
            assert_eq!(policy.unknown(), Some(text));
            assert_eq!(policy.to_string(), text);
        }
    }
}
