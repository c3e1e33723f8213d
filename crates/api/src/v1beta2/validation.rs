//! What the CRD schema cannot say, checked on decoded objects.
//!
//! The schema keeps most bad objects out. What is left are rules over several lists (the cost of a CEL rule is
//! bounded) and objects stored before a rule existed. Each violation names the field, so that it can be shown to
//! whoever wrote it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice_quantity::{ParseError, Quantity};
use thiserror::Error;

use super::cluster_queue::{ClusterQueue, ClusterQueueSpec};
use super::cohort::Cohort;
use super::local_queue::LocalQueue;
use super::policy::FairSharing;
use super::quota::{ResourceGroup, ResourceQuota};
use super::resource_flavor::ResourceFlavor;
use crate::{QuantityText, names};

/// The most flavors of one ClusterQueue or Cohort, over all its groups.
const MAX_FLAVORS: usize = 256;
/// The most covered resources of one ClusterQueue or Cohort, over all its groups.
const MAX_COVERED_RESOURCES: usize = 256;
/// The most pairs of flavor and resource in one group.
const MAX_PAIRS: usize = 512;

/// One thing wrong with an object: where, and what.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct Violation {
    /// Path of the field, as `kubectl explain` would name it, with indexes.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The text is no quantity.
    #[error("{text:?} is not a quantity")]
    Quantity {
        /// The text.
        text: String,
        /// Why it is none.
        source: ParseError,
    },
    /// The quantity is below zero.
    #[error("{text} is negative")]
    Negative {
        /// The quantity as written.
        text: String,
    },
    /// The value is outside the enumeration.
    #[error("{value:?} is not supported: use one of {}", .allowed.join(", "))]
    Value {
        /// The value.
        value: String,
        /// The values that are allowed.
        allowed: &'static [&'static str],
    },
    /// The name stands in the list already.
    #[error("{name:?} is listed more than once")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// The resources of a flavor are not those of its group.
    #[error("must list the resources of coveredResources in the same order: {}", .covered.join(", "))]
    Resources {
        /// The covered resources of the group.
        covered: Vec<String>,
    },
    /// A lending limit is above the nominal quota.
    #[error("must not be above nominalQuota")]
    LendingLimit,
    /// A list is too long.
    #[error("{len} entries are too many: at most {max}")]
    TooMany {
        /// Entries counted.
        len: usize,
        /// Entries allowed.
        max: usize,
    },
    /// A weight is too small to be told from 0.
    #[error("must be 0 or greater than 1n")]
    Weight,
    /// An annotation of Sluice's own has a value that cannot be used.
    #[error("must be {wanted}, not {value:?}")]
    Annotation {
        /// The value, cut if it is long.
        value: String,
        /// What can be used.
        wanted: &'static str,
    },
    /// An annotation under Sluice's prefix that this kind does not have.
    #[error("is not known{}", listed(.known))]
    UnknownAnnotation {
        /// Those that the kind has.
        known: &'static [&'static str],
    },
    /// The annotation makes no sense without something else.
    #[error("needs {0}")]
    Needs(&'static str),
    /// The annotation cannot be combined with something else.
    #[error("cannot be combined with {0}")]
    Excludes(&'static str),
    /// Something else, in words of its own.
    #[error("{0}")]
    Stated(String),
    /// A label selector does not make sense.
    #[error("{reason}")]
    Selector {
        /// What is wrong with it.
        reason: String,
    },
}

fn listed(known: &[&str]) -> String {
    if known.is_empty() {
        " on this kind".to_owned()
    } else {
        format!(": use one of {}", known.join(", "))
    }
}

impl ClusterQueue {
    /// Everything that is wrong with this queue, in the order of the API. Empty for a sound one.
    pub fn validate(&self) -> Vec<Violation> {
        let spec = &self.spec;
        let mut found = Findings(self.extras().err().unwrap_or_default());
        found.groups(&spec.resource_groups, Lending::UpToNominal);
        found.enums(spec);
        found.selector(spec.namespace_selector.as_ref());
        found.weight(spec.fair_sharing.as_ref());
        found.checks(spec);
        found.0
    }
}

impl Cohort {
    /// Everything that is wrong with this cohort, in the order of the API. Empty for a sound one.
    pub fn validate(&self) -> Vec<Violation> {
        let mut found = Findings(self.annotation_violations());
        found.groups(&self.spec.resource_groups, Lending::Unbounded);
        found.weight(self.spec.fair_sharing.as_ref());
        found.0
    }
}

impl LocalQueue {
    /// Everything that is wrong with this queue, in the order of the API. Empty for a sound one.
    pub fn validate(&self) -> Vec<Violation> {
        let mut found = Findings::default();
        let stop = &self.spec.stop_policy;
        found.value("spec.stopPolicy", stop.unknown(), super::StopPolicy::VALUES);
        found.weight(self.spec.fair_sharing.as_ref());
        found.0
    }
}

impl ResourceFlavor {
    /// Everything that is wrong with this flavor, in the order of the API. Empty for a sound one.
    pub fn validate(&self) -> Vec<Violation> {
        const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        const OPERATORS: &[&str] = &["Equal", "Exists"];
        let spec = &self.spec;
        let mut found = Findings::default();
        found.labels("spec.nodeLabels", &spec.node_labels);
        let mut taints = BTreeSet::new();
        for (t, taint) in spec.node_taints.iter().enumerate() {
            let field = format!("spec.nodeTaints[{t}]");
            found.label_keys(&format!("{field}.key"), std::iter::once(&taint.key));
            let value = taint.value.as_deref().unwrap_or_default();
            if !names::is_label_value(value) {
                found.states(
                    format_args!("{field}.value"),
                    format!("{value:?} is not the value of a taint"),
                );
            }
            let unknown = (!EFFECTS.contains(&taint.effect.as_str())).then_some(taint.effect.as_str());
            found.value(&format!("{field}.effect"), unknown, EFFECTS);
            if !taints.insert((&taint.key, &taint.effect)) {
                let name = format!("{}:{}", taint.key, taint.effect);
                found.add(field, Problem::Duplicate { name });
            }
        }
        for (t, toleration) in spec.tolerations.iter().enumerate() {
            let field = format!("spec.tolerations[{t}]");
            let operator = toleration.operator.as_deref().unwrap_or_default();
            let unknown = (!operator.is_empty() && !OPERATORS.contains(&operator)).then_some(operator);
            found.value(&format!("{field}.operator"), unknown, OPERATORS);
            let exists = operator == "Exists";
            let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
            if !given(&toleration.key) && !exists {
                found.states(&field, "an empty key needs the operator Exists");
            }
            if exists && given(&toleration.value) {
                found.states(&field, "the operator Exists takes no value");
            }
            if toleration.toleration_seconds.is_some() && toleration.effect.as_deref() != Some("NoExecute") {
                found.states(&field, "tolerationSeconds needs the effect NoExecute");
            }
        }
        found.0
    }
}

/// How high a lending limit may be.
#[derive(Clone, Copy)]
enum Lending {
    /// A queue lends what is its own.
    UpToNominal,
    /// A cohort also hands on what its members lend.
    Unbounded,
}

/// What was found wrong so far.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Violation>);

impl Findings {
    /// Adds a problem in words of its own.
    pub(super) fn states(&mut self, field: impl fmt::Display, text: impl Into<String>) {
        self.add(field, Problem::Stated(text.into()));
    }

    /// Labels with keys or values that no object can have.
    pub(super) fn labels(&mut self, field: &str, labels: &BTreeMap<String, String>) {
        self.label_keys(field, labels.keys());
        for (key, value) in labels.iter().filter(|(_, value)| !names::is_label_value(value)) {
            self.states(
                format_args!("{field}[{key}]"),
                format!("{value:?} is not the value of a label"),
            );
        }
    }

    /// Keys that no label or annotation can have.
    pub(super) fn label_keys<'a>(&mut self, field: &str, keys: impl Iterator<Item = &'a String>) {
        for key in keys.filter(|key| !names::is_label_key(key)) {
            self.states(field, format!("{key:?} is not the key of a label or annotation"));
        }
    }

    pub(super) fn add(&mut self, field: impl fmt::Display, problem: Problem) {
        self.0.push(Violation {
            field: field.to_string(),
            problem,
        });
    }

    fn value(&mut self, field: &str, unknown: Option<&str>, allowed: &'static [&'static str]) {
        if let Some(value) = unknown {
            self.add(
                field,
                Problem::Value {
                    value: value.to_owned(),
                    allowed,
                },
            );
        }
    }

    /// The amount, if it is one and not negative.
    pub(super) fn amount(&mut self, field: impl fmt::Display, text: &QuantityText) -> Option<Quantity> {
        match text.parse() {
            Err(source) => self.add(
                field,
                Problem::Quantity {
                    text: text.to_string(),
                    source,
                },
            ),
            Ok(amount) if amount.is_negative() => self.add(field, Problem::Negative { text: text.to_string() }),
            Ok(amount) => return Some(amount),
        }
        None
    }

    fn limit(&mut self, len: usize, max: usize, field: &str) {
        if len > max {
            self.add(field, Problem::TooMany { len, max });
        }
    }

    fn groups(&mut self, groups: &[ResourceGroup], lending: Lending) {
        self.limit(
            groups.iter().map(|g| g.flavors.len()).sum(),
            MAX_FLAVORS,
            "spec.resourceGroups[*].flavors",
        );
        self.limit(
            groups.iter().map(|g| g.covered_resources.len()).sum(),
            MAX_COVERED_RESOURCES,
            "spec.resourceGroups[*].coveredResources",
        );
        let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
        for (g, group) in groups.iter().enumerate() {
            let path = format!("spec.resourceGroups[{g}]");
            self.limit(
                group.flavors.len() * group.covered_resources.len(),
                MAX_PAIRS,
                &format!("{path}.flavors"),
            );
            for (r, name) in group.covered_resources.iter().enumerate() {
                if !resources.insert(name) {
                    self.add(
                        format_args!("{path}.coveredResources[{r}]"),
                        Problem::Duplicate { name: name.clone() },
                    );
                }
            }
            for (f, flavor) in group.flavors.iter().enumerate() {
                let path = format!("{path}.flavors[{f}]");
                if !flavors.insert(&flavor.name) {
                    self.add(
                        format_args!("{path}.name"),
                        Problem::Duplicate {
                            name: flavor.name.clone(),
                        },
                    );
                }
                if !flavor.resources.iter().map(|r| &r.name).eq(&group.covered_resources) {
                    let covered = group.covered_resources.clone();
                    self.add(format_args!("{path}.resources"), Problem::Resources { covered });
                }
                for (r, quota) in flavor.resources.iter().enumerate() {
                    self.quota(&format!("{path}.resources[{r}]"), quota, lending);
                }
            }
        }
    }

    fn quota(&mut self, path: &str, quota: &ResourceQuota, lending: Lending) {
        let nominal = self.amount(format_args!("{path}.nominalQuota"), &quota.nominal_quota);
        if let Some(limit) = &quota.borrowing_limit {
            self.amount(format_args!("{path}.borrowingLimit"), limit);
        }
        if let Some(limit) = &quota.lending_limit {
            let field = format!("{path}.lendingLimit");
            let limit = self.amount(&field, limit);
            let above = limit.zip(nominal).is_some_and(|(limit, nominal)| limit > nominal);
            if above && matches!(lending, Lending::UpToNominal) {
                self.add(field, Problem::LendingLimit);
            }
        }
    }

    fn enums(&mut self, spec: &ClusterQueueSpec) {
        let fungibility = &spec.flavor_fungibility;
        let preemption = &spec.preemption;
        self.value(
            "spec.queueingStrategy",
            spec.queueing_strategy.unknown(),
            super::QueueingStrategy::VALUES,
        );
        let policies = super::FungibilityPolicy::VALUES;
        self.value(
            "spec.flavorFungibility.whenCanBorrow",
            fungibility.when_can_borrow.unknown(),
            policies,
        );
        self.value(
            "spec.flavorFungibility.whenCanPreempt",
            fungibility.when_can_preempt.unknown(),
            policies,
        );
        self.value(
            "spec.flavorFungibility.preference",
            fungibility
                .preference
                .as_ref()
                .and_then(super::FlavorFungibilityPreference::unknown),
            super::FlavorFungibilityPreference::VALUES,
        );
        self.value(
            "spec.preemption.reclaimWithinCohort",
            preemption.reclaim_within_cohort.unknown(),
            super::ReclaimWithinCohort::VALUES,
        );
        self.value(
            "spec.preemption.borrowWithinCohort.policy",
            preemption.borrow_within_cohort.policy.unknown(),
            super::BorrowWithinCohortPolicy::VALUES,
        );
        self.value(
            "spec.preemption.withinClusterQueue",
            preemption.within_cluster_queue.unknown(),
            super::WithinClusterQueue::VALUES,
        );
        self.value("spec.stopPolicy", spec.stop_policy.unknown(), super::StopPolicy::VALUES);
        self.value(
            "spec.admissionScope.admissionMode",
            spec.admission_scope
                .as_ref()
                .and_then(|scope| scope.admission_mode.unknown()),
            super::AdmissionMode::VALUES,
        );
        self.value(
            "spec.concurrentAdmissionPolicy.migration.mode",
            spec.concurrent_admission_policy
                .as_ref()
                .and_then(|policy| policy.migration.mode.unknown()),
            super::ConcurrentAdmissionMode::VALUES,
        );
    }

    fn selector(&mut self, selector: Option<&LabelSelector>) {
        let expressions = selector
            .and_then(|s| s.match_expressions.as_deref())
            .unwrap_or_default();
        for (e, expression) in expressions.iter().enumerate() {
            let values = expression.values.as_deref().unwrap_or_default();
            let reason = match expression.operator.as_str() {
                "In" | "NotIn" if values.is_empty() => "In and NotIn need at least one value".to_owned(),
                "Exists" | "DoesNotExist" if !values.is_empty() => "Exists and DoesNotExist take no values".to_owned(),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => continue,
                other => format!("operator {other:?} is not supported: use one of In, NotIn, Exists, DoesNotExist"),
            };
            self.add(
                format_args!("spec.namespaceSelector.matchExpressions[{e}]"),
                Problem::Selector { reason },
            );
        }
    }

    fn weight(&mut self, fair_sharing: Option<&FairSharing>) {
        let Some(weight) = fair_sharing.and_then(|sharing| sharing.weight.as_ref()) else {
            return;
        };
        let field = "spec.fairSharing.weight";
        let smallest = Quantity::parse("1n").ok();
        if self
            .amount(field, weight)
            .is_some_and(|amount| !amount.is_zero() && Some(amount) <= smallest)
        {
            self.add(field, Problem::Weight);
        }
    }

    fn checks(&mut self, spec: &ClusterQueueSpec) {
        let rules = spec
            .admission_checks_strategy
            .as_ref()
            .map(|s| s.admission_checks.as_slice())
            .unwrap_or_default();
        let mut names = BTreeSet::new();
        for (c, rule) in rules.iter().enumerate() {
            if !names.insert(&rule.name) {
                let field = format!("spec.admissionChecksStrategy.admissionChecks[{c}].name");
                self.add(
                    field,
                    Problem::Duplicate {
                        name: rule.name.clone(),
                    },
                );
            }
        }
    }
}
