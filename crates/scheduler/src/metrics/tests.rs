//! What a scrape shows of an index that was told of real objects.

use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use sluice_api::configuration::{Configuration, FairSharing};
use sluice_engine::{Name, Time};
use sluice_index::{Answer, Happening, Index, Notice, Reign};

use super::{Metrics, role};
use crate::queues::{QueueKey, show_cohort};

const NOW: Time = Time(1_764_500_000_000);

/// An index that leads, its metrics, and the Jobs of one namespace.
struct Scene {
    index: Index,
    registry: Registry,
    metrics: Metrics,
    version: u64,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cluster_queue(cohort: Option<&str>) -> Value {
    let mut queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 2}]}],
            }],
        },
    });
    if let Some(cohort) = cohort {
        queue["spec"]["cohortName"] = json!(cohort);
    }
    queue
}

impl Scene {
    fn new() -> Self {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let mut index = Index::new("sluice-system");
        index.set_namespace("team", std::collections::BTreeMap::new(), NOW);
        index.set_flavor(
            read(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {},
            })),
            NOW,
        );
        index.set_cluster_queue(read(cluster_queue(None)), NOW);
        index.set_local_queue(
            read(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"namespace": "team", "name": "default"}, "spec": {"clusterQueue": "cq"},
            })),
            NOW,
        );
        index.begin_reign(Reign { term: 1, barrier: 0 }, NOW);
        metrics.leads(true);
        Self {
            index,
            registry,
            metrics,
            version: 0,
        }
    }

    fn set_cohort(&mut self, name: &str, spec: Value) {
        let cohort = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": name}, "spec": spec,
        });
        self.index.set_cohort(read(cohort), NOW);
    }

    /// A Job that its webhook suspended: pods of one core each.
    fn create(&mut self, number: u32, pods: u32) -> Value {
        self.see(json!({
            "metadata": {
                "namespace": "team", "name": format!("job-{number}"), "generation": 1,
                "uid": format!("00000000-0000-4000-8000-{number:012}"), "labels": {"kueue.x-k8s.io/queue-name": "default"},
                "annotations": {}, "creationTimestamp": "2025-11-30T10:00:00Z",
            },
            "spec": {
                "suspend": true, "parallelism": pods, "completions": pods,
                "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}},
            },
            "status": {},
        }))
    }

    fn see(&mut self, mut job: Value) -> Value {
        self.version += 1;
        job["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.index.set_job(read(job.clone()), NOW);
        job
    }

    /// Decides, and carries out what was decided, which is about `job` alone.
    fn run(&mut self, job: &mut Value) {
        self.index.pass(NOW, usize::MAX);
        while let Some(write) = self.index.next_write(NOW) {
            assert_eq!(job["metadata"]["name"], *write.name);
            sluice_jobs::apply::apply(job, &write.patch).unwrap();
            self.version += 1;
            job["metadata"]["resourceVersion"] = json!(self.version.to_string());
            let view = read(job.clone());
            self.index
                .answer(write.uid, write.ticket, Answer::Applied(Box::new(view)), NOW);
            self.index.pass(NOW, usize::MAX);
        }
    }

    /// Shows what changed, as the brain does once a second, and scrapes.
    fn scrape(&mut self) -> String {
        let changes = self.index.take_changes();
        for queue in changes.cluster_queues {
            queue.show(&self.index, &self.metrics);
        }
        for queue in changes.local_queues {
            queue.show(&self.index, &self.metrics);
        }
        self.metrics
            .board
            .keep_cohorts(|name| self.index.engine().has_cohort(name));
        for cohort in changes.cohorts {
            show_cohort(&cohort, &self.index, &self.metrics);
        }
        for notice in self.index.take_notices() {
            self.metrics.count(&notice, role(true));
        }
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }
}

fn assert_shows(text: &str, series: &[&str]) {
    for line in series {
        assert!(text.lines().any(|shown| shown == *line), "no {line} in\n{text}");
    }
}

