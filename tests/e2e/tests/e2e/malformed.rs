//! Input that is broken in many ways: each gets its specific answer, and the processes stay up.

use anyhow::{Context, Result, ensure};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_e2e::jobs::Stage;
use sluice_testkit::{eventually, repository};

use crate::world::{PATIENCE, QUEUE_LABEL, world};

/// The cases of crates/api, which are also tests of what it decodes.
const CASES: [(&str, &str, &str, &str); 5] = [
    ("cluster-queue.yaml", "kueue.x-k8s.io", "v1beta2", "ClusterQueue"),
    ("cohort.yaml", "kueue.x-k8s.io", "v1beta2", "Cohort"),
    ("local-queue.yaml", "kueue.x-k8s.io", "v1beta2", "LocalQueue"),
    ("resource-flavor.yaml", "kueue.x-k8s.io", "v1beta2", "ResourceFlavor"),
    ("term.yaml", "sluice.internal", "v1alpha1", "Term"),
];

#[tokio::test]
async fn each_broken_queue_object_is_refused_with_what_is_wrong_and_each_good_one_is_taken() -> Result<()> {
    let world = world().await?;
    let client = world.plane.client().await?;
    let (mut refused, mut taken) = (0, 0);
    for (file, group, version, kind) in CASES {
        let path = repository().join("crates/api/tests/cases").join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let cases: Vec<Value> = serde_saphyr::from_str(&text)?;
        ensure!(!cases.is_empty(), "{file} has no case");
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match kind {
            "LocalQueue" => Api::namespaced_with(client.clone(), "default", &resource),
            _ => Api::all_with(client.clone(), &resource),
        };
        for (number, case) in cases.iter().enumerate() {
            let name = format!("case-{number}");
            let answer = send(&api, &name, group, version, kind, case).await;
            let said = answer.err().map(|error| error.to_string()).unwrap_or_default();
            if let Some(wanted) = case["refused"].as_str() {
                ensure!(
                    said.contains(wanted),
                    "{file}: {}: wanted {wanted:?}, got {said:?}",
                    case["case"]
                );
                refused += 1;
            } else {
                ensure!(said.is_empty(), "{file}: {}: {said}", case["case"]);
                taken += 1;
            }
        }
    }
    ensure!(refused >= 25, "{refused} were refused and {taken} taken");
    still_serving().await
}

/// Creates the object, changes it if the case says so, and removes it again.
async fn send(
    api: &Api<DynamicObject>,
    name: &str,
    group: &str,
    version: &str,
    kind: &str,
    case: &Value,
) -> Result<(), kube::Error> {
    let object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": case["spec"],
    });
    // The Term in force is the leader's: a dry run judges it just as well.
    let dry_run = kind == "Term" && case.get("update").is_none();
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    api.create(
        &PostParams {
            dry_run,
            ..PostParams::default()
        },
        &object,
    )
    .await?;
    if dry_run {
        return Ok(());
    }
    let updated = match case.get("update") {
        Some(update) => {
            let patch = Patch::Json::<()>(json_patch::Patch(vec![json_patch::PatchOperation::Replace(
                json_patch::ReplaceOperation {
                    path: json_patch::jsonptr::PointerBuf::from_tokens(["spec"]),
                    value: update.clone(),
                },
            )]));
            api.patch(name, &PatchParams::default(), &patch).await.map(drop)
        }
        None => Ok(()),
    };
    api.delete(name, &DeleteParams::default()).await?;
    updated
}

/// The processes are up, and a Job goes its whole way.
async fn still_serving() -> Result<()> {
    let world = world().await?;
    for process in ["sluice-webhook-0", "sluice-scheduler-0"] {
        ensure!(world.plane.exit(process).is_none(), "{process} has ended");
    }
    let team = world.team("after-malformed", "1").await?;
    team.create("a", 1, "100ms").await?;
    team.until("a", Stage::Completed).await?;
    Ok(())
}

#[tokio::test]
async fn a_malformed_queue_name_is_refused_with_the_reason() -> Result<()> {
    let team = world().await?.team("names", "1").await?;
    for name in ["Upper", "under_score", "a..b"] {
        let job = sluice_e2e::manifests::labelled(team.job("a", 1, "1", "1s"), QUEUE_LABEL, name);
        let said = team
            .kubectl
            .run(&["create", "-f", "-"], &job.to_string())
            .await?
            .refused()?;
        ensure!(said.contains(name) && said.contains("queue-name"), "{name}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn jobs_that_no_quota_can_ever_hold_wait_and_say_so_and_harm_nobody() -> Result<()> {
    let team = world().await?.team("huge", "2").await?;
    for (name, cpu, pods) in [
        ("max", "9223372036854775807", 1),
        ("exa", "1E", 3),
        ("many", "9223372036854775", 2_000_000),
    ] {
        let mut job = team.job(name, 1, cpu, "1s");
        job["spec"]["parallelism"] = json!(pods);
        job["spec"]["completions"] = json!(pods);
        team.kubectl.create(&job.to_string()).await?;
    }
    team.create("small", 1, "100ms").await?;
    team.until("small", Stage::Completed).await?;
    team.until_pending(3).await?;
    let said = eventually("an event tells that it exceeds the quota", PATIENCE, || async {
        let events = team
            .kubectl
            .get("events -n huge --field-selector=involvedObject.name=many")
            .await?
            .to_string();
        ensure!(events.contains("ExceedsMaxQuota"), "{events}");
        anyhow::Ok(events)
    })
    .await?;
    ensure!(said.contains("cpu"), "{said}");
    Ok(())
}
