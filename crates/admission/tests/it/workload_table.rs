//! Reviews of Workloads, LocalQueues and ResourceFlavors: only what a write changes is judged, and nobody is stuck.

use serde_json::{Value, json};
use sluice_admission::{
    Outcome, Reply, mutate_cluster_queue, mutate_resource_flavor, mutate_workload, validate_cluster_queue,
    validate_local_queue, validate_resource_flavor, validate_workload,
};

use crate::support::{response, warnings};

const STORED_ONLY: &str = "Sluice does not act on Workloads yet: this one is stored, and not admitted";

fn review(resource: &str, sub_resource: &str, object: &Value, old: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": resource},
            "subResource": sub_resource,
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
            "namespace": "team-a", "name": "w",
            "userInfo": {"username": "jane"},
            "object": object, "oldObject": old,
        }
    }))
    .unwrap()
}

fn workload(spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team-a"}, "spec": spec, "status": status,
    })
}

fn pod_set(name: &str, count: i64, requests: Value) -> Value {
    json!({"name": name, "count": count, "template": {"spec": {"containers": [
        {"name": "main", "resources": {"requests": requests}},
    ]}}})
}

fn reserved() -> Value {
    json!([{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}])
}

/// A sound workload that holds quota.
fn running() -> Value {
    workload(
        json!({"queueName": "default", "podSets": [pod_set("main", 3, json!({"cpu": "1"}))]}),
        json!({
            "conditions": reserved(),
            "admission": {"clusterQueue": "q", "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "3"}, "count": 3},
            ]},
            "reclaimablePods": [{"name": "main", "count": 1}],
        }),
    )
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

fn refusal(reply: &Reply) -> String {
    assert_eq!(reply.decision.outcome, Outcome::Denied, "{}", reply.decision.reason);
    let response = response(reply);
    assert_eq!(response["status"]["code"], 422);
    response["status"]["message"].as_str().unwrap().to_owned()
}

fn allowed(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.decision.outcome, Outcome::Untouched, "{}", reply.decision.reason);
    let response = response(reply);
    assert_eq!(response["allowed"], true);
    warnings(&response).into_iter().map(ToOwned::to_owned).collect()
}

fn created(object: &Value) -> Reply {
    validate_workload(&review("workloads", "", object, &Value::Null))
}

fn updated(old: &Value, new: &Value) -> Reply {
    validate_workload(&review("workloads", "", new, old))
}

fn status_updated(old: &Value, new: &Value) -> Reply {
    validate_workload(&review("workloads", "status", new, old))
}

#[test]
fn a_sound_workload_passes_and_its_author_hears_that_it_is_stored_only() {
    assert_eq!(allowed(&created(&running())), [STORED_ONLY]);
    assert!(allowed(&status_updated(&running(), &running())).is_empty());
}

#[test]
fn each_thing_wrong_with_a_new_workload_is_named() {
    let sets = |sets: Value| workload(json!({ "podSets": sets }), json!({}));
    let mut partial = pod_set("a", 3, json!({}));
    partial["minCount"] = json!(1);
    let mut other = partial.clone();
    other["name"] = json!("b");
    let mut labelled = pod_set("main", 1, json!({}));
    labelled["template"]["metadata"] = json!({"labels": {"a b": "c", "d": "-"}, "annotations": {"/": ""}});
    let mut sliced = pod_set("main", 1, json!({}));
    sliced["topologyRequest"] = json!({"podSetSliceSize": 2, "required": "rack", "unconstrained": true});
    for (object, wanted) in [
        (
            sets(json!([pod_set(
                "main",
                1,
                json!({"pods": 1, "cpu": "-1", "memory": "much"})
            )])),
            &[
                "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: -1 is negative",
                "spec.podSets[0].template.spec.containers[0].resources.requests[memory]: \"much\" is not a quantity",
                "spec.podSets[0].template.spec.containers[0].resources.requests[pods]: pods are counted, not asked for",
            ][..],
        ),
        (
            sets(json!([partial, other])),
            &["spec.podSets[*].minCount: one pod set at most can have it"],
        ),
        (
            sets(json!([pod_set("a", 1, json!({})), pod_set("a", 1, json!({}))])),
            &["spec.podSets[1].name: \"a\" is listed more than once"],
        ),
        (
            sets(json!([labelled])),
            &[
                "spec.podSets[0].template.metadata.labels: \"a b\" is not the key of a label or annotation",
                "spec.podSets[0].template.metadata.labels[d]: \"-\" is not the value of a label",
                "spec.podSets[0].template.metadata.annotations: \"/\" is not the key of a label or annotation",
            ],
        ),
        (
            sets(json!([sliced])),
            &[
                "spec.podSets[0].topologyRequest: required, preferred and unconstrained exclude each other",
                "spec.podSets[0].topologyRequest: podSetSliceRequiredTopology and podSetSliceSize need each other",
            ],
        ),
        (
            sets(json!([{"name": "main", "template": {}}])),
            &["spec.podSets[0].template.spec: must say what the pods are"],
        ),
    ] {
        assert_eq!(refusal(&created(&object)), wanted.join("; "));
    }
}

