//! Manifests, as users write them.

use serde_json::{Value, json};

/// A namespace, opted in or not.
pub fn namespace(name: &str, opted_in: bool) -> Value {
    let labels = if opted_in {
        json!({"kueue.x-k8s.io/managed-namespace": "true"})
    } else {
        json!({})
    };
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// A flavor whose nodes carry these labels.
pub fn flavor(name: &str, node_labels: Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": name}, "spec": {"nodeLabels": node_labels},
    })
}

/// A BestEffortFIFO ClusterQueue for every namespace, with cpu quota in one flavor.
pub fn cluster_queue(name: &str, flavor: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
            }],
        },
    })
}

/// A LocalQueue that points to a ClusterQueue.
pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"namespace": namespace, "name": name}, "spec": {"clusterQueue": cluster_queue},
    })
}

/// A WorkloadPriorityClass.
pub fn priority_class(name: &str, value: i32) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": name}, "value": value,
    })
}

/// A plain Job as a user writes it: so many pods at a time, each with so much cpu, that run for a while on a fake node.
pub fn job(namespace: &str, name: &str, pods: u32, cpu: &str, run_for: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": namespace, "name": name, "labels": {}},
        "spec": {
            "parallelism": pods, "completions": pods,
            "template": {
                "metadata": {"annotations": {"testkit.sluice.internal/run-for": run_for}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "example.com/work:1", "resources": {"requests": {"cpu": cpu}}}],
                },
            },
        },
    })
}

/// Puts a label on an object.
#[must_use]
pub fn labelled(mut object: Value, key: &str, value: &str) -> Value {
    object["metadata"]["labels"][key] = json!(value);
    object
}

/// Several objects in one document, for `kubectl apply`.
pub fn list(items: impl IntoIterator<Item = Value>) -> String {
    let items: Vec<Value> = items.into_iter().collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}
