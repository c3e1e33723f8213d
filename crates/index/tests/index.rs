//! The index from outside: objects in, patches out, applied to JSON Jobs as the API server would apply them.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod tallies;

use cluster::Cluster;
use serde_json::json;
use sluice_index::{Answer, Happening, WriteKind};

#[test]
fn a_waiting_job_is_admitted_by_one_patch_that_starts_it_and_writes_the_record() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    let writes = cluster.run();
    assert_eq!(writes, [("a".to_owned(), WriteKind::Admit)]);
    let job = cluster.job("a");
    assert_eq!(job["spec"]["suspend"], false);
    let record = cluster.record("a");
    assert_eq!(record["state"], "Admitted");
    assert_eq!(record["term"], 7);
    assert_eq!(record["clusterQueue"], "cq");
    assert_eq!(record["podSets"][0]["count"], 2);
    assert_eq!(record["podSets"][0]["usage"]["cpu"], "2");
    assert_eq!(record["resourceVersions"]["clusterQueue"], "11");
    assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], json!({"pool": "blue"}));
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"],
        "cq"
    );
    assert_eq!(job["spec"]["template"]["spec"]["unknown"], "kept");
}

#[test]
fn a_job_that_does_not_fit_waits_until_one_before_it_finishes() {
    let mut cluster = Cluster::with_quota(3);
    cluster.create("a", 2);
    cluster.create("b", 2);
    assert_eq!(cluster.run().len(), 1);
    assert_eq!(cluster.reserved(), 2000);
    assert!(cluster.why("b").contains("cpu"), "{}", cluster.why("b"));
    cluster.finish("a");
    assert_eq!(cluster.run(), [("b".to_owned(), WriteKind::Admit)]);
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn no_more_is_decided_than_can_soon_be_written_so_that_a_lowered_quota_still_counts() {
    let mut cluster = Cluster::with_quota(10);
    for number in 0..10 {
        cluster.create(&format!("job-{number}"), 1);
    }
    let now = cluster.now();
    cluster.index.pass(now, 4);
    assert_eq!(cluster.index.backlog_len(), 4);
    cluster.set_quota(5);
    assert_eq!(cluster.run().len(), 5);
    assert_eq!(cluster.reserved(), 5000);
}

#[test]
fn what_was_recorded_is_decided_again_by_a_fresh_engine() {
    let mut cluster = Cluster::with_quota(3);
    cluster.create("a", 2);
    cluster.create("b", 2);
    cluster.run();
    cluster.end_reign();
    cluster.set_quota(4);
    cluster.begin_reign(8);
    assert_eq!(cluster.run().len(), 1);
    cluster.replay();
}

#[test]
fn a_standby_decides_nothing_and_follows() {
    let mut cluster = Cluster::with_quota(4);
    cluster.end_reign();
    cluster.create("a", 2);
    assert!(cluster.run().is_empty());
    cluster.begin_reign(8);
    assert_eq!(cluster.run().len(), 1);
    assert_eq!(cluster.record("a")["term"], 8);
}

#[test]
fn a_write_of_which_nothing_is_known_keeps_its_quota_and_is_sent_again() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let write = cluster.next_write().unwrap();
    cluster.answer(&write, Answer::Unknown(Some(Box::new(cluster.view("a")))));
    assert_eq!(cluster.reserved(), 2000, "the first copy may still land");
    assert!(cluster.next_write().is_none(), "not before the pause");
    cluster.pass_time(10_000);
    let again = cluster.next_write().unwrap();
    assert_eq!(again.kind, WriteKind::Admit);
    cluster.carry_out(&again);
    assert_eq!(cluster.reserved(), 2000);
    assert!(cluster.run().is_empty());
}

