//! Admission fair sharing: what LocalQueues used in the past, through a restart and in their statuses.

use serde_json::{Value, json};
use sluice_engine::LocalQueueKey;
use sluice_index::{WantedStatus, WriteKind};

use super::{cluster_queue, queued_in, wrote};
use crate::cluster::Cluster;

const HALF_A_MINUTE: &str = "admissionFairSharing: {usageHalfLifeTime: 30s, usageSamplingInterval: 30s}";

fn local_queue(name: &str, fair_sharing: Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"namespace": "team", "name": name, "resourceVersion": "22"},
        "spec": {"clusterQueue": "shared", "fairSharing": fair_sharing},
    })
}

/// A ClusterQueue of two cores with LocalQueues a and b, at a time of whole half-minutes.
fn sharing(configuration: &str, mode: &str) -> Cluster {
    let mut cluster = Cluster::before_the_first_reign(0);
    cluster.configure(configuration);
    cluster.apply(cluster_queue(
        "shared",
        2,
        json!({"admissionScope": {"admissionMode": mode}}),
    ));
    for name in ["a", "b"] {
        cluster.apply(local_queue(name, json!({})));
    }
    cluster.begin_reign(7);
    cluster.run();
    cluster
}

fn create(cluster: &mut Cluster, name: &str, queue: &str) {
    cluster.create_with(name, 2, queued_in(queue));
}

/// The status that a LocalQueue should have; none if it has that.
fn wanted(cluster: &Cluster, name: &str) -> Option<Value> {
    match cluster
        .index
        .wanted_local_queue_status(&LocalQueueKey::new("team", name), cluster.now())?
    {
        WantedStatus::LocalQueue { status, .. } => Some(serde_json::to_value(status).unwrap()),
        WantedStatus::ClusterQueue { .. } | WantedStatus::Cohort { .. } => unreachable!(),
    }
}

/// The API server stores the status that a LocalQueue should have.
fn store_status(cluster: &mut Cluster, name: &str) {
    if let Some(status) = wanted(cluster, name) {
        let mut queue = local_queue(name, json!({}));
        queue["status"] = status;
        cluster.apply(queue);
    }
}

#[test]
fn past_usage_is_shown_and_goes_on_after_a_restart() {
    let mut cluster = sharing(HALF_A_MINUTE, "UsageBasedAdmissionFairSharing");
    create(&mut cluster, "first", "a");
    assert_eq!(cluster.run_and_start(), [wrote("first", WriteKind::Admit)]);
    cluster.pass_time(30_000);
    cluster.run();
    let status = wanted(&cluster, "a").unwrap();
    let shown = &status["fairSharing"]["admissionFairSharingStatus"];
    assert_eq!(shown["consumedResources"], json!({"cpu": "1"}));
    assert_eq!(shown["lastUpdate"], "2025-11-30T10:53:30Z");
    store_status(&mut cluster, "a");
    store_status(&mut cluster, "b");
    assert_eq!(wanted(&cluster, "a"), None);

    let mut next = cluster.restart(8);
    next.run();
    next.pass_time(30_000);
    next.finish("first");
    create(&mut next, "again", "a");
    create(&mut next, "other", "b");
    assert_eq!(next.run(), [wrote("other", WriteKind::Admit)]);
    // Half of one and half of two cores.
    let status = wanted(&next, "a").unwrap();
    let shown = &status["fairSharing"]["admissionFairSharingStatus"];
    assert_eq!(shown["consumedResources"], json!({"cpu": "1500m"}));
    next.replay();
}

#[test]
fn a_status_that_the_scheduler_wrote_itself_does_not_turn_back_the_count() {
    let mut cluster = sharing(HALF_A_MINUTE, "UsageBasedAdmissionFairSharing");
    create(&mut cluster, "first", "a");
    cluster.run_and_start();
    cluster.pass_time(30_000);
    cluster.run();
    let old = wanted(&cluster, "a").unwrap();
    cluster.pass_time(30_000);
    cluster.run();
    let mut queue = local_queue("a", json!({}));
    queue["status"] = old;
    cluster.apply(queue);
    cluster.run();
    let shown = &wanted(&cluster, "a").unwrap()["fairSharing"]["admissionFairSharingStatus"];
    assert_eq!(shown["consumedResources"], json!({"cpu": "1500m"}));
}

#[test]
fn without_the_block_or_the_mode_nothing_is_counted_and_time_decides() {
    for (configuration, mode) in [
        ("", "UsageBasedAdmissionFairSharing"),
        (HALF_A_MINUTE, "NoAdmissionFairSharing"),
    ] {
        let mut cluster = sharing(configuration, mode);
        create(&mut cluster, "first", "a");
        cluster.run_and_start();
        cluster.pass_time(60_000);
        create(&mut cluster, "again", "a");
        create(&mut cluster, "other", "b");
        cluster.run();
        assert_eq!(wanted(&cluster, "a").unwrap().get("fairSharing"), None);
        cluster.finish("first");
        assert_eq!(cluster.run(), [wrote("again", WriteKind::Admit)]);
    }
}

/// Kueue issue 11134: with a block that does not give a half-life the whole rule did nothing.
#[test]
fn a_block_without_a_half_life_counts() {
    let mut cluster = sharing("admissionFairSharing: {}", "UsageBasedAdmissionFairSharing");
    create(&mut cluster, "first", "a");
    cluster.run_and_start();
    create(&mut cluster, "again", "a");
    create(&mut cluster, "other", "b");
    cluster.run();
    cluster.finish("first");
    assert_eq!(cluster.run(), [wrote("other", WriteKind::Admit)]);
}

#[test]
fn the_weight_of_a_local_queue_counts() {
    let mut cluster = sharing(HALF_A_MINUTE, "UsageBasedAdmissionFairSharing");
    cluster.apply(local_queue("b", json!({"weight": 0})));
    create(&mut cluster, "first", "a");
    cluster.run_and_start();
    create(&mut cluster, "other", "b");
    create(&mut cluster, "again", "a");
    cluster.run();
    cluster.finish("first");
    assert_eq!(cluster.run(), [wrote("again", WriteKind::Admit)]);
}

/// Every replica shows who waits in which order, not only the one that decides.
#[test]
fn a_standby_shows_the_order_by_past_usage() {
    let mut cluster = Cluster::before_the_first_reign(0);
    cluster.configure(HALF_A_MINUTE);
    let mode = json!({"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    cluster.apply(cluster_queue("shared", 1, mode));
    let mut used = local_queue("a", json!({}));
    used["status"] = json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
        "consumedResources": {"cpu": "4"}, "lastUpdate": "2025-11-30T10:53:00Z",
    }}});
    cluster.apply(used);
    cluster.apply(local_queue("b", json!({})));
    create(&mut cluster, "first", "a");
    create(&mut cluster, "second", "b");
    let order = |cluster: &Cluster| -> Vec<String> {
        let pending = cluster.index.pending_in_cluster_queue("shared", 0, 10).unwrap();
        pending.rows.iter().map(|row| row.job.name().to_owned()).collect()
    };
    cluster.run();
    let on_standby = order(&cluster);
    cluster.begin_reign(7);
    cluster.run();
    assert_eq!(order(&cluster), ["second", "first"]);
    assert_eq!(on_standby, ["second", "first"]);
    cluster.replay();
}
