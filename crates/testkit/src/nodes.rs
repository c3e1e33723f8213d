//! Fake nodes: kwok plays the kubelets, pods run on them without a container.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The stages kwok plays.
pub(crate) const STAGES: &str = include_str!("kwok-stages.yaml");

/// Annotations of a pod (or a Job's pod template) that say what its fake kubelet does.
///
/// Without them a pod runs at once and succeeds at once; the command `sleep N` makes
/// it run for N seconds and the command `false` makes it fail.
pub mod annotations {
    /// How long the pod stays Pending after it is bound, a Go duration: `1s`, `300ms`.
    pub const START_AFTER: &str = "testkit.sluice.internal/start-after";
    /// How long it runs, a Go duration.
    pub const RUN_FOR: &str = "testkit.sluice.internal/run-for";
    /// How its containers exit; anything but `0` makes it fail.
    pub const EXIT_CODE: &str = "testkit.sluice.internal/exit-code";
    /// How long it terminates after it was deleted, a Go duration.
    pub const TERMINATE_AFTER: &str = "testkit.sluice.internal/terminate-after";
}

/// A node that exists in the API alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeNode {
    /// Name of the node.
    pub name: String,
    /// Labels beside `kubernetes.io/hostname`.
    pub labels: BTreeMap<String, String>,
    /// Allocatable CPU, a quantity.
    pub cpu: String,
    /// Allocatable memory, a quantity.
    pub memory: String,
    /// Other resources, such as `example.com/gpu`.
    pub extended: BTreeMap<String, String>,
    /// Taints as `key=value:Effect`.
    pub taints: Vec<String>,
}

impl FakeNode {
    /// A node with 1000 CPUs and 1 TiB: capacity that never limits a test by itself.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            cpu: "1k".to_owned(),
            memory: "1Ti".to_owned(),
            extended: BTreeMap::new(),
            taints: Vec::new(),
        }
    }

    /// `count` nodes named `node-0`, `node-1` and so on.
    pub fn several(count: usize) -> Vec<Self> {
        (0..count).map(|number| Self::new(&format!("node-{number}"))).collect()
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a taint, `key=value:Effect`.
    #[must_use]
    pub fn taint(mut self, taint: &str) -> Self {
        self.taints.push(taint.to_owned());
        self
    }

    /// Adds an extended resource.
    #[must_use]
    pub fn resource(mut self, name: &str, amount: &str) -> Self {
        self.extended.insert(name.to_owned(), amount.to_owned());
        self
    }

    pub(crate) fn object(&self) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/hostname".to_owned(), self.name.clone());
        let mut resources = self.extended.clone();
        resources.insert("cpu".to_owned(), self.cpu.clone());
        resources.insert("memory".to_owned(), self.memory.clone());
        resources.insert("pods".to_owned(), "100k".to_owned());
        let taints: Vec<Value> = self.taints.iter().map(|taint| taint_object(taint)).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"taints": taints},
            "status": {
                "allocatable": resources,
                "capacity": resources,
                "conditions": [{"type": "Ready", "status": "True", "reason": "FakeNode"}],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.3",
                    "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "machineID": "", "osImage": "", "systemUUID": "",
                },
            },
        })
    }
}

fn taint_object(taint: &str) -> Value {
    let (key_value, effect) = taint.rsplit_once(':').unwrap_or((taint, "NoSchedule"));
    let (key, value) = key_value.split_once('=').unwrap_or((key_value, ""));
    json!({"key": key, "value": value, "effect": effect})
}