#[test]
fn a_write_that_landed_although_its_answer_was_lost_is_confirmed_by_the_read() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let write = cluster.next_write().unwrap();
    cluster.store(&write);
    cluster.answer(&write, Answer::Unknown(Some(Box::new(cluster.view("a")))));
    cluster.pass_time(10_000);
    assert!(cluster.run().is_empty(), "it is not sent again");
    assert!(
        cluster
            .happened()
            .iter()
            .any(|what| matches!(what, Happening::Admitted { .. }))
    );
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_watch_event_that_shows_the_write_comes_before_its_answer_without_harm() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let write = cluster.next_write().unwrap();
    cluster.store(&write);
    cluster.event("a");
    assert_eq!(cluster.reserved(), 2000);
    cluster.answer(&write, Answer::Unknown(None));
    assert!(
        cluster
            .happened()
            .iter()
            .any(|what| matches!(what, Happening::Admitted { .. }))
    );
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_failed_guard_undoes_the_assumption_and_the_job_is_decided_on_anew() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let write = cluster.next_write().unwrap();
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(1));
    cluster.answer(&write, Answer::GuardFailed(Some(Box::new(cluster.view("a")))));
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
    assert_eq!(cluster.reserved(), 1000);
}

#[test]
fn a_job_that_is_gone_when_its_write_arrives_gives_its_quota_back_once_it_has_no_pods() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let write = cluster.next_write().unwrap();
    cluster.answer(&write, Answer::GuardFailed(None));
    assert_eq!(cluster.reserved(), 0);
}

#[test]
fn a_refused_write_sets_the_job_aside_with_growing_pauses_and_its_strict_queue_goes_on() {
    let mut cluster = Cluster::strict(2);
    cluster.create("a", 2);
    cluster.create("b", 2);
    let refused = cluster.next_write().unwrap();
    assert_eq!(&*refused.name, "a");
    cluster.answer(
        &refused,
        Answer::Refused {
            message: "not on Fridays".into(),
        },
    );
    assert!(cluster.why("a").contains("not on Fridays"), "{}", cluster.why("a"));
    assert_eq!(cluster.run(), [("b".to_owned(), WriteKind::Admit)]);
    cluster.finish("b");
    assert!(cluster.run().is_empty());
    cluster.pass_time(1_500);
    let again = cluster.next_write().unwrap();
    assert_eq!(&*again.name, "a");
    cluster.answer(
        &again,
        Answer::Refused {
            message: "not on Fridays".into(),
        },
    );
    cluster.pass_time(1_500);
    assert!(cluster.next_write().is_none(), "the second pause is longer");
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(1));
    cluster.event("a");
    assert_eq!(
        cluster.run().len(),
        1,
        "an edit by its owner earns a new attempt at once"
    );
}

#[test]
fn an_event_older_than_what_was_seen_changes_nothing() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let old = cluster.view("a");
    cluster.run();
    assert!(!cluster.index.set_job(old, cluster.now()));
    assert_eq!(cluster.reserved(), 2000);
    assert!(cluster.run().is_empty());
}

#[test]
fn a_deleted_running_job_is_charged_until_its_pods_are_gone_and_blocks_no_job_of_its_name() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    cluster.run();
    cluster.delete("a");
    assert_eq!(cluster.reserved(), 2000);
    cluster.create("a", 2);
    assert_eq!(
        cluster.run(),
        [("a".to_owned(), WriteKind::Admit)],
        "the new Job of that name starts"
    );
    assert_eq!(cluster.reserved(), 4000);
    let probe = cluster.next_probe().unwrap();
    cluster.index.probed(probe.unit, probe.epoch, Some(true), cluster.now());
    assert_eq!(cluster.reserved(), 4000);
    cluster.pass_time(5_000);
    let probe = cluster.next_probe().unwrap();
    cluster
        .index
        .probed(probe.unit, probe.epoch, Some(false), cluster.now());
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_waiting_job_that_is_deleted_is_forgotten_at_once() {
    let mut cluster = Cluster::with_quota(1);
    cluster.create("a", 2);
    cluster.run();
    cluster.delete("a");
    assert_eq!(cluster.pending(), 0);
    assert!(cluster.next_probe().is_none());
}

#[test]
fn a_job_that_slipped_past_the_webhook_is_suspended_and_queued() {
    let mut cluster = Cluster::with_quota(4);
    cluster.opt_in();
    cluster.pass_time(60_000);
    cluster.create_running("a", 2);
    assert_eq!(cluster.run()[0], ("a".to_owned(), WriteKind::SuspendLate));
    let job = cluster.job("a");
    assert_eq!(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "default");
    assert_eq!(
        job["metadata"]["annotations"]["sluice.internal/created-running"],
        "true"
    );
}

