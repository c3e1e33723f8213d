//! Which fields in use are not acted on yet.
//!
//! A field that is accepted and silently ignored would be a promise not kept: the queue says so instead, with the
//! names that these methods return.

use sluice_quantity::Quantity;

use super::cluster_queue::ClusterQueue;
use super::cohort::Cohort;
use super::local_queue::LocalQueue;
use super::policy::FairSharing;
use super::resource_flavor::ResourceFlavor;

/// Path of an annotation of Sluice's own.
macro_rules! annotation {
    ($name:literal) => {
        concat!("metadata.annotations[sluice.internal/", $name, "]")
    };
}

impl ClusterQueue {
    /// Paths of the fields in use that are not acted on yet, in the order of the API; annotations of Sluice's own last.
    pub fn unsupported_fields(&self) -> Vec<String> {
        let spec = &self.spec;
        // Broken annotations are `validate`'s to report.
        let extras = self.extras().unwrap_or_default();
        named([
            (spec.admission_checks_strategy.is_some(), "spec.admissionChecksStrategy"),
            (spec.admission_scope.is_some(), "spec.admissionScope"),
            (
                spec.concurrent_admission_policy.is_some(),
                "spec.concurrentAdmissionPolicy",
            ),
            (extras.ageing.is_some(), annotation!("ageing-interval")),
        ])
    }
}

impl Cohort {
    /// Paths of the fields in use that are not acted on yet, in the order of the API. All of them are acted on.
    pub fn unsupported_fields(&self) -> Vec<String> {
        Vec::new()
    }
}

impl LocalQueue {
    /// Paths of the fields in use that are not acted on yet, in the order of the API.
    pub fn unsupported_fields(&self) -> Vec<String> {
        named([(weighted(self.spec.fair_sharing.as_ref()), "spec.fairSharing.weight")])
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
