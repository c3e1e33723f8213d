//! The schemas of `kueue.x-k8s.io/v1beta1`, the older version: those of `v1beta2` with what differs put back.
//!
//! There is one definition of each kind, that of [`v1beta2`](crate::v1beta2). Objects are read in that version alone: the
//! API server converts. See [`conversion`](crate::conversion) for what becomes of each difference.

use serde_json::{Value, json};

use crate::schema::rule;
use crate::v1beta2::old_workload_rules;

/// Turns the schema of a kind in `v1beta2` into that in `v1beta1`.
pub(crate) fn put_back(kind: &str, root: &mut Value) {
    match kind {
        "AdmissionCheck" => admission_check(root),
        "ClusterQueue" => cluster_queue(root),
        "Cohort" => fair_sharing(root),
        "LocalQueue" => local_queue(root),
        "MultiKueueCluster" => multikueue_cluster(root),
        "MultiKueueConfig" => multikueue_config(root),
        "Topology" => topology(root),
        "Workload" => workload(root),
        _ => {}
    }
}

/// Where a printer column of `v1beta1` looks, given where that of `v1beta2` does.
pub(crate) fn column(path: &str) -> &str {
    match path {
        ".spec.cohortName" => ".spec.cohort",
        other => other,
    }
}

/// The schema at a path such as `spec.podSets[*].topologyRequest`.
fn at<'a>(root: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.')
        .fold(root, |schema, step| match step.strip_suffix("[*]") {
            Some(list) => &mut schema["properties"][list]["items"],
            None => &mut schema["properties"][step],
        })
}

fn take(owner: &mut Value, field: &str) -> Option<Value> {
    owner["properties"].as_object_mut()?.remove(field)
}

fn add(owner: &mut Value, field: &str, schema: Value) {
    owner["properties"][field] = schema;
}

fn rename(owner: &mut Value, from: &str, to: &str) {
    if let Some(schema) = take(owner, from) {
        add(owner, to, schema);
    }
}

/// The rules of a schema, to be edited.
fn rules(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    schema["x-kubernetes-validations"].as_array_mut().into_iter().flatten()
}

fn admission_check(root: &mut Value) {
    let delay = json!({
        "type": "integer", "format": "int64", "default": 15,
        "description": "Has no effect, and is not kept.",
    });
    add(at(root, "spec"), "retryDelayMinutes", delay);
}

fn cluster_queue(root: &mut Value) {
    let spec = at(root, "spec");
    rename(spec, "cohortName", "cohort");
    take(spec, "concurrentAdmissionPolicy");
    let checks = json!({
        "type": "array", "x-kubernetes-list-type": "set", "maxItems": 64,
        "items": { "type": "string", "minLength": 1, "maxLength": 316 },
        "description": "Admission checks that a job must pass before it starts, for all flavors. They are added to those of admissionChecksStrategy.",
    });
    add(spec, "admissionChecks", checks);
    if let Some(rules) = spec["x-kubernetes-validations"].as_array_mut() {
        rules.retain(|rule| !names(rule, "concurrentAdmissionPolicy"));
    }
    for rule in rules(spec) {
        for text in rule.as_object_mut().into_iter().flat_map(|rule| rule.values_mut()) {
            *text = text.as_str().unwrap_or_default().replace("cohortName", "cohort").into();
        }
    }
    let fungibility = at(spec, "flavorFungibility");
    for (policy, word) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        if let Some(words) = at(fungibility, policy)["enum"].as_array_mut() {
            words.push(word.into());
        }
        let text = format!(" {word} is an older word for MayStopSearch.");
        append(at(fungibility, policy), &text);
    }
    fair_sharing(root);
    let pending = json!({
        "type": "object",
        "description": "Has no effect, and is not kept.",
        "required": ["lastChangeTime"],
        "properties": {
            "clusterQueuePendingWorkload": {
                "type": "array", "x-kubernetes-list-type": "atomic",
                "description": "Workloads that wait.",
                "items": {
                    "type": "object", "required": ["name", "namespace"],
                    "properties": {
                        "name": { "type": "string", "description": "Name of the workload." },
                        "namespace": { "type": "string", "description": "Namespace of the workload." },
                    },
                },
            },
            "lastChangeTime": { "type": "string", "format": "date-time", "description": "When the list last changed." },
        },
    });
    add(at(root, "status"), "pendingWorkloadsStatus", pending);
}

fn names(rule: &Value, field: &str) -> bool {
    rule["rule"].as_str().is_some_and(|text| text.contains(field))
}

fn append(schema: &mut Value, text: &str) {
    let before = schema["description"].as_str().unwrap_or_default();
    schema["description"] = format!("{before}{text}").into();
}

/// The shares of all kinds had one type, that of a LocalQueue.
fn fair_sharing(root: &mut Value) {
    let past = json!({
        "type": "object",
        "description": "Has no effect here, and is not kept.",
        "required": ["consumedResources", "lastUpdate"],
        "properties": {
            "consumedResources": {
                "type": "object", "description": "Usage per resource.",
                "additionalProperties": {
                    "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true,
                },
            },
            "lastUpdate": { "type": "string", "format": "date-time", "description": "When it was last brought up to date." },
        },
    });
    add(at(root, "status.fairSharing"), "admissionFairSharingStatus", past);
}

