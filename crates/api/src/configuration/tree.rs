//! A YAML document as a tree of values that know their lines.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Options, Spanned};

use super::problem::{ConfigurationError, ConfigurationProblem};

/// The longest file that is read, in bytes: a ConfigMap cannot hold more.
const MAX_BYTES: usize = 1 << 20;
/// Blocks inside blocks. The API has five levels.
const MAX_DEPTH: usize = 32;
/// Values in one file, counted again wherever an alias repeats them.
const MAX_NODES: usize = 20_000;
/// The longest text that a message repeats, in characters.
const LONGEST: usize = 60;

/// A value and the line that it begins on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) line: u64,
    pub(super) value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    /// Also an integer that is too large.
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Block(Vec<Entry>),
}

/// A field of a block. A block may hold several of the same name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) line: u64,
    pub(super) name: String,
    pub(super) node: Node,
}

/// Reads one document.
pub(super) fn read(text: &str) -> Result<Node, ConfigurationError> {
    let failed = |line, problem| ConfigurationError {
        line,
        field: "the file".to_owned(),
        problem,
    };
    if text.len() > MAX_BYTES {
        let problem = format!("it has {} bytes, at most {MAX_BYTES} are read", text.len());
        return Err(failed(1, ConfigurationProblem::Syntax(problem)));
    }
    serde_saphyr::from_str_with_options::<Node>(text, options()).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line().max(1));
        let problem = match error.without_snippet() {
            serde_saphyr::Error::MultipleDocuments { .. } => ConfigurationProblem::Documents,
            other => ConfigurationProblem::Syntax(reason(&other.to_string())),
        };
        failed(line, problem)
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        // All that is wrong is reported together, so nothing but the notation stops the reading. What other versions of
        // YAML would read as something else stays text, and is refused where another type is wanted.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
        },
    }
}

/// What the reader says, without the place, which is said elsewhere.
fn reason(text: &str) -> String {
    let text = text.rsplit_once(" at line ").map_or(text, |(reason, _)| reason);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Value {
    /// Nothing: no value, no fields, no elements.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::List(nodes) => nodes.is_empty(),
            Self::Block(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// The text of a value without inner structure, as it would be written without quotes.
    pub(super) fn scalar(&self) -> Option<String> {
        match self {
            Self::Bool(value) => Some(value.to_string()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Float(value) => Some(value.to_string()),
            Self::Text(value) => Some(value.clone()),
            Self::Null | Self::List(_) | Self::Block(_) => None,
        }
    }
}

/// For messages: what is there.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("empty"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "the number {value}"),
            Self::Float(value) => write!(f, "the number {value:?}"),
            Self::Text(text) => {
                let shown: String = text.chars().take(LONGEST).collect();
                let rest = if text.chars().nth(LONGEST).is_some() { "..." } else { "" };
                write!(f, "{:?}", format!("{shown}{rest}"))
            }
            Self::List(_) => f.write_str("a list"),
            Self::Block(_) => f.write_str("a block of fields"),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self {
            line: referenced.line().max(1),
            value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(i128::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Integer))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = elements.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(Spanned { value, referenced, .. }) = fields.next_key()? {
            entries.push(Entry {
                line: referenced.line().max(1),
                name: value,
                node: fields.next_value()?,
            });
        }
        Ok(Value::Block(entries))
    }
}
