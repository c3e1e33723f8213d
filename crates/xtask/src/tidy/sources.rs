//! What may stand in a file of the repository.

use std::path::Path;

use anyhow::Context;

use crate::workspace;

/// The longest source file, in lines.
const MAX_LINES: usize = 800;
/// Endings of the files that are written by hand.
const SOURCES: &[&str] = &["rs", "go", "sh", "tpl"];
/// Endings of data, whose every byte may be meant.
const DATA: &[&str] = &["json", "tsv", "txt"];
/// Files that tools write or that hold the words of others.
const NOT_OURS: &[&str] = &["Cargo.lock", "go.sum", "LICENSE"];

/// Breaches of the rules for files.
pub(super) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let rules = Rules::new(root, std::env::var("HOME").ok().as_deref(), &std::env::temp_dir());
    let mut findings = Vec::new();
    for path in workspace::files(root)? {
        let bytes = std::fs::read(root.join(&path)).with_context(|| format!("failed to read {path}"))?;
        // What is not text is not ours to judge.
        if let Ok(text) = std::str::from_utf8(&bytes) {
            findings.extend(rules.check(&path, text));
        }
    }
    Ok(findings)
}

/// The rules, made for one checkout.
struct Rules {
    /// Paths that exist on one machine alone.
    machine_paths: Vec<String>,
}

/// Words that promise work instead of doing it. Spelt in two halves, so that this list does not find itself.
const UNFINISHED: &[(&str, &str)] = &[("TO", "DO"), ("FIX", "ME"), ("todo", "!("), ("unimplemented", "!(")];

/// Hosts of package registries: where packages come from is each machine's own configuration. In halves as well.
const REGISTRIES: &[(&str, &str)] = &[
    ("crates", ".io"),
    ("proxy.golang", ".org"),
    ("sum.golang", ".org"),
    ("pypi", ".org"),
    ("registry.npmjs", ".org"),
];

/// Names that say nothing about what a module is.
const VAGUE: &[&str] = &["util", "utils", "helper", "helpers", "manager", "misc", "common"];

impl Rules {
    fn new(root: &Path, home: Option<&str>, temp: &Path) -> Self {
        let root = root.display().to_string();
        let temp = temp.display().to_string();
        let mut machine_paths = vec![format!("{root}/"), format!("{}/sluice/", temp.trim_end_matches('/'))];
        // The home of root is a word of Kubernetes' own in paths of cohorts; what lies in it is not.
        machine_paths.extend(home.map(|home| format!("{}/.", home.trim_end_matches('/'))));
        machine_paths.extend(["home", "Users"].map(|homes| format!("/{homes}/")));
        Self { machine_paths }
    }

    fn check(&self, path: &str, text: &str) -> Vec<String> {
        let name = path.rsplit('/').next().unwrap_or(path);
        if NOT_OURS.contains(&name) {
            return Vec::new();
        }
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let mut findings = Vec::new();
        let lines = text.lines().count();
        if SOURCES.contains(&ending) && lines > MAX_LINES {
            findings.push(format!(
                "{path}: has {lines} lines, at most {MAX_LINES} are allowed: split it by what its parts do"
            ));
        }
        if ending == "rs" && VAGUE.contains(&stem) {
            findings.push(format!("{path}: the name says nothing: name it after what is in it"));
        }
        if ending == "rs" && is_module(path) && !documented(text) {
            findings.push(format!("{path}:1: a module starts with `//!` and what it is for"));
        }
        for (at, line) in text.lines().enumerate() {
            findings.extend(
                self.line(ending, line)
                    .into_iter()
                    .map(|problem| format!("{path}:{}: {problem}", at + 1)),
            );
        }
        if !DATA.contains(&ending) && !text.is_empty() && !text.ends_with('\n') {
            findings.push(format!("{path}:{lines}: the last line has no end"));
        }
        findings
    }

