//! The visibility API through a real API server: its aggregation layer, its front proxy, its authorization.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::manifests;
use sluice_testkit::{AuditMark, Kubectl, Plane, PlaneOptions, SchedulerOptions, WebhookOptions, eventually};

use crate::chart::nothing_drifts;
use crate::release::Helm;
use crate::world::{PATIENCE, PRIORITY_LABEL, World, own_world, own_world_on};

const API: &str = "/apis/visibility.kueue.x-k8s.io";
const SERVICES: [&str; 2] = ["v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io"];

/// GET by kubectl, which must succeed.
async fn raw(kubectl: &Kubectl, path: &str) -> Result<Value> {
    kubectl.run(&["get", "--raw", path], "").await?.json()
}

/// GET by kubectl, which must be refused; what it says.
async fn refused(kubectl: &Kubectl, path: &str) -> Result<String> {
    kubectl.run(&["get", "--raw", path], "").await?.refused()
}

fn of_queue(version: &str, name: &str) -> String {
    format!("{API}/{version}/clusterqueues/{name}/pendingworkloads")
}

fn of_local_queue(version: &str, namespace: &str) -> String {
    format!("{API}/{version}/namespaces/{namespace}/localqueues/default/pendingworkloads")
}

/// Name, position in the ClusterQueue, position in the LocalQueue.
fn places(summary: &Value) -> Result<Vec<(String, i64, i64)>> {
    let items = summary["items"].as_array().context("no items")?;
    let place = |item: &Value| {
        Some((
            item["metadata"]["name"].as_str()?.to_owned(),
            item["positionInClusterQueue"].as_i64()?,
            item["positionInLocalQueue"].as_i64()?,
        ))
    };
    items.iter().map(|item| place(item).context("no place")).collect()
}

async fn until_places(kubectl: &Kubectl, path: &str, wanted: &[(&str, i64, i64)]) -> Result<Value> {
    eventually(&format!("{path} shows {wanted:?}"), PATIENCE, || async {
        let summary = raw(kubectl, path).await?;
        let shown = places(&summary)?;
        let same = shown.iter().map(|(name, queue, local)| (name.as_str(), *queue, *local));
        ensure!(same.eq(wanted.iter().copied()), "it shows {shown:?}");
        Ok(summary)
    })
    .await
}

async fn until_available(kubectl: &Kubectl) -> Result<()> {
    eventually("the APIServices are available", PATIENCE, || async {
        for name in SERVICES {
            let service = kubectl.get(&format!("apiservice {name}")).await?;
            let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let available = conditions
                .iter()
                .find(|condition| condition["type"] == "Available")
                .with_context(|| format!("{name} has no condition yet"))?;
            ensure!(
                available["status"] == "True" && service["spec"]["service"]["name"] == "sluice-visibility",
                "{name}: {available} {}",
                service["spec"]
            );
        }
        Ok(())
    })
    .await
}

/// A namespace of its own goes, with its content.
async fn until_a_namespace_is_deleted(kubectl: &Kubectl, name: &str) -> Result<()> {
    kubectl.line(&format!("create namespace {name}")).await?.ok()?;
    kubectl
        .line(&format!("create configmap something -n {name}"))
        .await?
        .ok()?;
    kubectl
        .line(&format!("delete namespace {name} --timeout=90s"))
        .await?
        .ok()
        .map(drop)
}

fn served() -> Value {
    json!({"visibility": {"enabled": true, "parkAfter": "2s"}})
}

async fn start_scheduler(world: &World) -> Result<String> {
    world.sluice.start_scheduler(SchedulerOptions::default()).await
}

