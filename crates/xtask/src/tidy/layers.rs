//! Which crate may use which.
//!
//! The table is the architecture: values flow webhook -> admission, and scheduler -> runtime -> index -> engine and
//! back. An edge that is not in it is a decision to take, not a line to add in passing.

use crate::workspace::{Metadata, Package};

/// One crate of the workspace and the crates it may use. `quantity` and `api` are for everyone, with the exceptions
/// that [`may_use`] knows.
struct Layer {
    name: &'static str,
    /// Pure: values in, values out.
    pure: bool,
    uses: &'static [&'static str],
}

const LAYERS: &[Layer] = &[
    Layer {
        name: "sluice-quantity",
        pure: true,
        uses: &[],
    },
    Layer {
        name: "sluice-api",
        pure: true,
        uses: &[],
    },
    Layer {
        name: "sluice-engine",
        pure: true,
        uses: &[],
    },
    Layer {
        name: "sluice-jobs",
        pure: true,
        uses: &[],
    },
    Layer {
        name: "sluice-index",
        pure: true,
        uses: &["sluice-engine", "sluice-jobs"],
    },
    Layer {
        name: "sluice-admission",
        pure: true,
        uses: &["sluice-jobs"],
    },
    Layer {
        name: "sluice-pki",
        pure: true,
        uses: &[],
    },
    Layer {
        name: "sluice-sim",
        pure: true,
        uses: &["sluice-index", "sluice-engine", "sluice-admission"],
    },
    Layer {
        name: "sluice-runtime",
        pure: false,
        uses: &["sluice-index", "sluice-pki"],
    },
    Layer {
        name: "sluice-webhook",
        pure: false,
        uses: &["sluice-admission", "sluice-index", "sluice-pki", "sluice-runtime"],
    },
    Layer {
        name: "sluice-scheduler",
        pure: false,
        uses: &[
            "sluice-index",
            "sluice-engine",
            "sluice-jobs",
            "sluice-runtime",
            "sluice-pki",
        ],
    },
    Layer {
        name: "sluice-cli",
        pure: false,
        uses: &["sluice-index", "sluice-engine", "sluice-sim", "sluice-runtime"],
    },
    Layer {
        name: "sluice-testkit",
        pure: false,
        uses: &["sluice-pki"],
    },
    Layer {
        name: "sluice-e2e",
        pure: false,
        // The engine too: scenarios are played against it alone, with its times and ids.
        uses: &["sluice-testkit", "sluice-jobs", "sluice-index", "sluice-engine"],
    },
    Layer {
        name: "xtask",
        pure: false,
        uses: &[],
    },
];

/// Crates that almost everyone may use.
const VOCABULARY: &[&str] = &["sluice-quantity", "sluice-api"];
/// Crates that never see a Kubernetes type.
const WITHOUT_API: &[&str] = &["sluice-engine", "sluice-pki", "sluice-quantity"];

/// Names of the pure crates.
pub(super) fn pure() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().filter(|layer| layer.pure).map(|layer| layer.name)
}

fn may_use(layer: &Layer, dependency: &str, for_tests: bool) -> bool {
    if for_tests && dependency == "sluice-testkit" && !layer.pure {
        return true;
    }
    if VOCABULARY.contains(&dependency) {
        return !(dependency == "sluice-api" && WITHOUT_API.contains(&layer.name));
    }
    layer.uses.contains(&dependency)
}

/// Edges between the workspace's crates that the table does not have.
pub(super) fn findings(metadata: &Metadata) -> Vec<String> {
    let members: Vec<&Package> = metadata.members().collect();
    let mut findings = Vec::new();
    for package in &members {
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == package.name) else {
            findings.push(format!(
                "{}: a new crate needs its place in the table of xtask's layers",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let ours = members.iter().any(|member| member.name == dependency.name);
            let for_tests = dependency.kind.as_deref() == Some("dev");
            if ours && !may_use(layer, &dependency.name, for_tests) {
                findings.push(format!(
                    "{}: must not use {} (see the table of xtask's layers)",
                    package.name, dependency.name
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(edges: &[(&str, &str, Option<&str>)]) -> Metadata {
        let mut names: Vec<&str> = edges.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        names.sort_unstable();
        names.dedup();
        let packages: Vec<_> = names
            .iter()
            .map(|name| {
                let dependencies: Vec<_> = edges
                    .iter()
                    .filter(|(from, ..)| from == name)
                    .map(|(_, to, kind)| serde_json::json!({ "name": to, "kind": kind }))
                    .collect();
                serde_json::json!({
                    "id": name, "name": name, "version": "0.1.0", "license": null, "dependencies": dependencies,
                })
            })
            .collect();
        serde_json::from_value(serde_json::json!({ "packages": packages, "workspace_members": names })).unwrap()
    }

    #[test]
    fn edges_of_the_table_pass() {
        let edges = [
            ("sluice-index", "sluice-engine", None),
            ("sluice-engine", "sluice-quantity", None),
            ("sluice-webhook", "sluice-api", None),
            ("sluice-webhook", "sluice-testkit", Some("dev")),
            ("sluice-e2e", "sluice-testkit", None),
        ];
        assert_eq!(findings(&metadata(&edges)), Vec::<String>::new());
    }

    #[test]
    fn every_other_edge_is_named() {
        for (from, to, kind) in [
            ("sluice-engine", "sluice-api", None),
            ("sluice-engine", "sluice-index", None),
            ("sluice-jobs", "sluice-engine", Some("build")),
            ("sluice-webhook", "sluice-engine", None),
            ("sluice-webhook", "sluice-testkit", None),
            ("sluice-index", "sluice-testkit", Some("dev")),
        ] {
            let found = findings(&metadata(&[(from, to, kind)]));
            let [line] = found.as_slice() else {
                panic!("{from} -> {to}: {found:?}")
            };
            assert!(line.starts_with(&format!("{from}: must not use {to}")), "{line}");
        }
    }

    #[test]
    fn a_crate_without_a_place_is_named() {
        let found = findings(&metadata(&[("sluice-helpers", "sluice-quantity", None)]));
        assert!(
            found[0].starts_with("sluice-helpers: a new crate needs its place"),
            "{found:?}"
        );
    }

    #[test]
    fn the_table_has_no_circle_and_names_only_its_own_crates() {
        // The table is in an order in which it could be built, but for the vocabulary, which comes first.
        for (at, layer) in LAYERS.iter().enumerate() {
            for used in layer.uses {
                assert!(
                    LAYERS[..at].iter().any(|earlier| earlier.name == *used),
                    "{} -> {used}",
                    layer.name
                );
            }
        }
    }
}
