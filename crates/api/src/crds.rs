//! The CRDs that the chart installs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::core::CustomResourceExt;
use serde_json::Value;

use crate::schema::tidy_root;
use crate::term::Term;
use crate::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass};

/// All CRDs, in the order of their names.
///
/// # Errors
/// When a derived schema cannot be written as one that the API server knows; a test holds that this never happens.
pub fn crds() -> Result<Vec<CustomResourceDefinition>, serde_json::Error> {
    [
        ClusterQueue::crd(),
        Cohort::crd(),
        LocalQueue::crd(),
        ResourceFlavor::crd(),
        Term::crd(),
        WorkloadPriorityClass::crd(),
    ]
    .into_iter()
    .map(finish)
    .collect()
}

fn finish(mut crd: CustomResourceDefinition) -> Result<CustomResourceDefinition, serde_json::Error> {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            let mut value: Value = serde_json::to_value(&*schema)?;
            tidy_root(&mut value);
            *schema = serde_json::from_value::<JSONSchemaProps>(value)?;
        }
    }
    Ok(crd)
}
