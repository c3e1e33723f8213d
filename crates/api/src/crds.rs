//! The CRDs that the chart installs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kube::core::CustomResourceExt;
use serde_json::Value;

use crate::conversion::{Version, needs_webhook};
use crate::schema::tidy_root;
use crate::term::Term;
use crate::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, MultiKueueConfig, ProvisioningRequestConfig,
    ResourceFlavor, Topology, Workload, WorkloadPriorityClass, workload_rules,
};
use crate::{GROUP, v1beta1};

/// Path at which the webhook converts.
pub const CONVERT: &str = "/convert";
/// Name of the Service that the API server calls for conversions, in a release of the chart's own name.
const SERVICE: &str = "sluice-conversion";
/// Its namespace.
const NAMESPACE: &str = "sluice-system";
/// Port of the Service.
const PORT: i32 = 443;

/// All CRDs, in the order of their names.
///
/// Those whose versions differ are converted by the webhook of a release with the chart's own name in the namespace
/// sluice-system; the chart puts the names of the release at hand in their place.
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
    let kind = crd.spec.names.kind.clone();
    let mut older = Vec::new();
    for version in &mut crd.spec.versions {
        edit(version, |schema| {
            tidy_root(schema);
            if kind == "Workload" {
                schema["x-kubernetes-validations"] = workload_rules().into();
            }
        })?;
        if crd.spec.group == GROUP {
            older.push(in_v1beta1(&kind, version.clone())?);
        }
    }
    crd.spec.versions.append(&mut older);
    if needs_webhook(&kind) {
        crd.spec.conversion = Some(conversion());
    }
    Ok(crd)
}

fn edit(
    version: &mut CustomResourceDefinitionVersion,
    change: impl FnOnce(&mut Value),
) -> Result<(), serde_json::Error> {
    let schema = version.schema.as_mut();
    if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
        let mut value = serde_json::to_value(&*schema)?;
        change(&mut value);
        *schema = serde_json::from_value::<JSONSchemaProps>(value)?;
    }
    Ok(())
}

fn in_v1beta1(
    kind: &str,
    mut version: CustomResourceDefinitionVersion,
) -> Result<CustomResourceDefinitionVersion, serde_json::Error> {
    let name = Version::V1beta1.as_str();
    name.clone_into(&mut version.name);
    version.storage = false;
    // The API server takes fields that are selectable in all versions for those of the whole definition, and refuses them
    // there when the versions' schemas differ.
    version.selectable_fields = None;
    // Kueue does not warn of this one.
    if kind != "MultiKueueConfig" {
        let newer = Version::V1beta2.api_version();
        version.deprecated = Some(true);
        version.deprecation_warning = Some(format!("{GROUP}/{name} {kind} is deprecated: use {newer}"));
    }
    for column in version.additional_printer_columns.iter_mut().flatten() {
        column.json_path = v1beta1::column(&column.json_path).to_owned();
    }
    edit(&mut version, |schema| v1beta1::put_back(kind, schema))?;
    Ok(version)
}

fn conversion() -> CustomResourceConversion {
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(WebhookClientConfig {
                service: Some(ServiceReference {
                    name: SERVICE.to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    path: Some(CONVERT.to_owned()),
                    port: Some(PORT),
                }),
                ..WebhookClientConfig::default()
            }),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    }
}
