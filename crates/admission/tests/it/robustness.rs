//! Whatever comes in, an answer goes out.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_admission::{
    Outcome, Reply, World, convert, mutate_job, mutate_workload, validate_cluster_queue, validate_cohort, validate_job,
    validate_local_queue, validate_resource_flavor, validate_workload,
};

use crate::support::{SCHEDULER, operations, patched, response, world};

fn review(object: &Value, old: &Value, operation: &str, username: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": operation,
            "namespace": "team-a",
            "name": "train",
            "userInfo": {"username": username},
            "object": object,
            "oldObject": old,
        }
    })
}

fn full_job() -> Value {
    let record = json!({
        "v": 1, "term": 3, "uid": "job-uid", "state": "Admitted", "clusterQueue": "cq", "localQueue": "batch",
        "delta": {
            "nodeSelector": {"pool": "spot"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
            "labels": {"kueue.x-k8s.io/podset": "main"}
        }
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "team-a", "uid": "job-uid",
            "labels": {"kueue.x-k8s.io/queue-name": "batch"},
            "annotations": {
                "sluice.internal/admission": record.to_string(),
                "sluice.internal/created-running": "true",
                "sluice.internal/hold": "true"
            },
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "y", "controller": true}]
        },
        "spec": {
            "suspend": false,
            "managedBy": "kubernetes.io/job-controller",
            "template": {
                "metadata": {"labels": {"kueue.x-k8s.io/podset": "main"}},
                "spec": {
                    "nodeSelector": {"pool": "spot"},
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                    "containers": [{"name": "main", "image": "x"}]
                }
            }
        },
        "status": {"conditions": [{"type": "Suspended", "status": "False"}]}
    })
}

fn full_queue() -> Value {
    let quota = json!({"name": "cpu", "nominalQuota": "4", "borrowingLimit": 1, "lendingLimit": "5"});
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {
            "name": "q",
            "annotations": {
                "sluice.internal/backfill": "true", "sluice.internal/ageing-interval": "10m",
                "sluice.internal/ageing-max-steps": "9", "sluice.internal/minimum-run-time": "soon",
            },
        },
        "spec": {
            "cohortName": "c",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [quota]}]}],
            "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "fairSharing": {"weight": "1n"},
            "stopPolicy": "None",
        },
    })
}

/// Every answer is well formed, and a patch that is answered applies to the object it was made for.
fn check(body: &[u8], world: &World) {
    for rule in [
        validate_cluster_queue,
        validate_cohort,
        validate_local_queue,
        validate_resource_flavor,
        validate_workload,
        mutate_workload,
    ] {
        well_formed(&rule(body));
    }
    assert!(!convert(body).decision.reason.is_empty());
    for reply in [mutate_job(body, world), validate_job(body, world)] {
        well_formed(&reply);
        if reply.decision.outcome == Outcome::Patched {
            let review: Value = serde_json::from_slice(body).unwrap();
            let answer = response(&reply);
            assert!(!operations(&answer).is_empty());
            patched(&review["request"]["object"], &answer);
        }
    }
}

fn well_formed(reply: &Reply) {
    assert!(!reply.decision.reason.is_empty());
    match reply.http_status {
        200 => {
            let response = response(reply);
            assert!(response["uid"].as_str().is_some_and(|uid| !uid.is_empty()));
            let denied = matches!(reply.decision.outcome, Outcome::Denied | Outcome::Unreadable);
            assert_eq!(response["allowed"].as_bool(), Some(!denied));
            assert_eq!(response.get("status").is_some(), denied);
        }
        400 => assert_eq!(reply.decision.outcome, Outcome::Unreadable),
        other => panic!("HTTP {other}"),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("true")),
        Just(json!("{\"v\":1,\"uid\":\"job-uid\"}")),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// JSON pointers of everything inside a value.
fn places(value: &Value) -> Vec<String> {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, v)| (key.replace('~', "~0").replace('/', "~1"), v))
            .collect(),
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    let mut places = Vec::new();
    for (key, value) in inside {
        places.push(format!("/{key}"));
        places.extend(places_under(&key, value));
    }
    places
}

