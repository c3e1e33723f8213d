//! Conversion between the versions: nothing is lost, and nothing drifts.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::conversion::{ConversionError, SAID_IN_V1BETA1, SAID_IN_V1BETA2, Version, convert};

use crate::arbitrary::{self, Choices, NEWER, crds, schema};

fn to(version: Version, object: &Value) -> Value {
    let mut converted = object.clone();
    convert(&mut converted, version).unwrap();
    assert_eq!(converted["apiVersion"], version.api_version());
    assert_eq!(converted["kind"], object["kind"]);
    // The API server refuses a conversion that changes more of the metadata than labels and annotations.
    assert_eq!(converted["metadata"]["name"], object["metadata"]["name"]);
    assert_eq!(converted["metadata"]["labels"], object["metadata"]["labels"]);
    converted
}

fn other(version: Version) -> Version {
    match version {
        Version::V1beta1 => Version::V1beta2,
        Version::V1beta2 => Version::V1beta1,
    }
}

/// Writes every placement in columns out in rows, by reading the columns one by one.
fn in_rows(mut object: Value) -> Value {
    let assignments = object.pointer_mut("/status/admission/podSetAssignments");
    for assignment in assignments.and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(slices) = assignment.pointer("/topologyAssignment/slices").cloned() else {
            continue;
        };
        let mut rows = Vec::new();
        for slice in slices.as_array().unwrap() {
            for at in 0..usize::try_from(slice["domainCount"].as_u64().unwrap()).unwrap() {
                let values = slice["valuesPerLevel"].as_array().unwrap().iter().map(|column| {
                    if let Some(value) = column["universal"].as_str() {
                        return value.to_owned();
                    }
                    let part = |name: &str| column["individual"][name].as_str().unwrap_or_default();
                    let root = column["individual"]["roots"][at].as_str().unwrap();
                    format!("{}{root}{}", part("prefix"), part("suffix"))
                });
                let counts = &slice["podCounts"];
                let count = if counts["universal"].is_u64() {
                    &counts["universal"]
                } else {
                    &counts["individual"][at]
                };
                rows.push(json!([values.collect::<Vec<_>>(), count]));
            }
        }
        assignment["topologyAssignment"]["slices"] = rows.into();
    }
    object
}

/// Takes away the observed state that is not kept.
fn without_what_is_dropped(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else {
        return object;
    };
    match kind.as_str() {
        "LocalQueue" => {
            status.remove("flavors");
        }
        "ClusterQueue" | "Cohort" => {
            status.remove("pendingWorkloadsStatus");
            if let Some(sharing) = status.get_mut("fairSharing").and_then(Value::as_object_mut) {
                sharing.remove("admissionFairSharingStatus");
            }
        }
        _ => {}
    }
    object
}

/// What the schema does not know is pruned by the API server; nothing of what was converted may be.
fn assert_known(path: &str, value: &Value, schema: &Value) {
    if path.ends_with(".template") || path == ".metadata" {
        return;
    }
    match value {
        Value::Object(fields) => {
            let of_today = |name: &String, value: &Value| {
                let only_newer = value.as_object().is_some_and(|below| below.keys().eq([NEWER]));
                name != NEWER && !only_newer
            };
            for (name, value) in fields.iter().filter(|(name, value)| of_today(name, value)) {
                let below = schema["properties"]
                    .get(name)
                    .or_else(|| schema.get("additionalProperties"));
                let path = format!("{path}.{name}");
                assert_known(
                    &path,
                    value,
                    below.unwrap_or_else(|| panic!("{path} would be pruned: {value}")),
                );
            }
        }
        Value::Array(items) => items.iter().for_each(|item| assert_known(path, item, &schema["items"])),
        _ => {}
    }
}

fn round_trips(kind: &str, version: Version, bytes: &[u8]) {
    let object = arbitrary::object(kind, version.as_str(), &mut Choices(bytes));
    let there = to(other(version), &object);
    let back = to(version, &there);
    if sluice_api::conversion::needs_webhook(kind) {
        assert_known("", &there, schema(kind, other(version).as_str()));
    }
    let wanted = without_what_is_dropped(object);
    assert_eq!(in_rows(back.clone()), in_rows(wanted), "by way of {there}");
    // From then on nothing moves any more, in either direction.
    let there_again = to(other(version), &back);
    assert_eq!(to(version, &there_again), back);
    assert_eq!(
        in_rows(to(other(version), &to(version, &there_again))),
        in_rows(there_again)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_object_comes_back_as_it_went(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        for crd in crds().iter().filter(|crd| crd.spec.group == sluice_api::GROUP) {
            for version in [Version::V1beta1, Version::V1beta2] {
                round_trips(&crd.spec.names.kind, version, &bytes);
            }
        }
    }

    #[test]
    fn nothing_that_can_be_said_in_json_stops_a_conversion(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in any::<prop::sample::Index>(),
        broken in prop::sample::select(vec![
            json!(null), json!(7), json!("text"), json!([]), json!({}), json!([null, 3]), json!({ "a": [1] }),
        ]),
    ) {
        for crd in crds().iter().filter(|crd| crd.spec.group == sluice_api::GROUP) {
            for version in [Version::V1beta1, Version::V1beta2] {
                let mut object = arbitrary::object(&crd.spec.names.kind, version.as_str(), &mut Choices(&bytes));
                let mut paths = Vec::new();
                paths_of("", &object, &mut paths);
                paths.retain(|path| !["", "/kind", "/apiVersion"].contains(&path.as_str()));
                *object.pointer_mut(at.get::<String>(&paths)).unwrap() = broken.clone();
                let mut there = object.clone();
                convert(&mut there, other(version)).unwrap();
                let mut back = there.clone();
                convert(&mut back, version).unwrap();
            }
        }
    }
}

fn paths_of(path: &str, value: &Value, paths: &mut Vec<String>) {
    paths.push(path.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                paths_of(
                    &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")),
                    value,
                    paths,
                );
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                paths_of(&format!("{path}/{at}"), value, paths);
            }
        }
        _ => {}
    }
}

