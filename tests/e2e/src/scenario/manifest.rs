//! The manifests that a scenario stands for.

use serde_json::{Value, json};
use sluice_api::labels::{MANAGED_NAMESPACE, MANAGED_NAMESPACE_VALUE, PRIORITY_CLASS, QUEUE_NAME};
use sluice_testkit::annotations;

use super::format::{Change, Edit, Kind, NewJob, Object, Scenario};

/// A time that no scenario lasts.
const NEVER: &str = "24h";

impl Scenario {
    /// The manifest of an object.
    pub fn manifest(&self, object: &Object) -> Value {
        let mut metadata = json!({
            "name": self.full(&object.name), "labels": object.labels, "annotations": object.annotations,
        });
        match object.kind {
            Kind::Namespace => {
                metadata["labels"][MANAGED_NAMESPACE] = json!(MANAGED_NAMESPACE_VALUE);
                return json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            }
            Kind::LocalQueue => {
                // LocalQueues have a namespace of their own; only what is cluster-wide needs a name of its own.
                metadata["name"] = json!(object.name);
                metadata["namespace"] = json!(self.full(&object.namespace));
            }
            Kind::ClusterQueue | Kind::Cohort | Kind::ResourceFlavor | Kind::WorkloadPriorityClass => {}
        }
        let mut spec = object.spec.clone();
        self.make_names_full(&mut spec);
        let mut manifest = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": object.kind.as_str(), "metadata": metadata,
        });
        if let Some(value) = object.value {
            manifest["value"] = json!(value);
        } else {
            manifest["spec"] = if spec.is_null() { json!({}) } else { spec };
        }
        manifest
    }

    /// A change of an object, as a merge patch.
    pub fn change(&self, change: &Change) -> Value {
        let mut patch = change.patch.clone();
        if let Some(spec) = patch.get_mut("spec") {
            self.make_names_full(spec);
        }
        patch
    }

    /// A change of a Job, as a merge patch.
    pub fn edit(&self, edit: &Edit) -> Value {
        let mut patch = edit.patch.clone();
        let class = format!("/metadata/labels/{}", PRIORITY_CLASS.replace('/', "~1"));
        self.make_full(&mut patch, &class);
        patch
    }

    /// Names of cluster-wide objects, wherever a spec has some.
    fn make_names_full(&self, spec: &mut Value) {
        for reference in ["/clusterQueue", "/cohortName", "/parentName"] {
            self.make_full(spec, reference);
        }
        for group in 0..count(spec, "/resourceGroups") {
            for flavor in 0..count(spec, &format!("/resourceGroups/{group}/flavors")) {
                self.make_full(spec, &format!("/resourceGroups/{group}/flavors/{flavor}/name"));
            }
        }
    }

    fn make_full(&self, value: &mut Value, pointer: &str) {
        if let Some(Value::String(name)) = value.pointer_mut(pointer) {
            *name = self.full(name);
        }
    }

    /// The manifest of a Job. Its pods run until a step finishes it.
    pub fn job_manifest(&self, job: &NewJob) -> Value {
        let mut labels = json!(job.labels);
        labels[QUEUE_NAME] = json!(job.queue);
        if let Some(class) = &job.priority_class {
            labels[PRIORITY_CLASS] = json!(self.full(class));
        }
        let mut resources = json!({});
        if let Some(limits) = &job.limits {
            resources["limits"] = json!(limits);
        }
        match &job.requests {
            Some(requests) => resources["requests"] = json!(requests),
            None if job.limits.is_none() => resources["requests"] = json!({"cpu": "1"}),
            None => {}
        }
        let mut pod = json!({
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "example.com/work:1", "resources": resources}],
        });
        for (field, value) in &job.pod {
            pod[field] = value.clone();
        }
        let mut play = json!({annotations::RUN_FOR: NEVER});
        if job.slow {
            play[annotations::START_AFTER] = json!(NEVER);
        }
        if job.lingers {
            play[annotations::TERMINATE_AFTER] = json!(NEVER);
        }
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "namespace": self.full(&job.namespace), "name": job.job, "labels": labels,
                "annotations": job.annotations,
            },
            "spec": {
                "parallelism": job.pods, "completions": job.pods,
                "template": {
                    "metadata": {"annotations": play},
                    "spec": pod,
                },
            },
        })
    }
}

fn count(value: &Value, pointer: &str) -> usize {
    value.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len)
}
