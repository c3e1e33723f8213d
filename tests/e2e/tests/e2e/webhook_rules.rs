//! Which requests reach the webhook, as the chart's configurations say, judged by the API server itself.
//!
//! No webhook answers on this plane and the failure policy is Fail: a request that would be sent to the webhook is
//! refused with the name of the entry, and every other passes.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_testkit::{Kubectl, KubectlOutput, Plane, PlaneOptions, eventually};
use tokio::sync::OnceCell;

use crate::release::{Helm, scheduler_account};

const NAMESPACE: &str = "sluice-system";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const SHORT: Duration = Duration::from_secs(30);

const BY_NAMESPACE: &str = "namespaces.jobs.sluice.internal";
const BY_LABEL: &str = "labels.jobs.sluice.internal";
const QUEUE_NAMES: &str = "queue-names.jobs.sluice.internal";

/// Who must be asked about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Nobody,
    Entry(&'static str),
}

/// One plane for all tests here. Its Jobs were made before the chart was installed: afterwards no managed Job can be.
struct Stage {
    plane: Plane,
    admin: Kubectl,
    tenant: Kubectl,
}

async fn stage() -> Result<&'static Stage> {
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    STAGE.get_or_try_init(Stage::start).await
}

impl Stage {
    async fn start() -> Result<Self> {
        let plane = Plane::start(PlaneOptions::default()).await?;
        let admin = plane.kubectl();
        let opted_in = json!({"kueue.x-k8s.io/managed-namespace": "true"});
        for (name, labels) in [("opted-in", &opted_in), ("going", &opted_in), ("other", &json!({}))] {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
            admin.create(&namespace.to_string()).await?;
            for user in ["tenant", "firefighter"] {
                let binding = format!("create rolebinding {user} --clusterrole=admin --user={user} -n {name}");
                admin.line(&binding).await?.ok()?;
                eventually("the role binding is in force", SHORT, || async {
                    admin
                        .line(&format!("auth can-i update jobs.batch --as={user} -n {name}"))
                        .await?
                        .ok()
                })
                .await?;
            }
        }
        let suspended = json!({"suspend": true});
        let mut finalized = job("going", "finalized", Some("default"), &suspended);
        finalized["metadata"]["finalizers"] = json!(["example.com/last-words"]);
        for job in [
            job("opted-in", "waits", Some("default"), &suspended),
            job("other", "waits", Some("default"), &suspended),
            job("other", "plain", None, &suspended),
            job("going", "foreground", Some("default"), &suspended),
            job("going", "runs", Some("default"), &json!({})),
            finalized,
            with_fewer_pods("opted-in"),
            with_fewer_pods("other"),
        ] {
            admin.create(&job.to_string()).await?;
        }
        // Nobody is there to serve the visibility API, and an API that nobody serves holds up namespaces.
        let set = "scheduler.standalone=true,policies.breakGlass.users={firefighter},policies.breakGlass.groups={fire},\
                   visibility.enabled=false";
        let install = [
            "install",
            "sluice",
            "sluice",
            "-n",
            NAMESPACE,
            "--create-namespace",
            "--set",
            set,
        ];
        Helm::of(&plane).run(&install).await?.ok()?;
        let tenant = admin.with(&plane.user("tenant", &[])?.path);
        let stage = Self { plane, admin, tenant };
        for (namespace, entry) in [("opted-in", BY_NAMESPACE), ("other", BY_LABEL)] {
            let probe = job(namespace, "probe", Some("default"), &json!({}));
            eventually("the webhook configurations are in force", SHORT, || async {
                let found = asked(&stage.create(&stage.tenant, &probe).await?)?;
                if found == Asked::Entry(entry) {
                    Ok(())
                } else {
                    bail!("{found:?} was asked")
                }
            })
            .await?;
        }
        Ok(stage)
    }

    async fn create(&self, by: &Kubectl, job: &Value) -> Result<KubectlOutput> {
        by.run(&["create", "--dry-run=server", "-f", "-"], &job.to_string())
            .await
    }

    async fn patch(&self, by: &Kubectl, namespace: &str, name: &str, patch: &Value) -> Result<KubectlOutput> {
        let patch = patch.to_string();
        let arguments = [
            "patch",
            "job",
            name,
            "-n",
            namespace,
            "--dry-run=server",
            "--type=merge",
            "-p",
            &patch,
        ];
        by.run(&arguments, "").await
    }
}

/// Who was asked, by what the API server answered.
fn asked(output: &KubectlOutput) -> Result<Asked> {
    if output.succeeded() {
        return Ok(Asked::Nobody);
    }
    let said = &output.stderr;
    [BY_NAMESPACE, BY_LABEL, QUEUE_NAMES]
        .into_iter()
        .find(|entry| said.contains(&format!("failed calling webhook \"{entry}\"")))
        .map(Asked::Entry)
        .with_context(|| format!("refused by another than the webhook: {said}"))
}

