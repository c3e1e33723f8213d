//! Which fields in use are not acted on yet.
//!
//! A field that is accepted and silently ignored would be a promise not kept: the queue says so instead, with the
//! names that these methods return.

use sluice_quantity::Quantity;

use super::cluster_queue::ClusterQueue;
use super::local_queue::LocalQueue;
use super::policy::{
    BorrowWithinCohort, FairSharing, FlavorFungibility, ReclaimWithinCohort, StopPolicy, WithinClusterQueue,
};
use super::resource_flavor::ResourceFlavor;

impl ClusterQueue {
    /// Paths of the fields in use that are not acted on yet, in the order of the API.
    pub fn unsupported_fields(&self) -> Vec<String> {
        let spec = &self.spec;
        let fungibility = FlavorFungibility::default();
        let quotas = || {
            spec.resource_groups
                .iter()
                .flat_map(|g| &g.flavors)
                .flat_map(|f| &f.resources)
        };
        named([
            (
                quotas().any(|r| r.borrowing_limit.is_some()),
                "spec.resourceGroups[*].flavors[*].resources[*].borrowingLimit",
            ),
            (
                quotas().any(|r| r.lending_limit.is_some()),
                "spec.resourceGroups[*].flavors[*].resources[*].lendingLimit",
            ),
            (spec.cohort_name.is_some(), "spec.cohortName"),
            (
                spec.flavor_fungibility.when_can_borrow != fungibility.when_can_borrow,
                "spec.flavorFungibility.whenCanBorrow",
            ),
            (
                spec.flavor_fungibility.when_can_preempt != fungibility.when_can_preempt,
                "spec.flavorFungibility.whenCanPreempt",
            ),
            (
                spec.flavor_fungibility.preference.is_some(),
                "spec.flavorFungibility.preference",
            ),
            (
                spec.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never,
                "spec.preemption.reclaimWithinCohort",
            ),
            (
                spec.preemption.borrow_within_cohort != BorrowWithinCohort::default(),
                "spec.preemption.borrowWithinCohort",
            ),
            (
                spec.preemption.within_cluster_queue != WithinClusterQueue::Never,
                "spec.preemption.withinClusterQueue",
            ),
            (spec.admission_checks_strategy.is_some(), "spec.admissionChecksStrategy"),
            (spec.stop_policy == StopPolicy::HoldAndDrain, "spec.stopPolicy"),
            (weighted(spec.fair_sharing.as_ref()), "spec.fairSharing.weight"),
            (spec.admission_scope.is_some(), "spec.admissionScope"),
            (
                spec.concurrent_admission_policy.is_some(),
                "spec.concurrentAdmissionPolicy",
            ),
        ])
    }
}

impl LocalQueue {
    /// Paths of the fields in use that are not acted on yet, in the order of the API.
    pub fn unsupported_fields(&self) -> Vec<String> {
        named([
            (self.spec.stop_policy == StopPolicy::HoldAndDrain, "spec.stopPolicy"),
            (weighted(self.spec.fair_sharing.as_ref()), "spec.fairSharing.weight"),
        ])
    }
}

impl ResourceFlavor {
    /// Paths of the fields in use that are not acted on yet, in the order of the API.
    pub fn unsupported_fields(&self) -> Vec<String> {
        named([(self.spec.topology_name.is_some(), "spec.topologyName")])
    }
}

fn named<const N: usize>(fields: [(bool, &str); N]) -> Vec<String> {
    fields
        .into_iter()
        .filter(|(in_use, _)| *in_use)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Whether the weight is other than 1. A broken weight is `validate`'s to report.
fn weighted(fair_sharing: Option<&FairSharing>) -> bool {
    fair_sharing
        .and_then(|sharing| sharing.weight.as_ref())
        .and_then(|weight| weight.parse().ok())
        .is_some_and(|weight| weight != Quantity::from(1))
}
