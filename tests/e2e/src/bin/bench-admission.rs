//! `make bench-admission`: how near admission comes to what the API server can take.
//!
//! Two thousand Jobs wait without quota. The quota is raised, and the time to the last admission is compared with the
//! ceiling of the same run: a bare loop of as many equal guarded patches on other suspended Jobs, with as many requests
//! under way. Both are measured from the first write to the last answer, and start when the Job controller has done what
//! earlier starts gave it to do: so each competes with its reaction to its own starts alone. One half of the bare loop
//! runs before the admissions and one after, so that neither gains from an API server that gets slower as it fills.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "reporting is what it is for")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use sluice_api::v1beta2::ClusterQueue;
use sluice_e2e::jobs::{Stage, stage};
use sluice_e2e::manifests::{cluster_queue, flavor, job, labelled, list, local_queue, namespace};
use sluice_testkit::{AuditEvent, Plane, PlaneOptions, Sluice, check_webhook_port, eventually, repository};

const JOBS: usize = 2_000;
/// Requests under way at once, in the scheduler (its default) and in the bare loop.
const CONNECTIONS: usize = 32;
const NAMESPACE: &str = "bench";
/// Jobs of the bare loop live here: not opted in, so nobody else touches them.
const BARE: &str = "bare";

#[tokio::main]
async fn main() -> Result<()> {
    check_webhook_port()?;
    println!("bench-admission: starting the control plane and Sluice");
    let plane = Arc::new(Plane::start(PlaneOptions::default()).await?);
    let sluice = Sluice::start(&plane).await?;
    set_up(&plane).await?;
    let client = plane.client().await?;
    println!("bench-admission: creating 2 x {JOBS} Jobs");
    create(&client, NAMESPACE, false).await?;
    create(&client, BARE, true).await?;
    until_queued(&plane).await?;
    let (first_half, second_half) = guarded_patches(&client).await?;
    let before = bare_loop(&client, first_half).await?;
    until_quiet(&client, BARE, JOBS / 2).await?;
    let mark = plane.audit().mark()?;
    let admitted = admit_all(&client).await?;
    until_quiet(&client, NAMESPACE, JOBS).await?;
    let after = bare_loop(&client, second_half).await?;
    let users = [sluice.scheduler_user()?, sluice.webhook_user()?];
    let writes = plane
        .audit()
        .job_writes(mark, |user| users.iter().any(|ours| ours == user))?;
    tell_surplus(&writes);
    report(admitted, before + after, writes.len())
}

/// Says which Jobs were written more than once, and how.
fn tell_surplus(writes: &[AuditEvent]) {
    let mut by_job: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for write in writes {
        let path = [&*write.resource, &*write.subresource].join("/");
        let path = path.trim_end_matches('/');
        let line = format!("{} {path} -> {} {}", write.verb, write.code, write.message);
        let job = (&*write.namespace, &*write.name);
        by_job.entry(job).or_default().push(line.trim_end().to_owned());
    }
    for ((namespace, name), lines) in by_job.iter().filter(|(_, lines)| lines.len() > 1) {
        println!(
            "bench-admission: {} writes on {namespace}/{name}: {}",
            lines.len(),
            lines.join(", ")
        );
    }
}

/// Waits until the Job controller has made the pods of every Job that was started.
async fn until_quiet(client: &Client, namespace: &str, started: usize) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    eventually("every started Job has its pod", Duration::from_secs(240), || async {
        let list = jobs.list(&ListParams::default()).await?;
        let active = |job: &&Job| job.status.as_ref().is_some_and(|status| status.active == Some(1));
        let count = list.items.iter().filter(active).count();
        ensure!(count == started, "{count} of {started}");
        anyhow::Ok(())
    })
    .await
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn report(admitted: Duration, ceiling: Duration, writes: usize) -> Result<()> {
    let jobs = JOBS as f64;
    let (jobs_per_s, ceiling_per_s) = (jobs / admitted.as_secs_f64(), jobs / ceiling.as_secs_f64());
    let round = |value: f64, digits: i32| (value * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
    let line = json!({
        "name": "admission", "jobs": JOBS, "jobs_per_s": round(jobs_per_s, 1), "ceiling_per_s": round(ceiling_per_s, 1),
        "ratio": round(jobs_per_s / ceiling_per_s, 3), "writes_per_job": round(writes as f64 / jobs, 3),
    });
    let folder = repository().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("results.jsonl"))?;
    writeln!(file, "{line}").context("failed to append to target/bench/results.jsonl")?;
    eprintln!(
        "bench-admission: jobs_per_s is how fast Sluice admitted {JOBS} waiting Jobs; ceiling_per_s is how fast a bare loop \
         sent as many equal patches to the same API server; ratio is the first divided by the second: near 1, the API \
         server alone sets the pace"
    );
    println!("{line}");
    Ok(())
}

async fn set_up(plane: &Plane) -> Result<()> {
    let objects = [
        namespace(NAMESPACE, true),
        namespace(BARE, false),
        flavor("default", json!({})),
        cluster_queue("bench", "default", "0"),
        local_queue(NAMESPACE, "default", "bench"),
    ];
    plane.kubectl().apply(&list(objects)).await?;
    Ok(())
}

