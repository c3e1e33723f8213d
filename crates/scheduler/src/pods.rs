//! Whether pods of a Job still run, asked of the API server: pods themselves are not watched.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

/// Label by which the Job controller marks a Job's pods with the Job's uid.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Whether a pod of the Job with this uid is neither succeeded nor failed. `None` if the API server did not say.
pub(crate) async fn any_left(client: Client, namespace: &str, job_uid: &str, timeout: Duration) -> Option<bool> {
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let selected = ListParams::default()
        .labels(&format!("{CONTROLLER_UID}={job_uid}"))
        .fields("status.phase!=Succeeded,status.phase!=Failed")
        .limit(1);
    let listed = tokio::time::timeout(timeout, pods.list_metadata(&selected)).await;
    match listed {
        Ok(Ok(list)) => Some(!list.items.is_empty()),
        Ok(Err(error)) => {
            tracing::warn!(namespace, job_uid, %error, "failed to list the pods of a stopped Job; asked again soon");
            None
        }
        Err(_) => None,
    }
}
