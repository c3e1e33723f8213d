//! A Job's way with kubectl as the client: held, admitted in order, finished, its quota given back.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::jobs::Stage;
use sluice_e2e::manifests;
use sluice_testkit::eventually;

use crate::world::{PATIENCE, QUEUE_LABEL, name_of, world};

#[tokio::test]
async fn a_job_of_an_opted_in_namespace_is_held_without_a_pod_and_starts_when_there_is_quota() -> Result<()> {
    let team = world().await?.team("held", "0").await?;
    team.create("a", 2, "100ms").await?;
    team.until_pending(1).await?;
    let job = team.get("a").await?;
    ensure!(
        job.metadata.generation == Some(1),
        "it was stored suspended, never changed"
    );
    ensure!(job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true));
    ensure!(team.pods("a").await?.is_empty());
    team.set_quota("2").await?;
    team.until("a", Stage::Completed).await?;
    let status = team
        .until_status("its quota is given back", |status| status["reservingWorkloads"] == 0)
        .await?;
    ensure!(status["flavorsUsage"][0]["resources"][0]["total"] == "0", "{status}");
    Ok(())
}

#[tokio::test]
async fn a_job_of_another_namespace_is_left_alone() -> Result<()> {
    let world = world().await?;
    let queue = manifests::cluster_queue("not-opted-in", "any", "0");
    let team = world.team_with("not-opted-in", false, queue).await?;
    team.create("a", 1, "100ms").await?;
    let job = team.until("a", Stage::Completed).await?;
    ensure!(!job.metadata.labels.unwrap_or_default().contains_key(QUEUE_LABEL));
    ensure!(world.job_writes("not-opted-in")?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_job_with_the_queue_label_is_queued_in_any_namespace() -> Result<()> {
    let world = world().await?;
    let queue = manifests::cluster_queue("by-label", "any", "0");
    let team = world.team_with("by-label", false, queue).await?;
    let job = manifests::labelled(team.job("a", 1, "1", "100ms"), QUEUE_LABEL, "default");
    team.kubectl.create(&job.to_string()).await?;
    team.until_pending(1).await?;
    ensure!(team.stage("a").await? == Stage::Held);
    team.set_quota("1").await?;
    team.until("a", Stage::Completed).await?;
    Ok(())
}

#[tokio::test]
async fn higher_priority_goes_first() -> Result<()> {
    let world = world().await?;
    let team = world.team("priority", "0").await?;
    let classes = [
        manifests::priority_class("prio-high", 1000),
        manifests::priority_class("prio-low", 10),
    ];
    team.kubectl.apply(&manifests::list(classes)).await?;
    team.create_with_class("low", "prio-low", "100ms").await?;
    team.create("none", 1, "100ms").await?;
    team.create_with_class("high", "prio-high", "100ms").await?;
    team.until_pending(3).await?;
    team.set_quota("1").await?;
    for name in ["low", "none", "high"] {
        team.until(name, Stage::Completed).await?;
    }
    ensure!(
        team.admission_order().await? == ["high", "low", "none"],
        "{:?}",
        team.admission_order().await?
    );
    Ok(())
}

#[tokio::test]
async fn equal_priorities_go_in_order_of_creation_then_of_uid() -> Result<()> {
    let team = world().await?.team("fifo", "0").await?;
    for number in 0..6 {
        team.create(&format!("job-{number}"), 1, "50ms").await?;
    }
    team.until_pending(6).await?;
    let mut expected = team.jobs().await?;
    expected.sort_by_key(|job| (job.metadata.creation_timestamp.clone(), job.metadata.uid.clone()));
    team.set_quota("1").await?;
    for job in &expected {
        team.until(&name_of(job), Stage::Completed).await?;
    }
    let expected: Vec<String> = expected.iter().map(name_of).collect();
    ensure!(
        team.admission_order().await? == expected,
        "{:?} instead of {expected:?}",
        team.admission_order().await?
    );
    Ok(())
}

#[tokio::test]
async fn the_head_of_a_strict_queue_blocks_and_smaller_jobs_pass_it_in_a_best_effort_queue() -> Result<()> {
    let world = world().await?;
    let mut strict = manifests::cluster_queue("strict", "any", "2");
    strict["spec"]["queueingStrategy"] = json!("StrictFIFO");
    let strict = world.team_with("strict", true, strict).await?;
    let best_effort = world.team("best-effort", "2").await?;
    for team in [&strict, &best_effort] {
        team.create("running", 1, "1h").await?;
        team.until("running", Stage::Running).await?;
        team.create("big", 2, "100ms").await?;
        team.until_pending(1).await?;
        team.create("small", 1, "100ms").await?;
    }
    best_effort.until("small", Stage::Completed).await?;
    strict.until_pending(2).await?;
    ensure!(strict.stage("small").await? == Stage::Held, "it must not pass the head");
    strict.kubectl.line("delete job running -n strict").await?.ok()?;
    strict.until("small", Stage::Completed).await?;
    ensure!(strict.stage("big").await? == Stage::Completed);
    Ok(())
}

#[tokio::test]
async fn flavors_are_tried_in_order_and_their_nodes_get_the_pods() -> Result<()> {
    let world = world().await?;
    let kubectl = world.plane.kubectl();
    let mut spot = manifests::flavor("spot", json!({"pool": "spot"}));
    spot["spec"]["tolerations"] =
        json!([{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]);
    kubectl
        .apply(&manifests::list([
            spot,
            manifests::flavor("reserved", json!({"pool": "reserved"})),
        ]))
        .await?;
    let mut queue = manifests::cluster_queue("flavors", "reserved", "1");
    queue["spec"]["resourceGroups"][0]["flavors"] = json!([
        {"name": "reserved", "resources": [{"name": "cpu", "nominalQuota": 1}]},
        {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": 1}]},
    ]);
    let team = world.team_with("flavors", true, queue).await?;
    for (name, node) in [("first", "reserved-1"), ("second", "spot-1")] {
        team.create(name, 1, "1h").await?;
        team.until(name, Stage::Running).await?;
        eventually("its pod is on a node of its flavor", PATIENCE, || async {
            let pods = team.pods(name).await?;
            ensure!(pods.len() == 1 && pods[0]["spec"]["nodeName"] == node, "{pods:?}");
            let labels = &pods[0]["metadata"]["labels"];
            ensure!(labels["kueue.x-k8s.io/cluster-queue-name"] == "flavors", "{labels}");
            ensure!(labels["kueue.x-k8s.io/local-queue-name"] == "default", "{labels}");
            ensure!(labels["kueue.x-k8s.io/podset"] == "main", "{labels}");
            anyhow::Ok(())
        })
        .await?;
    }
    team.create("third", 1, "1h").await?;
    team.until_pending(1).await?;
    ensure!(team.stage("third").await? == Stage::Held);
    Ok(())
}

#[tokio::test]
async fn each_admitted_job_costs_one_write() -> Result<()> {
    let world = world().await?;
    let team = world.team("one-write", "3").await?;
    for number in 0..12 {
        team.create(&format!("job-{number}"), number % 3 + 1, "100ms").await?;
    }
    for number in 0..12 {
        team.until(&format!("job-{number}"), Stage::Completed).await?;
    }
    let writes = eventually("the audit log has every write", PATIENCE, || async {
        let writes = world.job_writes("one-write")?;
        ensure!(writes.len() >= 12, "{} writes", writes.len());
        anyhow::Ok(writes)
    })
    .await?;
    let each: Vec<_> = writes
        .iter()
        .map(|write| (&write.verb, &write.subresource, &write.name, write.code))
        .collect();
    ensure!(writes.len() == 12, "{each:?}");
    ensure!(
        writes
            .iter()
            .all(|write| write.verb == "patch" && write.subresource.is_empty() && write.succeeded()),
        "{each:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_idle_queue_with_waiting_jobs_is_left_in_peace() -> Result<()> {
    let world = world().await?;
    let team = world.team("idle", "0").await?;
    for number in 0..3 {
        team.create(&format!("job-{number}"), 1, "1s").await?;
    }
    team.until_pending(3).await?;
    let before = team.kubectl.get("clusterqueue idle").await?["metadata"]["resourceVersion"].clone();
    // Another queue's Job comes and goes meanwhile: that is time passing, and no reason to write here.
    let busy = world.team("busy", "1").await?;
    busy.create("a", 1, "3s").await?;
    busy.until("a", Stage::Completed).await?;
    ensure!(world.job_writes("idle")?.is_empty());
    let after = team.kubectl.get("clusterqueue idle").await?["metadata"]["resourceVersion"].clone();
    ensure!(before == after, "its status was written again: {before} {after}");
    Ok(())
}

#[tokio::test]
async fn pods_that_succeed_early_give_their_quota_back_early() -> Result<()> {
    let team = world().await?.team("early", "2").await?;
    let mut job = team.job("a", 2, "1", "1h");
    job["spec"]["completionMode"] = json!("Indexed");
    team.kubectl.create(&job.to_string()).await?;
    team.until("a", Stage::Running).await?;
    let pod = eventually("both pods are there", PATIENCE, || async {
        let pods = team.pods("a").await?;
        ensure!(pods.len() == 2, "{} pods", pods.len());
        anyhow::Ok(pods[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    })
    .await?;
    team.create("b", 1, "100ms").await?;
    team.until_pending(1).await?;
    let done = json!({"status": {"phase": "Succeeded"}}).to_string();
    let patch = [
        "patch",
        "pod",
        &pod,
        "-n",
        "early",
        "--subresource=status",
        "--type=merge",
        "-p",
        &done,
    ];
    team.kubectl.run(&patch, "").await?.ok()?;
    team.until("b", Stage::Completed).await?;
    ensure!(team.stage("a").await? == Stage::Running);
    Ok(())
}

#[tokio::test]
async fn events_tell_why_a_job_waits_and_that_it_started() -> Result<()> {
    let team = world().await?.team("events", "1").await?;
    team.create("big", 3, "100ms").await?;
    team.create("small", 1, "100ms").await?;
    team.until("small", Stage::Completed).await?;
    let events = |name: &'static str| {
        let kubectl = team.kubectl.clone();
        async move {
            kubectl
                .get(&format!("events -n events --field-selector=involvedObject.name={name}"))
                .await
        }
    };
    eventually("the event says that it exceeds the quota", PATIENCE, || async {
        let events = events("big").await?;
        let text = events.to_string();
        ensure!(text.contains("ExceedsMaxQuota") && text.contains("cpu"), "{text}");
        anyhow::Ok(())
    })
    .await?;
    eventually("the event says that it was admitted", PATIENCE, || async {
        let text = events("small").await?.to_string();
        ensure!(text.contains("Admitted by ClusterQueue events"), "{text}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test]
async fn a_job_without_a_queue_to_go_to_is_held_with_a_warning_and_starts_once_there_is_one() -> Result<()> {
    let world = world().await?;
    let kubectl = world.plane.kubectl();
    kubectl
        .apply(&manifests::namespace("no-queue", true).to_string())
        .await?;
    let job = manifests::job("no-queue", "a", 1, "1", "100ms");
    eventually("the webhook knows the namespace", PATIENCE, || async {
        let output = kubectl
            .run(&["create", "--dry-run=server", "-f", "-"], &job.to_string())
            .await?;
        ensure!(output.stderr.contains("Warning"), "{}", output.stderr);
        anyhow::Ok(())
    })
    .await?;
    let said = kubectl.run(&["create", "-f", "-"], &job.to_string()).await?;
    ensure!(said.stderr.contains("LocalQueue"), "{}", said.stderr);
    let team = world
        .team_with("no-queue", false, manifests::cluster_queue("no-queue", "any", "1"))
        .await?;
    kubectl
        .apply(&manifests::namespace("no-queue", true).to_string())
        .await?;
    team.until("a", Stage::Completed).await?;
    ensure!(team.get("a").await?.metadata.labels.unwrap_or_default()[QUEUE_LABEL] == "default");
    Ok(())
}

#[tokio::test]
async fn a_cluster_queue_that_uses_what_is_not_acted_on_says_so_and_admits_nothing() -> Result<()> {
    let world = world().await?;
    let mut queue = manifests::cluster_queue("checked", "any", "5");
    queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "provisioning"}]});
    let team = world.team_with("checked", true, queue).await?;
    team.create("a", 1, "1s").await?;
    let status = team
        .until_status("it is inactive", |status| {
            status["conditions"][0]["status"] == "False" && status["pendingWorkloads"] == 1
        })
        .await?;
    let message = status["conditions"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("spec.admissionChecksStrategy"), "{message}");
    ensure!(team.stage("a").await? == Stage::Held);
    Ok(())
}

#[tokio::test]
async fn labels_of_a_namespace_decide_which_cluster_queue_it_may_use_at_any_time() -> Result<()> {
    let world = world().await?;
    let mut queue = manifests::cluster_queue("selected", "any", "1");
    queue["spec"]["namespaceSelector"] = json!({"matchLabels": {"tier": "gold"}});
    let team = world.team_with("selected", true, queue).await?;
    team.create("a", 1, "100ms").await?;
    team.until_pending(1).await?;
    ensure!(team.stage("a").await? == Stage::Held);
    team.kubectl.line("label namespace selected tier=gold").await?.ok()?;
    team.until("a", Stage::Completed).await?;
    Ok(())
}

#[tokio::test]
async fn metrics_have_kueues_names_and_say_what_the_queues_hold() -> Result<()> {
    let world = world().await?;
    let team = world.team("metrics", "1").await?;
    team.create("done", 1, "100ms").await?;
    team.until("done", Stage::Completed).await?;
    team.create("running", 1, "1h").await?;
    team.until("running", Stage::Running).await?;
    team.create("waiting", 1, "1h").await?;
    team.until_pending(1).await?;
    let leader = world.sluice.until_leading().await?;
    eventually("the metrics show one running and one waiting Job", PATIENCE, || async {
        let metrics = world.sluice.metrics(&leader).await?;
        for series in [
            r#"kueue_pending_workloads{cluster_queue="metrics",replica_role="leader",status="inadmissible"} 1"#,
            r#"kueue_admitted_active_workloads{cluster_queue="metrics",replica_role="leader"} 1"#,
            r#"kueue_cluster_queue_resource_usage{cluster_queue="metrics",cohort="",flavor="any",replica_role="leader",resource="cpu"} 1"#,
            r#"kueue_cluster_queue_status{cluster_queue="metrics",replica_role="leader",status="active"} 1"#,
            r#"kueue_admitted_workloads_total{cluster_queue="metrics",priority_class="",replica_role="leader"} 2"#,
            r#"kueue_cluster_queue_borrowing_limit{cluster_queue="metrics",cohort="",flavor="any",replica_role="leader",resource="cpu"} inf"#,
            r#"kueue_local_queue_resource_usage{flavor="any",name="default",namespace="metrics",replica_role="leader",resource="cpu"} 1"#,
            r#"kueue_local_queue_admission_wait_time_seconds_count{name="default",namespace="metrics",priority_class="",replica_role="leader"} 2"#,
            r#"kueue_unadmitted_workloads{cluster_queue="metrics",reason="NoReservation",replica_role="leader",underlying_cause="WaitingForQuota"} 1"#,
            r#"kueue_local_queue_unadmitted_workloads{cluster_queue="metrics",name="default",namespace="metrics",reason="NoReservation",replica_role="leader",underlying_cause="WaitingForQuota"} 1"#,
            r#"kueue_cluster_queue_resource_pending{cluster_queue="metrics",replica_role="leader",resource="cpu"} 1"#,
            r#"kueue_finished_workloads{cluster_queue="metrics",replica_role="leader"} 1"#,
            r#"kueue_local_queue_finished_workloads{name="default",namespace="metrics",replica_role="leader"} 1"#,
            r#"kueue_cluster_queue_info{cluster_queue="metrics",parent_cohort="",replica_role="leader",root_cohort=""} 1"#,
            "kueue_build_info{",
            "sluice_leader 1",
        ] {
            ensure!(metrics.contains(series), "no {series} in\n{metrics}");
        }
        anyhow::Ok(())
    })
    .await
}