fn places_under(key: &str, value: &Value) -> Vec<String> {
    places(value)
        .into_iter()
        .map(|below| format!("/{key}{below}"))
        .collect()
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(body in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&body, &world());
    }

    #[test]
    fn any_json_gets_an_answer(body in any_json()) {
        check(&serde_json::to_vec(&body).unwrap(), &world());
    }

    #[test]
    fn a_review_with_anything_anywhere_gets_an_answer(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
        update in any::<bool>(),
        scheduler in any::<bool>(),
    ) {
        let user = if scheduler { SCHEDULER } else { "jane" };
        let mut review = review(&full_job(), &full_job(), if update { "UPDATE" } else { "CREATE" }, user);
        for (at, value) in changes {
            let places = places(&review);
            if places.is_empty() { break }
            *review.pointer_mut(&places[at.index(places.len())]).unwrap() = value;
        }
        check(&serde_json::to_vec(&review).unwrap(), &world());
    }

    #[test]
    fn a_review_of_a_queue_with_anything_anywhere_gets_an_answer(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
        update in any::<bool>(),
    ) {
        let mut review = review(&full_queue(), &full_queue(), if update { "UPDATE" } else { "CREATE" }, "jane");
        review["request"]["resource"] = json!({
            "group": "kueue.x-k8s.io", "version": "v1beta2", "resource": "clusterqueues",
        });
        for (at, value) in changes {
            let places = places(&review);
            if places.is_empty() { break }
            *review.pointer_mut(&places[at.index(places.len())]).unwrap() = value;
        }
        check(&serde_json::to_vec(&review).unwrap(), &world());
    }

    #[test]
    fn a_review_cut_anywhere_or_with_one_byte_changed_gets_an_answer(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut body = serde_json::to_vec(&review(&full_job(), &full_job(), "UPDATE", "jane")).unwrap();
        let at = at.index(body.len());
        if cut { body.truncate(at) } else { body[at] = byte }
        check(&body, &world());
    }
}

#[test]
fn nesting_without_end_is_answered() {
    let world = world();
    let deep = |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = deep(open, close, 100_000);
        check(nested.as_bytes(), &world);
        for place in [
            "object",
            "oldObject",
            "userInfo",
            "resource",
            "uid",
            "options",
            "unknown",
        ] {
            let body = format!(
                r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"{place}":{nested},"uid":"r-1"}}}}"#
            );
            check(body.as_bytes(), &world);
        }
    }
    let mut object = full_job();
    object["spec"]["template"]["spec"]["tolerations"] = json!("NESTED");
    let body = review(&object, &Value::Null, "CREATE", "jane").to_string();
    let body = body.replace("\"NESTED\"", &deep("[", "]", 100_000));
    let reply = mutate_job(body.as_bytes(), &world);
    assert!(
        reply
            .decision
            .reason
            .contains("request.object cannot be read: recursion limit"),
        "{}",
        reply.decision.reason
    );
}

#[test]
fn megabytes_of_text_are_answered_with_a_short_message() {
    let world = world();
    let long = "x".repeat(1 << 20);
    for place in [
        "/apiVersion",
        "/kind",
        "/request/operation",
        "/request/resource/resource",
        "/request/dryRun",
    ] {
        let mut review = review(&full_job(), &Value::Null, "CREATE", "jane");
        if let Some(field) = review.pointer_mut(place) {
            *field = json!(long);
        } else {
            review["request"]["dryRun"] = json!(long);
        }
        let reply = mutate_job(&serde_json::to_vec(&review).unwrap(), &world);
        assert!(reply.body.len() < 1000, "{place}: {} bytes", reply.body.len());
        well_formed(&reply);
    }
    let mut job = full_job();
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(long);
    let reply = mutate_job(
        &serde_json::to_vec(&review(&job, &Value::Null, "CREATE", "jane")).unwrap(),
        &world,
    );
    assert!(reply.decision.warnings.iter().all(|warning| warning.len() < 400));
    let reply = validate_job(
        &serde_json::to_vec(&review(&job, &Value::Null, "CREATE", "jane")).unwrap(),
        &world,
    );
    assert_eq!(reply.decision.outcome, Outcome::Denied);
    assert!(reply.body.len() < 1500);
}