#[test]
fn a_scrape_shows_why_jobs_wait_what_they_ask_for_and_how_many_are_done() {
    let mut scene = Scene::new();
    let mut first = scene.create(1, 2);
    scene.create(2, 1);
    scene.create(3, 5);
    scene.run(&mut first);
    let text = scene.scrape();
    assert_shows(
        &text,
        &[
            r#"kueue_unadmitted_workloads{cluster_queue="cq",reason="NoReservation",replica_role="leader",underlying_cause="WaitingForQuota"} 1"#,
            r#"kueue_unadmitted_workloads{cluster_queue="cq",reason="NoReservation",replica_role="leader",underlying_cause="ExceedsMaxQuota"} 1"#,
            r#"kueue_local_queue_unadmitted_workloads{cluster_queue="cq",name="default",namespace="team",reason="NoReservation",replica_role="leader",underlying_cause="WaitingForQuota"} 1"#,
            r#"kueue_cluster_queue_resource_pending{cluster_queue="cq",replica_role="leader",resource="cpu"} 6"#,
            r#"kueue_finished_workloads{cluster_queue="cq",replica_role="leader"} 0"#,
            r#"kueue_local_queue_finished_workloads{name="default",namespace="team",replica_role="leader"} 0"#,
            r#"kueue_cluster_queue_info{cluster_queue="cq",parent_cohort="",replica_role="leader",root_cohort=""} 1"#,
            r#"kueue_admitted_active_workloads{cluster_queue="cq",replica_role="leader"} 1"#,
            r#"kueue_local_queue_pending_workloads{name="default",namespace="team",replica_role="leader",status="inadmissible"} 2"#,
            r#"kueue_cluster_queue_resource_usage{cluster_queue="cq",cohort="",flavor="any",replica_role="leader",resource="cpu"} 2"#,
        ],
    );
    first["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    scene.see(first);
    let text = scene.scrape();
    assert_shows(
        &text,
        &[
            r#"kueue_finished_workloads{cluster_queue="cq",replica_role="leader"} 1"#,
            r#"kueue_local_queue_finished_workloads{name="default",namespace="team",replica_role="leader"} 1"#,
            r#"kueue_finished_workloads_total{cluster_queue="cq",priority_class="",replica_role="leader"} 1"#,
        ],
    );
}

#[test]
fn a_cause_that_holds_no_more_has_no_series() {
    let mut scene = Scene::new();
    let mut job = scene.create(1, 2);
    assert!(scene.scrape().contains(r#"underlying_cause="PendingEvaluation"} 1"#));
    scene.run(&mut job);
    let text = scene.scrape();
    assert!(!text.contains("kueue_unadmitted_workloads{"), "{text}");
    assert_shows(
        &text,
        &[r#"kueue_cluster_queue_resource_pending{cluster_queue="cq",replica_role="leader",resource="cpu"} 0"#],
    );
}

#[test]
fn a_cluster_queue_is_shown_in_the_cohort_that_it_names_now() {
    let mut scene = Scene::new();
    for cohort in ["north", "south"] {
        scene.index.set_cluster_queue(read(cluster_queue(Some(cohort))), NOW);
        let text = scene.scrape();
        let info: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("kueue_cluster_queue_info{"))
            .collect();
        let wanted = format!(
            r#"kueue_cluster_queue_info{{cluster_queue="cq",parent_cohort="{cohort}",replica_role="leader",root_cohort="{cohort}"}} 1"#
        );
        assert_eq!(info, [wanted]);
    }
}

/// A ClusterQueue of two cores in cohort `team` below `all`; `weight` in fair sharing, which decides.
fn cohorts(weight: u32) -> Scene {
    let mut scene = Scene::new();
    let configuration = Configuration {
        fair_sharing: Some(FairSharing::default()),
        ..Configuration::default()
    };
    scene.index.set_configuration(configuration, NOW);
    let quota = json!([{
        "coveredResources": ["cpu"],
        "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 6}]}],
    }]);
    for (name, spec) in [
        ("all", json!({})),
        ("team", json!({"parentName": "all", "resourceGroups": quota})),
    ] {
        scene.set_cohort(name, spec);
    }
    let mut queue = cluster_queue(Some("team"));
    queue["spec"]["fairSharing"] = json!({"weight": weight});
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!(3);
    scene.index.set_cluster_queue(read(queue), NOW);
    scene
}

#[test]
fn a_scrape_shows_what_is_borrowed_and_what_may_be_where_a_limit_that_is_not_set_is_infinite() {
    let mut scene = cohorts(1);
    let mut job = scene.create(1, 4);
    scene.run(&mut job);
    let text = scene.scrape();
    assert_shows(
        &text,
        &[
            r#"kueue_cluster_queue_nominal_quota{cluster_queue="cq",cohort="team",flavor="any",replica_role="leader",resource="cpu"} 2"#,
            r#"kueue_cluster_queue_borrowing_limit{cluster_queue="cq",cohort="team",flavor="any",replica_role="leader",resource="cpu"} 3"#,
            r#"kueue_cluster_queue_lending_limit{cluster_queue="cq",cohort="team",flavor="any",replica_role="leader",resource="cpu"} inf"#,
            r#"kueue_cluster_queue_info{cluster_queue="cq",parent_cohort="team",replica_role="leader",root_cohort="all"} 1"#,
            r#"kueue_cluster_queue_weighted_share{cluster_queue="cq",cohort="team",replica_role="leader"} 250"#,
            r#"kueue_cohort_info{cohort="team",parent_cohort="all",replica_role="leader",root_cohort="all"} 1"#,
            r#"kueue_cohort_info{cohort="all",parent_cohort="",replica_role="leader",root_cohort="all"} 1"#,
            r#"kueue_cohort_weighted_share{cohort="team",replica_role="leader"} 0"#,
            r#"kueue_cohort_subtree_quota{cohort="team",flavor="any",replica_role="leader",resource="cpu"} 8"#,
            r#"kueue_cohort_subtree_quota{cohort="all",flavor="any",replica_role="leader",resource="cpu"} 8"#,
            r#"kueue_cohort_subtree_resource_reservations{cohort="all",flavor="any",replica_role="leader",resource="cpu"} 4"#,
            r#"kueue_cohort_subtree_admitted_active_workloads{cohort="all",replica_role="leader"} 1"#,
        ],
    );
}

#[test]
fn an_infinite_share_is_not_a_number() {
    let mut scene = cohorts(0);
    let mut job = scene.create(1, 4);
    scene.run(&mut job);
    let line = r#"kueue_cluster_queue_weighted_share{cluster_queue="cq",cohort="team",replica_role="leader"} NaN"#;
    assert_shows(&scene.scrape(), &[line]);
}

#[test]
fn a_cohort_is_shown_as_long_as_it_is_an_object_or_somebody_names_it() {
    let mut scene = cohorts(1);
    let info = |cohort: &str, parent: &str, root: &str| {
        format!(
            r#"kueue_cohort_info{{cohort="{cohort}",parent_cohort="{parent}",replica_role="leader",root_cohort="{root}"}} 1"#
        )
    };
    assert_shows(&scene.scrape(), &[&info("team", "all", "all"), &info("all", "", "all")]);
    scene.index.delete_cohort("team", NOW);
    assert_shows(&scene.scrape(), &[&info("team", "", "team"), &info("all", "", "all")]);
    scene.index.set_cluster_queue(read(cluster_queue(None)), NOW);
    let text = scene.scrape();
    assert!(!text.contains(r#"cohort="team""#), "{text}");
    assert_shows(&text, &[&info("all", "", "all")]);
    scene.index.delete_cohort("all", NOW);
    assert!(!scene.scrape().contains("kueue_cohort_info"));
}

#[test]
fn cohorts_in_a_circle_have_no_outermost_one() {
    let mut scene = cohorts(1);
    scene.set_cohort("all", json!({"parentName": "team"}));
    let line =
        r#"kueue_cluster_queue_info{cluster_queue="cq",parent_cohort="team",replica_role="leader",root_cohort=""} 1"#;
    assert_shows(&scene.scrape(), &[line]);
}

#[test]
fn jobs_that_ask_for_the_same_count_as_one_kind_of_request() {
    let mut scene = Scene::new();
    let mut first = scene.create(1, 2);
    for (number, pods) in [(2, 1), (3, 1), (4, 5)] {
        scene.create(number, pods);
    }
    let hashes = |status: &str, count: u32| {
        format!(
            r#"kueue_pending_scheduling_hashes{{cluster_queue="cq",replica_role="leader",status="{status}"}} {count}"#
        )
    };
    assert_shows(&scene.scrape(), &[&hashes("active", 3), &hashes("inadmissible", 0)]);
    scene.run(&mut first);
    assert_shows(&scene.scrape(), &[&hashes("active", 0), &hashes("inadmissible", 2)]);
}

#[test]
fn a_replica_shows_its_queues_under_one_role_at_a_time() {
    let mut scene = Scene::new();
    assert!(
        scene
            .scrape()
            .contains(r#"kueue_reserving_active_workloads{cluster_queue="cq",replica_role="leader"}"#)
    );
    scene.metrics.leads(false);
    let text = scene.scrape();
    assert!(text.contains(r#"kueue_reserving_active_workloads{cluster_queue="cq",replica_role="follower"}"#));
    assert!(!text.contains(r#"replica_role="leader""#), "{text}");
}

#[test]
fn a_deleted_queue_leaves_nothing_behind() {
    let mut scene = Scene::new();
    let mut job = scene.create(1, 1);
    scene.run(&mut job);
    assert!(
        scene
            .scrape()
            .contains(r#"kueue_admitted_workloads_total{cluster_queue="cq""#)
    );
    scene.index.delete_job("team", "job-1", "", NOW);
    scene.index.delete_local_queue("team", "default");
    let text = scene.scrape();
    assert!(!text.contains(r#"namespace="team""#), "{text}");
    scene.index.delete_cluster_queue("cq");
    let text = scene.scrape();
    assert!(!text.contains(r#"cluster_queue="cq""#), "{text}");
}

#[test]
fn evictions_are_counted_each_and_once_a_reason_with_the_time_until_their_quota_was_free() {
    let mut scene = Scene::new();
    let happenings = [
        ("Preempted", "InClusterQueue", true, 3_000),
        ("Preempted", "InClusterQueue", false, 40_000),
        ("Grown", "", true, 500),
    ];
    for (reason, cause, first, after_ms) in happenings {
        let reason = reason.to_owned();
        let evicted = Happening::Evicted {
            reason: reason.clone(),
            cause: cause.to_owned(),
            message: String::new(),
            preemptor: (reason == "Preempted").then(|| Name::from("urgent")),
            first,
        };
        for what in [evicted, Happening::QuotaReturned { reason, after_ms }] {
            let notice = Notice {
                job: (Name::from("team"), Name::from("a")),
                uid: String::new(),
                queue: "cq".into(),
                local_queue: "default".into(),
                priority_class: "".into(),
                what,
            };
            scene.metrics.count(&notice, role(true));
        }
    }
    let counted = |family: &str, reason: &str, cause: &str, count: u32| {
        format!(
            r#"{family}{{cluster_queue="cq",priority_class="",reason="{reason}",replica_role="leader",underlying_cause="{cause}"}} {count}"#
        )
    };
    let once = "kueue_evicted_workloads_once_total";
    let latency = |series: &str, more: &str, value: u32| {
        format!(
            r#"kueue_workload_eviction_latency_seconds_{series}{{cluster_queue="cq",reason="Preempted",replica_role="leader"{more}}} {value}"#
        )
    };
    let lines = [
        counted("kueue_evicted_workloads_total", "Preempted", "InClusterQueue", 2),
        counted(once, "Preempted", "InClusterQueue", 1),
        counted(once, "Grown", "", 1),
        latency("count", "", 2),
        latency("sum", "", 43),
        latency("bucket", r#",le="5""#, 1),
        r#"kueue_preempted_workloads_total{preempting_cluster_queue="urgent",reason="InClusterQueue",replica_role="leader"} 2"#
            .to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_shows(&scene.scrape(), &lines);
}

#[test]
fn the_build_says_its_version_and_platform() {
    let text = Scene::new().scrape();
    let info: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("kueue_build_info{"))
        .collect();
    let [info] = info[..] else { panic!("{info:?}") };
    let version = format!(r#"git_version="v{}""#, env!("CARGO_PKG_VERSION"));
    for part in [
        &*version,
        r#"compiler="rustc""#,
        r#"platform="linux/"#,
        r#"git_commit=""#,
        r#"build_date=""#,
        r#"go_version=""#,
    ] {
        assert!(info.contains(part), "no {part} in {info}");
    }
    assert!(info.ends_with("} 1"), "{info}");
}
