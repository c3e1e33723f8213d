//! What can be wrong with a Configuration file.

use thiserror::Error;

/// One thing wrong with a Configuration file: where, and what.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {field} {problem}")]
pub struct ConfigurationError {
    /// The line, counted from one.
    pub line: u64,
    /// Path of the field, as in `waitForPodsReady.timeout`.
    pub field: String,
    /// What is wrong with it.
    pub problem: ConfigurationProblem,
}

/// What is wrong with a field, in words that follow its name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigurationProblem {
    /// The text cannot be read at all.
    #[error("cannot be read as YAML: {0}")]
    Syntax(String),
    /// More than one document.
    #[error("holds more than one document")]
    Documents,
    /// Nobody knows the field.
    #[error("is not known{}", did_you_mean(*.0))]
    Unknown(
        /// The field in the same place with the most similar name, if one is similar.
        Option<&'static str>,
    ),
    /// The field belongs to another version of the file.
    #[error("is known in {0} alone")]
    OtherVersion(
        /// The API version that has it.
        &'static str,
    ),
    /// Kueue knows the field, and Sluice does not act on it as it is set here.
    #[error("is not acted on: {0}")]
    NotActedOn(
        /// What would be accepted, or where else this is set.
        String,
    ),
    /// The field stands there more than once.
    #[error("stands on line {0} already")]
    Duplicate(
        /// The line where it stood first.
        u64,
    ),
    /// The field must be there.
    #[error("is missing")]
    Missing,
    /// The field is there without a value, which could mean absent or default.
    #[error("has no value: write {{}} for the defaults, or leave it out")]
    Empty,
    /// The value is of a wrong type, or outside of what is allowed.
    #[error("must be {expected}, not {found}")]
    Value {
        /// What is allowed.
        expected: String,
        /// What is there.
        found: String,
    },
}

fn did_you_mean(field: Option<&'static str>) -> String {
    field
        .map(|field| format!("; did you mean {field}?"))
        .unwrap_or_default()
}
