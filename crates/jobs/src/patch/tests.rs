mod stops;

use serde_json::json;

use super::*;
use crate::apply::apply;
use crate::fixture;
use crate::status::QuotaReturn;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const RECORD: &str = "sluice.internal/admission";
const DEACTIVATED: &str = "sluice.internal/deactivated";

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn plan() -> AdmissionPlan {
    AdmissionPlan {
        node_selector: [("pool".to_owned(), "spot".to_owned())].into(),
        tolerations: vec![json!({"key": "spot", "operator": "Exists", "effect": "NoSchedule"})],
        labels: pod_labels("batch", "team-a"),
        queue_label: Some("default".into()),
        parallelism: None,
    }
}

fn record(state: State) -> Record {
    Record {
        cluster_queue: "team-a".into(),
        local_queue: "batch".into(),
        ..Record::new("1f0c8a5e-0001", 3, state)
    }
}

fn stop() -> Stop {
    Stop {
        reason: "Preempted".into(),
        cause: "InClusterQueue".into(),
        message: "by team-b/a<b & c".into(),
        at: time("2026-11-30T10:10:00Z"),
    }
}

/// Sends the patch to the Job as the API server would take it.
fn send(job: &mut Value, write: &Write) {
    apply(job, &write.patch).unwrap();
}

fn refused(job: &Value, write: &Write) -> String {
    apply(&mut job.clone(), &write.patch).unwrap_err().to_string()
}

fn with(job: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut job = job.clone();
    change(&mut job);
    job
}

/// A Job after its admission, and the write that admitted it.
fn admitted() -> (Value, Write) {
    let mut job = fixture::waiting_job();
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    (job, write)
}

fn running() -> Value {
    with(&admitted().0, |job| {
        job["status"] = json!({
            "active": 3,
            "startTime": "2026-11-30T10:00:01Z",
            "conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": "2026-11-30T10:00:01Z"}]
        });
    })
}

/// As the Job controller leaves an evicted Job once its pods are gone.
fn acknowledged(job: &Value) -> Value {
    with(job, |job| {
        job["status"] = json!({
            "active": 0,
            "conditions": [{"type": "Suspended", "status": "True", "lastTransitionTime": "2026-11-30T10:10:01Z"}]
        });
        job["metadata"]["generation"] = json!(3);
    })
}

fn current(job: &Value) -> Record {
    Record::parse(
        job["metadata"]["annotations"][RECORD].as_str().unwrap(),
        "1f0c8a5e-0001",
    )
    .unwrap()
}

