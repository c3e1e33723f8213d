//! Fields are kept, absent ones have their defaults, and those not acted on yet are named.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::Term;
use sluice_api::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, MultiKueueConfig, ProvisioningRequestConfig,
    QueueingStrategy, ResourceFlavor, ResourceFlavorSpec, StopPolicy, Topology, Workload, WorkloadPriorityClass,
};

const EVERY_FIELD: &str = include_str!("every-field.yaml");

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn assert_kept<K: DeserializeOwned + Serialize>(object: &Value) {
    let kept = serde_json::to_value(read::<K>(object.clone())).unwrap();
    assert_eq!(&kept, object);
}

fn cluster_queue(spec: Value) -> ClusterQueue {
    read(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" }, "spec": spec,
    }))
}

fn local_queue(spec: Value) -> LocalQueue {
    read(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": "q" }, "spec": spec,
    }))
}

#[test]
fn every_field_of_the_api_survives_reading_and_writing() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(EVERY_FIELD).unwrap();
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        match kind {
            "ClusterQueue" => assert_kept::<ClusterQueue>(object),
            "Cohort" => assert_kept::<Cohort>(object),
            "LocalQueue" => assert_kept::<LocalQueue>(object),
            "ResourceFlavor" => assert_kept::<ResourceFlavor>(object),
            "WorkloadPriorityClass" => assert_kept::<WorkloadPriorityClass>(object),
            "AdmissionCheck" => assert_kept::<AdmissionCheck>(object),
            "MultiKueueCluster" => assert_kept::<MultiKueueCluster>(object),
            "MultiKueueConfig" => assert_kept::<MultiKueueConfig>(object),
            "ProvisioningRequestConfig" => assert_kept::<ProvisioningRequestConfig>(object),
            "Topology" => assert_kept::<Topology>(object),
            "Workload" => assert_kept::<Workload>(object),
            "Term" => assert_kept::<Term>(object),
            other => panic!("no type for {other}"),
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) => into.extend(from.iter().cloned()),
        (into, from) => *into = from.clone(),
    }
}

/// Every property that a schema declares is written somewhere in the object.
fn assert_covers(path: &str, schema: &Value, object: &Value) {
    // The thousand fields of a pod are Kubernetes' own types on both sides.
    if path.ends_with(".template") {
        return;
    }
    if let Some(properties) = schema["properties"].as_object() {
        for (name, schema) in properties {
            let path = format!("{path}.{name}");
            let value = object.get(name).unwrap_or_else(|| panic!("{path} is not written"));
            assert_covers(&path, schema, value);
        }
    } else if let Some(items) = schema.get("items") {
        // Several items may share the properties between them.
        let mut merged = Value::Null;
        for item in object.as_array().unwrap() {
            merge(&mut merged, item);
        }
        if !merged.is_object() {
            return;
        }
        assert_covers(&format!("{path}[*]"), items, &merged);
    }
}

#[test]
fn the_manifests_that_hold_every_field_do_hold_every_field_of_the_schemas() {
    let objects: Vec<Value> = serde_saphyr::from_multiple(EVERY_FIELD).unwrap();
    for crd in sluice_api::crds().unwrap() {
        let kind = &crd.spec.names.kind;
        let object = objects.iter().find(|object| object["kind"] == kind.as_str()).unwrap();
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        assert_covers(kind, &schema["openAPIV3Schema"], object);
    }
}

#[test]
fn an_absent_or_null_spec_is_the_default_one() {
    let bare = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": "default-flavor" },
    });
    let mut null = bare.clone();
    null["spec"] = Value::Null;
    for object in [bare, null] {
        let flavor: ResourceFlavor = read(object.clone());
        assert_eq!(flavor.spec, ResourceFlavorSpec::default());
        // A manifest does not come through serde_json alone.
        let yaml = serde_saphyr::to_string(&object).unwrap();
        assert_eq!(serde_saphyr::from_str::<ResourceFlavor>(&yaml).unwrap(), flavor);
    }
    assert!(serde_json::from_value::<ResourceFlavor>(json!({ "metadata": {}, "spec": 7 })).is_err());
}

