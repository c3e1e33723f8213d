//! What else happens to Jobs: deleted, suspended by their owner, grown, shrunk, running before Sluice came.

use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::jobs::Stage;
use sluice_e2e::manifests;
use sluice_testkit::{FakeNode, PlaneOptions, SchedulerOptions, WebhookOptions, eventually};

use crate::world::{PATIENCE, QUEUE_LABEL, own_world_on, world};

#[tokio::test]
async fn pods_that_an_orphaning_delete_leaves_behind_are_charged_until_they_are_gone() -> Result<()> {
    let team = world().await?.team("orphans", "2").await?;
    team.create("a", 2, "1h").await?;
    team.until("a", Stage::Running).await?;
    let pods = eventually("its pods are there", PATIENCE, || async {
        let pods = team.pods("a").await?;
        ensure!(pods.len() == 2, "{} pods", pods.len());
        anyhow::Ok(pods)
    })
    .await?;
    team.kubectl
        .line("delete job a -n orphans --cascade=orphan")
        .await?
        .ok()?;
    team.create("a", 1, "100ms").await?;
    team.until_pending(1).await?;
    team.until_reserved("2").await?;
    ensure!(
        team.stage("a").await? == Stage::Held,
        "the pods of the old Job still run"
    );
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        team.kubectl
            .line(&format!("delete pod {name} -n orphans --grace-period=0 --force"))
            .await?
            .ok()?;
    }
    team.until("a", Stage::Completed).await?;
    Ok(())
}

#[tokio::test]
async fn an_owner_who_suspends_a_running_job_holds_it_until_the_hold_is_taken_off() -> Result<()> {
    let team = world().await?.team("hold", "1").await?;
    team.create("a", 1, "1h").await?;
    team.until("a", Stage::Running).await?;
    eventually("its pod is there", PATIENCE, || async {
        ensure!(team.pods("a").await?.len() == 1);
        anyhow::Ok(())
    })
    .await?;
    // Statuses come once a second: one from before the start would look like the quota being back.
    team.until_reserved("1").await?;
    team.merge("a", &json!({"spec": {"suspend": true}})).await?.ok()?;
    team.until_reserved("0").await?;
    ensure!(
        team.record("a").await?["state"] == "Held",
        "{}",
        team.record("a").await?
    );
    team.create("b", 1, "100ms").await?;
    team.until("b", Stage::Completed).await?;
    ensure!(team.stage("a").await? == Stage::Held, "it is held, not queued");
    team.merge("a", &json!({"spec": {"suspend": false}})).await?.ok()?;
    team.until("a", Stage::Running).await?;
    Ok(())
}

#[tokio::test]
async fn an_admitted_job_cannot_grow_and_gives_back_what_it_shrinks_by() -> Result<()> {
    let team = world().await?.team("growth", "3").await?;
    let mut job = team.job("a", 3, "1", "1h");
    job["spec"]["completions"] = json!(6);
    team.kubectl.create(&job.to_string()).await?;
    team.until("a", Stage::Running).await?;
    let refused = team.merge("a", &json!({"spec": {"parallelism": 4}})).await?.refused()?;
    ensure!(refused.contains("may only fall"), "{refused}");
    team.create("b", 2, "100ms").await?;
    team.until_pending(1).await?;
    team.merge("a", &json!({"spec": {"parallelism": 1}})).await?.ok()?;
    team.until("b", Stage::Completed).await?;
    team.until_reserved("1").await?;
    Ok(())
}

#[tokio::test]
async fn jobs_that_ran_when_their_namespace_opted_in_are_charged_and_never_suspended() -> Result<()> {
    let world = world().await?;
    let queue = manifests::cluster_queue("adopted", "any", "1");
    let team = world.team_with("adopted", false, queue).await?;
    team.create("a", 3, "1h").await?;
    eventually("it runs", PATIENCE, || async {
        ensure!(team.pods("a").await?.len() == 3);
        anyhow::Ok(())
    })
    .await?;
    team.kubectl
        .line("label namespace adopted kueue.x-k8s.io/managed-namespace=true")
        .await?
        .ok()?;
    team.until_reserved("3").await?;
    let job = team.get("a").await?;
    ensure!(team.record("a").await?["state"] == "Admitted");
    ensure!(job.metadata.generation == Some(1), "its spec was not touched");
    ensure!(team.pods("a").await?.len() == 3);
    Ok(())
}

