//! Names, identities and instants: how the engine speaks of things outside it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name as the API writes it (a queue, flavor, resource, namespace): cheap to copy.
pub type Name = Arc<str>;

/// An instant, in milliseconds since the Unix epoch. The engine never asks for it: it is always an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub i64);

/// The identity of a unit: the 128 bits of its object's UUID.
///
/// Compared as numbers, which is the order of the UUIDs' lower-case text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub u128);

impl fmt::Display for Uid {
    /// Writes the UUID's text: eight, four, four, four and twelve lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0;
        let group = |shift: u32, digits: u32| (bits >> shift) & ((1u128 << (digits * 4)) - 1);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            group(96, 8),
            group(80, 4),
            group(64, 4),
            group(48, 4),
            group(0, 12)
        )
    }
}

impl Serialize for Uid {
    /// As the UUID's text: not every reader of JSON knows numbers of 128 bits.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = <Cow<'_, str>>::deserialize(deserializer)?.replace('-', "");
        let number = u128::from_str_radix(&digits, 16);
        number.map(Self).map_err(D::Error::custom)
    }
}

/// Which LocalQueue: its namespace and its name in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocalQueueKey {
    /// The namespace that the LocalQueue lives in.
    pub namespace: Name,
    /// Its name in that namespace.
    pub name: Name,
}

impl LocalQueueKey {
    /// The key of LocalQueue `name` in `namespace`.
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for LocalQueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::Uid;

    #[test]
    fn a_uid_prints_as_the_uuid_it_came_from() {
        assert_eq!(
            Uid(0x0123_4567_89ab_cdef_0011_2233_4455_6677).to_string(),
            "01234567-89ab-cdef-0011-223344556677"
        );
    }

    #[test]
    fn uids_compare_as_their_texts_do() {
        let (low, high) = (
            Uid(0x0fff_0000_0000_0000_0000_0000_0000_0000),
            Uid(0xa000_0000_0000_0000_0000_0000_0000_0000),
        );
        assert_eq!(low < high, low.to_string() < high.to_string());
    }
}
