//! Pure crates take values and return values.
//!
//! What they link is checked on the resolved tree of each, without the features that other crates of the workspace
//! turn on; what they call is checked by clippy, which reads the configuration nearest to the package: every pure
//! crate carries the same one.

use std::path::Path;

use super::layers;
use crate::workspace::{self, Metadata};

/// Crates that do I/O, run futures or draw randomness.
const IMPURE: &[&str] = &[
    "async-std",
    "axum",
    "axum-server",
    "futures-executor",
    "getrandom",
    "h2",
    "hyper",
    "hyper-util",
    "kube-client",
    "kube-runtime",
    "mio",
    "notify",
    "rand",
    "reqwest",
    "smol",
    "socket2",
    "tokio",
    "tokio-rustls",
    "tokio-util",
    "tower",
    "tower-http",
    "tracing-subscriber",
];

/// What one crate may link all the same, and why.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("sluice-pki", "getrandom", "keys are drawn at random"),
    ("sluice-pki", "rand", "keys are drawn at random"),
];

/// Where the configuration for clippy lies in a package.
const CLIPPY: &str = ".clippy.toml";
/// The configuration of every pure crate.
const PURE_CLIPPY: &str = include_str!("pure.clippy.toml");

/// What pure crates reach or may call that they must not.
pub(super) fn findings(root: &Path, metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in layers::pure().filter(|name| metadata.members().any(|member| member.name == *name)) {
        let arguments = [
            "tree",
            "--locked",
            "--package",
            name,
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ];
        findings.extend(reached(name, &workspace::output(root, "cargo", &arguments)?));
        let path = format!("crates/{}/{CLIPPY}", name.trim_start_matches("sluice-"));
        if std::fs::read_to_string(root.join(&path)).ok().as_deref() != Some(PURE_CLIPPY) {
            findings.push(format!(
                "{path}: must be the configuration of pure crates; copy crates/xtask/src/tidy/pure.clippy.toml"
            ));
        }
    }
    Ok(findings)
}

/// Impure crates in a listing of `name version` lines.
fn reached(package: &str, tree: &str) -> Vec<String> {
    let mut names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    names.dedup();
    let excepted = |name: &str| EXCEPTIONS.iter().any(|(by, what, _)| *by == package && *what == name);
    names
        .into_iter()
        .filter(|name| IMPURE.contains(name) && !excepted(name))
        .map(|name| {
            format!("{package}: is pure and must not reach {name}; `cargo tree -p {package} -i {name}` shows how")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impure_crates_are_found_once_however_deep_they_lie() {
        let tree =
            "sluice-jobs v0.1.0 (crates/jobs)\nkube v5.0.0\nkube-client v5.0.0\ntokio v1.4.0\ntokio v1.4.0 (*)\n";
        let found = reached("sluice-jobs", tree);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].contains("must not reach kube-client") && found[1].contains("must not reach tokio"),
            "{found:?}"
        );
        assert!(reached("sluice-jobs", "sluice-jobs v0.1.0\nserde v1.0.0\n").is_empty());
    }

    #[test]
    fn randomness_is_for_keys_alone() {
        assert!(reached("sluice-pki", "getrandom v0.3.0\nrand v0.9.0\n").is_empty());
        assert_eq!(reached("sluice-engine", "getrandom v0.3.0\nrand v0.9.0\n").len(), 2);
        assert!(EXCEPTIONS.iter().all(|(_, _, reason)| !reason.is_empty()));
    }
}