fn in_v1beta1(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": { "name": "q" }, "spec": spec })
}

fn in_v1beta2(kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": "q" }, "spec": spec })
}

/// What GitOps compares: the manifest in Git with what the API server gives back.
#[test]
fn a_queue_in_the_words_of_the_older_version_does_not_drift() {
    let manifest = in_v1beta1(
        "ClusterQueue",
        json!({
            "cohort": "research", "stopPolicy": "None", "admissionChecks": ["a", "b"],
            "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt" },
        }),
    );
    let stored = to(Version::V1beta2, &manifest);
    assert_eq!(
        stored["spec"],
        json!({
            "cohortName": "research", "stopPolicy": "None",
            "admissionChecksStrategy": { "admissionChecks": [{ "name": "a" }, { "name": "b" }] },
            "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch" },
        })
    );
    assert_eq!(to(Version::V1beta1, &stored), manifest);
}

#[test]
fn what_was_changed_in_the_newer_version_is_not_undone_by_older_words() {
    let manifest = in_v1beta1(
        "ClusterQueue",
        json!({ "admissionChecks": ["a"], "flavorFungibility": { "whenCanBorrow": "Borrow" } }),
    );
    let mut stored = to(Version::V1beta2, &manifest);
    stored["spec"]["flavorFungibility"]["whenCanBorrow"] = json!("TryNextFlavor");
    stored["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["onFlavors"] = json!(["spot"]);
    assert_eq!(
        to(Version::V1beta1, &stored)["spec"],
        json!({
            "admissionChecksStrategy": { "admissionChecks": [{ "name": "a", "onFlavors": ["spot"] }] },
            "flavorFungibility": { "whenCanBorrow": "TryNextFlavor" },
        })
    );
    stored["spec"]
        .as_object_mut()
        .unwrap()
        .remove("admissionChecksStrategy");
    assert_eq!(to(Version::V1beta1, &stored)["spec"].get("admissionChecks"), None);
}

/// `kubectl apply` of a manifest with a list adds the list to what is there.
#[test]
fn a_list_of_checks_and_a_strategy_are_taken_together() {
    let strategy = json!({ "admissionChecks": [{ "name": "b", "onFlavors": ["spot"] }] });
    let both = in_v1beta1(
        "ClusterQueue",
        json!({ "admissionChecks": ["a", "b"], "admissionChecksStrategy": strategy }),
    );
    let stored = to(Version::V1beta2, &both);
    assert_eq!(
        stored["spec"]["admissionChecksStrategy"]["admissionChecks"],
        json!([{ "name": "b", "onFlavors": ["spot"] }, { "name": "a" }])
    );
    assert_eq!(to(Version::V1beta1, &stored), both);
}

#[test]
fn what_the_older_version_cannot_say_survives_a_change_made_in_it() {
    let policy = json!({ "migration": { "mode": "RetainFirstAdmission" } });
    let stored = in_v1beta2("ClusterQueue", json!({ "concurrentAdmissionPolicy": policy }));
    let mut seen = to(Version::V1beta1, &stored);
    assert_eq!(seen["spec"], json!({}));
    seen["spec"]["stopPolicy"] = json!("Hold");
    let changed = to(Version::V1beta2, &seen);
    assert_eq!(
        changed,
        in_v1beta2(
            "ClusterQueue",
            json!({ "concurrentAdmissionPolicy": policy, "stopPolicy": "Hold" })
        )
    );
}

#[test]
fn a_workload_in_the_older_version_says_the_same() {
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": { "name": "w", "namespace": "a" },
        "spec": { "priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "priority": 7 },
        "status": {
            "accumulatedPastExexcutionTimeSeconds": 9,
            "admission": { "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "topologyAssignment": {
                "levels": ["rack", "host"],
                "domains": [{ "values": ["r1", "h1"], "count": 2 }, { "values": ["r1", "h2"], "count": 1 }],
            } }] },
        },
    });
    let stored = to(Version::V1beta2, &workload);
    assert_eq!(
        stored["spec"],
        json!({ "priority": 7, "priorityClassRef": {
            "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high",
        } })
    );
    assert_eq!(stored["status"]["accumulatedPastExecutionTimeSeconds"], 9);
    assert_eq!(
        stored["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["slices"],
        json!([{
            "domainCount": 2,
            "valuesPerLevel": [{ "universal": "r1" }, { "individual": { "prefix": "h", "roots": ["1", "2"] } }],
            "podCounts": { "individual": [2, 1] },
        }])
    );
    assert_eq!(to(Version::V1beta1, &stored), workload);
}

