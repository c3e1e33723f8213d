//! Drains, preemption within a queue, and what may come between a decision to stop a Job and its write.

use serde_json::json;
use sluice_index::{Answer, Happening, WriteKind};

use super::{label, local_queue, wrote};
use crate::cluster::Cluster;

const PRIORITY: &str = "kueue.x-k8s.io/priority-class";

fn stop_policy(cluster: &mut Cluster, policy: &str) {
    cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!(policy));
}

/// Jobs `low`, admitted and running, and `high`, which needs its room.
fn contest() -> Cluster {
    let mut cluster = Cluster::with_quota(2);
    cluster.edit_queue(|queue| queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"}));
    cluster.priority_class("urgent", 100);
    cluster.create("low", 2);
    cluster.run_and_start();
    cluster.create_with("high", 2, |job| label(job, PRIORITY, "urgent"));
    cluster
}

#[test]
fn a_drained_cluster_queue_stops_its_jobs_and_they_wait_in_their_old_place() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 1);
    cluster.create("b", 1);
    cluster.run_and_start();
    let queued_at = cluster.record("a")["queuedAt"].clone();
    cluster.pass_time(60_000);
    stop_policy(&mut cluster, "HoldAndDrain");
    let mut writes = cluster.run();
    writes.sort();
    assert_eq!(writes, [wrote("a", WriteKind::Evict), wrote("b", WriteKind::Evict)]);
    let (reason, _, message) = cluster.eviction("a");
    assert_eq!(reason, "ClusterQueueStopped");
    assert!(message.contains("ClusterQueue cq"), "{message}");
    assert_eq!(cluster.reserved(), 2000, "their pods are still there");
    let record = cluster.record("a");
    assert_eq!(
        (&record["state"], &record["evictions"]),
        (&json!("Evicting"), &json!(1))
    );
    assert_eq!(
        (&record["queuedAt"], &record["accumulatedSeconds"]),
        (&queued_at, &json!(60))
    );
    cluster.stopped("a");
    cluster.stopped("b");
    assert!(cluster.run().is_empty());
    assert_eq!((cluster.reserved(), cluster.pending()), (0, 2));
    stop_policy(&mut cluster, "None");
    assert_eq!(cluster.run().len(), 2);
}

#[test]
fn a_held_cluster_queue_stops_nothing_that_runs() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 1);
    cluster.run_and_start();
    stop_policy(&mut cluster, "Hold");
    cluster.create("b", 1);
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.reserved(), 1000);
}

#[test]
fn a_drained_local_queue_stops_its_own_jobs_alone() {
    let mut cluster = Cluster::with_quota(2);
    let mut queue = local_queue("side");
    queue["spec"]["clusterQueue"] = json!("cq");
    cluster.apply(queue.clone());
    cluster.create("a", 1);
    cluster.create_with("b", 1, super::queued_in("side"));
    cluster.run_and_start();
    queue["spec"]["stopPolicy"] = json!("HoldAndDrain");
    cluster.apply(queue);
    assert_eq!(cluster.run(), [wrote("b", WriteKind::Evict)]);
    let (reason, _, message) = cluster.eviction("b");
    assert_eq!(reason, "LocalQueueStopped");
    assert!(message.contains("LocalQueue side"), "{message}");
    cluster.stopped("b");
    assert!(cluster.run().is_empty());
    assert!(cluster.why("b").contains("stopPolicy"), "{}", cluster.why("b"));
}

#[test]
fn a_preempted_job_says_by_whom_and_by_which_right_and_its_room_is_given_only_when_its_pods_are_gone() {
    let mut cluster = contest();
    assert_eq!(cluster.run(), [wrote("low", WriteKind::Evict)]);
    let (reason, cause, message) = cluster.eviction("low");
    assert_eq!((reason.as_str(), cause.as_str()), ("Preempted", "InClusterQueue"));
    assert!(
        message.starts_with("preempted by team/high in ClusterQueue cq: InClusterQueue"),
        "{message}"
    );
    let told = cluster.happened().into_iter().find_map(|what| match what {
        Happening::Evicted {
            reason,
            cause,
            preemptor,
            first,
            ..
        } => Some((reason, cause, preemptor, first)),
        _ => None,
    });
    let (reason, cause, preemptor, first) = told.unwrap();
    assert_eq!((reason.as_str(), cause.as_str()), ("Preempted", "InClusterQueue"));
    assert_eq!((preemptor.as_deref(), first), (Some("cq"), true));
    assert!(cluster.run().is_empty());
    cluster.stopped("low");
    assert_eq!(cluster.run(), [wrote("high", WriteKind::Admit)]);
    assert_eq!(cluster.reserved(), 2000);
}