#[test]
fn while_quota_is_held_what_it_is_held_for_does_not_change() {
    let old = running();
    let more = with(old.clone(), "/spec/podSets/0/count", json!(4));
    let frozen = "spec.podSets: cannot change while the workload holds quota";
    assert_eq!(refusal(&updated(&old, &more)), frozen);
    let fewer = with(old.clone(), "/spec/podSets/0/count", json!(2));
    assert_eq!(refusal(&updated(&old, &fewer)), frozen);
    // An elastic one may shrink.
    let elastic = |mut object: Value| {
        object["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
        object
    };
    assert_eq!(allowed(&updated(&elastic(old.clone()), &elastic(fewer))), [STORED_ONLY]);
    assert_eq!(refusal(&updated(&elastic(old.clone()), &elastic(more.clone()))), frozen);
    // One that waits is its author's.
    let waiting = |mut object: Value| {
        object["status"] = json!({});
        object
    };
    assert_eq!(allowed(&updated(&waiting(old), &waiting(more))), [STORED_ONLY]);
}

#[test]
fn the_status_is_judged_where_it_is_written() {
    let old = running();
    let said = |pointer: &str, value: Value| refusal(&status_updated(&old, &with(old.clone(), pointer, value)));
    assert_eq!(
        said("/status/admission/clusterQueue", json!("other")),
        "status.admission: can be set and taken back, not changed"
    );
    assert_eq!(
        said("/status/admission", Value::Null),
        "status.admission: must be there while the condition QuotaReserved is True"
    );
    assert_eq!(
        said("/status/reclaimablePods", json!([{"name": "main", "count": 4}])),
        "status.reclaimablePods[0].count: 4 is more than the 3 pods of the set"
    );
    assert!(said("/status/reclaimablePods", json!([])).contains("0 for pod set \"main\" is less than the 1 before"));
    assert_eq!(
        said(
            "/status/reclaimablePods",
            json!([{"name": "main", "count": 1}, {"name": "x", "count": 1}])
        ),
        "status.reclaimablePods[1].name: \"x\" is none of the pod sets of the spec"
    );
    let uneven = with(
        running(),
        "/status/admission/podSetAssignments/0/resourceUsage",
        json!({"cpu": "4"}),
    );
    let waiting = with(running(), "/status", json!({}));
    assert!(
        refusal(&status_updated(&waiting, &uneven)).contains("resourceUsage[cpu]: 4 cannot be divided by the 3 pods")
    );
    assert!(allowed(&status_updated(&waiting, &running())).is_empty());
    // Where the pods go may be found later; an eviction takes everything back.
    let mut placed = running();
    placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] =
        json!({"levels": ["host"], "slices": []});
    assert!(allowed(&status_updated(&running(), &placed)).is_empty());
    assert!(allowed(&status_updated(&running(), &waiting)).is_empty());
}

#[test]
fn what_a_check_adds_to_pods_is_fixed_once_it_is_ready() {
    let checked = |state: &str, value: &str| {
        let mut object = running();
        object["status"]["admissionChecks"] = json!([{
            "name": "c", "state": state, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
            "podSetUpdates": [{"name": "main", "labels": {"a": value}}],
        }]);
        object
    };
    assert_eq!(
        refusal(&status_updated(&checked("Ready", "b"), &checked("Ready", "c"))),
        "status.admissionChecks[0].podSetUpdates: cannot change while the check is ready"
    );
    assert!(allowed(&status_updated(&checked("Ready", "b"), &checked("Retry", "c"))).is_empty());
    assert!(allowed(&status_updated(&checked("Pending", "b"), &checked("Ready", "c"))).is_empty());
}

#[test]
fn a_cluster_that_was_not_nominated_gets_no_workload() {
    let nominated = with(running(), "/status", json!({"nominatedClusterNames": ["a", "b"]}));
    let chosen = |name: &str| with(running(), "/status", json!({ "clusterName": name }));
    assert!(allowed(&status_updated(&nominated, &chosen("b"))).is_empty());
    assert_eq!(
        refusal(&status_updated(&nominated, &chosen("c"))),
        "status.clusterName: must be one of the nominatedClusterNames"
    );
}