/// Whoever may write an object may write its annotations, and no schema sees what is in them.
#[test]
fn a_forged_annotation_brings_nothing_that_a_schema_would_refuse() {
    let forged = |kind: &str, text: String| {
        let mut object = in_v1beta1(kind, json!({ "podSets": [{ "name": "main", "topologyRequest": {} }] }));
        object["metadata"]["annotations"] = json!({ SAID_IN_V1BETA2: text, "note": "mine" });
        to(Version::V1beta2, &object)
    };
    let plain = |kind: &str| {
        let mut object = in_v1beta2(kind, json!({ "podSets": [{ "name": "main", "topologyRequest": {} }] }));
        object["metadata"]["annotations"] = json!({ "note": "mine" });
        object
    };
    let gate = json!([{ "name": "x".repeat(64) }]);
    let constraint = "spec.podSets[main].topologyRequest.podsetSliceRequiredTopologyConstraints";
    for (kind, content) in [
        (
            "ClusterQueue",
            json!({ "spec.concurrentAdmissionPolicy": { "migration": { "mode": "Never" } } }),
        ),
        (
            "ClusterQueue",
            json!({ "spec.cohortName": "theirs", "status.pendingWorkloads": 0 }),
        ),
        ("Workload", json!({ "spec.preemptionGates": gate })),
        ("Workload", json!({ "spec.preemptionGates": "open" })),
        (
            "Workload",
            json!({ "status.preemptionGates": [{ "name": "g", "position": "Open" }] }),
        ),
        ("Workload", json!({ constraint: [{ "topology": "rack", "size": 0 }] })),
        ("Workload", json!([1])),
    ] {
        assert_eq!(forged(kind, content.to_string()), plain(kind), "{content}");
    }
    for text in [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        format!("{{\"a\":\"{}\"}}", "x".repeat(70_000)),
    ] {
        assert_eq!(forged("Workload", text), plain("Workload"));
    }
    let mut stale = plain("ClusterQueue");
    stale["metadata"]["annotations"][SAID_IN_V1BETA1] = json!("{\"spec.flavorFungibility.whenCanBorrow\":\"Sell\"}");
    stale["spec"]["flavorFungibility"] = json!({ "whenCanBorrow": "MayStopSearch" });
    let seen = to(Version::V1beta1, &stale);
    assert_eq!(seen["spec"]["flavorFungibility"]["whenCanBorrow"], "MayStopSearch");
    assert_eq!(seen["metadata"]["annotations"], json!({ "note": "mine" }));
}

#[test]
fn an_object_that_does_not_say_what_it_is_is_refused_and_stays_as_it_is() {
    for (object, wanted) in [
        (json!([]), "the object is not a JSON object"),
        (json!({ "kind": "Cohort" }), "apiVersion is missing or not a string"),
        (
            json!({ "apiVersion": 2, "kind": "Cohort" }),
            "apiVersion is missing or not a string",
        ),
        (
            json!({ "apiVersion": "kueue.x-k8s.io/v1beta1" }),
            "kind is missing or not a string",
        ),
        (
            json!({ "apiVersion": "kueue.x-k8s.io/v1", "kind": "Cohort" }),
            "apiVersion \"kueue.x-k8s.io/v1\" is not known: this webhook converts between kueue.x-k8s.io/v1beta1 and \
             kueue.x-k8s.io/v1beta2",
        ),
        (
            json!({ "apiVersion": "v1beta1", "kind": "Cohort" }),
            "apiVersion \"v1beta1\" is not known: this webhook converts between kueue.x-k8s.io/v1beta1 and \
             kueue.x-k8s.io/v1beta2",
        ),
        (
            json!({ "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Queue" }),
            "kind \"Queue\" is not one of kueue.x-k8s.io",
        ),
    ] {
        let mut converted = object.clone();
        let error: ConversionError = convert(&mut converted, Version::V1beta2).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert_eq!(converted, object);
    }
}

#[test]
fn an_object_that_is_in_its_version_already_stays_as_it_is() {
    let mut object = in_v1beta1("ClusterQueue", json!({ "cohortName": "odd", "cohort": "a" }));
    object["metadata"]["annotations"] = json!({ SAID_IN_V1BETA1: "odd" });
    assert_eq!(to(Version::V1beta1, &object), object);
}
