//! Manifests in both versions of Kueue's API, on a real API server: all are accepted, and none changes on the way.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluice_api::conversion::{SAID_IN_V1BETA1, SAID_IN_V1BETA2, Version, convert};
use sluice_e2e::manifests;
use sluice_testkit::{Kubectl, SchedulerOptions, WebhookOptions, eventually, repository};

use crate::world::{PATIENCE, own_world, world};

const NAMESPACE: &str = "compat";
const VERSIONS: [Version; 2] = [Version::V1beta1, Version::V1beta2];

/// The manifests under tests/manifests.
fn fixtures() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for version in VERSIONS {
        for file in ["queues.yaml", "others.yaml"] {
            let path: PathBuf = repository().join("tests/manifests").join(version.as_str()).join(file);
            let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
            all.extend(serde_saphyr::from_multiple::<Value>(&text).with_context(|| format!("{}", path.display()))?);
        }
    }
    Ok(all)
}

/// The object as kubectl shows it in one version.
async fn seen(kubectl: &Kubectl, object: &Value, version: Version) -> Result<Value> {
    let (kind, name) = (text(&object["kind"])?, text(&object["metadata"]["name"])?);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let resource = format!("{}.{}.kueue.x-k8s.io", kind.to_lowercase(), version.as_str());
    kubectl.get(&format!("{resource} {name} -n {namespace}")).await
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

/// Everything that `manifest` says is in `stored` too; a list has no more items than it was given.
fn says(path: &str, manifest: &Value, stored: &Value) -> Result<()> {
    match (manifest, stored) {
        (Value::Object(manifest), Value::Object(stored)) => {
            for (key, value) in manifest {
                let found = stored.get(key).with_context(|| format!("{path}.{key} is gone"))?;
                says(&format!("{path}.{key}"), value, found)?;
            }
            Ok(())
        }
        (Value::Array(manifest), Value::Array(stored)) => {
            ensure!(manifest.len() == stored.len(), "{path}: {manifest:?} became {stored:?}");
            for (at, (manifest, stored)) in manifest.iter().zip(stored).enumerate() {
                says(&format!("{path}[{at}]"), manifest, stored)?;
            }
            Ok(())
        }
        _ => {
            ensure!(manifest == stored, "{path}: {manifest} became {stored}");
            Ok(())
        }
    }
}

/// What an author says of an object, without the one field that has no effect and is not kept.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|field, _| !["apiVersion", "metadata", "status"].contains(&field.as_str()));
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("retryDelayMinutes");
    }
    object
}

/// Without what the scheduler or the API server may change at any time.
fn steady(mut object: Value) -> Value {
    for field in ["managedFields", "resourceVersion", "generation"] {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}

#[tokio::test]
async fn every_manifest_is_accepted_and_says_the_same_in_both_versions() -> Result<()> {
    let kubectl = world().await?.plane.kubectl();
    kubectl
        .apply(&manifests::namespace(NAMESPACE, false).to_string())
        .await?;
    let fixtures = fixtures()?;
    ensure!(fixtures.len() >= 60, "{} manifests", fixtures.len());
    for manifest in &fixtures {
        let name = format!("{} {}", manifest["kind"], manifest["metadata"]["name"]);
        let own = Version::of(text(&manifest["apiVersion"])?).context("no version")?;
        let strict = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        let dry = kubectl.run(&strict, &manifest.to_string()).await?;
        dry.ok().with_context(|| format!("{name}, dry run"))?;
        kubectl
            .create(&manifest.to_string())
            .await
            .with_context(|| name.clone())?;
        let stored = seen(&kubectl, manifest, own).await?;
        says(&name, &content(manifest), &content(&stored))?;
        for (version, own_words) in VERSIONS.into_iter().zip([SAID_IN_V1BETA1, SAID_IN_V1BETA2]) {
            let shown = seen(&kubectl, manifest, version).await?;
            ensure!(shown["apiVersion"] == version.api_version(), "{name}: {shown}");
            let annotations = &shown["metadata"]["annotations"];
            ensure!(annotations.get(own_words).is_none(), "{name}: {annotations}");
            let mut converted = stored.clone();
            convert(&mut converted, version)?;
            says(&name, &content(&converted), &content(&shown))?;
        }
    }
    // What GitOps does all day: applying the same again changes nothing.
    for manifest in &fixtures {
        let own = Version::of(text(&manifest["apiVersion"])?).context("no version")?;
        let before = steady(seen(&kubectl, manifest, own).await?);
        kubectl
            .run(
                &["apply", "--server-side", "--force-conflicts", "-f", "-"],
                &manifest.to_string(),
            )
            .await?
            .ok()?;
        let after = steady(seen(&kubectl, manifest, own).await?);
        ensure!(
            before == after,
            "{} drifts:\n{before}\n{after}",
            manifest["metadata"]["name"]
        );
    }
    for manifest in fixtures.iter().rev() {
        let delete = ["delete", "--wait=false", "-f", "-"];
        kubectl.run(&delete, &manifest.to_string()).await?.ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_list_of_many_queues_is_shown_in_the_older_version() -> Result<()> {
    let kubectl = world().await?.plane.kubectl();
    kubectl
        .apply(&manifests::namespace("compat-many", false).to_string())
        .await?;
    let queues = (0..500).map(|at| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": format!("q-{at}"), "namespace": "compat-many"},
            "spec": {"clusterQueue": "compat-none"},
        })
    });
    kubectl.create(&manifests::list(queues)).await?;
    let list = kubectl.get("localqueues.v1beta1.kueue.x-k8s.io -n compat-many").await?;
    let names: BTreeSet<String> = list["items"]
        .as_array()
        .context("no list")?
        .iter()
        .filter(|queue| queue["apiVersion"] == "kueue.x-k8s.io/v1beta1")
        .map(|queue| queue["metadata"]["name"].to_string())
        .collect();
    ensure!(names.len() == 500, "{} queues", names.len());
    kubectl.line("delete namespace compat-many --wait=false").await?.ok()?;
    Ok(())
}