#[test]
fn an_admission_changes_exactly_what_it_means_and_unknown_fields_survive() {
    let (job, write) = admitted();
    let expected = with(&fixture::waiting_job(), |job| {
        job["spec"]["suspend"] = json!(false);
        job["metadata"]["annotations"] = json!({RECORD: write.annotation});
        let template = &mut job["spec"]["template"];
        template["metadata"]["labels"] = json!({
            "batch.kubernetes.io/job-name": "train",
            "kueue.x-k8s.io/podset": "main",
            "kueue.x-k8s.io/local-queue-name": "batch",
            "kueue.x-k8s.io/cluster-queue-name": "team-a"
        });
        template["spec"]["nodeSelector"] = json!({"pool": "spot"});
        template["spec"]["tolerations"] = json!([{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]);
    });
    assert_eq!(job, expected);
    assert_eq!(current(&job), write.record);
    assert_eq!(write.record.state, State::Admitted);
    assert_eq!(write.record.delta.node_selector, plan().node_selector);
    assert_eq!(write.record.delta.tolerations, plan().tolerations);
    assert_eq!(write.record.delta.labels, plan().labels);
}

#[test]
fn an_admission_names_its_guards_before_its_changes() {
    let write = admitted().1;
    let operations = serde_json::to_value(&write.patch).unwrap();
    let guards = json!([
        {"op": "test", "path": "/metadata/uid", "value": "1f0c8a5e-0001"},
        {"op": "test", "path": "/metadata/annotations", "value": null},
        {"op": "test", "path": "/metadata/generation", "value": 1},
        {"op": "test", "path": "/spec/suspend", "value": true},
        {"op": "test", "path": "/metadata/labels/kueue.x-k8s.io~1queue-name", "value": "batch"},
        {"op": "test", "path": "/metadata/labels/kueue.x-k8s.io~1priority-class", "value": null}
    ]);
    let (first, rest) = operations.as_array().unwrap().split_at(6);
    assert_eq!(first, guards.as_array().unwrap().as_slice());
    assert!(rest.iter().all(|operation| operation["op"] != "test"));
}

#[test]
fn an_admission_is_refused_when_anything_it_was_decided_on_has_changed() {
    let job = fixture::waiting_job();
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    let priority = "kueue.x-k8s.io/priority-class";
    let changes: [(&str, Value); 6] = [
        (
            "/metadata/uid",
            with(&job, |job| job["metadata"]["uid"] = json!("another")),
        ),
        (
            "/metadata/generation",
            with(&job, |job| job["metadata"]["generation"] = json!(2)),
        ),
        ("/spec/suspend", with(&job, |job| job["spec"]["suspend"] = json!(false))),
        (
            "kueue.x-k8s.io~1queue-name",
            with(&job, |job| job["metadata"]["labels"][QUEUE] = json!("other")),
        ),
        (
            "kueue.x-k8s.io~1priority-class",
            with(&job, |job| job["metadata"]["labels"][priority] = json!("high")),
        ),
        (
            "/metadata/annotations",
            with(&job, |job| job["metadata"]["annotations"] = json!({"a": "b"})),
        ),
    ];
    for (path, changed) in changes {
        let error = refused(&changed, &write);
        assert!(error.contains(path), "{path}: {error}");
    }
}

#[test]
fn an_admission_keeps_an_annotation_that_another_client_adds_at_the_same_time() {
    let job = with(&fixture::waiting_job(), |job| {
        job["metadata"]["annotations"] = json!({});
    });
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    let mut changed = with(&job, |job| job["metadata"]["annotations"]["note"] = json!("theirs"));
    send(&mut changed, &write);
    assert_eq!(changed["metadata"]["annotations"]["note"], "theirs");
    let written = with(&job, |job| job["metadata"]["annotations"][RECORD] = json!("{}"));
    assert!(refused(&written, &write).contains("sluice.internal~1admission"));
}

#[test]
fn an_admission_adds_the_queue_label_only_to_a_job_that_has_none() {
    let mut unlabelled = with(&fixture::waiting_job(), |job| {
        job["metadata"].as_object_mut().unwrap().remove("labels");
    });
    let write = admit(&fixture::view(&unlabelled), &plan(), &record(State::Waiting)).unwrap();
    let raced = with(&unlabelled, |job| job["metadata"]["labels"] = json!({"app": "train"}));
    assert!(refused(&raced, &write).contains("/metadata/labels"));
    send(&mut unlabelled, &write);
    assert_eq!(unlabelled["metadata"]["labels"], json!({QUEUE: "default"}));
    assert_eq!(admitted().0["metadata"]["labels"], json!({QUEUE: "batch"}));

    let mut others = with(&fixture::waiting_job(), |job| {
        job["metadata"]["labels"] = json!({"app": "train"});
    });
    let write = admit(&fixture::view(&others), &plan(), &record(State::Waiting)).unwrap();
    send(&mut others, &write);
    assert_eq!(others["metadata"]["labels"], json!({"app": "train", QUEUE: "default"}));
}

#[test]
fn a_template_without_metadata_gets_one() {
    let mut job = with(&fixture::waiting_job(), |job| {
        job["spec"]["template"].as_object_mut().unwrap().remove("metadata");
    });
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    assert_eq!(job["spec"]["template"]["metadata"], json!({"labels": plan().labels}));
}

#[test]
fn a_key_with_another_value_is_a_conflict_that_names_it() {
    let selector = with(&fixture::waiting_job(), |job| {
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "reserved"});
    });
    let error = admit(&fixture::view(&selector), &plan(), &record(State::Waiting))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        r#"spec.template.spec.nodeSelector[pool] is already "reserved" and the admission needs "spot""#
    );
    let label = with(&fixture::waiting_job(), |job| {
        job["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("driver");
    });
    let error = admit(&fixture::view(&label), &plan(), &record(State::Waiting))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("spec.template.metadata.labels[kueue.x-k8s.io/podset] is already"),
        "{error}"
    );
}

