//! waitForPodsReady.

use serde_json::json;
use sluice_index::WriteKind;

use super::wrote;
use crate::cluster::Cluster;

const STRATEGY: &str =
    "requeuingStrategy: {timestamp: Eviction, backoffBaseSeconds: 60, backoffMaxSeconds: 90, backoffLimitCount: 2}";
const DEACTIVATED: &str = "sluice.internal/deactivated";

/// Job `a` runs and none of its two pods is ready yet.
fn waiting() -> Cluster {
    let mut cluster = Cluster::with_quota(2);
    cluster.configure(&format!(
        "waitForPodsReady: {{timeout: 5m, recoveryTimeout: 2m, {STRATEGY}}}"
    ));
    cluster.create("a", 2);
    cluster.run_and_start();
    cluster
}

fn too_slow(cluster: &mut Cluster) {
    cluster.pass_time(300_000);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    cluster.stopped("a");
}

#[test]
fn a_job_whose_pods_are_not_ready_in_time_is_evicted_and_tried_again_after_a_growing_pause() {
    let mut cluster = waiting();
    cluster.pods_ready("a", 1);
    cluster.pass_time(299_999);
    assert!(cluster.run().is_empty());
    cluster.pass_time(1);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    let (reason, cause, message) = cluster.eviction("a");
    assert_eq!((reason.as_str(), cause.as_str()), ("PodsReadyTimeout", "WaitForStart"));
    assert!(message.contains("300 s") && message.contains("60 s"), "{message}");
    assert_eq!(cluster.record("a")["requeue"]["count"], 1);
    cluster.stopped("a");
    assert!(cluster.run().is_empty(), "it waits out");

    let mut cluster = cluster.restart(8);
    cluster.pass_time(59_999);
    assert!(cluster.run().is_empty(), "a restart does not shorten the pause");
    cluster.pass_time(1);
    assert_eq!(cluster.run_and_start(), [wrote("a", WriteKind::Admit)]);
    too_slow(&mut cluster);
    assert_eq!(cluster.record("a")["requeue"]["count"], 2);
    cluster.pass_time(89_999);
    assert!(cluster.run().is_empty(), "the second pause is capped");
    cluster.pass_time(1);
    assert_eq!(cluster.run().len(), 1);
}

#[test]
fn a_job_that_is_too_slow_too_often_is_deactivated_and_starts_afresh_when_put_back() {
    let mut cluster = waiting();
    for _ in 0..2 {
        too_slow(&mut cluster);
        cluster.pass_time(90_000);
        cluster.run_and_start();
    }
    let mut cluster = cluster.restart(8);
    too_slow(&mut cluster);
    let record = cluster.record("a");
    assert_eq!(record["state"], "Deactivated");
    assert_eq!(
        (&record["eviction"]["cause"], &record["evictions"]),
        (&json!("RequeuingLimitExceeded"), &json!(3))
    );
    assert_eq!(cluster.annotation("a", DEACTIVATED), Some("RequeuingLimitExceeded"));
    cluster.pass_time(3_600_000);
    assert!(cluster.run().is_empty());
    cluster.remove_annotation("a", DEACTIVATED);
    assert_eq!(cluster.run_and_start(), [wrote("a", WriteKind::Admit)]);
    too_slow(&mut cluster);
    assert_eq!(cluster.record("a")["requeue"]["count"], 1);
}

#[test]
fn an_evicted_job_queues_behind_those_that_wait_or_keeps_its_place_as_configured() {
    for (timestamp, first) in [("Eviction", "b"), ("Creation", "a")] {
        let mut cluster = Cluster::with_quota(2);
        cluster.configure(&format!(
            "waitForPodsReady: {{timeout: 5m, requeuingStrategy: {{timestamp: {timestamp}, backoffBaseSeconds: 0}}}}"
        ));
        cluster.create("a", 2);
        cluster.run_and_start();
        cluster.pass_time(60_000);
        cluster.create("b", 2);
        cluster.pass_time(240_000);
        assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
        cluster.stopped("a");
        let mut cluster = cluster.restart(8);
        assert_eq!(cluster.run(), [wrote(first, WriteKind::Admit)], "{timestamp}");
    }
}