#[test]
fn a_job_that_ran_when_its_namespace_opted_in_is_charged_and_never_suspended() {
    let mut cluster = Cluster::with_quota(1);
    cluster.create_running("a", 3);
    cluster.run();
    assert_eq!(cluster.reserved(), 0, "not managed yet");
    cluster.pass_time(60_000);
    cluster.opt_in();
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Adopt)]);
    assert_eq!(cluster.job("a")["spec"]["suspend"], false);
    assert_eq!(cluster.reserved(), 3000, "even over quota");
    cluster.create("b", 1);
    assert!(cluster.run().is_empty(), "usage over quota blocks what comes later");
}

#[test]
fn an_owner_who_suspends_a_running_job_holds_it_and_it_is_queued_again_when_the_hold_is_gone() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.run();
    cluster.start("a");
    cluster.edit("a", |job| {
        job["spec"]["suspend"] = json!(true);
        // The webhook marks it.
        job["metadata"]["annotations"]["sluice.internal/hold"] = json!("true");
    });
    cluster.event("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Hold)]);
    assert_eq!(cluster.record("a")["state"], "Held");
    assert_eq!(
        cluster.job("a")["metadata"]["annotations"]["sluice.internal/hold"],
        "true"
    );
    assert_eq!(cluster.reserved(), 2000, "its pods are still there");
    cluster.stopped("a");
    assert_eq!(cluster.reserved(), 0);
    assert!(cluster.run().is_empty(), "it is held");
    assert!(cluster.why("a").contains("hold"), "{}", cluster.why("a"));
    cluster.edit("a", |job| {
        job["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("sluice.internal/hold");
    });
    cluster.event("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
}

#[test]
fn a_suspension_that_its_owner_took_back_before_it_was_seen_is_an_eviction_and_no_hold() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.run();
    cluster.start("a");
    cluster.edit("a", |job| {
        job["spec"]["suspend"] = json!(true);
        job["metadata"]["annotations"]["sluice.internal/created-running"] = json!("true");
    });
    cluster.event("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Evict)]);
    cluster.stopped("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
}

#[test]
fn a_waiting_job_with_a_record_that_somebody_started_is_suspended_again() {
    let mut cluster = Cluster::with_quota(2);
    cluster.opt_in();
    cluster.pass_time(60_000);
    cluster.create_running("a", 2);
    cluster.set_quota(0);
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::SuspendLate)]);
    cluster.edit("a", |job| job["spec"]["suspend"] = json!(false));
    cluster.event("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::SuspendLate)]);
    assert_eq!(cluster.record("a")["state"], "Waiting");
}

#[test]
fn a_start_time_that_a_stop_left_behind_is_cleared_before_the_next_admission() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.edit_status("a", |status| status["startTime"] = json!("2026-11-30T10:00:00Z"));
    cluster.event("a");
    let write = cluster.next_write().unwrap();
    assert!(write.status_patch.is_some());
    assert_eq!(write.kind, WriteKind::Admit);
}

#[test]
fn a_running_job_that_grows_is_evicted_and_queued_with_its_new_size() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    cluster.run();
    cluster.start("a");
    cluster.edit("a", |job| {
        job["spec"]["parallelism"] = json!(3);
        job["spec"]["completions"] = json!(3);
    });
    cluster.event("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Evict)]);
    assert_eq!(cluster.record("a")["state"], "Evicting");
    assert_eq!(cluster.reserved(), 2000);
    cluster.stopped("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
    assert_eq!(cluster.reserved(), 3000);
}

#[test]
fn pods_that_succeed_early_give_their_quota_back_early() {
    let mut cluster = Cluster::with_quota(3);
    cluster.create("a", 3);
    cluster.create("b", 2);
    cluster.run();
    cluster.edit_status("a", |status| {
        *status = json!({"active": 1, "succeeded": 2, "startTime": "2026-11-30T10:00:00Z"});
    });
    cluster.event("a");
    assert_eq!(cluster.run(), [("b".to_owned(), WriteKind::Admit)]);
    assert_eq!(cluster.reserved(), 3000);
}

#[test]
fn an_admission_of_an_ended_term_that_appears_after_the_barrier_is_revoked() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    let late = cluster.next_write().unwrap();
    cluster.end_reign();
    cluster.begin_reign(8);
    cluster.store(&late);
    cluster.event("a");
    assert_eq!(cluster.run()[0], ("a".to_owned(), WriteKind::Evict));
    assert_eq!(cluster.record("a")["eviction"]["reason"], "StaleTerm");
}

