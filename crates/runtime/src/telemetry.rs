//! Logs: structured, to standard error.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: one line an event, no colours.
    #[default]
    Text,
    /// For collectors: one JSON object a line, fields at the top level.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not in the `target=level,...` grammar.
    #[error("failed to parse the log filter {filter:?}")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What the parser says.
        source: ParseError,
    },
    /// A subscriber is already installed in this process.
    #[error("failed to install the log subscriber: {0}")]
    Installed(Box<dyn std::error::Error + Send + Sync>),
    /// Neither `text` nor `json`.
    #[error("unknown log format {0:?}: it is text or json")]
    Format(String),
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(TelemetryError::Format(other.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Installs the process's log subscriber, with a filter such as `info` or `info,sluice_runtime=debug`.
///
/// # Errors
///
/// A filter that does not parse, or a subscriber installed before.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
    }
    .map_err(TelemetryError::Installed)
}

/// An error and what caused it, on one line: `failed to start: client error (Connect): connection refused`.
///
/// kube's and hyper's own texts leave the causes out, or repeat them; a cause is left out here if the text before it ends with it.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Quiet(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("failed to start: {0}")]
    struct Wordy(#[source] Quiet);

    #[test]
    fn a_chain_names_every_cause_once() {
        let error = Wordy(Quiet(io::Error::other("connection refused")));
        assert_eq!(
            chain(&error),
            "failed to start: client error (Connect): connection refused"
        );
    }

    #[test]
    fn log_formats_read_back_what_they_print() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse::<LogFormat>().unwrap(), format);
        }
        assert!("xml".parse::<LogFormat>().unwrap_err().to_string().contains("xml"));
    }

    #[test]
    fn a_broken_filter_is_named() {
        let error = init(LogFormat::Text, "sluice=loud").unwrap_err();
        assert!(error.to_string().contains("sluice=loud"), "{error}");
    }
}