async fn create(client: &Client, namespace: &str, suspended: bool) -> Result<()> {
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    futures::stream::iter(0..JOBS)
        .map(|number| {
            let api = api.clone();
            async move {
                let mut manifest = job(namespace, &format!("job-{number:05}"), 1, "1", "1h");
                if suspended {
                    manifest["spec"]["suspend"] = json!(true);
                } else {
                    manifest = labelled(manifest, "kueue.x-k8s.io/queue-name", "default");
                }
                api.create(&PostParams::default(), &serde_json::from_value(manifest)?)
                    .await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CONNECTIONS)
        .try_collect::<()>()
        .await
}

async fn until_queued(plane: &Plane) -> Result<()> {
    eventually("every Job is counted as pending", Duration::from_secs(120), || async {
        let queue = plane.kubectl().get("clusterqueue bench").await?;
        let pending = queue["status"]["pendingWorkloads"].as_u64().unwrap_or(0);
        ensure!(pending == JOBS as u64, "{pending} pending");
        anyhow::Ok(())
    })
    .await
}

/// Raises the quota and waits until the watch shows the last admission.
async fn admit_all(client: &Client) -> Result<Duration> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let version = jobs
        .list_metadata(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    let mut events = std::pin::pin!(
        jobs.watch_metadata(&WatchParams::default().timeout(280), &version)
            .await?
    );
    let queues: Api<ClusterQueue> = Api::all(client.clone());
    let path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
    let raise = serde_json::from_value(json!([{"op": "replace", "path": path, "value": "10000"}]))?;
    let mut admitted = BTreeSet::new();
    let started = Instant::now();
    queues
        .patch("bench", &PatchParams::default(), &Patch::<()>::Json(raise))
        .await?;
    while admitted.len() < JOBS {
        let event = tokio::time::timeout(Duration::from_secs(60), events.try_next()).await;
        let event = event.with_context(|| format!("only {} of {JOBS} were admitted", admitted.len()))??;
        if let Some(WatchEvent::Modified(job)) = event {
            let record = job
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get("sluice.internal/admission"));
            if record.is_some_and(|record| record.contains(r#""state":"Admitted""#)) {
                admitted.insert(job.metadata.name);
            }
        }
    }
    Ok(started.elapsed())
}

type Patches = Vec<(String, JsonPatch)>;

/// Patches of the same form as an admission's for the suspended Jobs that nobody queues, in two halves.
async fn guarded_patches(client: &Client) -> Result<(Patches, Patches)> {
    let api: Api<Job> = Api::namespaced(client.clone(), BARE);
    let jobs = api.list(&ListParams::default()).await?.items;
    let mut first: Patches = jobs.iter().map(guarded_patch).collect::<Result<_>>()?;
    ensure!(first.len() == JOBS, "{} Jobs for the bare loop", first.len());
    let second = first.split_off(JOBS / 2);
    Ok((first, second))
}

/// Sends the patches, as many at once as the scheduler does.
async fn bare_loop(client: &Client, patches: Patches) -> Result<Duration> {
    let api: Api<Job> = Api::namespaced(client.clone(), BARE);
    let started = Instant::now();
    futures::stream::iter(patches)
        .map(|(name, patch)| {
            let api = api.clone();
            async move {
                let answer: Job = api
                    .patch(&name, &PatchParams::default(), &Patch::<()>::Json(patch))
                    .await?;
                ensure!(stage(&answer) == Stage::Running, "{name} was not started");
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CONNECTIONS)
        .try_collect::<()>()
        .await?;
    Ok(started.elapsed())
}

/// The patch of an admission, by hand: the same guards, a record of the same size under a name that no policy guards,
/// the same labels.
fn guarded_patch(job: &Job) -> Result<(String, JsonPatch)> {
    let name = job.metadata.name.clone().context("a Job without a name")?;
    let record = json!({
        "v": 1, "term": 1, "uid": job.metadata.uid, "state": "Admitted", "clusterQueue": "bench", "localQueue": "default",
        "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}, "usage": {"cpu": "1"}}],
        "admittedAt": "2026-01-01T00:00:00.000Z", "queuedAt": "2026-01-01T00:00:00.000Z",
        "resourceVersions": {"clusterQueue": "1000", "localQueue": "1000", "flavors": {"default": "1000"}},
        "delta": {"labels": {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/local-queue-name": "default", "kueue.x-k8s.io/cluster-queue-name": "bench"}},
    });
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": job.metadata.uid},
        {"op": "test", "path": "/metadata/generation", "value": job.metadata.generation},
        {"op": "test", "path": "/spec/suspend", "value": true},
        {"op": "test", "path": "/metadata/annotations", "value": null},
        {"op": "replace", "path": "/spec/suspend", "value": false},
        {"op": "add", "path": "/spec/template/metadata/labels/kueue.x-k8s.io~1podset", "value": "main"},
        {"op": "add", "path": "/spec/template/metadata/labels/kueue.x-k8s.io~1local-queue-name", "value": "default"},
        {"op": "add", "path": "/spec/template/metadata/labels/kueue.x-k8s.io~1cluster-queue-name", "value": "bench"},
        {"op": "add", "path": "/metadata/annotations", "value": {"sluice.bareloop/admission": record.to_string()}},
    ]);
    Ok((name, serde_json::from_value(patch)?))
}