/// Which version of a CRD is stored; the newer one stands first.
async fn store(kubectl: &Kubectl, crd: &str, newer: bool) -> Result<()> {
    let patch = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": newer},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": !newer},
    ])
    .to_string();
    kubectl
        .run(&["patch", "crd", crd, "--type=json", "-p", &patch], "")
        .await?
        .ok()?;
    Ok(())
}

/// The webhook itself lists the queues that only it can convert.
#[tokio::test]
async fn queues_stored_in_the_older_version_are_read_when_everything_starts_at_once() -> Result<()> {
    let world = own_world(&json!({})).await?;
    let kubectl = world.plane.kubectl();
    let definitions = ["clusterqueues.kueue.x-k8s.io", "localqueues.kueue.x-k8s.io"];
    // What is written in the older version would be converted for the webhook, which is not there yet.
    kubectl
        .line("delete validatingwebhookconfigurations --all")
        .await?
        .ok()?;
    for definition in definitions {
        store(&kubectl, definition, false).await?;
    }
    let old = |kind: &str, metadata: Value, spec: Value| {
        json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}).to_string()
    };
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "any", "resources": [{"name": "cpu", "nominalQuota": 4}]},
    ]}]);
    let spec = json!({"cohort": "old", "namespaceSelector": {}, "resourceGroups": quota});
    let queue = old("ClusterQueue", json!({"name": "old"}), spec);
    eventually("the older version is stored", PATIENCE, || async {
        kubectl.run(&["apply", "--server-side", "-f", "-"], &queue).await?.ok()
    })
    .await?;
    kubectl.apply(&manifests::namespace("old", true).to_string()).await?;
    let door = old(
        "LocalQueue",
        json!({"name": "default", "namespace": "old"}),
        json!({"clusterQueue": "old"}),
    );
    eventually("the LocalQueue is stored", PATIENCE, || async {
        kubectl.run(&["apply", "--server-side", "-f", "-"], &door).await?.ok()
    })
    .await?;
    for definition in definitions {
        store(&kubectl, definition, true).await?;
    }
    for configuration in world.sluice.chart().of_kind("ValidatingWebhookConfiguration") {
        kubectl.apply(&configuration.to_string()).await?;
    }
    world
        .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
        .await?;
    let active = eventually("the queue is active", PATIENCE, || async {
        let queue = kubectl.get("clusterqueue old").await?;
        ensure!(
            queue["status"]["conditions"][0]["status"] == "True",
            "{}",
            queue["status"]
        );
        anyhow::Ok(queue)
    })
    .await?;
    ensure!(active["apiVersion"] == "kueue.x-k8s.io/v1beta2", "{active}");
    ensure!(active["spec"]["cohortName"] == "old", "{active}");
    kubectl
        .create(&manifests::job("old", "runs", 1, "1", "1s").to_string())
        .await?;
    eventually("the Job runs to its end", PATIENCE, || async {
        let job = kubectl.get("job runs -n old").await?;
        ensure!(job["status"]["succeeded"] == 1, "{}", job["status"]);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_workload_is_judged_and_its_author_hears_that_it_is_stored_only() -> Result<()> {
    let kubectl = world().await?.plane.kubectl();
    kubectl
        .apply(&manifests::namespace("compat-judged", false).to_string())
        .await?;
    let workload = |name: &str, requests: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": "compat-judged"},
            "spec": {"podSets": [{"template": {"spec": {"containers": [
                {"name": "main", "image": "example.com/main:1", "resources": {"requests": requests}},
            ]}}}]},
        })
        .to_string()
    };
    let create = ["create", "-f", "-"];
    let said = kubectl
        .run(&create, &workload("bad", json!({"cpu": "-1"})))
        .await?
        .refused()?;
    ensure!(said.contains("requests[cpu]: -1 is negative"), "{said}");
    let output = kubectl.run(&create, &workload("good", json!({"cpu": "1"}))).await?;
    ensure!(
        output.stderr.contains("does not act on Workloads yet"),
        "{}",
        output.stderr
    );
    output.ok()?;
    let stored = kubectl.get("kwl good -n compat-judged").await?;
    ensure!(
        stored["spec"]["active"] == true && stored["spec"]["podSets"][0]["name"] == "main",
        "{stored}"
    );
    kubectl
        .line("delete namespace compat-judged --wait=false")
        .await?
        .ok()?;
    Ok(())
}