fn local_queue(root: &mut Value) {
    let status = at(root, "status");
    rename(status, "flavorsUsage", "flavorUsage");
    let texts = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let with = |mut schema: Value, description: &str| {
        schema["description"] = description.into();
        schema
    };
    let names = json!({ "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } });
    let flavors = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 16,
        "description": "Flavors of the ClusterQueue. Not kept: ResourceFlavors say the same.",
        "items": {
            "type": "object", "required": ["name"],
            "properties": {
                "name": { "type": "string", "maxLength": 253, "description": "Name of the flavor." },
                "resources": with(names, "Resources that the flavor provides."),
                "nodeLabels": with(texts, "Labels of the flavor's nodes."),
                "nodeTaints": {
                    "type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 8,
                    "description": "Taints of the flavor's nodes.",
                    "items": {
                        "type": "object", "required": ["effect", "key"],
                        "properties": {
                            "effect": { "type": "string", "description": "The effect." },
                            "key": { "type": "string", "description": "The key." },
                            "timeAdded": { "type": "string", "format": "date-time", "description": "When it was added." },
                            "value": { "type": "string", "description": "The value." },
                        },
                    },
                },
                "topology": {
                    "type": "object", "required": ["levels", "name"],
                    "description": "The topology of the flavor's nodes.",
                    "properties": {
                        "name": { "type": "string", "description": "Name of the Topology." },
                        "levels": {
                            "type": "array", "x-kubernetes-list-type": "atomic", "items": { "type": "string" },
                            "description": "Labels of the levels.",
                        },
                    },
                },
            },
        },
    });
    add(status, "flavors", flavors);
}

fn multikueue_cluster(root: &mut Value) {
    let spec = at(root, "spec");
    let Some(mut source) = take(spec, "clusterSource") else {
        return;
    };
    for way in ["kubeConfig", "clusterProfileRef"] {
        if let Some(schema) = take(&mut source, way) {
            add(spec, way, schema);
        }
    }
    spec["x-kubernetes-validations"] = source["x-kubernetes-validations"].take();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("required");
    }
}

fn multikueue_config(root: &mut Value) {
    at(root, "spec.clusters")["x-kubernetes-list-type"] = "set".into();
}

fn topology(root: &mut Value) {
    let levels = at(root, "spec.levels");
    for change in rules(levels).filter(|rule| names(rule, "oldSelf")) {
        *change = rule("self == oldSelf", "levels cannot change in v1beta1");
    }
    levels["description"] = "The levels, from the widest to the narrowest. They cannot change.".into();
}

fn workload(root: &mut Value) {
    let spec = at(root, "spec");
    take(spec, "preemptionGates");
    take(
        at(spec, "podSets[*].topologyRequest"),
        "podsetSliceRequiredTopologyConstraints",
    );
    if let Some(class) = take(spec, "priorityClassRef") {
        let mut name = class["properties"]["name"].clone();
        name["description"] = "Name of the class that the priority was taken from.".into();
        if let Some(name) = name.as_object_mut() {
            name.remove("minLength");
        }
        add(spec, "priorityClassName", name);
    }
    let source = json!({
        "type": "string",
        "enum": ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""],
        "description": "Which kind of class that is.",
    });
    add(spec, "priorityClassSource", source);
    spec["x-kubernetes-validations"] = json!([rule(
        "!has(self.priorityClassName) || has(self.priority)",
        "priorityClassName needs a priority: the value of that class",
    )]);
    let status = at(root, "status");
    rename(
        status,
        "accumulatedPastExecutionTimeSeconds",
        "accumulatedPastExexcutionTimeSeconds",
    );
    placement(at(status, "admission.podSetAssignments[*].topologyAssignment"));
    root["x-kubernetes-validations"] = old_workload_rules().into();
}

fn placement(assignment: &mut Value) {
    let domains = json!({
        "type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 100_000,
        "description": "The domains, and how many pods go to each.",
        "items": {
            "type": "object", "required": ["count", "values"],
            "properties": {
                "values": {
                    "type": "array", "x-kubernetes-list-type": "atomic", "minItems": 1, "maxItems": 16,
                    "description": "A value for each level.",
                    "items": { "type": "string", "maxLength": 63 },
                },
                "count": { "type": "integer", "format": "int32", "minimum": 1, "description": "Number of pods." },
            },
        },
    });
    add(assignment, "domains", domains);
    assignment["required"] = json!(["levels"]);
    append(
        at(assignment, "slices"),
        " Only there when domains cannot say the same.",
    );
    for rule in rules(assignment) {
        let text = rule["rule"].as_str().unwrap_or_default();
        rule["rule"] = format!("!has(self.slices) || {text}").into();
    }
    if let Some(rules) = assignment["x-kubernetes-validations"].as_array_mut() {
        rules.push(rule(
            "has(self.slices) != has(self.domains)",
            "either domains or slices must be set",
        ));
    }
}
