//! Partial admission.

use serde_json::{Value, json};
use sluice_index::WriteKind;

use super::{annotate, wrote};
use crate::cluster::Cluster;

const MIN: &str = "kueue.x-k8s.io/job-min-parallelism";
const FOLLOW: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// A Job of ten pods that can live with `min`, in a queue of nine cores.
fn elastic(min: &str, change: impl FnOnce(&mut Value)) -> Cluster {
    let mut cluster = Cluster::with_quota(9);
    cluster.create_with("a", 10, |job| {
        annotate(job, MIN, min);
        change(job);
    });
    cluster
}

fn drain(cluster: &mut Cluster, policy: &str) {
    cluster.edit_queue(|queue| queue["spec"]["stopPolicy"] = json!(policy));
}

#[test]
fn a_job_that_accepts_fewer_pods_runs_with_what_fits_and_pays_for_that_alone() {
    for min in ["9", "8"] {
        let mut cluster = elastic(min, |_| ());
        assert_eq!(cluster.run_and_start(), [wrote("a", WriteKind::Admit)]);
        let job = cluster.job("a");
        assert_eq!(
            (&job["spec"]["parallelism"], &job["spec"]["completions"]),
            (&json!(9), &json!(10))
        );
        let record = cluster.record("a");
        assert_eq!(
            (&record["podSets"][0]["count"], &record["delta"]["parallelism"]),
            (&json!(9), &json!(10))
        );
        assert_eq!(cluster.reserved(), 9000);
        assert!(cluster.run().is_empty(), "what we wrote is no growth");
    }
}

#[test]
fn an_eviction_gives_the_owners_numbers_back_and_the_job_is_admitted_anew() {
    let mut cluster = elastic("4", |job| {
        job["spec"]["completionMode"] = json!("Indexed");
        annotate(job, FOLLOW, "true");
    });
    cluster.run_and_start();
    assert_eq!(cluster.job("a")["spec"]["completions"], 9);
    let mut cluster = cluster.restart(8);
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.reserved(), 9000);
    drain(&mut cluster, "HoldAndDrain");
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    let job = cluster.job("a");
    assert_eq!(
        (&job["spec"]["parallelism"], &job["spec"]["completions"]),
        (&json!(10), &json!(10))
    );
    assert_eq!(cluster.reserved(), 9000, "nine pods may still run");
    let mut cluster = cluster.restart(9);
    cluster.stopped("a");
    cluster.set_quota(5);
    drain(&mut cluster, "None");
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Admit)]);
    let job = cluster.job("a");
    assert_eq!(
        (&job["spec"]["parallelism"], &job["spec"]["completions"]),
        (&json!(5), &json!(5))
    );
    assert_eq!(cluster.reserved(), 5000);
}

#[test]
fn a_job_that_gets_all_its_pods_keeps_its_numbers() {
    let mut cluster = elastic("4", |_| ());
    cluster.set_quota(10);
    cluster.run();
    assert_eq!(cluster.job("a")["spec"]["parallelism"], 10);
    assert!(cluster.record("a")["delta"].get("parallelism").is_none());
}

#[test]
fn a_job_waits_while_not_even_its_fewest_pods_fit() {
    let mut cluster = elastic("4", |_| ());
    cluster.set_quota(3);
    assert!(cluster.run().is_empty());
    assert_eq!(cluster.job("a")["spec"]["parallelism"], 10);
}

#[test]
fn a_partly_admitted_job_that_its_owner_raises_is_evicted_as_grown() {
    let mut cluster = elastic("4", |_| ());
    cluster.run_and_start();
    cluster.edit("a", |job| job["spec"]["parallelism"] = json!(10));
    cluster.event("a");
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    assert_eq!(cluster.eviction("a").0, "Grown");
    assert_eq!(cluster.job("a")["spec"]["parallelism"], 10);
}

#[test]
fn an_owner_who_stops_a_partly_admitted_job_gets_the_numbers_back_too() {
    let mut cluster = elastic("4", |_| ());
    cluster.run_and_start();
    cluster.edit("a", |job| {
        job["spec"]["suspend"] = json!(true);
        annotate(job, "sluice.internal/hold", "true");
    });
    cluster.event("a");
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Hold)]);
    assert_eq!(cluster.job("a")["spec"]["parallelism"], 10);
}

#[test]
fn a_least_parallelism_that_makes_no_sense_keeps_the_job_waiting_with_the_reason() {
    let mut cluster = elastic("none", |_| ());
    assert!(cluster.run().is_empty());
    assert!(cluster.why("a").contains("job-min-parallelism"), "{}", cluster.why("a"));
}

#[test]
fn a_job_that_runs_when_its_namespace_opts_in_is_charged_whole() {
    let mut cluster = Cluster::with_quota(1);
    cluster.create_running("a", 3);
    cluster.edit("a", |job| annotate(job, MIN, "1"));
    cluster.event("a");
    cluster.pass_time(60_000);
    cluster.opt_in();
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Adopt)]);
    assert_eq!(cluster.reserved(), 3000);
}