#[tokio::test]
async fn a_waiting_job_follows_its_label_to_another_queue() -> Result<()> {
    let world = world().await?;
    let team = world.team("moves", "0").await?;
    team.kubectl
        .apply(&manifests::list([
            manifests::cluster_queue("moves-to", "any", "1"),
            manifests::local_queue("moves", "other", "moves-to"),
        ]))
        .await?;
    team.create("a", 1, "100ms").await?;
    team.until_pending(1).await?;
    let label = json!({"metadata": {"labels": {QUEUE_LABEL: "other"}}});
    team.merge("a", &label).await?.ok()?;
    team.until("a", Stage::Completed).await?;
    ensure!(team.record("a").await?["clusterQueue"] == "moves-to");
    Ok(())
}

#[tokio::test]
async fn jobs_of_a_cron_job_wait_and_are_cleaned_up_as_always() -> Result<()> {
    let team = world().await?.team("cron", "1").await?;
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"namespace": "cron", "name": "c"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": team.job("x", 1, "1", "100ms")["spec"]}},
    });
    team.kubectl.create(&cron.to_string()).await?;
    team.kubectl
        .line("create job --from=cronjob/c by-hand -n cron")
        .await?
        .ok()?;
    team.until("by-hand", Stage::Completed).await?;
    ensure!(
        team.record("by-hand").await?["state"] == "Admitted",
        "it came through the queue"
    );
    team.kubectl.line("delete cronjob c -n cron").await?.ok()?;
    eventually("its Jobs are collected", PATIENCE, || async {
        ensure!(team.jobs().await?.is_empty());
        anyhow::Ok(())
    })
    .await
}

#[tokio::test]
async fn a_namespace_with_waiting_and_running_jobs_can_be_deleted() -> Result<()> {
    let team = world().await?.team("doomed", "1").await?;
    team.create("running", 1, "1h").await?;
    team.until("running", Stage::Running).await?;
    team.create("waiting", 1, "1h").await?;
    team.until_pending(1).await?;
    team.kubectl
        .line("delete namespace doomed --wait=true --timeout=60s")
        .await?
        .ok()?;
    team.until_status("its quota is free", |status| {
        status["reservingWorkloads"] == 0 && status["pendingWorkloads"] == 0
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_job_whose_quota_was_taken_back_moves_to_other_nodes_on_servers_that_keep_the_start_time() -> Result<()> {
    let nodes = ["one", "two"]
        .map(|pool| FakeNode::new(pool).label("pool", pool))
        .to_vec();
    let feature_gates = [("MutableSchedulingDirectivesForSuspendedJobs".to_owned(), false)].into();
    let options = PlaneOptions {
        nodes,
        feature_gates,
        ..PlaneOptions::default()
    };
    let world = own_world_on(options, &json!({})).await?;
    world
        .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
        .await?;
    let kubectl = world.plane.kubectl();
    let flavors = ["one", "two"].map(|pool| manifests::flavor(pool, json!({"pool": pool})));
    kubectl.apply(&manifests::list(flavors)).await?;
    let mut queue = manifests::cluster_queue("moving", "one", "1");
    queue["spec"]["resourceGroups"][0]["flavors"] = json!([
        {"name": "one", "resources": [{"name": "cpu", "nominalQuota": 1}]},
        {"name": "two", "resources": [{"name": "cpu", "nominalQuota": 1}]},
    ]);
    let team = world.team_with("moving", true, queue).await?;
    team.create("a", 1, "1h").await?;
    team.until("a", Stage::Running).await?;
    eventually("its pod runs on the first flavor's node", PATIENCE, || async {
        ensure!(team.pods("a").await?.iter().any(|pod| pod["spec"]["nodeName"] == "one"));
        anyhow::Ok(())
    })
    .await?;
    // Statuses come once a second: one from before the start would look like the quota being back.
    team.until_status("its quota is charged", |status| status["reservingWorkloads"] == 1)
        .await?;
    team.merge("a", &json!({"spec": {"suspend": true}})).await?.ok()?;
    team.until_status("its quota is back", |status| status["reservingWorkloads"] == 0)
        .await?;
    team.create("b", 1, "1h").await?;
    team.until("b", Stage::Running).await?;
    team.merge("a", &json!({"spec": {"suspend": false}})).await?.ok()?;
    eventually("its pod runs on the second flavor's node", PATIENCE, || async {
        let pods = team.pods("a").await?;
        ensure!(pods.iter().any(|pod| pod["spec"]["nodeName"] == "two"), "{pods:?}");
        anyhow::Ok(())
    })
    .await
}