#[test]
fn what_the_user_had_put_there_is_not_in_the_delta_and_is_never_written_twice() {
    let mut job = with(&fixture::waiting_job(), |job| {
        let template = &mut job["spec"]["template"];
        template["spec"]["nodeSelector"] = json!({"pool": "spot", "zone": "a"});
        template["spec"]["tolerations"] = json!([
            {"key": "other", "value": "x"},
            {"key": "spot", "operator": "Exists", "value": "", "effect": "NoSchedule"}
        ]);
        template["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("main");
    });
    let before = job.clone();
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    assert_eq!(job["spec"]["template"]["spec"], before["spec"]["template"]["spec"]);
    assert!(write.record.delta.node_selector.is_empty());
    assert!(write.record.delta.tolerations.is_empty());
    assert!(!write.record.delta.labels.contains_key("kueue.x-k8s.io/podset"));
}

#[test]
fn tolerations_are_appended_behind_the_users() {
    let mut job = with(&fixture::waiting_job(), |job| {
        job["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "other", "unknown": 1}]);
    });
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    assert_eq!(
        job["spec"]["template"]["spec"]["tolerations"],
        json!([{"key": "other", "unknown": 1}, {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}])
    );
}

#[test]
fn tolerations_are_equal_when_they_mean_the_same() {
    let plan = AdmissionPlan {
        tolerations: vec![json!({"key": "a", "value": "b"})],
        ..AdmissionPlan::default()
    };
    let written = |toleration: Value| {
        let job = with(&fixture::waiting_job(), |job| {
            job["spec"]["template"]["spec"]["tolerations"] = json!([toleration]);
        });
        admit(&fixture::view(&job), &plan, &record(State::Waiting))
            .unwrap()
            .record
            .delta
            .tolerations
            .len()
    };
    assert_eq!(
        written(json!({"key": "a", "operator": "Equal", "value": "b", "effect": ""})),
        0
    );
    assert_eq!(written(json!({"key": "a", "operator": "Exists"})), 1);
    assert_eq!(written(json!({"key": "a", "value": "b", "tolerationSeconds": 3})), 1);
    assert_eq!(written(json!({"key": "a", "value": "b", "effect": "NoExecute"})), 1);
}

#[test]
fn an_eviction_suspends_and_leaves_the_template_alone() {
    let before = running();
    let mut job = before.clone();
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let expected = with(&before, |job| {
        job["spec"]["suspend"] = json!(true);
        job["metadata"]["annotations"][RECORD] = json!(write.annotation);
    });
    assert_eq!(job, expected);
    let record = current(&job);
    assert_eq!(record.state, State::Evicting);
    assert_eq!(record.delta, current(&before).delta);
    let eviction = record.eviction.unwrap();
    assert_eq!(
        (eviction.reason.as_str(), eviction.message.as_str()),
        ("Preempted", "by team-b/a<b & c")
    );
    assert!(eviction.started);
}

#[test]
fn an_eviction_is_refused_when_the_record_is_no_longer_the_one_seen() {
    let job = running();
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    let other = Record {
        term: 4,
        ..current(&job)
    }
    .to_annotation()
    .unwrap();
    let changed = with(&job, |job| job["metadata"]["annotations"][RECORD] = json!(other));
    assert!(refused(&changed, &write).contains("sluice.internal~1admission"));
    let suspended = with(&job, |job| job["spec"]["suspend"] = json!(true));
    assert!(refused(&suspended, &write).contains("/spec/suspend"));
}

#[test]
fn an_eviction_before_the_start_was_acknowledged_says_so() {
    let mut job = with(&fixture::waiting_job(), |job| {
        job["status"]["conditions"] =
            json!([{"type": "Suspended", "status": "True", "lastTransitionTime": "2026-11-30T09:00:00Z"}]);
    });
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    assert_eq!(current(&job).suspended_before, Some(time("2026-11-30T09:00:00Z")));
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let record = current(&job);
    assert!(!record.eviction.as_ref().unwrap().started);
    let status = &fixture::view(&job).status;
    assert_eq!(status::quota_return(&record, status), QuotaReturn::Unacknowledged);
}

#[test]
fn the_admission_after_an_eviction_takes_the_old_delta_out_and_puts_the_new_one_in() {
    let users = with(&running(), |job| {
        job["spec"]["template"]["spec"]["nodeSelector"]["zone"] = json!("a");
    });
    let mut job = users;
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let mut job = acknowledged(&job);
    let other = AdmissionPlan {
        node_selector: [("pool".to_owned(), "reserved".to_owned())].into(),
        tolerations: vec![json!({"key": "reserved", "operator": "Exists"})],
        labels: pod_labels("batch", "team-b"),
        queue_label: None,
        parallelism: None,
    };
    let write = admit(&fixture::view(&job), &other, &current(&job)).unwrap();
    send(&mut job, &write);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({"pool": "reserved", "zone": "a"}));
    assert_eq!(pod["tolerations"], json!([{"key": "reserved", "operator": "Exists"}]));
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"],
        "team-b"
    );
    let record = current(&job);
    assert_eq!(record.delta.labels, other.labels);
    assert_eq!((record.eviction, record.state), (None, State::Admitted));
}