#[test]
fn defaults_are_those_of_the_schema() {
    let queue = cluster_queue(json!({}));
    assert_eq!(queue.spec.queueing_strategy, QueueingStrategy::BestEffortFIFO);
    assert_eq!(queue.spec.stop_policy, StopPolicy::None);
    assert_eq!(queue.spec.namespace_selector, None);
    assert_eq!(
        serde_json::to_value(&queue.spec).unwrap(),
        json!({
            "queueingStrategy": "BestEffortFIFO",
            "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor" },
            "preemption": {
                "reclaimWithinCohort": "Never", "borrowWithinCohort": { "policy": "Never" }, "withinClusterQueue": "Never",
            },
            "stopPolicy": "None",
        }),
    );
    assert_eq!(local_queue(json!({})).spec.stop_policy, StopPolicy::None);
}

#[test]
fn an_empty_namespace_selector_is_not_an_absent_one() {
    let queue = cluster_queue(json!({ "namespaceSelector": {} }));
    assert!(queue.spec.namespace_selector.is_some());
    assert_eq!(
        serde_json::to_value(&queue.spec).unwrap()["namespaceSelector"],
        json!({})
    );
}

#[test]
fn quota_limits_cohorts_policies_and_weights_are_acted_on() {
    let queue = cluster_queue(json!({
        "cohortName": "c", "namespaceSelector": {}, "queueingStrategy": "StrictFIFO", "stopPolicy": "HoldAndDrain",
        "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
            { "name": "default", "resources": [
                { "name": "cpu", "nominalQuota": 4, "borrowingLimit": 1, "lendingLimit": 2 },
            ] },
        ] }],
        "flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing",
        },
        "preemption": {
            "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerOrNewerEqualPriority",
            "borrowWithinCohort": { "policy": "LowerPriority", "maxPriorityThreshold": 1 },
        },
        "fairSharing": { "weight": "500m" },
        "admissionScope": { "admissionMode": "UsageBasedAdmissionFairSharing" },
    }));
    assert_eq!(queue.unsupported_fields(), Vec::<String>::new());
    let cohort: Cohort = read(json!({
        "metadata": { "name": "c" }, "spec": { "parentName": "p", "fairSharing": { "weight": 0 } },
    }));
    assert_eq!(cohort.unsupported_fields(), Vec::<String>::new());
}

#[test]
fn each_field_of_a_cluster_queue_that_is_not_acted_on_is_named() {
    let cases = [
        (
            json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "a" }] } }),
            "spec.admissionChecksStrategy",
        ),
        (
            json!({ "concurrentAdmissionPolicy": { "migration": { "mode": "RetainFirstAdmission" } } }),
            "spec.concurrentAdmissionPolicy",
        ),
    ];
    for (spec, field) in cases {
        assert_eq!(cluster_queue(spec).unsupported_fields(), [field]);
    }
    let mut queue = cluster_queue(json!({}));
    queue.metadata.annotations = Some(
        [
            ("minimum-run-time", "1h"),
            ("ageing-interval", "10m"),
            ("shrink-to-quota-after", "0s"),
            ("fifo-per-pool", "true"),
            ("backfill", "true"),
        ]
        .map(|(name, value)| (format!("sluice.internal/{name}"), value.to_owned()))
        .into(),
    );
    assert_eq!(queue.unsupported_fields(), Vec::<String>::new());
}

#[test]
fn a_field_of_a_flavor_that_is_not_acted_on_is_named_and_all_of_local_queues_are_acted_on() {
    for policy in ["Hold", "HoldAndDrain"] {
        let queue = local_queue(json!({ "clusterQueue": "a", "stopPolicy": policy, "fairSharing": { "weight": 2 } }));
        assert_eq!(queue.unsupported_fields(), Vec::<String>::new());
    }
    let flavor = |spec: Value| read::<ResourceFlavor>(json!({ "metadata": {}, "spec": spec }));
    assert!(
        flavor(json!({ "nodeLabels": { "a": "b" } }))
            .unsupported_fields()
            .is_empty()
    );
    assert_eq!(
        flavor(json!({ "topologyName": "racks" })).unsupported_fields(),
        ["spec.topologyName"]
    );
}

#[test]
fn a_priority_class_holds_its_value_at_the_top_level() {
    let class: WorkloadPriorityClass = read(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": { "name": "high" },
        "value": -7, "description": "for later",
    }));
    assert_eq!(
        (class.spec.value, class.spec.description.as_deref()),
        (-7, Some("for later"))
    );
}