#[test]
fn admissions_of_an_earlier_term_that_the_barrier_shows_are_kept() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    cluster.run();
    let mut restarted = cluster.restart(8);
    assert!(restarted.run().is_empty());
    assert_eq!(restarted.reserved(), 2000);
}

#[test]
fn a_restart_rebuilds_usage_and_order_from_the_objects_alone() {
    let mut cluster = Cluster::with_quota(3);
    for name in ["a", "b", "c", "d"] {
        cluster.create(name, 2);
    }
    cluster.run();
    cluster.finish("a");
    cluster.run();
    let (reserved, pending) = (cluster.reserved(), cluster.pending());
    let mut restarted = cluster.restart(8);
    assert_eq!((restarted.reserved(), restarted.pending()), (reserved, pending));
    assert!(restarted.run().is_empty());
    restarted.finish("b");
    assert_eq!(restarted.run(), [("c".to_owned(), WriteKind::Admit)]);
}

#[test]
fn a_record_copied_from_another_job_counts_for_nothing() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.run();
    let record = cluster.job("a")["metadata"]["annotations"]["sluice.internal/admission"].clone();
    cluster.create("b", 1);
    cluster.edit("b", |job| {
        job["metadata"]["annotations"]["sluice.internal/admission"] = record.clone();
    });
    cluster.event("b");
    assert_eq!(cluster.reserved(), 2000);
    assert!(cluster.run().is_empty());
}

#[test]
fn a_running_job_with_an_unreadable_record_is_charged_from_its_template_and_reported() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    cluster.run();
    cluster.edit("a", |job| {
        job["metadata"]["annotations"]["sluice.internal/admission"] = json!("{broken");
    });
    cluster.event("a");
    assert_eq!(cluster.reserved(), 2000);
    assert!(cluster.run().is_empty(), "it is never suspended");
    assert!(
        cluster
            .happened()
            .iter()
            .any(|what| matches!(what, Happening::UnreadableRecord { .. }))
    );
}

#[test]
fn a_job_that_asks_for_what_is_not_supported_waits_with_that_reason_and_the_queue_goes_on() {
    let mut cluster = Cluster::strict(2);
    cluster.create("a", 1);
    cluster.edit("a", |job| {
        job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = json!("true");
    });
    cluster.event("a");
    cluster.create("b", 1);
    assert_eq!(cluster.run(), [("b".to_owned(), WriteKind::Admit)]);
    assert!(cluster.why("a").contains("elastic-job"), "{}", cluster.why("a"));
}

#[test]
fn a_missing_priority_class_makes_the_job_wait_until_it_exists() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 1);
    cluster.edit("a", |job| {
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("urgent");
    });
    cluster.event("a");
    assert!(cluster.run().is_empty());
    assert!(cluster.why("a").contains("urgent"), "{}", cluster.why("a"));
    cluster.priority_class("urgent", 100);
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
}

#[test]
fn a_higher_priority_goes_first_and_a_changed_class_is_followed_by_waiting_jobs() {
    let mut cluster = Cluster::with_quota(0);
    cluster.priority_class("low", 10);
    cluster.priority_class("high", 20);
    for (name, class) in [("a", "low"), ("b", "high")] {
        cluster.create(name, 1);
        cluster.edit(name, |job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
        });
        cluster.event(name);
    }
    cluster.run();
    assert_eq!(cluster.position("b"), Some(0));
    cluster.priority_class("low", 30);
    assert_eq!(cluster.position("a"), Some(0));
}

#[test]
fn a_cluster_queue_without_a_namespace_selector_admits_nobody_and_follows_labels() {
    let mut cluster = Cluster::with_selector(2, None);
    cluster.create("a", 1);
    assert!(cluster.run().is_empty());
    assert!(cluster.why("a").contains("namespaceSelector"), "{}", cluster.why("a"));
    let mut cluster = Cluster::with_selector(2, Some(json!({"matchLabels": {"team": "a"}})));
    cluster.create("a", 1);
    assert!(cluster.run().is_empty());
    cluster.label_namespace("team", "a");
    assert_eq!(cluster.run().len(), 1);
}