#[tokio::test]
async fn a_follower_shows_exact_positions_to_those_who_may_see_them() -> Result<()> {
    let world = own_world(&served()).await?;
    let leader = world
        .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
        .await?;
    let follower = start_scheduler(&world).await?;
    world.sluice.until_ready(&follower).await?;
    world.sluice.serve_visibility(&[&follower]).await?;
    let kubectl = world.plane.kubectl();
    until_available(&kubectl).await?;

    let team = world.team("shown", "0").await?;
    let other = manifests::list([
        manifests::namespace("shown-other", true),
        manifests::local_queue("shown-other", "default", "shown"),
        manifests::priority_class("shown-high", 100),
    ]);
    kubectl.apply(&other).await?;
    for (namespace, name) in [("shown", "a"), ("shown-other", "b"), ("shown", "c")] {
        let job = manifests::labelled(
            manifests::job(namespace, name, 1, "1", "1s"),
            "kueue.x-k8s.io/queue-name",
            "default",
        );
        kubectl.create(&job.to_string()).await?;
        // Inside one second the order is that of the uids.
        let path = of_queue("v1beta2", "shown");
        eventually(&format!("{name} is shown"), PATIENCE, || async {
            let shown = places(&raw(&kubectl, &path).await?)?;
            ensure!(shown.iter().any(|(shown, ..)| shown == name), "{shown:?}");
            Ok(())
        })
        .await?;
    }
    positions_follow_priorities(&kubectl).await?;
    only_those_who_may_see(&world, &kubectl).await?;
    mistakes_are_told(&kubectl).await?;
    the_schema_is_there(&kubectl).await?;

    world.plane.kill(&leader).await?;
    eventually("the follower leads and shows the same", PATIENCE, || async {
        let summary = raw(&kubectl, &of_queue("v1beta2", "shown")).await?;
        let role = &summary["metadata"]["annotations"]["sluice.internal/replica-role"];
        ensure!(role == "leader", "it says {role}");
        ensure!(places(&summary)?.len() == 3);
        Ok(())
    })
    .await?;
    drop(team);
    Ok(())
}

