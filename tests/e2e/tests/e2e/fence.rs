//! The fence between leaders: the policy that lets the scheduler start and stop Jobs in the present term alone.

use anyhow::{Result, bail, ensure};
use serde_json::json;
use sluice_testkit::{Kubectl, KubectlOutput, Plane, PlaneOptions, eventually};

use crate::policies::{NAMESPACE, RECORD, SHORT, grant, install, job, labelled, record};
use crate::release::{Helm, scheduler_account};

/// A plane of its own for tests that move the term and take the policies away.
struct Fence {
    plane: Plane,
    scheduler: Kubectl,
    tenant: Kubectl,
}

impl Fence {
    async fn start() -> Result<Self> {
        let plane = Plane::start(PlaneOptions {
            controllers: false,
            ..PlaneOptions::default()
        })
        .await?;
        install(&plane).await?;
        let admin = plane.kubectl();
        // The role `admin` is empty where no controller aggregates it.
        grant(&plane, "tenant", "cluster-admin", "default").await?;
        let scheduler = admin.with(&scheduler_account(&plane, NAMESPACE).await?.path);
        let tenant = admin.with(&plane.user("tenant", &[])?.path);
        Ok(Self {
            plane,
            scheduler,
            tenant,
        })
    }

    async fn set_term(&self, term: u64) -> Result<()> {
        let object = json!({
            "apiVersion": "sluice.internal/v1alpha1",
            "kind": "Term",
            "metadata": {"name": "scheduler"},
            "spec": {"term": term, "holder": "test"},
        });
        self.plane.kubectl().apply(&object.to_string()).await?;
        Ok(())
    }

    async fn create(&self, name: &str, suspend: bool) -> Result<()> {
        let job = labelled(job(name, "default", &json!({"suspend": suspend})), "default");
        // Created by hand with the state it needs: the webhook is not there to hold it.
        self.tenant.create(&job.to_string()).await?;
        Ok(())
    }

    async fn write(&self, name: &str, suspend: bool, record: Option<String>, dry_run: bool) -> Result<KubectlOutput> {
        let mut patch = json!({"spec": {"suspend": suspend}});
        if let Some(record) = record {
            patch["metadata"]["annotations"][RECORD] = json!(record);
        }
        let patch = patch.to_string();
        let dry_run = if dry_run { "--dry-run=server" } else { "--dry-run=none" };
        self.scheduler
            .run(&["patch", "job", name, "--type=merge", dry_run, "-p", &patch], "")
            .await
    }

    /// Waits until a write of `ended` is refused.
    async fn until_refused(&self, name: &str, ended: u64) -> Result<()> {
        eventually("a write of an ended term is refused", SHORT, || async {
            let output = self.write(name, false, Some(record("Admitted", ended)), true).await?;
            let said = output.refused()?;
            if said.contains("term.sluice.internal") {
                Ok(())
            } else {
                bail!("{said}")
            }
        })
        .await
    }
}

#[tokio::test]
async fn the_scheduler_starts_and_stops_jobs_in_the_present_term_alone() -> Result<()> {
    let fence = Fence::start().await?;
    fence.set_term(12).await?;
    fence.create("fenced", true).await?;
    fence.until_refused("fenced", 11).await?;
    for other in [1, 2, 13, 112, 120] {
        let said = fence
            .write("fenced", false, Some(record("Admitted", other)), false)
            .await?
            .refused()?;
        ensure!(
            said.contains("another term than the present one, 12"),
            "{other}: {said}"
        );
    }
    fence.write("fenced", false, None, false).await?.refused()?;
    fence
        .write("fenced", false, Some(record("Admitted", 12)), false)
        .await?
        .ok()?;
    fence
        .write("fenced", true, Some(record("Evicting", 11)), false)
        .await?
        .refused()?;
    fence
        .write("fenced", true, Some(record("Evicting", 12)), false)
        .await?
        .ok()?;

    // What does not start or stop a Job, and what others do, is none of the fence's business.
    let note = json!({"metadata": {"annotations": {RECORD: record("Waiting", 11)}}}).to_string();
    fence
        .scheduler
        .run(&["patch", "job", "fenced", "--type=merge", "-p", &note], "")
        .await?
        .ok()?;
    fence.create("running", false).await?;
    fence
        .tenant
        .line("patch job running --type=merge -p {\"spec\":{\"suspend\":true}}")
        .await?
        .ok()?;

    // A new term ends the old one for every write from then on.
    fence.set_term(13).await?;
    fence.until_refused("fenced", 12).await?;
    for _ in 0..20 {
        fence
            .write("fenced", false, Some(record("Admitted", 12)), false)
            .await?
            .refused()?;
    }
    fence
        .write("fenced", false, Some(record("Admitted", 13)), false)
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn the_fence_knows_the_present_term_after_the_policies_were_gone() -> Result<()> {
    let fence = Fence::start().await?;
    let helm = Helm::of(&fence.plane);
    let upgrade = async |policies: bool| {
        let set = format!("policies.enabled={policies}");
        let base = [
            "upgrade",
            "sluice",
            "sluice",
            "--namespace",
            NAMESPACE,
            "--reuse-values",
            "--set",
            &set,
        ];
        helm.run(&base).await?.ok()
    };
    fence.set_term(3).await?;
    fence.create("fenced", true).await?;
    fence.until_refused("fenced", 2).await?;
    upgrade(false).await?;
    eventually("the fence is gone", SHORT, || async {
        fence
            .write("fenced", false, Some(record("Admitted", 2)), true)
            .await?
            .ok()
    })
    .await?;
    fence.set_term(4).await?;
    upgrade(true).await?;
    fence.until_refused("fenced", 3).await?;
    fence
        .write("fenced", false, Some(record("Admitted", 4)), true)
        .await?
        .ok()?;
    fence.set_term(5).await?;
    fence.until_refused("fenced", 4).await?;
    fence
        .write("fenced", false, Some(record("Admitted", 5)), false)
        .await?
        .ok()?;
    Ok(())
}