#[test]
fn a_namespace_that_was_not_seen_yet_is_selected_by_nobody() {
    let mut cluster = Cluster::without_namespace(2, json!({"matchLabels": {"tier": "gold"}}));
    cluster.create("a", 1);
    assert!(cluster.run().is_empty());
    cluster.label_namespace("tier", "gold");
    assert_eq!(cluster.run().len(), 1);
}

#[test]
fn a_cluster_queue_that_uses_a_field_not_acted_on_is_inactive_and_names_it() {
    let mut cluster = Cluster::with_quota(2);
    let checks = json!({"admissionChecks": [{"name": "budget"}]});
    cluster.edit_queue(|queue| queue["spec"]["admissionChecksStrategy"] = checks);
    cluster.create("a", 1);
    assert!(cluster.run().is_empty());
    let status = cluster.queue_status();
    assert_eq!(status["conditions"][0]["status"], "False");
    assert!(
        status["conditions"][0]["message"]
            .as_str()
            .unwrap()
            .contains("spec.admissionChecksStrategy")
    );
}

#[test]
fn a_cluster_queue_says_which_rules_beyond_kueues_are_in_force_and_no_more_when_they_are_off() {
    let mut cluster = Cluster::with_quota(2);
    let annotations = json!({"sluice.internal/minimum-run-time": "1h", "sluice.internal/backfill": "false"});
    cluster.edit_queue(|queue| queue["metadata"]["annotations"] = annotations);
    let status = cluster.queue_status();
    assert_eq!(status["conditions"][0]["type"], "Active");
    let condition = &status["conditions"][1];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("ExtraRules"), &json!("True"))
    );
    assert_eq!(
        condition["message"],
        "Rules beyond Kueue's are in force: minimum-run-time=1h"
    );
    cluster.edit_queue(|queue| {
        queue["status"] = status.clone();
        queue["metadata"]["annotations"] = json!({});
    });
    assert!(cluster.queue_status()["conditions"][1].is_null());
}

#[test]
fn the_wanted_status_is_none_once_the_object_shows_it() {
    let mut cluster = Cluster::with_quota(3);
    cluster.create("a", 2);
    cluster.create("b", 2);
    cluster.run();
    let status = cluster.queue_status();
    assert_eq!(status["pendingWorkloads"], 1);
    assert_eq!(status["admittedWorkloads"], 1);
    assert_eq!(status["flavorsUsage"][0]["resources"][0]["total"], "2");
    cluster.edit_queue(|queue| queue["status"] = status.clone());
    cluster.pass_time(60_000);
    assert!(cluster.index.wanted_cluster_queue_status("cq", cluster.now()).is_none());
}

#[test]
fn any_order_of_arrival_ends_in_the_same_admissions() {
    for order in 0..24 {
        let mut cluster = Cluster::in_order(2, order);
        assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)], "order {order}");
        assert_eq!(cluster.reserved(), 2000);
    }
}

#[test]
fn opting_in_suspends_nothing_that_runs_although_its_queue_is_not_there_yet() {
    let mut cluster = Cluster::without_queues(4);
    cluster.create_running("a", 2);
    cluster.pass_time(60_000);
    cluster.opt_in();
    assert!(cluster.run().is_empty());
    cluster.queues_arrive();
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Adopt)]);
}

#[test]
fn labelled_jobs_that_run_when_the_first_leader_ever_begins_are_adopted() {
    let mut cluster = Cluster::before_the_first_reign(4);
    cluster.create_running("a", 2);
    cluster.edit("a", |job| {
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("default");
    });
    cluster.event("a");
    cluster.pass_time(60_000);
    cluster.begin_reign(1);
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Adopt)]);
}

#[test]
fn a_list_that_began_before_a_job_was_made_anew_neither_revives_the_old_nor_buries_the_new() {
    let mut cluster = Cluster::with_quota(0);
    cluster.create("a", 1);
    let (old, version) = (cluster.view("a"), cluster.version());
    cluster.delete("a");
    cluster.create("a", 1);
    let now = cluster.now();
    cluster.index.reset_jobs(vec![old], version, now);
    assert_eq!(cluster.pending(), 1);
    cluster.set_quota(1);
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
}