#[test]
fn an_admission_without_a_plan_restores_the_template_as_the_user_wrote_it() {
    let mut job = running();
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let mut job = acknowledged(&job);
    let write = admit(&fixture::view(&job), &AdmissionPlan::default(), &current(&job)).unwrap();
    send(&mut job, &write);
    assert_eq!(job["spec"]["template"], fixture::waiting_job()["spec"]["template"]);
    assert!(write.record.delta.is_empty());
}

#[test]
fn an_admission_with_the_same_plan_again_changes_nothing_in_the_template() {
    let mut job = running();
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let mut job = acknowledged(&job);
    let template = job["spec"]["template"].clone();
    let write = admit(&fixture::view(&job), &plan(), &current(&job)).unwrap();
    let touched = serde_json::to_string(&write.patch).unwrap();
    send(&mut job, &write);
    assert_eq!(job["spec"]["template"], template);
    assert!(!touched.contains("/spec/template"), "{touched}");
    assert_eq!(write.record.delta, admitted().1.record.delta);
}

#[test]
fn a_value_that_the_user_put_over_ours_is_the_users() {
    let mut job = running();
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let job = with(&acknowledged(&job), |job| {
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"pool": "mine"});
    });
    let error = admit(&fixture::view(&job), &plan(), &current(&job)).unwrap_err();
    assert!(matches!(error, PatchError::Conflict { present, .. } if present == "mine"));
}

