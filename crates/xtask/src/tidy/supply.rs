//! What the workspace is built from: licences, banned crates, crates in two versions.
//!
//! `deny.toml` says the same to cargo-deny, for use outside; a test holds the lists equal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::workspace::{self, Metadata, Package};

/// Licences that a dependency may have.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that must not be linked, and why.
const BANNED: &[(&str, &str)] = &[
    (
        "aws-lc-sys",
        "ring is the one crypto provider: with two, rustls panics at first use",
    ),
    (
        "aws-lc-rs",
        "ring is the one crypto provider: with two, rustls panics at first use",
    ),
    ("openssl-sys", "TLS is rustls"),
    ("native-tls", "TLS is rustls"),
    ("serde_yaml", "no longer maintained: YAML is read by serde-saphyr"),
    ("serde_yml", "withdrawn: YAML is read by serde-saphyr"),
    ("chrono", "times are jiff's, through k8s-openapi"),
];

/// Crates that come in several versions, and why.
const DOUBLED: &[(&str, &str)] = &[
    ("base64", "k8s-openapi is still on 0.22"),
    ("getrandom", "ring is still on 0.2, rand on 0.3"),
    ("hashbrown", "kube-runtime is still on 0.16"),
    ("linux-raw-sys", "comes with rustix"),
    (
        "rustix",
        "procfs, which prometheus reads a process with, is still on 0.38",
    ),
    ("syn", "derive macros move to 3 one by one; nothing of it is linked"),
];

/// Breaches among the packages that are really linked on this platform.
pub(super) fn findings(root: &Path, metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in metadata.foreign() {
        let licence = package.license.as_deref().unwrap_or_default();
        if !allowed(licence) {
            let Package { name, version, .. } = package;
            findings.push(format!(
                "{name} {version}: the licence {licence:?} is not among those allowed in xtask's supply"
            ));
        }
    }
    let arguments = [
        "tree",
        "--locked",
        "--workspace",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let tree = workspace::output(root, "cargo", &arguments)?;
    let linked = versions(&tree);
    for (name, reason) in BANNED.iter().filter(|(name, _)| linked.contains_key(*name)) {
        findings.push(format!(
            "{name}: is banned: {reason}; `cargo tree -i {name}` shows who wants it"
        ));
    }
    findings.extend(doubled(&linked));
    Ok(findings)
}

/// Versions by name, of a listing of `name vVERSION` lines.
fn versions(tree: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    versions
}

fn doubled(linked: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let known = |name: &str| DOUBLED.iter().any(|(known, _)| *known == name);
    let mut findings = Vec::new();
    for (name, versions) in linked
        .iter()
        .filter(|(name, versions)| versions.len() > 1 && !known(name))
    {
        let versions = versions.iter().copied().collect::<Vec<_>>().join(", ");
        findings.push(format!(
            "{name}: comes in several versions ({versions}); unify them, or say in xtask's supply why not"
        ));
    }
    for (name, _) in DOUBLED
        .iter()
        .filter(|(name, _)| linked.get(name).is_none_or(|versions| versions.len() < 2))
    {
        findings.push(format!(
            "{name}: no longer comes in several versions; take it out of the list in xtask's supply"
        ));
    }
    findings
}

/// Whether an SPDX expression can be met with allowed licences.
fn allowed(expression: &str) -> bool {
    // Before SPDX expressions, a slash meant "or".
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut rest = words.as_slice();
    let allowed = any(&mut rest);
    allowed && rest.is_empty()
}

fn any(rest: &mut &[&str]) -> bool {
    let mut met = all(rest);
    while let Some((&"OR", after)) = rest.split_first() {
        *rest = after;
        // Not short-circuiting: the words must be read in any case.
        met |= all(rest);
    }
    met
}

fn all(rest: &mut &[&str]) -> bool {
    let mut met = one(rest);
    while let Some((&"AND", after)) = rest.split_first() {
        *rest = after;
        met &= one(rest);
    }
    met
}

fn one(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let met = any(rest);
            match *rest {
                [")", after @ ..] => *rest = after,
                _ => return false,
            }
            met
        }
        [licence, "WITH", exception, after @ ..] => {
            *rest = after;
            LICENCES.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, after @ ..] => {
            *rest = after;
            LICENCES.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_passes_when_every_part_can_be_met() {
        for expression in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "LGPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Apache-2.0 AND ISC",
        ] {
            assert!(allowed(expression), "{expression}");
        }
    }

    #[test]
    fn a_licence_fails_when_one_part_cannot_be_met() {
        for expression in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "LGPL-3.0 OR MPL-2.0",
            "(MIT OR Apache-2.0) AND OpenSSL",
            "GPL-2.0 WITH LLVM-exception",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
        ] {
            assert!(!allowed(expression), "{expression}");
        }
    }

    #[test]
    fn a_crate_in_two_versions_is_named_once() {
        let found = doubled(&versions("a v1.0.0\nb v1.0.0\nb v2.0.0\nb v2.0.0 (*)\n"));
        assert!(
            found
                .iter()
                .any(|line| line.starts_with("b: comes in several versions (v1.0.0, v2.0.0)")),
            "{found:?}"
        );
        assert!(!found.iter().any(|line| line.starts_with("a:")), "{found:?}");
    }

    #[test]
    fn deny_toml_says_the_same() {
        let text = std::fs::read_to_string(workspace::root().unwrap().join("deny.toml")).unwrap();
        let section = |from: &str| text.split(from).nth(1).unwrap().split("\n]").next().unwrap();
        let listed = section("\nallow = [");
        let licences: BTreeSet<&str> = listed
            .lines()
            .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","))
            .collect();
        assert_eq!(licences, LICENCES.iter().copied().collect());
        let listed = section("\ndeny = [");
        let banned: BTreeSet<&str> = listed
            .lines()
            .filter_map(|line| line.split("crate = \"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(banned, BANNED.iter().map(|(name, _)| *name).collect());
    }
}
