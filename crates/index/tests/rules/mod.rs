//! The engine's rules through the index: objects in, patches out, and what a restart makes of them.

mod cohorts;
mod execution;
mod partial;
mod past_usage;
mod pods_ready;
mod random;
mod stops;

use serde_json::{Value, json};
use sluice_index::WriteKind;

use crate::cluster::Cluster;

/// A write of a Job, as [`Cluster::run`] lists it.
fn wrote(name: &str, kind: WriteKind) -> (String, WriteKind) {
    (name.to_owned(), kind)
}

/// A ClusterQueue of so many cores that every namespace may use, with more in its spec.
fn cluster_queue(name: &str, cores: i64, more: Value) -> Value {
    let mut queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": name, "resourceVersion": "21", "generation": 1},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": "blue", "resources": [{"name": "cpu", "nominalQuota": cores}]}],
            }],
        },
    });
    for (key, value) in more.as_object().unwrap() {
        queue["spec"][key] = value.clone();
    }
    queue
}

/// A LocalQueue that leads to the ClusterQueue of its own name.
fn local_queue(name: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"namespace": "team", "name": name, "resourceVersion": "22"},
        "spec": {"clusterQueue": name},
    })
}

fn cohort(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort",
        "metadata": {"name": name, "resourceVersion": "23"}, "spec": spec,
    })
}

/// Puts a Job into a LocalQueue.
fn queued_in(queue: &str) -> impl FnOnce(&mut Value) {
    let queue = queue.to_owned();
    move |job| job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue)
}

fn label(job: &mut Value, key: &str, value: &str) {
    job["metadata"]["labels"][key] = json!(value);
}

fn annotate(job: &mut Value, key: &str, value: &str) {
    job["metadata"]["annotations"][key] = json!(value);
}

impl Cluster {
    /// Writes what is decided, and lets the Job controller start the pods of what was admitted.
    fn run_and_start(&mut self) -> Vec<(String, WriteKind)> {
        let writes = self.run();
        for (name, kind) in &writes {
            if *kind == WriteKind::Admit {
                self.start(name);
            }
        }
        writes
    }

    fn eviction(&self, name: &str) -> (String, String, String) {
        let eviction = &self.record(name)["eviction"];
        let text = |key: &str| eviction[key].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("cause"), text("message"))
    }
}