#[test]
fn the_users_toleration_stays_when_ours_of_the_same_meaning_goes() {
    let mut job = running();
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let mut job = with(&acknowledged(&job), |job| {
        let toleration = json!({"key": "spot", "operator": "Exists", "effect": "NoSchedule"});
        job["spec"]["template"]["spec"]["tolerations"] = json!([toleration, toleration]);
    });
    let write = admit(&fixture::view(&job), &AdmissionPlan::default(), &current(&job)).unwrap();
    send(&mut job, &write);
    assert_eq!(
        job["spec"]["template"]["spec"]["tolerations"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn a_job_that_slipped_past_the_webhook_is_suspended_labelled_and_noted() {
    let before = with(&fixture::waiting_job(), |job| {
        job["spec"]["suspend"] = json!(false);
        job["metadata"].as_object_mut().unwrap().remove("labels");
    });
    let mut job = before.clone();
    let write = suspend_late(&fixture::view(&job), &record(State::Admitted), Some("default")).unwrap();
    send(&mut job, &write);
    let expected = with(&before, |job| {
        job["spec"]["suspend"] = json!(true);
        job["metadata"]["labels"] = json!({QUEUE: "default"});
        job["metadata"]["annotations"] = json!({"sluice.internal/created-running": "true", RECORD: write.annotation});
    });
    assert_eq!(job, expected);
    assert_eq!(current(&job).state, State::Waiting);
    job["spec"]["suspend"] = json!(false);
    let again = suspend_late(&fixture::view(&job), &current(&job), None).unwrap();
    send(&mut job, &again);
    assert_eq!(
        job["spec"]["suspend"],
        json!(true),
        "somebody started it while it waited"
    );
    assert_eq!(current(&job).state, State::Waiting);
    assert!(matches!(
        suspend_late(&fixture::view(&running()), &record(State::Waiting), None).unwrap_err(),
        PatchError::Transition {
            from: State::Admitted,
            ..
        }
    ));
}

#[test]
fn only_a_suspended_job_with_a_start_time_has_one_to_clear() {
    let mut job = fixture::waiting_job();
    assert!(clear_start_time(&fixture::view(&job)).is_none());
    job["status"]["startTime"] = json!("2026-11-30T10:00:00Z");
    let patch = clear_start_time(&fixture::view(&job)).unwrap();
    let started = with(&job, |job| job["spec"]["suspend"] = json!(false));
    assert!(clear_start_time(&fixture::view(&started)).is_none());
    crate::apply::apply(&mut job, &patch).unwrap();
    assert!(job["status"].get("startTime").is_none());
}

#[test]
fn an_adoption_writes_the_record_and_that_its_owner_created_it_running() {
    let before = with(&fixture::waiting_job(), |job| job["spec"]["suspend"] = json!(false));
    let mut job = before.clone();
    let write = adopt(&fixture::view(&job), &record(State::Waiting), "default").unwrap();
    send(&mut job, &write);
    assert_eq!(
        job,
        with(
            &before,
            |job| job["metadata"]["annotations"] =
                json!({"sluice.internal/created-running": "true", RECORD: write.annotation})
        )
    );
    assert_eq!(current(&job).state, State::Admitted);
    assert!(adopt(&fixture::view(&job), &record(State::Waiting), "default").is_err());
}

#[test]
fn a_hold_marks_a_job_that_its_owner_suspended() {
    let before = with(&running(), |job| job["spec"]["suspend"] = json!(true));
    let mut job = before.clone();
    let write = hold(&fixture::view(&job), &current(&job), stop()).unwrap();
    send(&mut job, &write);
    let expected = with(&before, |job| {
        job["metadata"]["annotations"] = json!({"sluice.internal/hold": "true", RECORD: write.annotation});
    });
    assert_eq!(job, expected);
    let record = current(&job);
    assert_eq!(record.state, State::Held);
    assert!(record.eviction.as_ref().unwrap().started);
    assert_eq!(
        status::quota_return(&record, &fixture::view(&acknowledged(&job)).status),
        QuotaReturn::Returned
    );
}

#[test]
fn illegal_steps_are_refused_before_anything_is_sent() {
    let waiting = fixture::view(&fixture::waiting_job());
    assert!(matches!(
        evict(&waiting, &record(State::Admitted), stop()).unwrap_err(),
        PatchError::NoRecord(State::Evicting)
    ));
    let deactivated = with(&fixture::waiting_job(), |job| {
        let text = record(State::Deactivated).to_annotation().unwrap();
        job["metadata"]["annotations"] = json!({RECORD: text, DEACTIVATED: "RequeuingLimitExceeded"});
    });
    let error = admit(&fixture::view(&deactivated), &plan(), &record(State::Waiting)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a Job whose record is Deactivated cannot become Admitted"
    );
}

#[test]
fn a_job_that_no_api_server_has_seen_is_refused() {
    let bare = |key: &str| {
        with(&fixture::waiting_job(), |job| {
            job["metadata"].as_object_mut().unwrap().remove(key);
        })
    };
    for key in ["uid", "generation"] {
        let error = admit(&fixture::view(&bare(key)), &plan(), &record(State::Waiting)).unwrap_err();
        assert_eq!(error.to_string(), format!("the Job has no {key}"));
    }
}

#[test]
fn a_record_that_go_would_escape_is_guarded_by_the_version_of_the_whole_object() {
    let mut job = with(&fixture::waiting_job(), |job| {
        job["metadata"]["annotations"] = json!({RECORD: "a < b"});
    });
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    let raced = with(&job, |job| job["metadata"]["resourceVersion"] = json!("101"));
    assert!(refused(&raced, &write).contains("/metadata/resourceVersion"));
    send(&mut job, &write);
    assert_eq!(current(&job), write.record);
}

#[test]
fn a_copied_record_counts_for_nothing_and_is_written_over() {
    let copied = Record {
        uid: "another".into(),
        ..record(State::Deactivated)
    }
    .to_annotation()
    .unwrap();
    let mut job = with(&fixture::waiting_job(), |job| {
        job["metadata"]["annotations"] = json!({RECORD: copied});
    });
    let write = admit(&fixture::view(&job), &plan(), &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    assert_eq!(current(&job).uid, "1f0c8a5e-0001");
}

#[test]
fn pod_labels_leave_out_names_that_are_no_label_values() {
    let long = "a".repeat(64);
    assert_eq!(
        pod_labels("", &long).into_keys().collect::<Vec<_>>(),
        ["kueue.x-k8s.io/podset"]
    );
    assert_eq!(pod_labels("batch", "team.a").len(), 3);
    for (text, valid) in [
        ("", true),
        ("a", true),
        ("A_b.c-9", true),
        ("-a", false),
        ("a-", false),
        ("a/b", false),
    ] {
        assert_eq!(is_label_value(text), valid, "{text:?}");
    }
}

#[test]
fn keys_with_slashes_and_tildes_are_escaped_in_paths() {
    let mut job = fixture::waiting_job();
    let plan = AdmissionPlan {
        node_selector: [
            ("example.com/a~b".to_owned(), "x".to_owned()),
            ("zone".to_owned(), "a".to_owned()),
        ]
        .into(),
        ..AdmissionPlan::default()
    };
    job["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    let write = admit(&fixture::view(&job), &plan, &record(State::Waiting)).unwrap();
    send(&mut job, &write);
    assert_eq!(
        job["spec"]["template"]["spec"]["nodeSelector"],
        json!({"zone": "a", "example.com/a~b": "x"})
    );
    assert_eq!(write.record.delta.node_selector.len(), 1);
}
