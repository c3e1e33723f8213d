//! A manifest that is applied again must neither stop, nor break, nor hold a managed Job, whatever it says of `suspend`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::jobs::Stage;
use sluice_e2e::manifests;
use sluice_testkit::{KubectlOutput, eventually};

use crate::world::{PATIENCE, Team, world};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Suspend {
    True,
    False,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    ApplyTwice,
    ServerSideApplyByForce,
    Replace,
}

const SUSPENDS: [Suspend; 3] = [Suspend::True, Suspend::False, Suspend::Absent];
const WAYS: [How; 3] = [How::ApplyTwice, How::ServerSideApplyByForce, How::Replace];

fn manifest(team: &Team<'_>, name: &str, suspend: Suspend, tolerations: bool) -> Value {
    let mut job = team.job(name, 1, "1", "1h");
    match suspend {
        Suspend::True => job["spec"]["suspend"] = json!(true),
        Suspend::False => job["spec"]["suspend"] = json!(false),
        Suspend::Absent => {}
    }
    if tolerations {
        let own = json!([{"key": "own", "operator": "Exists", "effect": "NoSchedule"}]);
        job["spec"]["template"]["spec"]["tolerations"] = own;
    }
    job
}

async fn send(team: &Team<'_>, how: How, manifest: &Value) -> Result<KubectlOutput> {
    let text = manifest.to_string();
    match how {
        How::ApplyTwice => team.kubectl.run(&["apply", "-f", "-"], &text).await,
        How::ServerSideApplyByForce => {
            team.kubectl
                .run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &text)
                .await
        }
        How::Replace => team.kubectl.run(&["replace", "-f", "-"], &text).await,
    }
}

/// What the user would replace it with: kubectl wants the selector and the labels that the API server generated.
async fn for_replace(team: &Team<'_>, name: &str, manifest: &Value) -> Result<Value> {
    let live = team.kubectl.get(&format!("job {name} -n {}", team.name)).await?;
    let mut job = manifest.clone();
    job["spec"]["selector"] = live["spec"]["selector"].clone();
    let labels = job["spec"]["template"]["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let generated = live["spec"]["template"]["metadata"]["labels"]
        .as_object()
        .context("no labels")?;
    let mut all = serde_json::Map::new();
    for (key, value) in generated {
        if key.contains("controller-uid") || key.contains("job-name") {
            all.insert(key.clone(), value.clone());
        }
    }
    all.extend(labels);
    job["spec"]["template"]["metadata"]["labels"] = Value::Object(all);
    Ok(job)
}

async fn apply_again(team: &Team<'_>, how: How, name: &str, manifest: &Value) -> Result<()> {
    let again = if how == How::Replace {
        for_replace(team, name, manifest).await?
    } else {
        manifest.clone()
    };
    send(team, how, &again)
        .await?
        .ok()
        .with_context(|| format!("{how:?} {name}"))?;
    Ok(())
}

/// The Job when nobody writes to it any more: the Job controller has written that its pod is ready, or that it is suspended.
/// `kubectl replace` reads and writes, and is refused if somebody wrote between.
async fn until_still(team: &Team<'_>, name: &str, running: bool) -> Result<Value> {
    eventually("nobody writes to the Job any more", PATIENCE, || async {
        let job = team.kubectl.get(&format!("job {name} -n {}", team.name)).await?;
        let status = &job["status"];
        let suspended = status["conditions"].as_array().is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Suspended" && one["status"] == "True")
        });
        ensure!(
            if running {
                status["ready"] == 1 && !suspended
            } else {
                suspended
            },
            "its status is {status}"
        );
        anyhow::Ok(job)
    })
    .await
}

async fn each(team: &Team<'_>, running: bool) -> Result<()> {
    for how in WAYS {
        for suspend in SUSPENDS {
            for tolerations in [true, false] {
                let name = format!("{how:?}-{suspend:?}-{tolerations}").to_lowercase();
                let manifest = manifest(team, &name, suspend, tolerations);
                let first = if how == How::Replace { How::ApplyTwice } else { how };
                send(team, first, &manifest).await?.ok()?;
                let before = until_still(team, &name, running).await?;
                apply_again(team, how, &name, &manifest).await?;
                let after = team.kubectl.get(&format!("job {name} -n {}", team.name)).await?;
                unchanged(&name, &before, &after)?;
            }
        }
    }
    Ok(())
}

fn unchanged(name: &str, before: &Value, after: &Value) -> Result<()> {
    ensure!(
        before["metadata"]["uid"] == after["metadata"]["uid"],
        "{name} was made anew"
    );
    ensure!(
        before["spec"]["suspend"] == after["spec"]["suspend"],
        "{name}: suspend is {}",
        after["spec"]["suspend"]
    );
    for field in ["nodeSelector", "tolerations"] {
        let of = |job: &Value| job["spec"]["template"]["spec"][field].clone();
        ensure!(
            of(before) == of(after),
            "{name}: {field} was {} and is {}",
            of(before),
            of(after)
        );
    }
    let labels = |job: &Value| job["spec"]["template"]["metadata"]["labels"].clone();
    ensure!(
        labels(before) == labels(after),
        "{name}: labels were {} and are {}",
        labels(before),
        labels(after)
    );
    for key in ["sluice.internal/admission", "sluice.internal/created-running"] {
        let of = |job: &Value| job["metadata"]["annotations"][key].clone();
        ensure!(
            of(before) == of(after),
            "{name}: {key} was {} and is {}",
            of(before),
            of(after)
        );
    }
    ensure!(
        after["metadata"]["annotations"]["sluice.internal/hold"].is_null(),
        "{name} is held"
    );
    ensure!(
        after["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default",
        "{name} lost its queue"
    );
    Ok(())
}

#[tokio::test]
async fn a_waiting_job_is_not_started_by_its_manifest_applied_again() -> Result<()> {
    let team = world().await?.team("gitops-waiting", "0").await?;
    each(&team, false).await?;
    team.set_quota("18").await?;
    for job in team.jobs().await? {
        team.until(&crate::world::name_of(&job), Stage::Running).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_running_job_is_not_stopped_broken_or_held_by_its_manifest_applied_again() -> Result<()> {
    let world = world().await?;
    let mut flavor = manifests::flavor("gitops", json!({"pool": "reserved"}));
    flavor["spec"]["tolerations"] = json!([{"key": "gitops", "operator": "Exists"}]);
    world.plane.kubectl().apply(&flavor.to_string()).await?;
    let team = world
        .team_with(
            "gitops-running",
            true,
            manifests::cluster_queue("gitops-running", "gitops", "18"),
        )
        .await?;
    each(&team, true).await?;
    let status = team
        .until_status("all hold their quota", |status| status["admittedWorkloads"] == 18)
        .await?;
    ensure!(status["pendingWorkloads"] == 0, "{status}");
    Ok(())
}