#[test]
fn a_restart_between_the_eviction_and_the_end_of_its_pods_gives_the_room_to_the_preemptor() {
    let mut cluster = contest();
    cluster.run();
    let mut restarted = cluster.restart(8);
    assert!(restarted.run().is_empty());
    assert_eq!(restarted.reserved(), 2000);
    restarted.stopped("low");
    assert_eq!(restarted.run(), [wrote("high", WriteKind::Admit)]);
    assert_eq!(restarted.position("low"), Some(0));
}

#[test]
fn a_restart_before_the_eviction_is_written_decides_it_again() {
    let mut cluster = contest();
    let decided = cluster.next_write().unwrap();
    assert_eq!(decided.kind, WriteKind::Evict);
    let mut restarted = cluster.restart(8);
    assert_eq!(restarted.run(), [wrote("low", WriteKind::Evict)]);
}

#[test]
fn what_the_job_reports_and_edits_that_no_guard_sees_do_not_undo_a_decided_eviction() {
    let mut cluster = contest();
    let now = cluster.now();
    cluster.index.pass(now, usize::MAX);
    cluster.pods_ready("low", 1);
    cluster.edit("low", |job| job["metadata"]["annotations"]["note"] = json!("mine"));
    cluster.event("low");
    assert_eq!(cluster.run(), [wrote("low", WriteKind::Evict)]);
}

#[test]
fn a_refused_eviction_leaves_the_job_running_and_is_tried_again_after_a_pause() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 1);
    cluster.run_and_start();
    stop_policy(&mut cluster, "HoldAndDrain");
    let refused = cluster.next_write().unwrap();
    let message = "not on Fridays".to_owned();
    cluster.answer(&refused, Answer::Refused { message });
    assert_eq!(cluster.reserved(), 1000);
    let report = cluster.index.engine().queue("cq").unwrap();
    assert_eq!(report.admitted, 1, "it runs on");
    assert!(cluster.next_write().is_none());
    cluster.pass_time(1_500);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
}

#[test]
fn an_eviction_of_which_nothing_is_known_is_sent_again_and_counts_once() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 1);
    cluster.run_and_start();
    stop_policy(&mut cluster, "HoldAndDrain");
    let write = cluster.next_write().unwrap();
    cluster.answer(&write, Answer::Unknown(Some(Box::new(cluster.view("a")))));
    assert!(cluster.next_write().is_none(), "not before the pause");
    cluster.pass_time(10_000);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    assert_eq!(cluster.record("a")["evictions"], 1);
}

#[test]
fn an_eviction_decided_while_a_note_is_under_way_follows_it() {
    let mut cluster = Cluster::with_quota(2);
    cluster.configure("waitForPodsReady: {timeout: 10m}");
    cluster.create("a", 1);
    cluster.run_and_start();
    cluster.pods_ready("a", 1);
    let note = cluster.next_write().unwrap();
    assert_eq!(note.kind, WriteKind::Note);
    stop_policy(&mut cluster, "HoldAndDrain");
    assert!(cluster.next_write().is_none(), "one write of a Job at a time");
    cluster.carry_out(&note);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
}

#[test]
fn a_job_that_ends_before_its_eviction_is_sent_is_left_alone() {
    let mut cluster = contest();
    let now = cluster.now();
    cluster.index.pass(now, usize::MAX);
    cluster.finish("low");
    assert_eq!(cluster.run(), [wrote("high", WriteKind::Admit)]);
}
