//! The CEL rules of the schemas, run without an API server: over the manifests, and over objects that break each rule.

use kube_cel::{Validator, compile_schema};
use serde_json::{Value, json};

use crate::arbitrary::{crds, schema};
use crate::manifests::manifests;

/// What the rules say of an object, or of a change of it.
fn said(object: &Value, old: Option<&Value>) -> Vec<String> {
    let version = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
    let schema = schema(object["kind"].as_str().unwrap(), version);
    match Validator::new().validate(schema, object, old) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    }
}

fn object(version: &str, kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": kind, "metadata": { "name": "x" }, "spec": spec })
}

#[test]
fn every_rule_can_be_compiled() {
    let mut rules = 0;
    for crd in crds() {
        for version in &crd.spec.versions {
            compiled(
                &crd.spec.names.kind,
                schema(&crd.spec.names.kind, &version.name),
                &mut rules,
            );
        }
    }
    assert!(rules > 100, "{rules}");
}

fn compiled(path: &str, schema: &Value, rules: &mut usize) {
    if let Some(list) = schema["x-kubernetes-validations"].as_array() {
        *rules += list.len();
        let compiled = compile_schema(schema);
        let errors: Vec<String> = compiled.compilation_errors().iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
    }
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        compiled(&format!("{path}.{name}"), below, rules);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(below) = schema.get(key) {
            compiled(&format!("{path}.{key}"), below, rules);
        }
    }
}

