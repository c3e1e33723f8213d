//! Which fields in use are not acted on yet.
//!
//! A field that is accepted and silently ignored would be a promise not kept: the queue says so instead, with the
//! names that these methods return.

use super::cluster_queue::ClusterQueue;
use super::cohort::Cohort;
use super::local_queue::LocalQueue;
use super::resource_flavor::ResourceFlavor;

impl ClusterQueue {
    /// Paths of the fields in use that are not acted on yet, in the order of the API.
    pub fn unsupported_fields(&self) -> Vec<String> {
        let spec = &self.spec;
        named([
            (spec.admission_checks_strategy.is_some(), "spec.admissionChecksStrategy"),
            (
                spec.concurrent_admission_policy.is_some(),
                "spec.concurrentAdmissionPolicy",
            ),
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
    /// Paths of the fields in use that are not acted on yet, in the order of the API. All of them are acted on.
    pub fn unsupported_fields(&self) -> Vec<String> {
        Vec::new()
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
