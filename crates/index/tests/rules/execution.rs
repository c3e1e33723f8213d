//! The maximum execution time.

use serde_json::json;
use sluice_index::WriteKind;

use super::{label, wrote};
use crate::cluster::Cluster;

const LIMIT: &str = "kueue.x-k8s.io/max-exec-time-seconds";
const DEACTIVATED: &str = "sluice.internal/deactivated";

fn limited() -> Cluster {
    let mut cluster = Cluster::with_quota(2);
    cluster.create_with("a", 1, |job| label(job, LIMIT, "60"));
    cluster.run_and_start();
    cluster
}

#[test]
fn a_job_that_has_run_for_its_maximum_time_is_deactivated_until_a_person_puts_it_back() {
    let mut cluster = limited();
    cluster.pass_time(59_999);
    assert!(cluster.run().is_empty());
    cluster.pass_time(1);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    assert_eq!(cluster.record("a")["state"], "Deactivated");
    let (reason, cause, message) = cluster.eviction("a");
    assert_eq!(
        (reason.as_str(), cause.as_str()),
        ("Deactivated", "MaximumExecutionTimeExceeded")
    );
    assert!(message.contains("60 s"), "{message}");
    assert_eq!(
        cluster.annotation("a", DEACTIVATED),
        Some("MaximumExecutionTimeExceeded")
    );
    assert_eq!(cluster.reserved(), 1000, "its pods are still there");

    let mut cluster = cluster.restart(8);
    assert_eq!(cluster.reserved(), 1000);
    cluster.stopped("a");
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.reserved(), 0);
    let why = cluster.why("a");
    assert!(
        why.contains("MaximumExecutionTimeExceeded") && why.contains(DEACTIVATED),
        "{why}"
    );

    let mut cluster = cluster.restart(9);
    assert!(cluster.run().is_empty(), "a restart puts nobody back");
    cluster.remove_annotation("a", DEACTIVATED);
    assert_eq!(cluster.run_and_start(), [wrote("a", WriteKind::Admit)]);
    cluster.pass_time(59_000);
    assert!(cluster.run().is_empty(), "it starts afresh");
    assert_eq!(cluster.record("a")["evictions"], 1);
}

#[test]
fn the_run_time_of_earlier_admissions_counts_and_survives_a_restart() {
    let mut cluster = limited();
    cluster.pass_time(40_000);
    cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!("HoldAndDrain"));
    cluster.run();
    cluster.stopped("a");
    let mut cluster = cluster.restart(8);
    assert_eq!(cluster.record("a")["accumulatedSeconds"], 40);
    cluster.pass_time(600_000);
    cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!("None"));
    assert_eq!(cluster.run_and_start(), [wrote("a", WriteKind::Admit)]);
    let mut cluster = cluster.restart(9);
    cluster.pass_time(19_000);
    assert!(cluster.run().is_empty());
    cluster.pass_time(1_000);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    assert_eq!(cluster.record("a")["state"], "Deactivated");
}

#[test]
fn a_limit_that_is_none_keeps_the_job_waiting_with_the_reason() {
    let mut cluster = Cluster::with_quota(2);
    cluster.create_with("a", 1, |job| label(job, LIMIT, "soon"));
    assert!(cluster.run().is_empty());
    assert!(
        cluster.why("a").contains("max-exec-time-seconds"),
        "{}",
        cluster.why("a")
    );
}

#[test]
fn admission_gates_hold_a_job_back_until_the_last_is_gone() {
    const GATES: &str = "kueue.x-k8s.io/admission-gated-by";
    let mut cluster = Cluster::strict(2);
    cluster.create_with("a", 1, |job| {
        super::annotate(job, GATES, "example.com/data,example.com/licence");
    });
    cluster.create("b", 1);
    assert_eq!(cluster.run(), [wrote("b", WriteKind::Admit)], "it blocks nobody");
    assert!(cluster.why("a").contains("example.com/licence"), "{}", cluster.why("a"));
    cluster.edit("a", |job| super::annotate(job, GATES, "example.com/licence"));
    cluster.event("a");
    assert!(cluster.run().is_empty());
    cluster.remove_annotation("a", GATES);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Admit)]);
}