#[test]
fn no_manifest_breaks_a_rule_when_it_is_new_and_when_it_is_applied_again() {
    for (name, _, manifest) in manifests() {
        assert_eq!(said(&manifest, None), Vec::<String>::new(), "{name}");
        assert_eq!(said(&manifest, Some(&manifest)), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn objects_that_make_no_sense_break_the_rule_that_says_so() {
    let pods = json!({ "spec": { "containers": [{ "name": "main" }] } });
    let one = json!([{ "name": "main", "template": pods }]);
    for (version, kind, spec, wanted) in [
        (
            "v1beta2",
            "Topology",
            json!({ "levels": [{ "nodeLabel": "a" }, { "nodeLabel": "a" }] }),
            "a level is listed once",
        ),
        (
            "v1beta2",
            "Topology",
            json!({ "levels": [{ "nodeLabel": "kubernetes.io/hostname" }, { "nodeLabel": "a" }] }),
            "kubernetes.io/hostname can only be the last level",
        ),
        (
            "v1beta2",
            "MultiKueueConfig",
            json!({ "clusters": ["a", "a"] }),
            "a cluster is listed once",
        ),
        (
            "v1beta2",
            "MultiKueueCluster",
            json!({ "clusterSource": {} }),
            "either kubeConfig or clusterProfileRef must be set",
        ),
        (
            "v1beta1",
            "MultiKueueCluster",
            json!({}),
            "either kubeConfig or clusterProfileRef must be set",
        ),
        (
            "v1beta2",
            "Workload",
            json!({ "podSets": [{ "name": "main", "template": pods, "count": 1, "minCount": 2 }] }),
            "minCount must not be above count",
        ),
        (
            "v1beta2",
            "Workload",
            json!({ "podSets": one, "priorityClassRef": { "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a" } }),
            "priorityClassRef needs a priority: the value of that class",
        ),
        (
            "v1beta2",
            "Workload",
            json!({ "podSets": one, "priority": 1, "priorityClassRef": { "group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "a" } }),
            "the group kueue.x-k8s.io has the kind WorkloadPriorityClass, scheduling.k8s.io has PriorityClass",
        ),
        (
            "v1beta1",
            "Workload",
            json!({ "podSets": one, "priorityClassName": "a" }),
            "priorityClassName needs a priority: the value of that class",
        ),
        (
            "v1beta1",
            "ClusterQueue",
            json!({ "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "a", "resources": [{ "name": "cpu", "nominalQuota": 1, "borrowingLimit": 1 }] },
            ] }] }),
            "borrowingLimit needs a cohort: there is nobody to borrow from",
        ),
    ] {
        assert_eq!(said(&object(version, kind, spec.clone()), None), [wanted], "{spec}");
    }
}

#[test]
fn what_cannot_change_is_told_apart_from_what_can() {
    let levels = |names: &[&str]| {
        let levels: Vec<Value> = names.iter().map(|name| json!({ "nodeLabel": name })).collect();
        json!({ "levels": levels })
    };
    let host = "kubernetes.io/hostname";
    let change = |version: &str, from: &[&str], to: &[&str]| {
        let (old, new) = (
            object(version, "Topology", levels(from)),
            object(version, "Topology", levels(to)),
        );
        said(&new, Some(&old)).len()
    };
    assert_eq!(change("v1beta2", &["rack", host], &["block", "rack", host]), 0);
    assert_eq!(change("v1beta2", &["rack"], &["rack", host]), 1);
    assert_eq!(change("v1beta1", &["rack", host], &["block", "rack", host]), 1);
    assert_eq!(change("v1beta1", &["rack", host], &["rack", host]), 0);
    let check = |name: &str| object("v1beta2", "AdmissionCheck", json!({ "controllerName": name }));
    assert_eq!(said(&check("a"), Some(&check("a"))).len(), 0);
    assert_eq!(said(&check("b"), Some(&check("a"))).len(), 1);
}

#[test]
fn while_quota_is_held_queue_and_class_stay() {
    let pods = json!({ "spec": { "containers": [{ "name": "main" }] } });
    let workload = |version: &str, reserved: bool, fields: Value| {
        let mut spec = json!({ "podSets": [{ "name": "main", "template": pods }], "queueName": "a", "priority": 1 });
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        let mut workload = object(version, "Workload", spec);
        let status = if reserved { "True" } else { "False" };
        let condition = |kind: &str| json!({ "type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z" });
        workload["status"] = json!({ "conditions": [condition("QuotaReserved"), condition("Admitted")] });
        if reserved {
            workload["status"]["admission"] = json!({ "clusterQueue": "q", "podSetAssignments": [{ "name": "main" }] });
        }
        workload
    };
    let class = |kind: &str, name: &str| {
        let group = if kind == "PriorityClass" {
            "scheduling.k8s.io"
        } else {
            "kueue.x-k8s.io"
        };
        json!({ "priorityClassRef": { "group": group, "kind": kind, "name": name } })
    };
    let old_class = |source: &str, name: &str| json!({ "priorityClassSource": source, "priorityClassName": name });
    let queue = |name: &str| json!({ "queueName": name });
    let time = |seconds: i32| json!({ "maximumExecutionTimeSeconds": seconds });
    let (kueue, pods_own) = (
        "kueue.x-k8s.io/workloadpriorityclass",
        "scheduling.k8s.io/priorityclass",
    );
    for (version, from, to, allowed) in [
        ("v1beta2", queue("a"), queue("b"), false),
        ("v1beta2", json!({}), class("WorkloadPriorityClass", "high"), false),
        (
            "v1beta2",
            class("WorkloadPriorityClass", "high"),
            class("WorkloadPriorityClass", "low"),
            true,
        ),
        (
            "v1beta2",
            class("PriorityClass", "high"),
            class("PriorityClass", "low"),
            false,
        ),
        (
            "v1beta2",
            class("PriorityClass", "high"),
            class("WorkloadPriorityClass", "high"),
            false,
        ),
        ("v1beta2", time(60), time(61), false),
        ("v1beta2", time(60), json!({}), false),
        ("v1beta2", json!({}), json!({ "active": false }), true),
        ("v1beta1", queue("a"), queue("b"), false),
        ("v1beta1", old_class(kueue, "high"), old_class(kueue, "low"), true),
        (
            "v1beta1",
            old_class(pods_own, "high"),
            old_class(pods_own, "low"),
            false,
        ),
        ("v1beta1", old_class(pods_own, "high"), old_class(kueue, "high"), false),
        ("v1beta1", json!({}), old_class(kueue, "high"), false),
        ("v1beta1", time(60), time(61), false),
    ] {
        let change = |reserved| {
            said(
                &workload(version, reserved, to.clone()),
                Some(&workload(version, reserved, from.clone())),
            )
        };
        assert_eq!(
            change(true).is_empty(),
            allowed,
            "{version} {from} {to}: {:?}",
            change(true)
        );
        assert_eq!(
            change(false),
            Vec::<String>::new(),
            "{version} {from} {to} while it waits"
        );
    }
    let mut uneven = workload("v1beta2", true, json!({}));
    uneven["status"]["admission"]["podSetAssignments"] = json!([]);
    assert_eq!(
        said(&uneven, None),
        ["each pod set needs an assignment, and nothing else has one"]
    );
}

#[test]
fn a_placement_whose_columns_do_not_fit_together_is_refused() {
    let with = |slice: Value| {
        let mut workload = object("v1beta2", "Workload", json!({}));
        workload["status"] = json!({ "admission": { "clusterQueue": "q", "podSetAssignments": [
            { "name": "main", "topologyAssignment": { "levels": ["rack"], "slices": [slice] } },
        ] } });
        said(&workload, None)
    };
    let slice =
        |values: Value, counts: Value| json!({ "domainCount": 2, "valuesPerLevel": values, "podCounts": counts });
    let roots = json!([{ "individual": { "roots": ["a", "b"] } }]);
    assert_eq!(
        with(slice(roots.clone(), json!({ "universal": 1 }))),
        Vec::<String>::new()
    );
    for (broken, wanted) in [
        (
            slice(json!([{ "individual": { "roots": ["a"] } }]), json!({ "universal": 1 })),
            "there must be one root for each domain",
        ),
        (
            slice(roots.clone(), json!({ "individual": [1] })),
            "there must be one count for each domain",
        ),
        (
            slice(roots.clone(), json!({})),
            "either universal or individual must be set",
        ),
        (
            slice(json!([{}]), json!({ "universal": 1 })),
            "either universal or individual must be set",
        ),
        (
            slice(
                json!([{ "universal": "a" }, { "universal": "b" }]),
                json!({ "universal": 1 }),
            ),
            "each slice needs values for each of the levels",
        ),
    ] {
        assert_eq!(with(broken.clone()), [wanted], "{broken}");
    }
}
