//! Reviews of ClusterQueues and Cohorts: what is refused, what is let through and with which words.

use serde_json::{Value, json};
use sluice_admission::{Outcome, Reply, mutate_job, validate_cluster_queue, validate_cohort};

use crate::support::{response, warnings, world};

fn review(resource: &str, operation: &str, object: &Value, old: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": resource},
            "operation": operation,
            "name": "q",
            "userInfo": {"username": "jane"},
            "object": object,
            "oldObject": old,
        }
    }))
    .unwrap()
}

fn queue(annotations: Value, spec: Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": "q", "annotations": annotations}, "spec": spec,
    })
}

/// One flavor for each pair of nominal quota and lending limit.
fn quotas(limits: &[(i64, i64)]) -> Value {
    let flavors: Vec<Value> = limits
        .iter()
        .enumerate()
        .map(|(at, (nominal, lending))| {
            json!({"name": format!("f{at}"), "resources": [
                {"name": "cpu", "nominalQuota": nominal, "lendingLimit": lending},
            ]})
        })
        .collect();
    json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]})
}

fn created(object: &Value) -> Reply {
    validate_cluster_queue(&review("clusterqueues", "CREATE", object, &Value::Null))
}

fn updated(old: &Value, new: &Value) -> Reply {
    validate_cluster_queue(&review("clusterqueues", "UPDATE", new, old))
}

fn refusal(reply: &Reply) -> String {
    let response = response(reply);
    assert_eq!(reply.decision.outcome, Outcome::Denied);
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 422);
    assert_eq!(response["status"]["reason"], "Invalid");
    response["status"]["message"].as_str().unwrap().to_owned()
}

fn allowed(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.decision.outcome, Outcome::Untouched, "{}", reply.decision.reason);
    let response = response(reply);
    assert_eq!(response["allowed"], true);
    warnings(&response).into_iter().map(ToOwned::to_owned).collect()
}

#[test]
fn sound_objects_pass_without_a_word() {
    let extras = json!({"sluice.internal/backfill": "false", "sluice.internal/minimum-run-time": "5m"});
    for object in [
        queue(json!({}), json!({})),
        queue(extras, json!({"namespaceSelector": {}})),
        json!({"metadata": {}}),
    ] {
        assert_eq!(allowed(&created(&object)), Vec::<String>::new());
    }
    let cohort = json!({"metadata": {"name": "q"}, "spec": {"parentName": "p"}});
    let reply = validate_cohort(&review("cohorts", "CREATE", &cohort, &Value::Null));
    assert_eq!(allowed(&reply), Vec::<String>::new());
}

#[test]
fn everything_that_is_wrong_is_said_with_its_field() {
    let object = queue(
        json!({"sluice.internal/backfill": "maybe", "sluice.internal/ageing-interval": "soon"}),
        json!({"fairSharing": {"weight": "1n"}}),
    );
    let reply = created(&object);
    assert_eq!(
        refusal(&reply),
        "metadata.annotations[sluice.internal/ageing-interval]: must be a duration of at least 1ms, such as 90s or 10m, \
         not \"soon\"; metadata.annotations[sluice.internal/backfill]: must be \"true\" or \"false\", not \"maybe\"; \
         spec.fairSharing.weight: must be 0 or greater than 1n"
    );
    let details = &response(&reply)["status"]["details"];
    assert_eq!(
        (&details["group"], &details["kind"]),
        (&json!("kueue.x-k8s.io"), &json!("ClusterQueue"))
    );
    assert_eq!(details["causes"].as_array().unwrap().len(), 3);
    assert_eq!(details["causes"][2]["field"], "spec.fairSharing.weight");
}

#[test]
fn a_lending_limit_above_the_quota_is_refused_for_a_queue_and_not_for_a_cohort() {
    let mut spec = quotas(&[(1, 2)]);
    assert_eq!(
        refusal(&created(&queue(json!({}), spec.clone()))),
        "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: must not be above nominalQuota"
    );
    spec["parentName"] = json!("p");
    let cohort = json!({"metadata": {"name": "q"}, "spec": spec});
    let reply = validate_cohort(&review("cohorts", "CREATE", &cohort, &Value::Null));
    assert_eq!(allowed(&reply), Vec::<String>::new());
}

#[test]
fn a_cohort_with_a_broken_weight_or_a_queues_annotation_is_refused() {
    for (object, wanted) in [
        (
            json!({"spec": {"fairSharing": {"weight": "1n"}}}),
            "spec.fairSharing.weight: must be 0 or greater than 1n",
        ),
        (
            json!({"metadata": {"annotations": {"sluice.internal/backfill": "true"}}}),
            "metadata.annotations[sluice.internal/backfill]: is not known on this kind",
        ),
    ] {
        let mut cohort = json!({"metadata": {"name": "q"}});
        cohort
            .as_object_mut()
            .unwrap()
            .extend(object.as_object().unwrap().clone());
        let reply = validate_cohort(&review("cohorts", "CREATE", &cohort, &Value::Null));
        assert_eq!(refusal(&reply), wanted);
        assert_eq!(response(&reply)["status"]["details"]["kind"], "Cohort");
    }
}

