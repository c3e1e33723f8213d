//! ClusterQueues and Cohorts that make no sense are refused where they are written, with the reason.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::manifests;
use sluice_testkit::{Kubectl, SchedulerOptions, WebhookOptions, eventually};

use crate::world::{PATIENCE, own_world, world};

fn queue(name: &str, annotations: Value) -> Value {
    let mut queue = manifests::cluster_queue(name, "any", "1");
    queue["metadata"]["annotations"] = annotations;
    queue
}

async fn create(kubectl: &Kubectl, object: &Value) -> Result<sluice_testkit::KubectlOutput> {
    kubectl.run(&["create", "-f", "-"], &object.to_string()).await
}

#[tokio::test]
async fn a_broken_annotation_is_refused_with_what_is_wanted_and_a_good_one_is_taken() -> Result<()> {
    let kubectl = world().await?.plane.kubectl();
    for (key, value, wanted) in [
        ("backfill", "maybe", "must be \"true\" or \"false\", not \"maybe\""),
        ("minimum-run-time", "5 minutes", "must be a duration such as 90s or 10m"),
        ("ageing-max-steps", "0", "must be a whole number from 1 to 2147483647"),
        ("fifo-per-pool", "true", "needs spec.queueingStrategy StrictFIFO"),
        ("backfil", "true", "is not known: use one of"),
    ] {
        let key = format!("sluice.internal/{key}");
        let said = create(&kubectl, &queue("broken-extras", json!({&key: value})))
            .await?
            .refused()?;
        ensure!(said.contains(&format!("metadata.annotations[{key}]: ")), "{said}");
        ensure!(said.contains(wanted), "{key}: {said}");
    }
    let good = json!({
        "sluice.internal/ageing-interval": "10m",
        "sluice.internal/ageing-max-steps": "20",
        "sluice.internal/minimum-run-time": "1h30m",
        "sluice.internal/shrink-to-quota-after": "1m",
    });
    create(&kubectl, &queue("good-extras", good)).await?.ok()?;
    for (change, wanted) in [
        ("sluice.internal/shrink-to-quota-after=never", "must be a duration"),
        (
            "sluice.internal/backfill=true",
            "cannot be combined with the annotation sluice.internal/ageing-interval",
        ),
    ] {
        let said = kubectl
            .line(&format!("annotate clusterqueue good-extras {change} --overwrite"))
            .await?
            .refused()?;
        ensure!(said.contains(wanted), "{change}: {said}");
    }
    kubectl
        .line("delete clusterqueue good-extras --wait=false")
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn a_cohort_is_judged_too_and_may_lend_more_than_it_has() -> Result<()> {
    let kubectl = world().await?.plane.kubectl();
    let cohort = |weight: &str, lending: &str| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "judged"},
            "spec": {
                "parentName": "company",
                "fairSharing": {"weight": weight},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [
                    {"name": "cpu", "nominalQuota": "1", "lendingLimit": lending},
                ]}]}],
            },
        })
    };
    let said = create(&kubectl, &cohort("1n", "1")).await?.refused()?;
    ensure!(
        said.contains("spec.fairSharing.weight: must be 0 or greater than 1n"),
        "{said}"
    );
    create(&kubectl, &cohort("2", "10")).await?.ok()?;
    let short = kubectl.line("get co judged -o name").await?.ok()?;
    ensure!(short.trim() == "cohort.kueue.x-k8s.io/judged", "{short}");
    kubectl.line("delete cohort judged").await?.ok()?;
    Ok(())
}

/// While no webhook runs a broken queue gets in; afterwards it can be changed and mended, but not made worse, and deleted.
#[tokio::test]
async fn a_queue_that_is_bad_already_can_be_mended_and_deleted() -> Result<()> {
    let world = own_world(&json!({})).await?;
    let kubectl = world.plane.kubectl();
    let bad = json!({"sluice.internal/backfill": "maybe", "sluice.internal/minimum-run-time": "soon"});
    for name in ["mended", "deleted"] {
        create(&kubectl, &queue(name, bad.clone())).await?.ok()?;
    }
    world
        .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
        .await?;
    eventually("the webhook refuses broken queues", PATIENCE, || async {
        create(&kubectl, &queue("probe", bad.clone())).await?.refused()
    })
    .await?;
    let inactive = eventually("the scheduler names what is wrong", PATIENCE, || async {
        let queue = kubectl.get("clusterqueue mended").await?;
        let active = &queue["status"]["conditions"][0];
        ensure!(
            active["status"] == "False" && active["reason"] == "InvalidSpec",
            "{active}"
        );
        anyhow::Ok(active["message"].to_string())
    })
    .await?;
    ensure!(inactive.contains("sluice.internal/backfill"), "{inactive}");

    let edit = |change: &'static str| kubectl.line(change);
    edit("label clusterqueue mended team=a").await?.ok()?;
    let said = edit("annotate clusterqueue mended sluice.internal/fifo-per-pool=perhaps")
        .await?
        .refused()?;
    ensure!(said.contains("fifo-per-pool") && !said.contains("backfill]"), "{said}");
    edit("annotate clusterqueue mended sluice.internal/backfill-")
        .await?
        .ok()?;
    edit("annotate clusterqueue mended sluice.internal/minimum-run-time=5m --overwrite")
        .await?
        .ok()?;
    eventually("the mended queue is active", PATIENCE, || async {
        let queue = kubectl.get("clusterqueue mended").await?;
        ensure!(
            queue["status"]["conditions"][0]["status"] == "True",
            "{}",
            queue["status"]
        );
        anyhow::Ok(())
    })
    .await?;
    edit("delete clusterqueue deleted").await?.ok()?;
    Ok(())
}
