//! Specs that may be absent.
//!
//! The API lets an object leave its whole spec out; kube's derived types insist on it. A type declared with
//! `#[serde(remote = "Self")]` and this macro reads an absent or null spec as the default one.

/// Implements serde's traits for types whose derive went to inherent functions (`#[serde(remote = "Self")]`).
macro_rules! default_when_absent {
    ($($name:ident),+) => {
        $(
            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    Self::serialize(self, serializer)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Visitor;

                    impl<'de> serde::de::Visitor<'de> for Visitor {
                        type Value = $name;

                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str(concat!("a ", stringify!($name)))
                        }

                        fn visit_none<E: serde::de::Error>(self) -> Result<$name, E> {
                            Ok($name::default())
                        }

                        fn visit_unit<E: serde::de::Error>(self) -> Result<$name, E> {
                            Ok($name::default())
                        }

                        fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<$name, D::Error> {
                            $name::deserialize(deserializer)
                        }
                    }

                    // For a missing field serde offers a deserializer that answers to an option alone.
                    deserializer.deserialize_option(Visitor)
                }
            }
        )+
    };
}
pub(crate) use default_when_absent;
