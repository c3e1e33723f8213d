//! The CRDs that the chart installs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::core::CustomResourceExt;
use serde_json::Value;

use crate::schema::tidy_root;
use crate::term::Term;
use crate::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, MultiKueueConfig, ProvisioningRequestConfig,
    ResourceFlavor, Topology, Workload, WorkloadPriorityClass, workload_rules,
};

/// All CRDs, in the order of their names.
///
/// # Errors
/// When a derived schema cannot be written as one that the API server knows; a test holds that this never happens.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    [
        AdmissionCheck::crd(),
        ClusterQueue::crd(),
        Cohort::crd(),
        LocalQueue::crd(),
        MultiKueueCluster::crd(),
        MultiKueueConfig::crd(),
        ProvisioningRequestConfig::crd(),
        ResourceFlavor::crd(),
        Term::crd(),
        Topology::crd(),
        WorkloadPriorityClass::crd(),
        Workload::crd(),
    ]
    .into_iter()
    .map(finish)
    .collect()
}

fn finish(mut crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    let rules = if crd.spec.names.kind == "Workload" {
        workload_rules()
    } else {
        Vec::new()
    };
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            let mut value: Value = serde_json::to_value(&*schema)?;
            tidy_root(&mut value);
            if !rules.is_empty() {
                value["x-kubernetes-validations"] = rules.clone().into();
            }
            *schema = serde_json::from_value::<JSONSchemaProps>(value)?;
        }
    }
    Ok(crd)
}
