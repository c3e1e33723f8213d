//! Cohorts: borrowing, taking back, trees.

use serde_json::{Value, json};
use sluice_index::WriteKind;

use super::{cluster_queue, cohort, local_queue, queued_in, wrote};
use crate::cluster::Cluster;

/// Queues `lender` and `borrower` of two cores each in one cohort; the first takes back what it lent.
fn two_queues() -> Cluster {
    let mut cluster = Cluster::with_quota(0);
    let reclaims = json!({"cohortName": "all", "preemption": {"reclaimWithinCohort": "Any"}});
    for (name, more) in [("lender", reclaims), ("borrower", json!({"cohortName": "all"}))] {
        cluster.apply(cluster_queue(name, 2, more));
        cluster.apply(local_queue(name));
    }
    cluster
}

fn create(cluster: &mut Cluster, name: &str, queue: &str, pods: i64) {
    cluster.create_with(name, pods, queued_in(queue));
}

fn active(cluster: &mut Cluster, queue: &str) -> (Value, String) {
    let condition = cluster.status_of(queue)["conditions"][0].clone();
    let message = condition["message"].as_str().unwrap().to_owned();
    (condition["reason"].clone(), message)
}

#[test]
fn a_queue_borrows_what_its_cohort_does_not_use_and_says_so() {
    let mut cluster = two_queues();
    create(&mut cluster, "a", "borrower", 3);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Admit)]);
    let status = cluster.status_of("borrower");
    let usage = &status["flavorsUsage"][0]["resources"][0];
    assert_eq!((&usage["total"], &usage["borrowed"]), (&json!("3"), &json!("1")));
}

#[test]
fn a_queue_without_cohort_above_its_lowered_quota_borrows_nothing() {
    let mut cluster = Cluster::with_quota(3);
    cluster.create("a", 3);
    cluster.run();
    cluster.set_quota(1);
    cluster.create("b", 1);
    assert!(cluster.run().is_empty());
    let status = cluster.queue_status();
    let usage = &status["flavorsUsage"][0]["resources"][0];
    assert_eq!((&usage["total"], &usage["borrowed"]), (&json!("3"), &json!("0")));
}

#[test]
fn what_was_lent_is_taken_back_and_the_borrower_waits_in_its_old_place() {
    let mut cluster = two_queues();
    create(&mut cluster, "a", "borrower", 4);
    cluster.run_and_start();
    create(&mut cluster, "b", "lender", 2);
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Evict)]);
    let (reason, cause, message) = cluster.eviction("a");
    assert_eq!((reason.as_str(), cause.as_str()), ("Preempted", "InCohortReclamation"));
    assert!(
        message.starts_with("preempted by team/b in ClusterQueue lender: InCohortReclamation"),
        "{message}"
    );
    let mut cluster = cluster.restart(8);
    assert_eq!(cluster.reserved_in("borrower"), 4000);
    cluster.stopped("a");
    assert_eq!(cluster.run(), [wrote("b", WriteKind::Admit)]);
    assert_eq!(
        (cluster.reserved_in("lender"), cluster.reserved_in("borrower")),
        (2000, 0)
    );
}

#[test]
fn limits_of_queues_and_quota_of_a_cohort_object_count() {
    let mut cluster = Cluster::with_quota(0);
    let quota = |nominal: i64| {
        json!([{
            "coveredResources": ["cpu"],
            "flavors": [{"name": "blue", "resources": [{"name": "cpu", "nominalQuota": nominal}]}],
        }])
    };
    cluster.apply(cohort("all", json!({"resourceGroups": quota(5)})));
    let mut queue = cluster_queue("limited", 1, json!({"cohortName": "all"}));
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!(2);
    cluster.apply(queue);
    cluster.apply(local_queue("limited"));
    create(&mut cluster, "a", "limited", 4);
    create(&mut cluster, "b", "limited", 3);
    assert_eq!(cluster.run(), [wrote("b", WriteKind::Admit)]);
    cluster.finish("b");
    let now = cluster.now();
    cluster.index.delete_cohort("all", now);
    create(&mut cluster, "c", "limited", 2);
    create(&mut cluster, "d", "limited", 1);
    assert_eq!(cluster.run(), [wrote("d", WriteKind::Admit)]);
}

#[test]
fn a_cohort_that_cannot_be_used_stops_those_below_it_and_nobody_else() {
    let mut cluster = Cluster::with_quota(2);
    let broken = json!([{
        "coveredResources": ["cpu"],
        "flavors": [{"name": "blue", "resources": [{"name": "cpu", "nominalQuota": "much"}]}],
    }]);
    cluster.apply(cluster_queue("below", 2, json!({"cohortName": "leaf"})));
    cluster.apply(local_queue("below"));
    cluster.apply(cohort("leaf", json!({"parentName": "root"})));
    cluster.apply(cohort("root", json!({"resourceGroups": broken})));
    create(&mut cluster, "a", "below", 1);
    cluster.create("b", 1);
    assert_eq!(cluster.run(), [wrote("b", WriteKind::Admit)]);
    let (reason, message) = active(&mut cluster, "below");
    assert_eq!(reason, "InvalidSpec");
    assert!(message.contains("Cohort root") && message.contains("much"), "{message}");
    cluster.apply(cohort("root", json!({})));
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Admit)]);
}

#[test]
fn a_cycle_of_cohorts_stops_its_members_with_the_reason() {
    let mut cluster = Cluster::with_quota(0);
    cluster.apply(cluster_queue("below", 2, json!({"cohortName": "x"})));
    cluster.apply(local_queue("below"));
    cluster.apply(cohort("x", json!({"parentName": "y"})));
    cluster.apply(cohort("y", json!({"parentName": "x"})));
    create(&mut cluster, "a", "below", 1);
    assert!(cluster.run().is_empty());
    let (_, message) = active(&mut cluster, "below");
    assert!(message.contains("cohort x"), "{message}");
    cluster.apply(cohort("y", json!({})));
    assert_eq!(cluster.run(), [wrote("a", WriteKind::Admit)]);
}

#[test]
fn shares_are_shown_where_they_decide_and_whatever_changes_them_is_reported() {
    let mut cluster = two_queues();
    cluster.apply(cohort("all", json!({"parentName": "root"})));
    cluster.apply(cohort("root", json!({})));
    create(&mut cluster, "a", "borrower", 3);
    cluster.run();
    assert_eq!(cluster.status_of("borrower").get("fairSharing"), None);
    assert_eq!(cluster.cohort_status("all"), Value::Null);

    cluster.configure("fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare]}");
    // One of four cores is borrowed.
    assert_eq!(cluster.status_of("borrower")["fairSharing"]["weightedShare"], 250);
    assert_eq!(cluster.status_of("lender")["fairSharing"]["weightedShare"], 0);
    assert_eq!(cluster.cohort_status("all")["fairSharing"]["weightedShare"], 0);
    assert!(cluster.status_of("cq").get("fairSharing").is_none(), "it has no cohort");

    cluster.index.take_changes();
    create(&mut cluster, "b", "lender", 1);
    cluster.run();
    let changes = cluster.index.take_changes();
    assert_eq!(
        changes.cohorts.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["all", "root"]
    );
    assert!(!changes.cluster_queues.contains("borrower"));
    cluster.apply(cluster_queue("lender", 4, json!({"cohortName": "all"})));
    assert!(cluster.index.take_changes().cluster_queues.contains("borrower"));
    assert_eq!(cluster.status_of("borrower")["fairSharing"]["weightedShare"], 167);
}
