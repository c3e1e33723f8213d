//! The configuration file, from disk.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use sluice_api::configuration::{Configuration, ConfigurationError, parse};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("failed to read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is there, and wrong. One line for each thing that is.
    #[error("the configuration file {} is not accepted:{}", path.display(), lines(errors))]
    Refused {
        /// The file.
        path: PathBuf,
        /// All that is wrong with it.
        errors: Vec<ConfigurationError>,
    },
}

/// Reads and checks the file; without one everything has its default.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong.
pub fn load(path: Option<&Path>) -> Result<Configuration, LoadError> {
    let Some(path) = path else {
        return Ok(Configuration::default());
    };
    let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text).map_err(|errors| LoadError::Refused {
        path: path.to_owned(),
        errors,
    })
}

fn lines(errors: &[ConfigurationError]) -> String {
    errors.iter().fold(String::new(), |mut text, error| {
        // Writing to a String cannot fail.
        _ = write!(text, "\n  {error}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_everything_has_its_default() {
        assert_eq!(load(None).unwrap(), Configuration::default());
    }

    #[test]
    fn all_that_is_wrong_with_a_file_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        assert!(matches!(load(Some(&path)), Err(LoadError::Read { .. })));
        std::fs::write(&path, "kind: Configuration\nfairshare: {}\n").unwrap();
        let said = load(Some(&path)).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].ends_with("config.yaml is not accepted:"), "{said}");
        assert_eq!(
            lines[1..],
            [
                "  line 1: apiVersion is missing",
                "  line 2: fairshare is not known; did you mean fairSharing?"
            ]
        );
    }
}