    fn line(&self, ending: &str, line: &str) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(path) = self.machine_paths.iter().find(|path| line.contains(path.as_str())) {
            problems.push(format!("{path} is a path of one machine"));
        }
        if let Some(word) = found(line, UNFINISHED) {
            problems.push(format!("{word}: do it, or file an issue"));
        }
        if let Some(host) = found(line, REGISTRIES) {
            problems.push(format!("{host} is a package registry: say what to get, not from where"));
        }
        if ending == "rs" && line.trim_start().starts_with("#[ignore") {
            problems.push("a test that is not run is no test: make it pass or take it out".to_owned());
        }
        if line.ends_with([' ', '\t']) && ending != "md" && !DATA.contains(&ending) {
            problems.push("blanks at the end of the line".to_owned());
        }
        problems
    }
}

/// The first of some words, spelt in two halves, that stands in a line.
fn found(line: &str, words: &[(&str, &str)]) -> Option<String> {
    words
        .iter()
        .map(|(a, b)| format!("{a}{b}"))
        .find(|word| line.contains(word.as_str()))
}

/// Whether a Rust file is a module that readers come to first: tests speak through their names.
fn is_module(path: &str) -> bool {
    path.contains("src/") && !path.ends_with("tests.rs")
}

/// Whether the first thing in a Rust file is its module's description.
fn documented(text: &str) -> bool {
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    first.is_none_or(|line| line.starts_with("//!"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        Rules::new(Path::new("/builds/sluice"), Some("/root"), Path::new("/tmp")).check(path, text)
    }

    #[test]
    fn a_plain_file_passes() {
        assert!(check("crates/a/src/lib.rs", "//! A crate.\n\nfn f() {}\n").is_empty());
        assert!(check("docs/a.md", "Two blanks  \nbreak a line.\n").is_empty());
        assert!(check("docs/b.md", "preemptor path: /root/research/team-a\n").is_empty());
        assert!(check("empty.yaml", "").is_empty());
    }

    #[test]
    fn long_files_are_named_with_their_length() {
        let text = format!("//! Long.\n{}", "fn f() {}\n".repeat(MAX_LINES));
        assert_eq!(
            check("a.rs", &text),
            ["a.rs: has 801 lines, at most 800 are allowed: split it by what its parts do"]
        );
        assert!(check("a.yaml", &text).is_empty());
    }

    #[test]
    fn modules_without_a_description_are_named() {
        assert_eq!(
            check("src/a.rs", "use std::fmt;\n"),
            ["src/a.rs:1: a module starts with `//!` and what it is for"]
        );
        assert!(check("src/a.rs", "#![no_std]\n//! Described.\n").is_empty());
        assert!(check("src/a/tests.rs", "use super::*;\n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_named_with_their_line() {
        // In pieces: the rule reads this file too.
        for pieces in [
            ["/builds/", "sluice/target"],
            ["/root", "/.cargo/bin"],
            ["/home", "/someone"],
            ["/tmp", "/sluice/x"],
        ] {
            let path = pieces.concat();
            let found = check("docs/a.md", &format!("First.\nSee {path}\n"));
            assert_eq!(found.len(), 1, "{path}");
            assert!(found[0].starts_with("docs/a.md:2: /"), "{found:?}");
            assert!(check("Cargo.lock", &format!("{path}\n")).is_empty());
        }
    }

    #[test]
    fn unfinished_work_and_package_registries_are_named() {
        for (a, b) in UNFINISHED.iter().chain(REGISTRIES) {
            let found = check("a.sh", &format!("# {a}{b} later)\n"));
            assert_eq!(found.len(), 1, "{a}{b}");
        }
    }

    #[test]
    fn modules_with_a_name_that_says_nothing_are_named() {
        assert_eq!(check("src/util.rs", "//! This and that.\n").len(), 1);
        assert!(check("src/utilisation.rs", "//! How much is used.\n").is_empty());
    }

    #[test]
    fn tests_that_are_not_run_are_named() {
        let attribute = format!("//! Tests.\n#[test]\n    #[{}]\nfn f() {{}}\n", "ignore = \"slow\"");
        assert_eq!(check("a.rs", &attribute).len(), 1);
        assert!(check("a.md", &attribute).is_empty());
    }

    #[test]
    fn blanks_and_missing_ends_of_lines_are_named() {
        assert_eq!(check("a.yaml", "a: b \n"), ["a.yaml:1: blanks at the end of the line"]);
        assert_eq!(check("a.yaml", "a: b"), ["a.yaml:1: the last line has no end"]);
        assert!(check("a.json", "{} ").is_empty());
    }
}
