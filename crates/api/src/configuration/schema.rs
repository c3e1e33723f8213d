//! Every field of the file, and what becomes of it.
//!
//! The file is Kueue's, so every field that Kueue knows is here. A field that is not acted on is refused with a hint
//! where its matter is settled instead, unless its value says what Sluice does anyway.

use super::problem::{ConfigurationError, ConfigurationProblem};
use super::tree::{Entry, Node, Value};

/// A version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1Beta1,
    V1Beta2,
}

impl Version {
    /// Its `apiVersion`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1Beta1 => "config.kueue.x-k8s.io/v1beta1",
            Self::V1Beta2 => "config.kueue.x-k8s.io/v1beta2",
        }
    }
}

/// A field of a block.
struct Field {
    name: &'static str,
    /// The version that it is in; both if none.
    only_in: Option<Version>,
    rule: Rule,
}

/// What becomes of a field.
enum Rule {
    /// Acted on: its value is read by `read`.
    Read,
    /// A block of fields, each with its own rule.
    Block(&'static [Field]),
    /// A block that turns something on by being there.
    Switch(&'static [Field]),
    /// Accepted with these values, alone or in a list, which say what Sluice does anyway; else refused with the hint.
    Only(&'static [&'static str], &'static str),
    /// Refused with the hint. Empty is as good as absent.
    Refused(&'static str),
}

const fn field(name: &'static str, rule: Rule) -> Field {
    Field {
        name,
        only_in: None,
        rule,
    }
}

const fn beta1(name: &'static str, rule: Rule) -> Field {
    Field {
        name,
        only_in: Some(Version::V1Beta1),
        rule,
    }
}

const fn beta2(name: &'static str, rule: Rule) -> Field {
    Field {
        name,
        only_in: Some(Version::V1Beta2),
        rule,
    }
}

const NOT_YET: &str = "Sluice has nothing of this kind yet";
const FLAG: &str = "it is set by a flag, and in the chart's values";
const NO_WORKLOADS: &str = "Sluice keeps no Workload objects yet";

const FIELDS: &[Field] = &[
    field("apiVersion", Rule::Read),
    field("kind", Rule::Read),
    field("namespace", Rule::Refused("the namespace is that of the release")),
    field(
        "manageJobsWithoutQueueName",
        Rule::Only(
            &["false"],
            "namespaces opt in with the label kueue.x-k8s.io/managed-namespace",
        ),
    ),
    field(
        "managedJobsNamespaceSelector",
        Rule::Refused("namespaces opt in with the label kueue.x-k8s.io/managed-namespace"),
    ),
    field("internalCertManagement", Rule::Block(CERTIFICATES)),
    field("waitForPodsReady", Rule::Switch(WAIT_FOR_PODS_READY)),
    field(
        "clientConnection",
        Rule::Refused("writes in flight are bounded by the flag --write-concurrency of the scheduler"),
    ),
    field("integrations", Rule::Block(INTEGRATIONS)),
    beta1("queueVisibility", Rule::Refused(NOT_YET)),
    field("multiKueue", Rule::Refused(NOT_YET)),
    field("fairSharing", Rule::Switch(FAIR_SHARING)),
    field("admissionFairSharing", Rule::Switch(ADMISSION_FAIR_SHARING)),
    field("resources", Rule::Block(RESOURCES)),
    field("featureGates", Rule::Refused("Sluice has no feature gates")),
    field(
        "objectRetentionPolicies",
        Rule::Block(&[field("workloads", Rule::Refused(NO_WORKLOADS))]),
    ),
    beta2(
        "visibilityServer",
        Rule::Block(&[
            field("bindAddress", Rule::Refused(FLAG)),
            field("bindPort", Rule::Refused(FLAG)),
        ]),
    ),
    field(
        "webhook",
        Rule::Block(&[
            field("port", Rule::Refused(FLAG)),
            field("host", Rule::Refused(FLAG)),
            field("certDir", Rule::Refused(FLAG)),
        ]),
    ),
    field("leaderElection", Rule::Block(LEADER_ELECTION)),
    field("metrics", Rule::Block(METRICS)),
    field(
        "health",
        Rule::Block(&[
            field("healthProbeBindAddress", Rule::Refused(FLAG)),
            field(
                "readinessEndpointName",
                Rule::Only(&["readyz", "/readyz"], "the path is fixed"),
            ),
            field(
                "livenessEndpointName",
                Rule::Only(&["healthz", "/healthz"], "the path is fixed"),
            ),
        ]),
    ),
    field(
        "pprofBindAddress",
        Rule::Only(&["", "0"], "Sluice serves no Go profiles"),
    ),
    field(
        "controller",
        Rule::Block(&[
            field(
                "groupKindConcurrency",
                Rule::Refused("one task decides; writes in flight are bounded by the flag --write-concurrency"),
            ),
            field(
                "cacheSyncTimeout",
                Rule::Refused("a process is not ready until its caches are complete"),
            ),
        ]),
    ),
    beta2("tls", Rule::Block(TLS)),
    // What is Sluice's own goes here.
    field("sluice", Rule::Block(&[])),
];

const CERTIFICATES: &[Field] = &[
    field(
        "enable",
        Rule::Only(&["false"], "the webhook's certificate comes from a Secret"),
    ),
    field(
        "webhookServiceName",
        Rule::Refused("the Service's name follows from that of the release"),
    ),
    field(
        "webhookSecretName",
        Rule::Refused("it is set in the chart's value webhook.certificateSecret"),
    ),
];

const WAIT_FOR_PODS_READY: &[Field] = &[
    beta1("enable", Rule::Read),
    field("timeout", Rule::Read),
    field("recoveryTimeout", Rule::Read),
    field("blockAdmission", Rule::Read),
    field(
        "requeuingStrategy",
        Rule::Block(&[
            field("timestamp", Rule::Read),
            field("backoffLimitCount", Rule::Read),
            field("backoffBaseSeconds", Rule::Read),
            field("backoffMaxSeconds", Rule::Read),
        ]),
    ),
    beta2(
        "maxTimeoutOnWorkload",
        Rule::Refused("the timeout is the same for all Jobs"),
    ),
];

const INTEGRATIONS: &[Field] = &[
    field(
        "frameworks",
        Rule::Only(&["batch/job"], "other kinds of jobs are not managed yet"),
    ),
    field(
        "externalFrameworks",
        Rule::Refused("other kinds of jobs are not managed yet"),
    ),
    beta1("podOptions", Rule::Refused("pods are not managed yet")),
    field("labelKeysToCopy", Rule::Refused(NO_WORKLOADS)),
];

const FAIR_SHARING: &[Field] = &[beta1("enable", Rule::Read), field("preemptionStrategies", Rule::Read)];

const ADMISSION_FAIR_SHARING: &[Field] = &[
    field("usageHalfLifeTime", Rule::Read),
    field("usageSamplingInterval", Rule::Read),
    field("resourceWeights", Rule::Read),
];

const RESOURCES: &[Field] = &[
    beta2(
        "quotaCheckStrategy",
        Rule::Only(
            &["BlockUndeclared"],
            "a Job that asks for a resource which its ClusterQueue does not cover waits",
        ),
    ),
    field("excludeResourcePrefixes", Rule::Refused(NOT_YET)),
    field("transformations", Rule::Refused(NOT_YET)),
    beta2("deviceClassMappings", Rule::Refused(NOT_YET)),
];

const LEADER_ELECTION: &[Field] = &[
    field(
        "leaderElect",
        Rule::Only(&["true"], "the scheduler always elects a leader"),
    ),
    field(
        "resourceName",
        Rule::Only(
            &["c1f6bfd2.kueue.x-k8s.io"],
            "the scheduler holds this lease beside its own, whose name is set by the flag --lease-name",
        ),
    ),
    field("resourceLock", Rule::Only(&["leases"], "leaders are elected by leases")),
    field("resourceNamespace", Rule::Refused(FLAG)),
    field("leaseDuration", Rule::Refused(FLAG)),
    field("renewDeadline", Rule::Refused(FLAG)),
    field("retryPeriod", Rule::Refused(FLAG)),
];

const METRICS: &[Field] = &[
    field("bindAddress", Rule::Refused(FLAG)),
    field(
        "enableClusterQueueResources",
        Rule::Only(&["true"], "these metrics are always there"),
    ),
    beta2("customLabels", Rule::Refused(NOT_YET)),
    beta2(
        "localQueueMetrics",
        Rule::Block(&[
            field("enable", Rule::Only(&["true"], "these metrics are always there")),
            field(
                "localQueueSelector",
                Rule::Refused("there are metrics for every LocalQueue"),
            ),
        ]),
    ),
];

const TLS: &[Field] = &[
    field(
        "minVersion",
        Rule::Only(&["VersionTLS12"], "TLS 1.2 and 1.3 are served"),
    ),
    field("cipherSuites", Rule::Refused("they are those of rustls")),
    field("curvePreferences", Rule::Refused("they are those of rustls")),
];

/// Holds a file against the schema. Values of fields that are acted on are left to the caller.
pub(super) fn check(file: &[Entry], version: Version) -> Vec<ConfigurationError> {
    let mut check = Check {
        version,
        found: Vec::new(),
    };
    check.block("", file, FIELDS);
    check.found
}

struct Check {
    version: Version,
    found: Vec<ConfigurationError>,
}

impl Check {
    fn add(&mut self, line: u64, field: &str, problem: ConfigurationProblem) {
        self.found.push(ConfigurationError {
            line,
            field: field.to_owned(),
            problem,
        });
    }

    fn block(&mut self, path: &str, entries: &[Entry], fields: &[Field]) {
        for (at, entry) in entries.iter().enumerate() {
            let path = below(path, &entry.name);
            if let Some(first) = entries[..at].iter().find(|earlier| earlier.name == entry.name) {
                self.add(entry.line, &path, ConfigurationProblem::Duplicate(first.line));
                continue;
            }
            let Some(field) = fields.iter().find(|field| field.name == entry.name) else {
                let similar = similar(
                    &entry.name,
                    fields.iter().filter(|field| self.has(field)).map(|f| f.name),
                );
                self.add(entry.line, &path, ConfigurationProblem::Unknown(similar));
                continue;
            };
            match field.only_in {
                Some(version) if version != self.version => {
                    self.add(entry.line, &path, ConfigurationProblem::OtherVersion(version.name()));
                }
                _ => self.field(&path, entry.line, &entry.node, &field.rule),
            }
        }
    }

    fn has(&self, field: &Field) -> bool {
        field.only_in.is_none_or(|version| version == self.version)
    }

    fn field(&mut self, path: &str, line: u64, node: &Node, rule: &Rule) {
        match (rule, &node.value) {
            (Rule::Switch(_), Value::Null) => self.add(line, path, ConfigurationProblem::Empty),
            (Rule::Read, _) | (_, Value::Null) => {}
            (Rule::Block(fields) | Rule::Switch(fields), Value::Block(entries)) => self.block(path, entries, fields),
            (Rule::Block(_) | Rule::Switch(_), other) => {
                let (expected, found) = ("a block of fields".to_owned(), other.to_string());
                self.add(line, path, ConfigurationProblem::Value { expected, found });
            }
            (Rule::Only(allowed, why), value) => {
                if !consists_of(value, allowed) {
                    // An empty value has no name of its own.
                    let names: Vec<_> = allowed
                        .iter()
                        .map(|text| if text.is_empty() { "\"\"" } else { text })
                        .collect();
                    let hint = format!("only {} is accepted; {why}", names.join(" or "));
                    self.add(line, path, ConfigurationProblem::NotActedOn(hint));
                }
            }
            (Rule::Refused(hint), value) => {
                if !value.is_empty() {
                    self.add(line, path, ConfigurationProblem::NotActedOn((*hint).to_owned()));
                }
            }
        }
    }
}

/// The path of a field in a block.
pub(super) fn below(path: &str, name: &str) -> String {
    // Names come from the file: control characters would break the line of a log.
    let name: String = name.escape_debug().take(100).collect();
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

/// Whether a value is one of some texts, or a list of nothing else.
fn consists_of(value: &Value, allowed: &[&str]) -> bool {
    match value {
        Value::List(nodes) => nodes.iter().all(|node| consists_of(&node.value, allowed)),
        other => other.scalar().is_some_and(|text| allowed.contains(&text.as_str())),
    }
}

/// The name that was most probably meant.
fn similar(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // Names are short; a long one is no slip of the finger.
    let short = name.len() <= 64;
    let lower = name.to_ascii_lowercase();
    names
        .filter(|_| short)
        .map(|known| (distance(&lower, &known.to_ascii_lowercase()), known))
        .filter(|(distance, known)| *distance <= known.len() / 4 + 1 && *distance < known.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// How many letters have to be put in, taken out or changed to get from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