/// A workload stored before a rule existed, with a negative request: it can be evicted, deactivated, let go and deleted.
#[test]
fn a_bad_workload_can_be_evicted_deactivated_and_deleted() {
    let mut bad = running();
    bad["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] =
        json!({"example.com/gpu": "-3"});
    bad["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
    assert!(refusal(&created(&bad)).contains("-3 is negative"));
    let mut evicted = bad.clone();
    evicted["status"] = json!({"conditions": [
        {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"},
    ]});
    assert_eq!(allowed(&status_updated(&bad, &evicted)).len(), 1);
    let mut deactivated = bad.clone();
    deactivated["spec"]["active"] = json!(false);
    assert_eq!(allowed(&updated(&bad, &deactivated)).len(), 2);
    let mut released = bad.clone();
    released["metadata"]["finalizers"] = json!([]);
    assert_eq!(allowed(&updated(&bad, &released)).len(), 2);
    let mut leaving = released.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    leaving["spec"]["podSets"] = json!([]);
    assert!(allowed(&updated(&bad, &leaving)).is_empty());
    // Better is welcome once it holds nothing; worse is not.
    let worse = with(
        evicted.clone(),
        "/spec/podSets/0/template/spec/containers/0/resources/requests",
        json!({"cpu": "-4", "example.com/gpu": "-3"}),
    );
    assert!(refusal(&updated(&evicted, &worse)).contains("-4 is negative"));
    let better = with(
        evicted.clone(),
        "/spec/podSets/0/template/spec/containers/0/resources/requests",
        json!({"cpu": "4"}),
    );
    assert_eq!(allowed(&updated(&evicted, &better)), [STORED_ONLY]);
}

#[test]
fn flavors_and_local_queues_are_judged_too() {
    let flavor = |spec: Value| json!({"metadata": {"name": "f"}, "spec": spec});
    let judge = |object: &Value, old: &Value| validate_resource_flavor(&review("resourceflavors", "", object, old));
    let bad = flavor(json!({
        "nodeLabels": {"pool": "a b"},
        "nodeTaints": [{"key": "x", "effect": "Sometimes"}, {"key": "x", "effect": "Sometimes"}],
        "tolerations": [{"operator": "Exists", "value": "v"}, {"value": "w"}],
    }));
    let said = refusal(&judge(&bad, &Value::Null));
    for wanted in [
        "spec.nodeLabels[pool]: \"a b\" is not the value of a label",
        "spec.nodeTaints[0].effect: \"Sometimes\" is not supported: use one of NoSchedule, PreferNoSchedule, NoExecute",
        "spec.nodeTaints[1]: \"x:Sometimes\" is listed more than once",
        "spec.tolerations[0]: the operator Exists takes no value",
        "spec.tolerations[1]: an empty key needs the operator Exists",
    ] {
        assert!(said.contains(wanted), "{said}");
    }
    let mut labelled = bad.clone();
    labelled["metadata"]["labels"] = json!({"team": "a"});
    assert_eq!(allowed(&judge(&labelled, &bad)).len(), 6);
    assert!(allowed(&judge(&flavor(json!({"nodeLabels": {"pool": "a"}})), &bad)).is_empty());
    assert_eq!(
        allowed(&judge(
            &flavor(json!({"nodeLabels": {"a": "b"}, "topologyName": "racks"})),
            &Value::Null
        )),
        ["spec.topologyName is not acted on yet: while it is set, nothing is admitted"]
    );
    let queue = |spec: Value| {
        review(
            "localqueues",
            "",
            &json!({"metadata": {"name": "q"}, "spec": spec}),
            &Value::Null,
        )
    };
    assert!(allowed(&validate_local_queue(&queue(json!({"clusterQueue": "a"})))).is_empty());
    assert_eq!(
        refusal(&validate_local_queue(&queue(
            json!({"stopPolicy": "Wait", "fairSharing": {"weight": "-1"}})
        ))),
        "spec.stopPolicy: \"Wait\" is not supported: use one of None, Hold, HoldAndDrain; \
         spec.fairSharing.weight: -1 is negative"
    );
}

#[test]
fn a_queue_hears_of_what_it_names_and_does_not_have() {
    let queue = |spec: Value| json!({"metadata": {"name": "q"}, "spec": spec});
    let judge = |object: &Value, old: &Value| validate_cluster_queue(&review("clusterqueues", "", object, old));
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["spot"]}]}});
    let wanted =
        "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: \"spot\" is none of the flavors of the queue";
    assert_eq!(refusal(&judge(&queue(checks.clone()), &Value::Null)), wanted);
    assert!(
        allowed(&judge(&queue(checks.clone()), &queue(checks)))
            .iter()
            .any(|said| said.starts_with(wanted))
    );
    let concurrent = |mode: &str| queue(json!({"concurrentAdmissionPolicy": {"migration": {"mode": mode}}}));
    let said = refusal(&judge(&concurrent("RetainFirstAdmission"), &Value::Null));
    assert_eq!(said, "spec.concurrentAdmissionPolicy: needs just one resource group");
    let said = refusal(&judge(&queue(json!({})), &concurrent("RetainFirstAdmission")));
    assert_eq!(said, "spec.concurrentAdmissionPolicy: cannot change");
}

#[test]
fn at_the_paths_of_kueues_mutating_webhooks_nothing_is_changed() {
    for (rule, resource) in [
        (mutate_cluster_queue as fn(&[u8]) -> Reply, "clusterqueues"),
        (mutate_resource_flavor, "resourceflavors"),
        (mutate_workload, "workloads"),
    ] {
        let reply = rule(&review(resource, "", &json!({"metadata": {"name": "x"}}), &Value::Null));
        assert!(allowed(&reply).is_empty());
        let of_another = rule(&review("cohorts", "", &json!({}), &Value::Null));
        assert_eq!(of_another.decision.outcome, Outcome::Unreadable);
    }
}