#[test]
fn an_update_is_refused_only_for_what_it_makes_worse() {
    let bad = json!({"sluice.internal/backfill": "maybe"});
    let stored = queue(bad.clone(), quotas(&[(1, 2), (5, 9), (9, 1)]));
    // As bad as before, with another field changed.
    let mut held = stored.clone();
    held["spec"]["stopPolicy"] = json!("Hold");
    let said = allowed(&updated(&stored, &held));
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(
        said[0].starts_with("metadata.annotations[sluice.internal/backfill]: must be"),
        "{said:?}"
    );
    // Better: the first flavor is gone, so that the second stands in its place.
    assert_eq!(
        allowed(&updated(&stored, &queue(bad.clone(), quotas(&[(5, 9), (9, 1)])))).len(),
        2
    );
    assert_eq!(
        allowed(&updated(&stored, &queue(json!({}), quotas(&[(9, 1)])))),
        Vec::<String>::new()
    );
    // Worse: a third limit above its quota; another broken value.
    assert_eq!(
        refusal(&updated(&stored, &queue(bad, quotas(&[(1, 2), (5, 9), (1, 9)])))),
        "spec.resourceGroups[0].flavors[2].resources[0].lendingLimit: must not be above nominalQuota"
    );
    let other = queue(json!({"sluice.internal/backfill": "never"}), json!({}));
    assert!(refusal(&updated(&stored, &other)).contains("not \"never\""));
}

#[test]
fn what_is_being_deleted_or_is_a_status_is_never_judged() {
    let bad = queue(json!({"sluice.internal/backfill": "maybe"}), json!({}));
    let mut leaving = bad.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    assert!(allowed(&updated(&queue(json!({}), json!({})), &leaving)).is_empty());
    assert!(
        allowed(&validate_cluster_queue(&review(
            "clusterqueues",
            "DELETE",
            &Value::Null,
            &bad
        )))
        .is_empty()
    );
    let mut status: Value =
        serde_json::from_slice(&review("clusterqueues", "UPDATE", &bad, &queue(json!({}), json!({})))).unwrap();
    status["request"]["subResource"] = json!("status");
    assert!(allowed(&validate_cluster_queue(&serde_json::to_vec(&status).unwrap())).is_empty());
}

#[test]
fn fields_that_are_not_acted_on_yet_are_warned_of() {
    let said = allowed(&created(&queue(
        json!({}),
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}}),
    )));
    assert_eq!(
        said,
        ["spec.admissionChecksStrategy is not acted on yet: while it is set, nothing is admitted"]
    );
}

#[test]
fn an_object_that_cannot_be_decoded_may_only_get_better() {
    let broken = queue(json!({}), json!({"resourceGroups": "none"}));
    assert!(refusal(&created(&broken)).starts_with("the object: cannot be read: "));
    assert_eq!(allowed(&updated(&broken, &broken)).len(), 1);
    assert!(allowed(&updated(&broken, &queue(json!({}), json!({})))).is_empty());
}

#[test]
fn many_problems_make_no_endless_answer() {
    let limits: Vec<(i64, i64)> = (0..5000).map(|_| (1, 2)).collect();
    let reply = created(&queue(json!({}), quotas(&limits)));
    assert!(refusal(&reply).ends_with("; and 4986 more"), "{}", refusal(&reply));
    assert!(reply.body.len() < 10_000);
    let long = "x\u{1}\n".repeat(100_000);
    let reply = created(&queue(
        json!({ format!("sluice.internal/{long}"): long, "sluice.internal/backfill": long }),
        json!({}),
    ));
    assert!(refusal(&reply).is_ascii() && !refusal(&reply).contains('\n'));
    assert!(reply.body.len() < 5000, "{}", reply.body.len());
}

#[test]
fn a_review_of_another_kind_is_sent_back() {
    let object = queue(json!({}), json!({}));
    let of_a_queue = review("clusterqueues", "CREATE", &object, &Value::Null);
    for (reply, wanted) in [
        (
            validate_cohort(&of_a_queue),
            "this webhook reviews cohorts of kueue.x-k8s.io/v1beta2, not \"clusterqueues\"",
        ),
        (
            mutate_job(&of_a_queue, &world()),
            "this webhook reviews jobs of batch/v1, not \"clusterqueues\"",
        ),
        (
            validate_cluster_queue(&review("cohorts", "CREATE", &object, &Value::Null)),
            "this webhook reviews clusterqueues of kueue.x-k8s.io/v1beta2, not \"cohorts\"",
        ),
    ] {
        assert!(reply.decision.reason.starts_with(wanted), "{}", reply.decision.reason);
        assert_eq!(response(&reply)["allowed"], false);
    }
}