/// Each Job in turn becomes the first by its priority, and the last again.
async fn positions_follow_priorities(kubectl: &Kubectl) -> Result<()> {
    let queue = of_queue("v1beta2", "shown");
    let class = |name: &str, namespace: &str, change: &str| {
        format!("label job {name} -n {namespace} --overwrite {PRIORITY_LABEL}{change}")
    };
    for (name, namespace) in [("c", "shown"), ("b", "shown-other"), ("a", "shown")] {
        kubectl.line(&class(name, namespace, "=shown-high")).await?.ok()?;
        let summary = eventually(&format!("{name} is the first"), PATIENCE, || async {
            let summary = raw(kubectl, &queue).await?;
            let shown = places(&summary)?;
            ensure!(shown.first().is_some_and(|(first, ..)| first == name), "{shown:?}");
            Ok(summary)
        })
        .await?;
        ensure!(summary["items"][0]["priority"] == 100, "{summary}");
        let role = &summary["metadata"]["annotations"]["sluice.internal/replica-role"];
        ensure!(role == "follower", "it says {role}");
        let shown = places(&summary)?;
        for (position, (_, in_queue, _)) in shown.iter().enumerate() {
            ensure!(usize::try_from(*in_queue)? == position, "{shown:?}");
        }
        // Any part, and the LocalQueue's view, agree with the whole.
        let local = if namespace == "shown" { "shown" } else { "shown-other" };
        let wanted = [(name, 0, 0)];
        until_places(
            kubectl,
            &format!("{}?limit=1", of_local_queue("v1beta1", local)),
            &wanted,
        )
        .await?;
        let (last, in_queue, in_local) = shown.last().context("nobody waits")?;
        let part = format!("{queue}?offset=2&limit=5");
        until_places(kubectl, &part, &[(last.as_str(), *in_queue, *in_local)]).await?;
        kubectl.line(&class(name, namespace, "-")).await?.ok()?;
        eventually(&format!("{name} is one of three again"), PATIENCE, || async {
            let summary = raw(kubectl, &queue).await?;
            let priorities = summary["items"].as_array().context("no items")?;
            ensure!(priorities.iter().all(|item| item["priority"] == 0), "{summary}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn only_those_who_may_see(world: &World, kubectl: &Kubectl) -> Result<()> {
    let tenant = kubectl.with(&world.plane.user("tenant", &[])?.path);
    let (local, queue) = (of_local_queue("v1beta2", "shown"), of_queue("v1beta2", "shown"));
    for path in [&local, &queue] {
        let said = refused(&tenant, path).await?;
        ensure!(said.contains("Forbidden") || said.contains("may not get"), "{said}");
    }
    kubectl
        .line("create rolebinding tenant -n shown --clusterrole=sluice-batch-user --user=tenant")
        .await?
        .ok()?;
    eventually("the tenant sees the LocalQueue", PATIENCE, || async {
        let shown = places(&raw(&tenant, &local).await?)?;
        ensure!(shown.len() == 2, "{shown:?}");
        Ok(())
    })
    .await?;
    for path in [queue, of_local_queue("v1beta2", "shown-other")] {
        refused(&tenant, &path).await?;
    }
    Ok(())
}

async fn mistakes_are_told(kubectl: &Kubectl) -> Result<()> {
    let queue = of_queue("v1beta2", "shown");
    for (path, words) in [
        (format!("{queue}?limit=100001"), "from 0 to 100000"),
        (format!("{queue}?offset=-1"), "offset=-1 is not taken"),
        (of_queue("v1beta2", "nobody"), "ClusterQueue nobody does not exist"),
        (
            format!("{API}/v1beta2/clusterqueues"),
            "only the subresource pendingworkloads",
        ),
    ] {
        let said = refused(kubectl, &path).await?;
        ensure!(said.contains(words), "{path}: {said}");
    }
    Ok(())
}

/// Discovery and OpenAPI reach clients through the API server, and hide nothing of what was there before.
async fn the_schema_is_there(kubectl: &Kubectl) -> Result<()> {
    let resources = raw(kubectl, &format!("{API}/v1beta2")).await?;
    let names: Vec<&str> = resources["resources"]
        .as_array()
        .context("no resources")?
        .iter()
        .filter_map(|resource| resource["name"].as_str())
        .collect();
    ensure!(names.contains(&"localqueues/pendingworkloads"), "{names:?}");
    let queue = kubectl.get("clusterqueue shown").await?;
    ensure!(queue["apiVersion"] == "kueue.x-k8s.io/v1beta2", "{queue}");
    let path = of_queue("v1beta2", "{name}");
    eventually("both generations of OpenAPI have the API", PATIENCE, || async {
        let three = raw(kubectl, &format!("/openapi/v3{API}/v1beta2")).await?;
        ensure!(three["paths"].get(&path).is_some(), "OpenAPI 3 has not");
        let two = raw(kubectl, "/openapi/v2").await?;
        ensure!(two["paths"].get(&path).is_some(), "OpenAPI 2 has not");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn namespaces_are_deleted_while_no_scheduler_is_up_and_the_api_comes_back_with_one() -> Result<()> {
    let options = PlaneOptions::default();
    let world = own_world_on(options, &served()).await?;
    let scheduler = world
        .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
        .await?;
    world.sluice.serve_visibility(&[&scheduler]).await?;
    let kubectl = world.plane.kubectl();
    until_available(&kubectl).await?;
    until_a_namespace_is_deleted(&kubectl, "before").await?;

    world.plane.kill(&scheduler).await?;
    until_a_namespace_is_deleted(&kubectl, "meanwhile").await?;
    eventually("the APIServices are parked", PATIENCE + PATIENCE, || async {
        for name in SERVICES {
            let service = kubectl.get(&format!("apiservice {name}")).await?;
            ensure!(service["spec"]["service"]["name"] == "sluice-webhook", "{service}");
        }
        Ok(())
    })
    .await?;
    until_a_namespace_is_deleted(&kubectl, "afterwards").await?;
    let said = refused(&kubectl, &of_queue("v1beta2", "back")).await?;
    ensure!(said.contains("no scheduler of Sluice"), "{said}");

    world.plane.restart(&scheduler).await?;
    until_available(&kubectl).await?;
    world.team("back", "0").await?;
    until_places(&kubectl, &of_queue("v1beta1", "back"), &[]).await?;
    Ok(())
}

#[tokio::test]
async fn uninstalling_takes_the_api_services_away_first() -> Result<()> {
    let plane = Plane::start(PlaneOptions::default()).await?;
    let helm = Helm::of(&plane);
    let kubectl = plane.kubectl();
    let install = "install sluice sluice -n sluice-system --create-namespace --set webhook.failurePolicy=Ignore";
    let arguments: Vec<&str> = install.split(' ').collect();
    helm.run(&arguments).await?.ok()?;
    nothing_drifts(&helm, &kubectl).await?;
    for name in SERVICES {
        kubectl.get(&format!("apiservice {name}")).await?;
    }
    let mark: AuditMark = plane.audit().mark()?;
    helm.run(&["uninstall", "sluice", "-n", "sluice-system", "--wait"])
        .await?
        .ok()?;
    let deleted = plane
        .audit()
        .since(mark, |event| event.verb == "delete" && event.user == "kubernetes-admin")?;
    let order: Vec<&str> = deleted.iter().map(|event| event.resource.as_str()).collect();
    let last_api = order.iter().rposition(|resource| *resource == "apiservices");
    let first_server = order
        .iter()
        .position(|resource| matches!(*resource, "deployments" | "services" | "clusterrolebindings"));
    ensure!(
        last_api.context("no APIService was deleted")? < first_server.context("nothing else was deleted")?,
        "{order:?}"
    );
    let left = kubectl.line("get apiservices -o name").await?.ok()?;
    ensure!(!left.contains("visibility"), "{left}");
    Ok(())
}
