//! Jobs as an API server stores them, for unit tests.

use serde_json::{Value, json};

use crate::JobView;

/// A managed Job that waits: suspended, labelled, without a record, with fields that this crate does not know.
pub(crate) fn waiting_job() -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "namespace": "team-a",
            "uid": "1f0c8a5e-0001",
            "resourceVersion": "100",
            "generation": 1,
            "creationTimestamp": "2026-11-30T10:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "batch"}
        },
        "spec": {
            "suspend": true,
            "parallelism": 3,
            "completions": 3,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {
                "metadata": {"labels": {"batch.kubernetes.io/job-name": "train"}},
                "spec": {
                    "containers": [{
                        "name": "main",
                        "image": "registry.example.com/train:1",
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}
                    }],
                    "restartPolicy": "Never",
                    "dnsPolicy": "ClusterFirst"
                }
            }
        },
        "status": {}
    })
}

pub(crate) fn view(job: &Value) -> JobView {
    serde_json::from_value(job.clone()).unwrap()
}
