//! What the author of a ClusterQueue should hear when writing it, though the queue works all the same, and changes that
//! make no sense.

use super::cluster_queue::ClusterQueue;
use super::policy::{ConcurrentAdmissionMode, QueueingStrategy};
use super::validation::{Findings, Violation};

/// The most flavors among which one job can be tried at once.
const MAX_CONCURRENT: usize = 16;

impl ClusterQueue {
    /// Everything that the queue names and does not have, and policies that exclude each other.
    pub fn validate_references(&self) -> Vec<Violation> {
        let spec = &self.spec;
        let flavors = || spec.resource_groups.iter().flat_map(|group| &group.flavors);
        let unknown = |name: &String| !flavors().any(|flavor| flavor.name == *name);
        let mut found = Findings::default();
        let checks = spec
            .admission_checks_strategy
            .iter()
            .flat_map(|strategy| &strategy.admission_checks);
        for (c, check) in checks.enumerate() {
            for (f, flavor) in check
                .on_flavors
                .iter()
                .enumerate()
                .filter(|(_, flavor)| unknown(flavor))
            {
                let field = format!("spec.admissionChecksStrategy.admissionChecks[{c}].onFlavors[{f}]");
                found.states(field, format!("{flavor:?} is none of the flavors of the queue"));
            }
        }
        let Some(policy) = &spec.concurrent_admission_policy else {
            return found.0;
        };
        let field = "spec.concurrentAdmissionPolicy";
        if spec.resource_groups.len() != 1 {
            found.states(field, "needs just one resource group");
        }
        if flavors().count() > MAX_CONCURRENT {
            found.states(field, format!("needs a queue of at most {MAX_CONCURRENT} flavors"));
        }
        if spec.queueing_strategy == QueueingStrategy::StrictFIFO {
            found.states(field, "does not go with the queueing strategy StrictFIFO");
        }
        if let Some(constraints) = &policy.migration.constraints {
            let field = format!("{field}.migration.constraints");
            if policy.migration.mode != ConcurrentAdmissionMode::TryPreferredFlavors {
                found.states(&field, "needs the mode TryPreferredFlavors");
            }
            if let Some(name) = constraints
                .last_acceptable_flavor_name
                .as_ref()
                .filter(|name| unknown(name))
            {
                let field = format!("{field}.lastAcceptableFlavorName");
                found.states(field, format!("{name:?} is none of the flavors of the queue"));
            }
        }
        found.0
    }

    /// Everything that is wrong with turning `old` into this queue. The schema of `v1beta2` says the same; a change made in
    /// `v1beta1` passes it by.
    pub fn validate_change(&self, old: &Self) -> Vec<Violation> {
        let mut found = Findings::default();
        if self.spec.concurrent_admission_policy != old.spec.concurrent_admission_policy {
            found.states("spec.concurrentAdmissionPolicy", "cannot change");
        }
        found.0
    }
}