fn job(namespace: &str, name: &str, queue: Option<&str>, spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]}}},
    });
    if let Some(queue) = queue {
        job["metadata"]["labels"][QUEUE] = json!(queue);
    }
    if let (Some(target), Some(more)) = (job["spec"].as_object_mut(), spec.as_object()) {
        target.extend(more.clone());
    }
    job
}

/// A Job of two pods, admitted with them while its owner asks for four.
fn with_fewer_pods(namespace: &str) -> Value {
    let mut job = job(
        namespace,
        "fewer",
        Some("default"),
        &json!({"suspend": true, "parallelism": 2}),
    );
    let record = json!({"v": 1, "term": 1, "uid": "", "state": "Admitted", "delta": {"parallelism": 4}});
    job["metadata"]["annotations"] = json!({"sluice.internal/admission": record.to_string()});
    job
}

#[tokio::test]
async fn a_new_job_is_asked_about_once_if_it_is_managed_and_never_otherwise() -> Result<()> {
    let stage = stage().await?;
    let suspended = json!({"suspend": true});
    let foreign = json!({"managedBy": "example.com/other"});
    let built_in = json!({"managedBy": "kubernetes.io/job-controller"});
    for (namespace, queue, spec, expected) in [
        ("opted-in", None, json!({}), Asked::Entry(BY_NAMESPACE)),
        ("opted-in", Some("default"), json!({}), Asked::Entry(BY_NAMESPACE)),
        (
            "opted-in",
            Some("default"),
            suspended.clone(),
            Asked::Entry(BY_NAMESPACE),
        ),
        ("opted-in", None, built_in, Asked::Entry(BY_NAMESPACE)),
        ("opted-in", None, foreign.clone(), Asked::Nobody),
        ("opted-in", Some("default"), foreign.clone(), Asked::Nobody),
        ("other", None, json!({}), Asked::Nobody),
        ("other", None, suspended, Asked::Nobody),
        ("other", Some("default"), json!({}), Asked::Entry(BY_LABEL)),
        ("other", Some(""), json!({}), Asked::Entry(BY_LABEL)),
        ("other", Some("default"), foreign, Asked::Nobody),
        ("default", Some("default"), json!({}), Asked::Entry(BY_LABEL)),
        ("kube-system", Some("default"), json!({}), Asked::Nobody),
        (NAMESPACE, Some("default"), json!({}), Asked::Nobody),
    ] {
        let job = job(namespace, "new", queue, &spec);
        // The administrator: exemption is by namespace and label, never by who asks.
        let output = stage.create(&stage.admin, &job).await?;
        ensure!(asked(&output)? == expected, "{job}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn only_changes_of_what_is_pinned_are_asked_about() -> Result<()> {
    let stage = stage().await?;
    let annotation = |key: &str| json!({"metadata": {"annotations": {key: "true"}}});
    let template = |field: &str, value: Value| json!({"spec": {"template": {"spec": {field: value}}}});
    let pinned = [
        json!({"spec": {"suspend": false}}),
        json!({"spec": {"suspend": null}}),
        json!({"metadata": {"labels": {QUEUE: "another"}}}),
        json!({"metadata": {"labels": {QUEUE: null}}}),
        annotation("sluice.internal/admission"),
        annotation("sluice.internal/hold"),
        annotation("sluice.internal/created-running"),
        template("nodeSelector", json!({"pool": "spot"})),
        template("tolerations", json!([{"key": "spot", "operator": "Exists"}])),
        json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}}),
    ];
    let free = [
        json!({"metadata": {"labels": {"team": "a"}}}),
        annotation("example.com/note"),
        json!({"metadata": {"finalizers": ["example.com/last-words"]}}),
        json!({"spec": {"parallelism": 3}}),
        json!({"spec": {"ttlSecondsAfterFinished": 3}}),
        json!({"spec": {"template": {"metadata": {"annotations": {"note": "a"}}}}}),
        // Applied again without a change, in the words of a server-side default.
        json!({"spec": {"suspend": true}}),
        template("nodeSelector", json!({})),
        template("tolerations", json!([])),
    ];
    let scheduler = stage
        .admin
        .with(&scheduler_account(&stage.plane, NAMESPACE).await?.path);
    for (namespace, entry) in [("opted-in", BY_NAMESPACE), ("other", BY_LABEL)] {
        for change in &pinned {
            let output = stage.patch(&stage.tenant, namespace, "waits", change).await?;
            ensure!(
                asked(&output)? == Asked::Entry(entry),
                "{namespace} {change}: {}",
                output.stderr
            );
            // The scheduler's own writes never come back to the webhook.
            stage.patch(&scheduler, namespace, "waits", change).await?.ok()?;
            for trusted in [
                "--as=firefighter --as-group=system:masters",
                "--as=ann --as-group=fire --as-group=system:masters",
            ] {
                let patch = change.to_string();
                let mut arguments = vec!["patch", "job", "waits", "-n", namespace, "--dry-run=server"];
                arguments.extend(trusted.split(' '));
                arguments.extend(["--type=merge", "-p", &patch]);
                stage.admin.run(&arguments, "").await?.ok()?;
            }
        }
        for change in &free {
            stage
                .patch(&stage.tenant, namespace, "waits", change)
                .await?
                .ok()
                .with_context(|| change.to_string())?;
        }
    }
    for change in &pinned {
        let joins = change["metadata"]["labels"][QUEUE].is_string();
        let expected = if joins { Asked::Entry(BY_LABEL) } else { Asked::Nobody };
        let output = stage.patch(&stage.tenant, "other", "plain", change).await?;
        let record = output.stderr.contains("jobs.sluice.internal' with binding");
        ensure!(record || asked(&output)? == expected, "{change}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn a_raised_number_of_pods_is_asked_about_where_fewer_were_admitted_than_asked_for() -> Result<()> {
    let stage = stage().await?;
    let parallelism = |number: i64| json!({"spec": {"parallelism": number}});
    for (namespace, entry) in [("opted-in", BY_NAMESPACE), ("other", BY_LABEL)] {
        for (number, expected) in [
            (4, Asked::Entry(entry)),
            (3, Asked::Entry(entry)),
            (2, Asked::Nobody),
            (1, Asked::Nobody),
        ] {
            let output = stage
                .patch(&stage.tenant, namespace, "fewer", &parallelism(number))
                .await?;
            ensure!(asked(&output)? == expected, "{namespace} {number}: {}", output.stderr);
        }
        let completions = json!({"spec": {"completions": 4}});
        let output = stage.patch(&stage.tenant, namespace, "fewer", &completions).await?;
        ensure!(asked(&output)? == Asked::Entry(entry), "{namespace}: {}", output.stderr);
    }
    Ok(())
}

#[tokio::test]
async fn kubernetes_own_controllers_are_never_held_up_by_a_webhook_that_is_down() -> Result<()> {
    let stage = stage().await?;
    let status = |name: &'static str, holds: fn(&Value) -> bool| {
        let admin = &stage.admin;
        async move {
            eventually(&format!("the Job controller acts on {name}"), SHORT, || async {
                let job = admin.get(&format!("job {name} -n going")).await?;
                if holds(&job) {
                    Ok(())
                } else {
                    bail!("{}", job["status"])
                }
            })
            .await
        }
    };
    status("foreground", |job| {
        job["status"]["conditions"][0]["type"] == "Suspended"
    })
    .await?;
    status("runs", |job| job["status"]["active"] == 1).await?;
    stage
        .tenant
        .line("delete job foreground -n going --cascade=foreground --timeout=30s")
        .await?
        .ok()?;
    stage
        .tenant
        .line("delete job runs -n going --cascade=orphan --timeout=30s")
        .await?
        .ok()?;
    stage
        .tenant
        .line("delete job finalized -n going --wait=false")
        .await?
        .ok()?;
    let patch = json!({"metadata": {"finalizers": null}, "spec": {"suspend": false}}).to_string();
    stage
        .tenant
        .run(
            &["patch", "job", "finalized", "-n", "going", "--type=merge", "-p", &patch],
            "",
        )
        .await?
        .ok()?;
    stage.admin.line("delete namespace going --timeout=30s").await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn queue_names_are_asked_about_only_when_they_look_wrong() -> Result<()> {
    let stage = stage().await?;
    // A break-glass user is not asked about by the mutating entries: what is left is the validating one.
    let firefighter = stage.admin.with(&stage.plane.user("firefighter", &[])?.path);
    for (name, expected) in [
        ("Team-A", Asked::Entry(QUEUE_NAMES)),
        ("team_a", Asked::Entry(QUEUE_NAMES)),
        ("a..b", Asked::Entry(QUEUE_NAMES)),
        ("a.b", Asked::Entry(QUEUE_NAMES)),
        ("", Asked::Entry(QUEUE_NAMES)),
        ("a", Asked::Nobody),
        ("team-a", Asked::Nobody),
        ("0", Asked::Nobody),
        ("a-0-b", Asked::Nobody),
    ] {
        let change = json!({"metadata": {"labels": {QUEUE: name}}});
        let output = stage.patch(&firefighter, "other", "waits", &change).await?;
        ensure!(asked(&output)? == expected, "{name:?}: {}", output.stderr);
    }
    Ok(())
}