#[test]
fn readiness_is_noted_once_and_a_lost_pod_counts_from_when_it_was_lost_across_a_restart() {
    let mut cluster = waiting();
    cluster.pods_ready("a", 2);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Note)]);
    assert_eq!(cluster.job("a")["spec"]["suspend"], false);
    let mut cluster = cluster.restart(8);
    assert!(cluster.run().is_empty(), "it is noted");
    cluster.pass_time(600_000);
    assert!(cluster.run().is_empty(), "it was ready in time");
    cluster.pods_ready("a", 1);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Note)]);
    cluster.pass_time(60_000);
    let mut cluster = cluster.restart(9);
    cluster.pass_time(59_999);
    assert!(cluster.run().is_empty());
    cluster.pass_time(1);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    assert_eq!(cluster.eviction("a").1, "WaitForRecovery");
}

#[test]
fn a_pod_that_is_replaced_in_time_starts_the_next_loss_anew() {
    let mut cluster = waiting();
    cluster.pods_ready("a", 2);
    cluster.run();
    for _ in 0..3 {
        cluster.pods_ready("a", 1);
        assert_eq!(cluster.run(), [wrote("a", WriteKind::Note)]);
        cluster.pass_time(100_000);
        cluster.pods_ready("a", 2);
        assert_eq!(cluster.run(), [wrote("a", WriteKind::Note)]);
        cluster.pass_time(100_000);
        assert!(cluster.run().is_empty());
    }
}

#[test]
fn the_note_of_an_earlier_term_that_lands_late_is_no_late_admission() {
    let mut cluster = waiting();
    cluster.pods_ready("a", 2);
    let note = cluster.next_write().unwrap();
    cluster.end_reign();
    cluster.begin_reign(8);
    cluster.store(&note);
    cluster.event("a");
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_late_note_that_a_new_leader_sees_before_it_lists_all_jobs_is_no_late_admission() {
    let mut cluster = waiting();
    cluster.pods_ready("a", 2);
    let note = cluster.next_write().unwrap();
    let (listed, barrier) = (cluster.view("a"), cluster.version());
    cluster.end_reign();
    cluster.store(&note);
    cluster.event("a");
    let now = cluster.now();
    cluster.index.reset_jobs(vec![listed], barrier, now);
    cluster.index.begin_reign(sluice_index::Reign { term: 8, barrier }, now);
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_running_job_whose_record_cannot_be_read_is_late_for_nothing() {
    let mut cluster = waiting();
    cluster.edit("a", |job| super::annotate(job, "sluice.internal/admission", "{broken"));
    cluster.event("a");
    cluster.pass_time(3_600_000);
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_note_gives_a_job_nothing_back_that_it_gave_up() {
    let mut cluster = Cluster::with_quota(4);
    cluster.configure("waitForPodsReady: {}");
    cluster.create("a", 4);
    cluster.run_and_start();
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(2));
    cluster.edit_status("a", |status| *status = json!({"active": 2, "ready": 2}));
    cluster.event("a");
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Note)]);
    assert_eq!(cluster.reserved(), 2000);
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(4));
    cluster.event("a");
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
}

#[test]
fn nobody_is_admitted_while_pods_are_not_ready_if_the_configuration_blocks_it() {
    let mut cluster = Cluster::with_quota(4);
    cluster.configure("waitForPodsReady: {timeout: 5m, blockAdmission: true}");
    cluster.create("a", 1);
    cluster.create("b", 1);
    assert_eq!(cluster.run_and_start(), [wrote("a", WriteKind::Admit)]);
    let mut cluster = cluster.restart(8);
    assert!(cluster.run().is_empty());
    cluster.pods_ready("a", 1);
    let mut writes = cluster.run();
    writes.sort();
    assert_eq!(writes, [wrote("a", WriteKind::Note), wrote("b", WriteKind::Admit)]);
}

#[test]
fn nothing_is_noted_or_timed_while_nobody_waits_for_pods() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.run_and_start();
    cluster.pods_ready("a", 2);
    cluster.pass_time(3_600_000);
    cluster.pods_ready("a", 1);
    assert!(cluster.run().is_empty());
}