#[test]
fn a_job_deleted_while_all_jobs_are_listed_is_not_revived() {
    let mut cluster = Cluster::with_quota(0);
    cluster.create("a", 1);
    let (old, version) = (cluster.view("a"), cluster.version());
    cluster.delete("a");
    let now = cluster.now();
    cluster.index.reset_jobs(vec![old], version, now);
    assert_eq!(cluster.pending(), 0);
}

#[test]
fn a_decision_older_than_an_edit_is_not_sent_again_with_the_edits_guards() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 1);
    let write = cluster.next_write().unwrap();
    cluster.edit("a", |job| {
        job["spec"]["parallelism"] = json!(3);
        job["spec"]["completions"] = json!(3);
    });
    cluster.event("a");
    cluster.answer(&write, Answer::Delayed);
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Admit)]);
    assert_eq!(cluster.record("a")["podSets"][0]["count"], 3);
    assert_eq!(cluster.reserved(), 3000);
}

#[test]
fn an_edit_that_no_guard_notices_frees_nothing_while_a_write_is_in_doubt() {
    let mut cluster = Cluster::with_quota(1);
    cluster.create("a", 1);
    cluster.create("b", 1);
    let write = cluster.next_write().unwrap();
    cluster.answer(&write, Answer::Unknown(Some(Box::new(cluster.view("a")))));
    cluster.edit("a", |job| job["metadata"]["annotations"]["note"] = json!("mine"));
    cluster.event("a");
    assert!(cluster.next_write().is_none(), "the first copy may still land");
    assert_eq!(cluster.reserved(), 1000);
}

#[test]
fn a_refused_suspension_is_tried_again_after_a_pause_and_not_before() {
    let mut cluster = Cluster::with_quota(4);
    cluster.opt_in();
    cluster.pass_time(60_000);
    cluster.create_running("a", 2);
    let write = cluster.next_write().unwrap();
    cluster.answer(
        &write,
        Answer::Refused {
            message: "no".to_owned(),
        },
    );
    assert!(cluster.next_write().is_none());
    cluster.pass_time(1_500);
    assert_eq!(cluster.next_write().unwrap().kind, WriteKind::SuspendLate);
}

#[test]
fn the_revocation_of_a_late_admission_survives_what_its_job_reports_meanwhile() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 2);
    let late = cluster.next_write().unwrap();
    cluster.end_reign();
    cluster.begin_reign(8);
    cluster.store(&late);
    cluster.event("a");
    cluster.start("a");
    assert_eq!(cluster.run()[0], ("a".to_owned(), WriteKind::Evict));
}

#[test]
fn the_answer_to_an_earlier_write_of_the_same_kind_is_not_taken_for_the_present_one() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    let old = cluster.next_write().unwrap();
    cluster.end_reign();
    cluster.begin_reign(8);
    let new = cluster.next_write().unwrap();
    cluster.answer(&old, Answer::GuardFailed(Some(Box::new(cluster.view("a")))));
    assert_eq!(cluster.reserved(), 2000);
    cluster.carry_out(&new);
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_job_that_is_not_managed_any_more_neither_waits_nor_is_stopped() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.run();
    cluster.start("a");
    cluster.edit("a", |job| {
        job["spec"]["suspend"] = json!(true);
        job["metadata"]["annotations"]["sluice.internal/hold"] = json!("true");
    });
    cluster.event("a");
    cluster.run();
    cluster.stopped("a");
    cluster.edit("a", |job| {
        job["metadata"]["labels"] = json!({});
        job["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("sluice.internal/hold");
    });
    cluster.event("a");
    assert_eq!(cluster.pending(), 0);
    cluster.edit("a", |job| job["spec"]["suspend"] = json!(false));
    cluster.event("a");
    assert!(cluster.run().is_empty());
}

#[test]
fn what_a_running_job_gave_up_it_cannot_take_back() {
    let mut cluster = Cluster::with_quota(4);
    cluster.create("a", 4);
    cluster.run();
    cluster.edit_status("a", |status| *status = json!({"active": 2}));
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(2));
    cluster.event("a");
    assert_eq!(cluster.reserved(), 2000);
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(4));
    cluster.event("a");
    assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Evict)]);
}
