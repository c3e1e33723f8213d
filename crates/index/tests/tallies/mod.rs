//! What is counted of waiting and finished Jobs, against what a walk over all of them finds.

use std::collections::BTreeMap;

use serde_json::json;
use sluice_engine::{LocalQueueKey, WaitKind};
use sluice_index::{Happening, Tally, WriteKind};

use crate::cluster::Cluster;

fn local_queue() -> LocalQueueKey {
    LocalQueueKey::new("team", "default")
}

fn tally(unadmitted: &[(&str, usize)], pending_cpu: i128, finished: usize) -> Tally {
    Tally {
        unadmitted: unadmitted
            .iter()
            .map(|(cause, count)| ((*cause).into(), *count))
            .collect(),
        pending: [("cpu".into(), pending_cpu)].into(),
        finished,
    }
}

/// Decides, writes, and takes the changes, as a report does.
fn settle(cluster: &mut Cluster) {
    cluster.run();
    cluster.index.take_changes();
}

/// The tally of the ClusterQueue, by a walk over everything.
fn recount(cluster: &Cluster) -> Tally {
    let stopped = cluster.queue()["spec"]["stopPolicy"] == "Hold";
    let mut tally = Tally::default();
    for name in cluster.names() {
        let job = cluster.job(&name);
        if job["status"]["conditions"][0]["type"] == "Complete" {
            tally.finished += usize::from(
                job["metadata"]["annotations"]
                    .get("sluice.internal/admission")
                    .is_some(),
            );
        }
        let Some(waiting) = cluster.waiting(&name) else {
            continue;
        };
        let cause = match waiting.reason.kind() {
            WaitKind::Pending => "PendingEvaluation",
            WaitKind::QueueInactive if stopped => "Suspended",
            WaitKind::Gated => "OnHold",
            WaitKind::QueueInactive => panic!("inactive for no reason"),
            kind => kind.as_str(),
        };
        if waiting.queue.is_some() {
            *tally.unadmitted.entry(cause.into()).or_default() += 1;
            let cores = job["spec"]["parallelism"].as_i64().unwrap();
            *tally.pending.entry("cpu".into()).or_default() += i128::from(cores) * 1_000;
        }
    }
    tally
}

#[test]
fn waiting_jobs_are_counted_by_cause_and_by_what_they_ask_for_together() {
    let mut cluster = Cluster::with_quota(2);
    for (name, pods) in [("a", 2), ("b", 1), ("c", 3), ("d", 2)] {
        cluster.create(name, pods);
    }
    assert_eq!(
        cluster.index.cluster_queue_tally("cq"),
        tally(&[("PendingEvaluation", 4)], 8_000, 0)
    );
    settle(&mut cluster);
    let waiting = tally(&[("ExceedsMaxQuota", 1), ("WaitingForQuota", 2)], 6_000, 0);
    assert_eq!(cluster.index.cluster_queue_tally("cq"), waiting);
    assert_eq!(cluster.index.local_queue_tally(&local_queue()), waiting);
    assert_eq!(cluster.index.cluster_queue_tally("another"), Tally::default());
}

#[test]
fn finished_jobs_are_counted_as_long_as_they_exist_and_their_queues_are_reported() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 2);
    cluster.create("b", 2);
    settle(&mut cluster);
    cluster.finish("a");
    settle(&mut cluster);
    assert_eq!(cluster.index.cluster_queue_tally("cq"), tally(&[], 0, 1));
    cluster.delete("a");
    let changes = cluster.index.take_changes();
    assert!(changes.cluster_queues.contains("cq") && changes.local_queues.contains(&local_queue()));
    assert_eq!(cluster.index.cluster_queue_tally("cq"), tally(&[], 0, 0));
    let idle = cluster.index.take_changes();
    assert!(idle.cluster_queues.is_empty() && idle.local_queues.is_empty());
}

#[test]
fn causes_have_kueues_words() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create("a", 1);
    cluster.run();
    cluster.start("a");
    cluster.edit("a", |job| {
        job["spec"]["suspend"] = json!(true);
        job["metadata"]["annotations"]["sluice.internal/created-running"] = json!("true");
        job["metadata"]["annotations"]["sluice.internal/hold"] = json!("true");
    });
    cluster.event("a");
    cluster.run();
    cluster.stopped("a");
    settle(&mut cluster);
    assert_eq!(
        cluster.index.cluster_queue_tally("cq"),
        tally(&[("OnHold", 1)], 1_000, 0)
    );
    cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!("Hold"));
    settle(&mut cluster);
    assert_eq!(
        cluster.index.cluster_queue_tally("cq"),
        tally(&[("Suspended", 1)], 1_000, 0)
    );
    cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!("None"));
    cluster.edit_queue(|queue| queue["spec"]["namespaceSelector"] = json!({"matchLabels": {"tier": "gold"}}));
    settle(&mut cluster);
    assert_eq!(
        cluster.index.cluster_queue_tally("cq"),
        tally(&[("Misconfigured", 1)], 1_000, 0)
    );
    cluster.index.delete_local_queue("team", "default");
    settle(&mut cluster);
    assert_eq!(cluster.index.cluster_queue_tally("cq"), Tally::default());
}

