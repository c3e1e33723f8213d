//! Faults: processes killed and frozen, the webhook away, answers lost. Each on a plane of its own.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use sluice_e2e::jobs::{Stage, stage};
use sluice_e2e::manifests;
use sluice_testkit::{Answer, Match, Referee, Rule, SchedulerOptions, Signal, WebhookOptions, eventually};

use crate::world::{PATIENCE, QUEUE_LABEL, Team, World, own_world};

/// Creates Jobs quickly; kubectl would take a process for each.
async fn create_many(team: &Team<'_>, count: usize, run_for: &str) -> Result<()> {
    let api: Api<Job> = Api::namespaced(team.world.plane.client().await?, &team.name);
    futures::stream::iter(0..count)
        .map(|number| {
            let job = team.job(&format!("job-{number:03}"), 1, "1", run_for);
            let api = api.clone();
            async move {
                api.create(&PostParams::default(), &serde_json::from_value(job)?)
                    .await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(16)
        .try_collect::<()>()
        .await
}

async fn count(world: &World, namespace: &str, wanted: Stage) -> Result<usize> {
    let api: Api<Job> = Api::namespaced(world.plane.client().await?, namespace);
    Ok(api
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .filter(|job| stage(job) == wanted)
        .count())
}

async fn until_count(world: &World, namespace: &str, wanted: Stage, least: usize) -> Result<()> {
    let what = format!("{least} Jobs of {namespace} are {wanted:?}");
    eventually(&what, PATIENCE * 3, || async {
        let now = count(world, namespace, wanted).await?;
        ensure!(now >= least, "{now} are");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test]
async fn a_scheduler_killed_in_the_middle_of_200_admissions_loses_no_job_and_admits_none_twice() -> Result<()> {
    let (world, scheduler) = World::start(&json!({})).await?;
    let team = world.team("killed", "0").await?;
    create_many(&team, 200, "300ms").await?;
    team.until_pending(200).await?;
    let referee = Referee::start(&world.plane).await?;
    team.set_quota("20").await?;
    for least in [20, 70, 120] {
        until_count(&world, "killed", Stage::Completed, least).await?;
        world.plane.kill(&scheduler).await?;
        world.plane.restart(&scheduler).await?;
    }
    until_count(&world, "killed", Stage::Completed, 200).await?;
    let verdict = referee.settled().await.clean()?;
    ensure!(
        verdict.total_admissions() == 200,
        "{} admissions",
        verdict.total_admissions()
    );
    Ok(())
}

#[tokio::test]
async fn jobs_created_while_the_webhook_is_away_are_caught_afterwards() -> Result<()> {
    let (world, _) = World::start(&json!({"webhook": {"failurePolicy": "Ignore"}})).await?;
    let team = world.team("bypass", "2").await?;
    // The opt-in must be older than the Jobs by the clock of their creation, which has whole seconds.
    team.create("before", 1, "1200ms").await?;
    team.until("before", Stage::Completed).await?;
    world.plane.kill("sluice-webhook-0").await?;
    for number in 0..6 {
        team.create(&format!("job-{number}"), 1, "1h").await?;
    }
    let status = team
        .until_status("two run and four wait", |status| {
            status["admittedWorkloads"] == 2 && status["pendingWorkloads"] == 4
        })
        .await?;
    ensure!(count(&world, "bypass", Stage::Held).await? == 4, "{status}");
    for job in team.jobs().await? {
        ensure!(
            job.metadata.labels.unwrap_or_default().contains_key(QUEUE_LABEL),
            "{:?}",
            job.metadata.name
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_leader_frozen_past_its_lease_cannot_write_late_when_it_wakes() -> Result<()> {
    let (world, frozen, proxy) = World::start_behind_a_proxy().await?;
    let team = world.team("frozen", "0").await?;
    create_many(&team, 40, "300ms").await?;
    team.until_pending(40).await?;
    let referee = Referee::start(&world.plane).await?;
    let mark = world.plane.audit().mark()?;
    // Its patches are on their way, held up in the network, when it is frozen.
    let held = proxy.add(Rule::always(Match::patch_jobs(), Answer::Delay(Duration::from_secs(8))));
    team.set_quota("4").await?;
    eventually("four patches are on their way", PATIENCE, || async {
        let hits = proxy.hits(held);
        ensure!(hits >= 4, "{hits}");
        anyhow::Ok(())
    })
    .await?;
    world.plane.signal(&frozen, Signal::Stop).await?;
    let successor = world.sluice.start_scheduler(SchedulerOptions::default()).await?;
    eventually("the standby leads", PATIENCE, || async {
        let leader = world.sluice.leader().await?;
        ensure!(leader.as_ref() == Some(&successor), "{leader:?} leads");
        anyhow::Ok(())
    })
    .await?;
    until_count(&world, "frozen", Stage::Completed, 8).await?;
    proxy.remove(held);
    world.plane.signal(&frozen, Signal::Cont).await?;
    until_count(&world, "frozen", Stage::Completed, 40).await?;
    let verdict = referee.settled().await.clean()?;
    ensure!(
        verdict.total_admissions() == 40,
        "{} admissions",
        verdict.total_admissions()
    );
    let user = world.sluice.scheduler_user()?;
    let late = world.plane.audit().job_writes(mark, |writer| writer == user)?;
    let refused = late.iter().filter(|write| !write.succeeded()).count();
    ensure!(
        refused >= 4,
        "the held-up writes arrived and were refused: {refused} of {}",
        late.len()
    );
    Ok(())
}

#[tokio::test]
async fn lost_answers_and_errors_of_the_api_server_cost_no_job_and_no_quota() -> Result<()> {
    let (world, _, proxy) = World::start_behind_a_proxy().await?;
    let team = world.team("answers", "0").await?;
    create_many(&team, 60, "200ms").await?;
    team.until_pending(60).await?;
    let referee = Referee::start(&world.plane).await?;
    let rules: Vec<_> = [
        Answer::DropResponse,
        Answer::DropRequest,
        Answer::Status(429),
        Answer::Status(500),
        Answer::Status(503),
        Answer::Status(409),
        Answer::Status(403),
    ]
    .into_iter()
    .map(|answer| proxy.add(Rule::times(3, Match::patch_jobs(), answer)))
    .collect();
    team.set_quota("6").await?;
    until_count(&world, "answers", Stage::Completed, 20).await?;
    proxy.cut_watches();
    until_count(&world, "answers", Stage::Completed, 60).await?;
    let verdict = referee.settled().await.clean()?;
    ensure!(
        verdict.total_admissions() == 60,
        "{} admissions",
        verdict.total_admissions()
    );
    for rule in rules {
        ensure!(proxy.hits(rule) == 3, "every fault happened");
    }
    Ok(())
}

#[tokio::test]
async fn a_clean_stop_hands_over_in_less_than_the_lease() -> Result<()> {
    let (world, first) = World::start(&json!({})).await?;
    let second = world.sluice.start_scheduler(SchedulerOptions::default()).await?;
    let team = world.team("handover", "0").await?;
    create_many(&team, 10, "100ms").await?;
    team.until_pending(10).await?;
    world.plane.signal(&first, Signal::Term).await?;
    world.plane.wait_exit(&first, PATIENCE).await?;
    team.set_quota("10").await?;
    until_count(&world, "handover", Stage::Completed, 10).await?;
    ensure!(world.sluice.leader().await? == Some(second));
    Ok(())
}

#[tokio::test]
async fn a_replaced_manifest_reaches_a_webhook_with_several_replicas_one_of_them_gone() -> Result<()> {
    let world = own_world(&json!({})).await?;
    let webhooks = WebhookOptions {
        replicas: 2,
        ..WebhookOptions::default()
    };
    world.start_sluice(webhooks, SchedulerOptions::default()).await?;
    let team = world.team("replicas", "1").await?;
    world.plane.signal("sluice-webhook-0", Signal::Term).await?;
    world.plane.wait_exit("sluice-webhook-0", PATIENCE).await?;
    for number in 0..5 {
        team.create(&format!("job-{number}"), 1, "100ms").await?;
    }
    until_count(&world, "replicas", Stage::Completed, 5).await?;
    let manifest = manifests::labelled(team.job("last", 1, "1", "100ms"), QUEUE_LABEL, "default");
    team.kubectl.create(&manifest.to_string()).await?;
    team.until("last", Stage::Completed).await?;
    Ok(())
}
