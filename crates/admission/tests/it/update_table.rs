//! The decision table of `update`, row by row, and the ways in which a manifest is applied again.

use serde_json::{Value, json};
use sluice_admission::{Outcome, mutate_job, validate_job};

use crate::support::{BREAK_GLASS, SCHEDULER, operations, patched, response, update, warnings, world};

const RECORD: &str = "sluice.internal/admission";
const NOTE: &str = "sluice.internal/created-running";
const HOLD: &str = "sluice.internal/hold";
const DEACTIVATED: &str = "sluice.internal/deactivated";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A Job as stored, built up from one that waits in queue batch of team-a and was created with `suspend: true`.
#[derive(Clone)]
struct Stored(Value);

impl Stored {
    fn waiting() -> Self {
        Self(json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "train", "namespace": "team-a", "uid": "job-uid", "resourceVersion": "100",
                "labels": {QUEUE: "batch"},
                "annotations": {"note": "mine"}
            },
            "spec": {
                "suspend": true,
                "template": {
                    "metadata": {"labels": {"app": "train"}},
                    "spec": {
                        "nodeSelector": {"disk": "ssd"},
                        "tolerations": [{"key": "own", "operator": "Exists"}],
                        "containers": [{"name": "main", "image": "registry.example.com/train:1"}]
                    }
                }
            }
        }))
    }

    /// Admitted and running on a flavor with a node label, a toleration and a pod label.
    fn running() -> Self {
        let mut job = Self::waiting().recorded("Admitted").with("/spec/suspend", json!(false));
        job = job.with(
            "/spec/template/spec/nodeSelector",
            json!({"disk": "ssd", "pool": "spot"}),
        );
        job = job.with(
            "/spec/template/spec/tolerations",
            json!([{"key": "own", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}]),
        );
        job.with(
            "/spec/template/metadata/labels",
            json!({"app": "train", "kueue.x-k8s.io/podset": "main"}),
        )
    }

    /// Held by its owner while it ran; what the admission put into the template is still there.
    fn held() -> Self {
        Self::running()
            .created_running()
            .recorded("Held")
            .with("/spec/suspend", json!(true))
            .annotated(HOLD, "true")
    }

    fn recorded(self, state: &str) -> Self {
        let record = json!({
            "v": 1, "term": 3, "uid": "job-uid", "state": state, "clusterQueue": "cq", "localQueue": "batch",
            "delta": {
                "nodeSelector": {"pool": "spot"},
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "labels": {"kueue.x-k8s.io/podset": "main"}
            }
        });
        self.annotated(RECORD, &record.to_string())
    }

    fn created_running(self) -> Self {
        self.annotated(NOTE, "true")
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = json!(value);
        self
    }

    fn finished(mut self) -> Self {
        self.0["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        self
    }

    fn in_namespace(self, namespace: &str) -> Self {
        self.with("/metadata/namespace", json!(namespace))
    }

    fn with(mut self, pointer: &str, value: Value) -> Self {
        *self.0.pointer_mut(pointer).unwrap() = value;
        self
    }

    fn without(mut self, key: &str) -> Self {
        for map in ["labels", "annotations"] {
            self.0["metadata"][map].as_object_mut().unwrap().remove(key);
        }
        self
    }

    /// What the API server sees when the owner's manifest replaces the Job: its own fields and nothing of ours.
    fn replaced_by_its_manifest(self, suspend: bool) -> Self {
        let mut job = self
            .without(RECORD)
            .without(NOTE)
            .without(HOLD)
            .with("/spec/suspend", json!(suspend));
        job = job.with("/spec/template/spec/nodeSelector", json!({"disk": "ssd"}));
        job = job.with(
            "/spec/template/spec/tolerations",
            json!([{"key": "own", "operator": "Exists"}]),
        );
        job.with("/spec/template/metadata/labels", json!({"app": "train"}))
    }

    /// The same with a manifest that names no tolerations, no node selector, no label and no annotation at all.
    fn replaced_by_a_bare_manifest(self, suspend: bool) -> Self {
        let mut job = self.replaced_by_its_manifest(suspend);
        job.0["spec"]["template"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("tolerations");
        job.0["spec"]["template"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("nodeSelector");
        job.0["metadata"].as_object_mut().unwrap().remove("labels");
        job.0["metadata"].as_object_mut().unwrap().remove("annotations");
        job
    }
}

/// What is stored after the write, and the warnings.
fn write(old: &Stored, new: &Stored) -> (Value, String) {
    write_as("jane", old, new)
}

fn write_as(username: &str, old: &Stored, new: &Stored) -> (Value, String) {
    let reply = mutate_job(&update(username, &old.0, &new.0), &world());
    let response = response(&reply);
    assert_eq!(response["allowed"], true);
    let stored = patched(&new.0, &response);
    let warnings = warnings(&response);
    for warning in &warnings {
        assert!(warning.len() <= 256, "{} bytes: {warning}", warning.len());
    }
    // The API server may ask again; the second answer must find nothing to do.
    let again = mutate_job(&update(username, &old.0, &stored), &world());
    assert_eq!(patched(&stored, &self::response(&again)), stored);
    (stored, warnings.join("\n"))
}

/// The write passes as it is, without a patch.
#[track_caller]
fn passes(old: &Stored, new: &Stored) -> String {
    let (stored, warnings) = write(old, new);
    assert_eq!(stored, new.0);
    warnings
}

/// The write leaves the Job as it was, and says so.
#[track_caller]
fn changes_nothing(old: &Stored, new: &Stored) -> String {
    let (stored, warnings) = write(old, new);
    assert_eq!(stored, old.0);
    assert_ne!(warnings, "");
    warnings
}

#[test]
fn unsuspending_a_waiting_job_leaves_it_waiting() {
    let old = Stored::waiting();
    let warnings = changes_nothing(&old, &old.clone().with("/spec/suspend", json!(false)));
    assert_eq!(
        warnings,
        "spec.suspend stays true: the Job waits in LocalQueue \"batch\", and Sluice starts it when quota allows"
    );
}

#[test]
fn a_write_without_suspend_leaves_a_waiting_job_waiting() {
    let old = Stored::waiting();
    let mut new = old.clone();
    new.0["spec"].as_object_mut().unwrap().remove("suspend");
    changes_nothing(&old, &new);
}

#[test]
fn unsuspending_a_job_whose_queue_is_missing_says_which_queue() {
    let old = Stored::waiting().with("/metadata/labels", json!({QUEUE: "typo"}));
    let warnings = changes_nothing(&old, &old.clone().with("/spec/suspend", json!(false)));
    assert!(
        warnings.contains("LocalQueue \"typo\" does not exist in namespace \"team-a\""),
        "{warnings}"
    );
}

#[test]
fn a_deactivated_job_stays_deactivated() {
    let old = Stored::waiting().recorded("Deactivated").annotated(DEACTIVATED, "x");
    let warnings = changes_nothing(&old, &old.clone().with("/spec/suspend", json!(false)));
    assert!(
        warnings.contains("deactivated") && warnings.contains(DEACTIVATED),
        "{warnings}"
    );
    let warnings = changes_nothing(&old, &old.clone().without(RECORD).without(DEACTIVATED));
    assert!(warnings.contains("stays deactivated"), "{warnings}");
}

#[test]
fn removing_the_annotation_of_a_deactivation_puts_the_job_back() {
    let old = Stored::waiting().recorded("Deactivated").annotated(DEACTIVATED, "x");
    let new = old.clone().without(DEACTIVATED);
    assert_eq!(passes(&old, &new), "");
    let warnings = changes_nothing(&new, &new.clone().with("/spec/suspend", json!(false)));
    assert!(warnings.contains("waits in LocalQueue"), "{warnings}");
}

#[test]
fn a_manifest_applied_again_does_not_raise_the_pods_of_a_job_admitted_with_fewer() {
    let record = json!({
        "v": 1, "term": 3, "uid": "job-uid", "state": "Admitted",
        "delta": {"parallelism": 10, "completions": 10}
    });
    let pods = |job: Stored, parallelism: i64, completions: i64| {
        let Stored(mut job) = job;
        job["spec"]["parallelism"] = json!(parallelism);
        job["spec"]["completions"] = json!(completions);
        Stored(job)
    };
    let running = Stored::running().annotated(RECORD, &record.to_string());
    let old = pods(running.clone(), 3, 3);
    let warnings = changes_nothing(&old, &pods(running.clone(), 10, 10));
    assert!(warnings.contains("fewer than the 10"), "{warnings}");
    assert_eq!(
        passes(&old, &pods(running.clone(), 2, 2)),
        "",
        "fewer is its owner's to say"
    );
    let all = pods(Stored::running(), 3, 3);
    assert_eq!(
        passes(&all, &pods(Stored::running(), 10, 10)),
        "",
        "a policy refuses that"
    );
}

#[test]
fn the_scheduler_and_break_glass_users_write_as_they_please() {
    let old = Stored::running();
    let new = old.clone().replaced_by_a_bare_manifest(true);
    for user in [SCHEDULER, BREAK_GLASS] {
        let (stored, warnings) = write_as(user, &old, &new);
        assert_eq!(stored, new.0);
        assert_eq!(warnings, "");
    }
}

#[test]
fn an_owner_may_edit_the_template_of_a_waiting_job() {
    let old = Stored::waiting();
    let new = old
        .clone()
        .with("/spec/template/spec/nodeSelector", json!({"zone": "a"}))
        .with("/spec/template/spec/tolerations", json!([]))
        .with("/spec/template/metadata/labels", json!({"app": "other"}));
    assert_eq!(passes(&old, &new), "");
}

#[test]
fn what_the_last_admission_put_into_a_waiting_template_stays_and_the_owners_edit_passes() {
    let old = Stored::running().recorded("Waiting").with("/spec/suspend", json!(true));
    let new = old
        .clone()
        .with("/spec/template/spec/nodeSelector", json!({"zone": "a"}))
        .with(
            "/spec/template/spec/tolerations",
            json!([{"key": "new", "operator": "Exists"}]),
        )
        .with("/spec/template/metadata/labels", json!({"app": "other"}));
    let (stored, warnings) = write(&old, &new);
    let template = &stored["spec"]["template"];
    assert_eq!(template["spec"]["nodeSelector"], json!({"zone": "a", "pool": "spot"}));
    assert_eq!(
        template["spec"]["tolerations"],
        json!([{"key": "new", "operator": "Exists"}, {"key": "spot", "operator": "Exists"}])
    );
    assert_eq!(
        template["metadata"]["labels"],
        json!({"app": "other", "kueue.x-k8s.io/podset": "main"})
    );
    assert_eq!(
        warnings,
        "in the pod template, nodeSelector, tolerations and labels stay as stored: Sluice put it there, and takes it out when it admits the Job again"
    );
}

#[test]
fn an_owner_who_suspends_a_job_that_was_created_running_holds_it() {
    let old = Stored::running().created_running();
    let new = old.clone().with("/spec/suspend", json!(true));
    let (stored, warnings) = write(&old, &new);
    assert_eq!(stored, new.annotated(HOLD, "true").0);
    assert!(
        warnings.starts_with("the Job is held: it is stopped and gives its quota back"),
        "{warnings}"
    );
}

#[test]
fn suspending_a_running_job_that_was_created_suspended_is_a_manifest_applied_again() {
    let old = Stored::running();
    let warnings = changes_nothing(&old, &old.clone().with("/spec/suspend", json!(true)));
    assert!(
        warnings.contains("set the annotation sluice.internal/hold: \"true\" as well"),
        "{warnings}"
    );
}

#[test]
fn a_running_job_that_was_created_suspended_is_held_by_suspend_and_annotation_together() {
    let old = Stored::running();
    let new = old.clone().with("/spec/suspend", json!(true)).annotated(HOLD, "true");
    assert!(passes(&old, &new).contains("the Job is held"));
}

#[test]
fn a_running_job_whose_record_cannot_be_read_is_protected_as_if_it_could() {
    let old = Stored::running().annotated(RECORD, "{\"v\":9,\"form\":\"of a later version\"}");
    changes_nothing(&old, &old.clone().with("/spec/suspend", json!(true)));
    changes_nothing(
        &old,
        &old.clone().replaced_by_a_bare_manifest(false).annotated("note", "mine"),
    );
}

#[test]
fn a_record_of_another_job_protects_nothing() {
    let old = Stored::running().with("/metadata/uid", json!("another"));
    let new = old.clone().with("/spec/suspend", json!(true));
    assert_eq!(
        passes(&old, &new),
        "the Job is stopped and waits in LocalQueue \"batch\""
    );
}

#[test]
fn suspending_a_job_that_nobody_admitted_queues_it_or_holds_it_as_it_was_created() {
    let old = Stored::waiting().with("/spec/suspend", json!(false));
    let new = old.clone().with("/spec/suspend", json!(true));
    assert_eq!(
        passes(&old, &new),
        "the Job is stopped and waits in LocalQueue \"batch\""
    );

    let (old, new) = (old.created_running(), new.created_running());
    assert_eq!(write(&old, &new).0, new.annotated(HOLD, "true").0);
}

#[test]
fn an_owner_who_unsuspends_a_held_job_releases_it_into_its_queue() {
    let old = Stored::held();
    let (stored, warnings) = write(&old, &old.clone().with("/spec/suspend", json!(false)));
    assert_eq!(stored, old.without(HOLD).0);
    assert!(
        warnings.contains("released from its hold and waits in LocalQueue \"batch\""),
        "{warnings}"
    );
}

#[test]
fn removing_the_hold_annotation_releases_a_held_job() {
    let old = Stored::held();
    assert_eq!(passes(&old, &old.clone().without(HOLD)), "");
}

#[test]
fn replacing_a_held_job_by_its_manifest_does_not_release_it() {
    let old = Stored::held();
    for suspend in [true, false] {
        let warnings = changes_nothing(&old, &old.clone().replaced_by_its_manifest(suspend));
        assert!(warnings.starts_with("the Job stays held"), "{warnings}");
    }
}

#[test]
fn replacing_a_running_or_waiting_job_by_its_manifest_changes_nothing_whatever_suspend_says() {
    let waiting_again = || Stored::running().recorded("Waiting").with("/spec/suspend", json!(true));
    for old in [Stored::running(), waiting_again(), waiting_again().created_running()] {
        for suspend in [true, false] {
            changes_nothing(&old, &old.clone().replaced_by_its_manifest(suspend));
        }
    }
    let old = Stored::running().created_running();
    changes_nothing(&old, &old.clone().replaced_by_its_manifest(false));
}

#[test]
fn replacing_a_running_job_by_a_bare_manifest_keeps_all_that_its_admission_rests_on() {
    let old = Stored::running();
    for suspend in [true, false] {
        let (stored, warnings) = write(&old, &old.clone().replaced_by_a_bare_manifest(suspend));
        let mut expected = old.clone().without("note").0;
        expected["metadata"]["labels"] = json!({QUEUE: "batch"});
        assert_eq!(stored, expected);
        assert!(
            warnings.contains("nodeSelector, tolerations and labels stay as stored: the Job runs"),
            "{warnings}"
        );
    }
}

#[test]
fn server_side_apply_that_takes_over_the_tolerations_of_a_running_job_changes_nothing() {
    let old = Stored::running();
    let own = old.clone().with(
        "/spec/template/spec/tolerations",
        json!([{"key": "own", "operator": "Exists"}]),
    );
    let warnings = changes_nothing(&old, &own);
    assert_eq!(
        warnings,
        "in the pod template, tolerations stay as stored: the Job runs, and the template of a running Job cannot change"
    );
}

#[test]
fn an_edit_of_a_running_template_outside_of_scheduling_is_left_to_the_api_server_to_refuse() {
    let old = Stored::running();
    let new = old.clone().with("/spec/template/spec/containers", json!([]));
    assert_eq!(passes(&old, &new), "");
}

#[test]
fn empty_and_absent_scheduling_fields_are_the_same() {
    let mut old = Stored::running().with("/spec/template/spec/tolerations", json!([]));
    old = old.with("/spec/template/spec/nodeSelector", json!({}));
    let mut new = old.clone();
    new.0["spec"]["template"]["spec"]
        .as_object_mut()
        .unwrap()
        .remove("tolerations");
    new.0["spec"]["template"]["spec"]["nodeSelector"] = Value::Null;
    assert_eq!(passes(&old, &new), "");
}

#[test]
fn the_record_and_the_note_cannot_be_forged_changed_or_removed() {
    let waiting = Stored::waiting();
    changes_nothing(&waiting, &waiting.clone().recorded("Admitted"));
    changes_nothing(&waiting, &waiting.clone().created_running());
    let running = Stored::running().created_running();
    changes_nothing(&running, &running.clone().annotated(RECORD, "{}"));
    changes_nothing(&running, &running.clone().annotated(NOTE, "false"));
    let warnings = changes_nothing(&running, &running.clone().without(RECORD).without(NOTE));
    assert_eq!(
        warnings,
        "sluice.internal/admission and sluice.internal/created-running stay as stored: only Sluice writes them"
    );
}

#[test]
fn a_finished_job_stays_as_it_finished() {
    let old = Stored::running().finished();
    for suspend in [true, false] {
        changes_nothing(&old, &old.clone().replaced_by_its_manifest(suspend));
    }
    let never_ran = Stored::waiting().finished();
    changes_nothing(&never_ran, &never_ran.clone().with("/spec/suspend", json!(false)));
}

#[test]
fn a_lost_queue_label_comes_back_in_an_opted_in_namespace() {
    for old in [Stored::waiting(), Stored::running()] {
        let warnings = changes_nothing(&old, &old.clone().without(QUEUE));
        assert!(
            warnings.contains("the label kueue.x-k8s.io/queue-name stays \"batch\""),
            "{warnings}"
        );
        changes_nothing(&old, &old.clone().with("/metadata/labels", json!({QUEUE: ""})));
    }
}

#[test]
fn a_waiting_job_moves_to_another_queue_and_is_told_if_that_is_missing() {
    let old = Stored::waiting();
    assert_eq!(
        passes(&old, &old.clone().with("/metadata/labels", json!({QUEUE: "default"}))),
        ""
    );
    let warnings = passes(&old, &old.clone().with("/metadata/labels", json!({QUEUE: "typo"})));
    assert!(warnings.contains("LocalQueue \"typo\" does not exist"), "{warnings}");
}

#[test]
fn a_waiting_job_leaves_sluice_with_its_label_where_the_namespace_did_not_opt_in() {
    let old = Stored::waiting().in_namespace("web");
    assert!(passes(&old, &old.clone().without(QUEUE)).contains("leaves its queue and stays suspended"));

    // Not in the same write as it starts: what is stored still waits in a queue.
    let (stored, warnings) = write(&old, &old.clone().without(QUEUE).with("/spec/suspend", json!(false)));
    assert_eq!(stored, old.clone().without(QUEUE).0);
    assert!(warnings.contains("spec.suspend stays true"), "{warnings}");

    let left = old.without(QUEUE);
    assert_eq!(passes(&left, &left.clone().with("/spec/suspend", json!(false))), "");
}

#[test]
fn a_running_job_keeps_its_queue_label_everywhere() {
    let old = Stored::running().in_namespace("web");
    let warnings = changes_nothing(&old, &old.clone().without(QUEUE));
    assert!(warnings.contains("runs on that queue's quota"), "{warnings}");
}

#[test]
fn a_suspended_job_that_gets_a_queue_label_waits_even_if_it_is_unsuspended_by_the_same_write() {
    let old = Stored::waiting().in_namespace("web").without(QUEUE);
    let new = old.clone().with("/metadata/labels", json!({QUEUE: "batch"}));
    assert_eq!(passes(&old, &new), "");
    let (stored, warnings) = write(&old, &new.clone().with("/spec/suspend", json!(false)));
    assert_eq!(stored, new.0);
    assert!(warnings.contains("waits in LocalQueue \"batch\""), "{warnings}");
}

#[test]
fn a_running_job_that_gets_a_queue_label_is_left_to_the_scheduler() {
    let old = Stored::waiting()
        .in_namespace("web")
        .without(QUEUE)
        .with("/spec/suspend", json!(false));
    assert_eq!(
        passes(&old, &old.clone().with("/metadata/labels", json!({QUEUE: "batch"}))),
        ""
    );
}

#[test]
fn jobs_that_are_not_managed_are_none_of_our_business() {
    let old = Stored::waiting().in_namespace("web").without(QUEUE);
    let new = old.clone().with("/spec/suspend", json!(false)).recorded("Admitted");
    assert_eq!(passes(&old, &new), "");
}

#[test]
fn a_job_being_deleted_passes_whatever_happens_to_it() {
    for old in [Stored::waiting(), Stored::running(), Stored::held()] {
        let mut new = old.clone().replaced_by_a_bare_manifest(true);
        new.0["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        let mut stored = old;
        stored.0["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        assert_eq!(passes(&stored, &new), "");
    }
}

#[test]
fn edits_of_finalizers_owners_and_status_pass_untouched() {
    for old in [Stored::waiting(), Stored::running(), Stored::held()] {
        let mut new = old.clone();
        new.0["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        new.0["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]);
        new.0["status"] = json!({"active": 1});
        assert_eq!(passes(&old, &new), "");
    }
}

#[test]
fn a_malformed_queue_name_is_refused_with_the_field_and_the_reason() {
    let old = Stored::waiting();
    let new = old.clone().with("/metadata/labels", json!({QUEUE: "Team_A"}));
    let answer = response(&validate_job(&update("jane", &old.0, &new.0), &world()));
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["code"], 422);
    assert_eq!(answer["status"]["reason"], "Invalid");
    assert_eq!(answer["status"]["details"]["kind"], "Job");
    assert_eq!(
        answer["status"]["details"]["causes"][0]["field"],
        "metadata.labels[kueue.x-k8s.io/queue-name]"
    );
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("\"Team_A\" is not the name of a LocalQueue: \"T\" is not allowed"),
        "{message}"
    );
}

#[test]
fn a_malformed_queue_name_that_is_stored_already_blocks_nothing() {
    let old = Stored::waiting().with("/metadata/labels", json!({QUEUE: "Team_A"}));
    let new = old.clone().annotated("note", "other");
    let reply = validate_job(&update("jane", &old.0, &new.0), &world());
    assert_eq!(reply.decision.outcome, Outcome::Untouched);
    assert_eq!(operations(&response(&reply)), Vec::<Value>::new());
}

#[test]
fn a_malformed_queue_name_on_a_job_being_deleted_or_left_alone_blocks_nothing() {
    let old = Stored::waiting();
    let mut deleted = old.clone().with("/metadata/labels", json!({QUEUE: "Team_A"}));
    deleted.0["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
    let foreign = {
        let mut job = old.clone().with("/metadata/labels", json!({QUEUE: "Team_A"}));
        job.0["spec"]["managedBy"] = json!("example.com/other");
        job
    };
    for new in [deleted, foreign] {
        let reply = validate_job(&update("jane", &old.0, &new.0), &world());
        assert_eq!(reply.decision.outcome, Outcome::Untouched);
    }
}