#[test]
fn an_eviction_tells_when_its_quota_is_back_and_whether_it_was_the_first_for_its_reason() {
    let mut cluster = Cluster::with_quota(9);
    cluster.create("a", 1);
    let evictions = |cluster: &mut Cluster| {
        let happened: Vec<Happening> = cluster
            .index
            .take_notices()
            .into_iter()
            .map(|notice| notice.what)
            .collect();
        happened
            .into_iter()
            .filter_map(|what| match what {
                Happening::Evicted { reason, first, .. } => Some(format!("{reason} first={first}")),
                Happening::QuotaReturned { reason, after_ms } => Some(format!("{reason} back after {after_ms}")),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let grow = |cluster: &mut Cluster, pods: i64| {
        cluster.run();
        cluster.start("a");
        cluster.edit("a", |job| {
            job["spec"]["parallelism"] = json!(pods);
            job["spec"]["completions"] = json!(pods);
        });
        cluster.event("a");
        assert_eq!(cluster.run(), [("a".to_owned(), WriteKind::Evict)]);
    };
    grow(&mut cluster, 2);
    assert_eq!(evictions(&mut cluster), ["Grown first=true"]);
    cluster.pass_time(4_000);
    cluster.stopped("a");
    assert_eq!(evictions(&mut cluster), ["Grown back after 4000"]);
    let mut successor = cluster.restart(8);
    assert!(
        evictions(&mut successor).is_empty(),
        "what ended before is not told again"
    );
    grow(&mut successor, 3);
    assert_eq!(
        evictions(&mut successor),
        ["Grown first=false"],
        "the record told of the first"
    );
    grow_while_in_doubt(&mut cluster);
    assert_eq!(evictions(&mut cluster), ["Suspended first=true"]);
}

/// The watch shows the eviction before its answer comes.
fn grow_while_in_doubt(cluster: &mut Cluster) {
    cluster.run();
    cluster.start("a");
    cluster.edit("a", |job| job["spec"]["suspend"] = json!(true));
    cluster.event("a");
    let write = cluster.next_write().unwrap();
    assert_eq!(write.kind, WriteKind::Evict);
    cluster.store(&write);
    cluster.event("a");
    let view = cluster.view("a");
    cluster.answer(&write, sluice_index::Answer::Applied(Box::new(view)));
}

#[test]
fn counting_step_by_step_finds_what_a_walk_over_everything_finds() {
    let mut cluster = Cluster::with_quota(5);
    // Knuth's generator: the same steps on every machine.
    let mut state: u64 = 42;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for step in 0..600 {
        let names: Vec<String> = cluster.names();
        let one = (!names.is_empty()).then(|| names[usize::try_from(draw(names.len() as u64)).unwrap()].clone());
        match (draw(12), one) {
            (0..=3, _) => cluster.create(&format!("job-{step}"), i64::try_from(draw(7)).unwrap() + 1),
            (4 | 5, Some(name)) if cluster.job(&name)["spec"]["suspend"] == false => cluster.finish(&name),
            (6, Some(name)) => cluster.delete(&name),
            (7, Some(name)) if cluster.job(&name)["spec"]["suspend"] == false => {
                cluster.start(&name);
                cluster.edit(&name, |job| job["spec"]["suspend"] = json!(true));
                cluster.event(&name);
                cluster.run();
                cluster.stopped(&name);
            }
            (8, _) => cluster.set_quota(i64::try_from(draw(9)).unwrap()),
            (9, _) => {
                let stop = if draw(2) == 0 { "Hold" } else { "None" };
                cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!(stop));
            }
            (10, _) => {
                cluster.index.delete_local_queue("team", "default");
                settle(&mut cluster);
                assert_eq!(cluster.index.cluster_queue_tally("cq"), Tally::default());
                cluster.queues_arrive();
            }
            (11, _) => {
                cluster.end_reign();
                cluster.begin_reign(8 + step);
            }
            _ => {}
        }
        while let Some(probe) = cluster.next_probe() {
            cluster
                .index
                .probed(probe.unit, probe.epoch, Some(false), cluster.now());
        }
        cluster.pass_time(1_000);
        settle(&mut cluster);
        let mut counted = cluster.index.cluster_queue_tally("cq");
        assert_eq!(counted, cluster.index.local_queue_tally(&local_queue()), "step {step}");
        counted.pending.retain(|_, amount| *amount != 0);
        assert_eq!(counted, recount(&cluster), "step {step}");
        for (cause, count) in counted.unadmitted {
            *seen.entry(cause.to_string()).or_default() += count;
        }
    }
    assert!(seen.len() >= 3, "{seen:?}");
}
