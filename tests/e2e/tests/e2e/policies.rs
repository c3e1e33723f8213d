//! The chart's ValidatingAdmissionPolicies, judged by the API server itself while no webhook answers.
//!
//! Each policy is shown to refuse and to let pass, with the requester's own credentials: a tenant, the scheduler's
//! service account, a break-glass user, and the controllers that act on Jobs.

use std::ops::Deref;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_testkit::{Kubectl, KubectlOutput, Plane, PlaneOptions, annotations, eventually};
use tokio::sync::OnceCell;

use crate::release::{Helm, scheduler_account};

pub(crate) const NAMESPACE: &str = "sluice-system";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
pub(crate) const RECORD: &str = "sluice.internal/admission";
pub(crate) const SHORT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

/// A namespace of its own on a plane with the chart and without any Sluice process.
struct Scene {
    cast: &'static Cast,
    namespace: String,
}

#[derive(Clone, Copy, PartialEq)]
enum OptedIn {
    Yes,
    No,
}

/// Installs the chart so that only the API server acts: nothing runs, and the webhook may fail.
pub(crate) async fn install(plane: &Plane) -> Result<()> {
    let arguments = [
        "install",
        "sluice",
        "sluice",
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--set",
        // Nobody is there to serve the visibility API, and an API that nobody serves holds up namespaces.
        "scheduler.standalone=true,webhook.failurePolicy=Ignore,policies.breakGlass.users={firefighter},\
         visibility.enabled=false",
    ];
    Helm::of(plane).run(&arguments).await?.ok()?;
    // Any user that may create Jobs will do; the administrator is none of the trusted ones.
    in_force(&plane.kubectl(), "default").await
}

/// Waits until the policies act: a dry run that they must refuse is refused by them.
async fn in_force(kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let forged = with_record(job("in-force", namespace, &json!({})), "Admitted").to_string();
    eventually("the policies are in force", SHORT, || async {
        let output = kubectl.run(&["create", "--dry-run=server", "-f", "-"], &forged).await?;
        let said = output.refused()?;
        if said.contains("jobs.sluice.internal") {
            Ok(())
        } else {
            bail!("{said}")
        }
    })
    .await
}

/// The plane of this module, and who acts on it. Credentials are files that kubectl reads: each is written once.
struct Cast {
    plane: Plane,
    tenant: Kubectl,
    scheduler: Kubectl,
    firefighter: Kubectl,
    admin: Kubectl,
}

async fn cast() -> Result<&'static Cast> {
    static CAST: OnceCell<Cast> = OnceCell::const_new();
    CAST.get_or_try_init(|| async {
        let plane = Plane::start(PlaneOptions::with_nodes()).await?;
        install(&plane).await?;
        let admin = plane.kubectl();
        Ok(Cast {
            tenant: admin.with(&plane.user("tenant", &[])?.path),
            scheduler: admin.with(&scheduler_account(&plane, NAMESPACE).await?.path),
            firefighter: admin.with(&plane.user("firefighter", &[])?.path),
            admin,
            plane,
        })
    })
    .await
}

/// Gives the user the role in the namespace, and waits until the API server knows.
pub(crate) async fn grant(plane: &Plane, user: &str, role: &str, namespace: &str) -> Result<()> {
    let admin = plane.kubectl();
    admin
        .line(&format!(
            "create rolebinding {user} --clusterrole={role} --user={user} -n {namespace}"
        ))
        .await?
        .ok()?;
    eventually("the role binding is in force", SHORT, || async {
        admin
            .line(&format!("auth can-i update jobs.batch --as={user} -n {namespace}"))
            .await?
            .ok()
    })
    .await?;
    Ok(())
}

async fn scene(name: &str, opted_in: OptedIn) -> Result<Scene> {
    let cast = cast().await?;
    let namespace = format!("policy-{name}");
    let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    if opted_in == OptedIn::Yes {
        object["metadata"]["labels"] = json!({"kueue.x-k8s.io/managed-namespace": "true"});
    }
    cast.admin.create(&object.to_string()).await?;
    for user in ["tenant", "firefighter"] {
        grant(&cast.plane, user, "admin", &namespace).await?;
    }
    Ok(Scene { cast, namespace })
}

impl Deref for Scene {
    type Target = Cast;

    fn deref(&self) -> &Cast {
        self.cast
    }
}

impl Scene {
    fn job(&self, name: &str, spec: &Value) -> Value {
        job(name, &self.namespace, spec)
    }

    async fn patch(&self, by: &Kubectl, name: &str, patch: &Value) -> Result<KubectlOutput> {
        let patch = patch.to_string();
        by.run(
            &[
                "patch",
                "job",
                name,
                "-n",
                &self.namespace,
                "--type=merge",
                "-p",
                &patch,
            ],
            "",
        )
        .await
    }

    /// The scheduler starts the Job, as it does when it admits it.
    async fn admit(&self, name: &str) -> Result<()> {
        let patch = json!({
            "metadata": {"annotations": {RECORD: record("Admitted", 1)}},
            "spec": {"suspend": false},
        });
        self.patch(&self.scheduler, name, &patch).await?.ok()?;
        Ok(())
    }

    async fn get(&self, name: &str) -> Result<Value> {
        self.admin.get(&format!("job {name} -n {}", self.namespace)).await
    }

    /// The tenant replaces the Job by its own manifest, edited. (One without selector and labels replaces no Job.)
    async fn replace(&self, name: &str, edit: impl Fn(&mut Value)) -> Result<KubectlOutput> {
        let mut job = self.get(name).await?;
        edit(&mut job);
        if let Some(metadata) = job["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        self.tenant.run(&["replace", "-f", "-"], &job.to_string()).await
    }

    async fn until(&self, what: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
        eventually(what, LONG, || async {
            let job = self.get(name).await?;
            if holds(&job) {
                Ok(())
            } else {
                bail!("{}", job["status"])
            }
        })
        .await
    }

    async fn until_gone(&self, what: &str, kind: &str, name: &str) -> Result<()> {
        let namespaced = if kind == "namespace" {
            String::new()
        } else {
            format!(" -n {}", self.namespace)
        };
        eventually(what, LONG, || async {
            let output = self
                .admin
                .line(&format!("get {kind} {name}{namespaced} -o name"))
                .await?;
            let said = output.refused()?;
            if said.contains("NotFound") {
                Ok(())
            } else {
                bail!("{said}")
            }
        })
        .await
    }
}

pub(crate) fn record(state: &str, term: u64) -> String {
    json!({"v": 1, "term": term, "uid": "made-for-a-test", "state": state}).to_string()
}

fn with_record(mut job: Value, state: &str) -> Value {
    job["metadata"]["annotations"][RECORD] = json!(record(state, 1));
    job
}

pub(crate) fn labelled(mut job: Value, queue: &str) -> Value {
    job["metadata"]["labels"][QUEUE] = json!(queue);
    job
}

pub(crate) fn job(name: &str, namespace: &str, spec: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {
            "metadata": {"annotations": {annotations::RUN_FOR: "1h"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "main"}]},
        }},
    });
    if let (Some(target), Some(more)) = (job["spec"].as_object_mut(), spec.as_object()) {
        target.extend(more.clone());
    }
    job
}

/// A refusal by the policy, for the reason that is expected.
fn refused_because(output: KubectlOutput, reason: &str) -> Result<()> {
    let said = output.refused()?;
    ensure!(
        said.contains("jobs.sluice.internal") && said.contains(reason),
        "refused for another reason: {said}"
    );
    Ok(())
}

const ONLY_THE_SCHEDULER: &str = "only the scheduler may set, change or remove it";
const WAITS: &str = "only the scheduler may set spec.suspend to false";
const PAYS: &str = "that queue pays for its pods";
const ALL_QUEUED: &str = "cannot be removed in a namespace whose Jobs are all queued";
const MAY_FALL: &str = "may only fall";
const LIMIT: &str = "max-exec-time-seconds of an admitted Job cannot change";
const DEADLINE: &str = "spec.activeDeadlineSeconds of an admitted Job cannot be raised or removed";

#[tokio::test]
async fn a_record_is_written_by_the_scheduler_alone() -> Result<()> {
    for (name, opted_in) in [("record", OptedIn::Yes), ("record-elsewhere", OptedIn::No)] {
        let s = scene(name, opted_in).await?;
        let waiting = s.job("waiting", &json!({"suspend": true}));
        let forged = with_record(s.job("forged", &json!({"suspend": true})), "Admitted").to_string();
        refused_because(s.tenant.run(&["create", "-f", "-"], &forged).await?, ONLY_THE_SCHEDULER)?;
        s.tenant.create(&waiting.to_string()).await?;
        let set = json!({"metadata": {"annotations": {RECORD: record("Admitted", 1)}}});
        refused_because(s.patch(&s.tenant, "waiting", &set).await?, ONLY_THE_SCHEDULER)?;
        refused_because(s.patch(&s.admin, "waiting", &set).await?, ONLY_THE_SCHEDULER)?;

        s.patch(&s.scheduler, "waiting", &set).await?.ok()?;
        let change = json!({"metadata": {"annotations": {RECORD: record("Held", 1)}}});
        refused_because(s.patch(&s.tenant, "waiting", &change).await?, ONLY_THE_SCHEDULER)?;
        let remove = json!({"metadata": {"annotations": {RECORD: null}}});
        refused_because(s.patch(&s.tenant, "waiting", &remove).await?, ONLY_THE_SCHEDULER)?;
        refused_because(
            s.replace("waiting", |job| job["metadata"]["annotations"] = Value::Null)
                .await?,
            ONLY_THE_SCHEDULER,
        )?;

        let other = json!({"metadata": {"annotations": {"example.com/note": "mine"}}});
        s.patch(&s.tenant, "waiting", &other).await?.ok()?;
        s.patch(&s.firefighter, "waiting", &remove).await?.ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_waiting_job_is_started_by_the_scheduler_alone() -> Result<()> {
    let start = json!({"spec": {"suspend": false}});
    let unset = json!({"spec": {"suspend": null}});
    for (name, opted_in) in [("start", OptedIn::Yes), ("start-elsewhere", OptedIn::No)] {
        let s = scene(name, opted_in).await?;
        for job in ["by-scheduler", "by-firefighter"] {
            let waiting = labelled(s.job(job, &json!({"suspend": true})), "default");
            s.tenant.apply(&waiting.to_string()).await?;
            refused_because(s.patch(&s.tenant, job, &start).await?, WAITS)?;
            refused_because(s.patch(&s.tenant, job, &unset).await?, WAITS)?;
            let now = labelled(s.job(job, &json!({"suspend": false})), "default").to_string();
            for apply in ["apply -f -", "apply --server-side --force-conflicts -f -"] {
                let arguments: Vec<&str> = apply.split_whitespace().collect();
                refused_because(s.tenant.run(&arguments, &now).await?, WAITS)?;
            }
        }
        s.admit("by-scheduler").await?;
        s.patch(&s.firefighter, "by-firefighter", &start).await?.ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_queue_label_cannot_be_taken_off_to_start_a_job() -> Result<()> {
    let s = scene("unlabel", OptedIn::No).await?;
    s.tenant
        .create(&labelled(s.job("both", &json!({"suspend": true})), "default").to_string())
        .await?;
    let both = json!({"metadata": {"labels": {QUEUE: null}}, "spec": {"suspend": false}});
    refused_because(s.patch(&s.tenant, "both", &both).await?, WAITS)?;
    // Step by step the Job leaves the queue, and with it what the queue promised.
    s.patch(&s.tenant, "both", &json!({"metadata": {"labels": {QUEUE: null}}}))
        .await?
        .ok()?;
    s.patch(&s.tenant, "both", &json!({"spec": {"suspend": false}}))
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn jobs_that_are_not_managed_are_started_by_anybody() -> Result<()> {
    let start = json!({"spec": {"suspend": false}});
    let elsewhere = scene("unmanaged", OptedIn::No).await?;
    elsewhere
        .tenant
        .create(&elsewhere.job("plain", &json!({"suspend": true})).to_string())
        .await?;
    elsewhere.patch(&elsewhere.tenant, "plain", &start).await?.ok()?;

    let s = scene("foreign", OptedIn::Yes).await?;
    let foreign = s.job("foreign", &json!({"suspend": true, "managedBy": "example.com/other"}));
    s.tenant.create(&labelled(foreign, "default").to_string()).await?;
    s.patch(&s.tenant, "foreign", &start).await?.ok()?;
    let relabel = json!({"metadata": {"labels": {QUEUE: "another"}}});
    s.patch(&s.tenant, "foreign", &relabel).await?.ok()?;

    // Sluice's own namespace is exempt, whatever its labels say.
    let own = job("own", NAMESPACE, &json!({"suspend": true}));
    s.admin.create(&labelled(own, "default").to_string()).await?;
    s.admin
        .run(&["patch", "job", "own", "-n", NAMESPACE, "-p", &start.to_string()], "")
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn a_child_of_another_job_is_left_to_the_scheduler() -> Result<()> {
    let s = scene("child", OptedIn::Yes).await?;
    s.tenant
        .create(&s.job("parent", &json!({"suspend": true})).to_string())
        .await?;
    let uid = s.get("parent").await?["metadata"]["uid"].clone();
    let mut child = s.job("child", &json!({"suspend": true}));
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": uid, "controller": true}]);
    s.tenant.create(&child.to_string()).await?;
    s.patch(&s.tenant, "child", &json!({"spec": {"suspend": false}}))
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn the_queue_of_a_running_job_is_frozen_and_that_of_a_waiting_one_is_not() -> Result<()> {
    for (name, opted_in) in [("queue", OptedIn::Yes), ("queue-elsewhere", OptedIn::No)] {
        let s = scene(name, opted_in).await?;
        s.tenant
            .create(&labelled(s.job("moves", &json!({"suspend": true})), "one").to_string())
            .await?;
        let two = json!({"metadata": {"labels": {QUEUE: "two"}}});
        let none = json!({"metadata": {"labels": {QUEUE: null}}});
        s.patch(&s.tenant, "moves", &two).await?.ok()?;
        s.admit("moves").await?;
        let three = json!({"metadata": {"labels": {QUEUE: "three"}}});
        refused_because(s.patch(&s.tenant, "moves", &three).await?, PAYS)?;
        refused_because(s.patch(&s.tenant, "moves", &none).await?, PAYS)?;
        let stop_and_move = json!({"spec": {"suspend": true}, "metadata": {"labels": {QUEUE: "three"}}});
        refused_because(s.patch(&s.tenant, "moves", &stop_and_move).await?, PAYS)?;

        s.patch(
            &s.tenant,
            "moves",
            &json!({"metadata": {"labels": {"example.com/note": "mine"}}}),
        )
        .await?
        .ok()?;
        s.patch(&s.firefighter, "moves", &three).await?.ok()?;
        s.patch(&s.scheduler, "moves", &two).await?.ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_running_job_cannot_be_labelled_into_a_queue() -> Result<()> {
    let s = scene("join", OptedIn::No).await?;
    s.tenant.create(&s.job("joins", &json!({})).to_string()).await?;
    let join = json!({"metadata": {"labels": {QUEUE: "default"}}});
    refused_because(s.patch(&s.tenant, "joins", &join).await?, PAYS)
}

#[tokio::test]
async fn a_queue_label_stays_in_an_opted_in_namespace() -> Result<()> {
    let none = json!({"metadata": {"labels": {QUEUE: null}}});
    let s = scene("stays", OptedIn::Yes).await?;
    s.tenant
        .create(&labelled(s.job("waiting", &json!({"suspend": true})), "one").to_string())
        .await?;
    refused_because(s.patch(&s.tenant, "waiting", &none).await?, ALL_QUEUED)?;
    s.patch(&s.firefighter, "waiting", &none).await?.ok()?;

    let elsewhere = scene("stays-elsewhere", OptedIn::No).await?;
    let waiting = labelled(elsewhere.job("waiting", &json!({"suspend": true})), "one");
    elsewhere.tenant.create(&waiting.to_string()).await?;
    elsewhere.patch(&elsewhere.tenant, "waiting", &none).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn an_admitted_job_shrinks_and_never_grows() -> Result<()> {
    let s = scene("growth", OptedIn::Yes).await?;
    let size = |pods: u32| json!({"spec": {"parallelism": pods, "completions": pods}});
    let mut indexed = size(4)["spec"].clone();
    indexed["suspend"] = json!(true);
    indexed["completionMode"] = json!("Indexed");
    s.tenant.create(&s.job("sized", &indexed).to_string()).await?;
    s.patch(&s.tenant, "sized", &size(5)).await?.ok()?;
    s.admit("sized").await?;
    refused_because(s.patch(&s.tenant, "sized", &size(6)).await?, MAY_FALL)?;
    refused_because(
        s.patch(&s.tenant, "sized", &json!({"spec": {"parallelism": 6}}))
            .await?,
        MAY_FALL,
    )?;
    s.patch(&s.tenant, "sized", &json!({"spec": {"parallelism": 4}}))
        .await?
        .ok()?;
    s.patch(&s.tenant, "sized", &size(3)).await?.ok()?;
    refused_because(s.patch(&s.tenant, "sized", &size(4)).await?, MAY_FALL)?;
    s.patch(&s.firefighter, "sized", &size(4)).await?.ok()?;

    // A Job without completions counts by parallelism alone.
    s.tenant
        .create(&s.job("open", &json!({"suspend": true, "parallelism": 2})).to_string())
        .await?;
    s.admit("open").await?;
    refused_because(
        s.patch(&s.tenant, "open", &json!({"spec": {"parallelism": 3}})).await?,
        MAY_FALL,
    )?;
    s.patch(&s.tenant, "open", &json!({"spec": {"parallelism": 1}}))
        .await?
        .ok()?;
    refused_because(
        s.patch(&s.tenant, "open", &json!({"spec": {"parallelism": 2}})).await?,
        MAY_FALL,
    )?;

    // One that was evicted waits, and takes its size with it into the next admission.
    let evicted = json!({"metadata": {"annotations": {RECORD: record("Evicting", 1)}}, "spec": {"suspend": true}});
    s.patch(&s.scheduler, "open", &evicted).await?.ok()?;
    s.patch(&s.tenant, "open", &json!({"spec": {"parallelism": 9}}))
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn the_time_limit_of_an_admitted_job_is_frozen() -> Result<()> {
    let s = scene("limit", OptedIn::Yes).await?;
    let limit = |seconds: Value| json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": seconds}}});
    s.tenant
        .create(&s.job("limited", &json!({"suspend": true})).to_string())
        .await?;
    s.patch(&s.tenant, "limited", &limit(json!("60"))).await?.ok()?;
    s.patch(&s.tenant, "limited", &limit(json!("90"))).await?.ok()?;
    s.admit("limited").await?;
    refused_because(s.patch(&s.tenant, "limited", &limit(json!("9000"))).await?, LIMIT)?;
    refused_because(s.patch(&s.tenant, "limited", &limit(Value::Null)).await?, LIMIT)?;
    s.patch(&s.firefighter, "limited", &limit(json!("120"))).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn the_deadline_of_an_admitted_job_cannot_move_away() -> Result<()> {
    let s = scene("deadline", OptedIn::Yes).await?;
    let deadline = |seconds: Value| json!({"spec": {"activeDeadlineSeconds": seconds}});
    s.tenant
        .create(&s.job("timed", &json!({"suspend": true})).to_string())
        .await?;
    s.patch(&s.tenant, "timed", &deadline(json!(60))).await?.ok()?;
    s.patch(&s.tenant, "timed", &deadline(json!(90))).await?.ok()?;
    s.admit("timed").await?;
    refused_because(s.patch(&s.tenant, "timed", &deadline(json!(9000))).await?, DEADLINE)?;
    refused_because(s.patch(&s.tenant, "timed", &deadline(Value::Null)).await?, DEADLINE)?;
    s.patch(&s.tenant, "timed", &deadline(json!(80))).await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn a_manifest_that_changes_nothing_protected_can_be_applied_again_and_again() -> Result<()> {
    let s = scene("again", OptedIn::Yes).await?;
    let manifest = labelled(s.job("again", &json!({"suspend": true})), "default");
    let mut silent = manifest.clone();
    silent["spec"].as_object_mut().map(|spec| spec.remove("suspend"));
    let (manifest, silent) = (manifest.to_string(), silent.to_string());
    let applies = ["apply -f -", "apply --server-side --force-conflicts -f -"];
    s.tenant.apply(&manifest).await?;
    for apply in applies {
        let arguments: Vec<&str> = apply.split_whitespace().collect();
        s.tenant.run(&arguments, &manifest).await?.ok()?;
    }
    s.replace("again", |job| job["spec"]["suspend"] = json!(true))
        .await?
        .ok()?;
    s.admit("again").await?;
    s.replace("again", |job| job["metadata"]["labels"]["team"] = json!("a"))
        .await?
        .ok()?;
    // A Job that runs is not stopped by policy, and a manifest without `suspend` says nothing about it.
    s.tenant
        .run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &silent)
        .await?
        .ok()?;
    Ok(())
}

#[tokio::test]
async fn the_job_controller_finishes_an_admitted_job_and_ttl_takes_it_away() -> Result<()> {
    let s = scene("finish", OptedIn::Yes).await?;
    let mut quick = labelled(
        s.job("quick", &json!({"suspend": true, "ttlSecondsAfterFinished": 1})),
        "default",
    );
    quick["spec"]["template"]["metadata"]["annotations"] = json!({annotations::RUN_FOR: "100ms"});
    let mut kept = quick.clone();
    kept["metadata"]["name"] = json!("kept");
    kept["spec"]
        .as_object_mut()
        .map(|spec| spec.remove("ttlSecondsAfterFinished"));
    for job in [quick, kept] {
        s.tenant.create(&job.to_string()).await?;
    }
    s.admit("quick").await?;
    s.admit("kept").await?;
    s.until("the admitted Job is complete", "kept", |job| {
        job["status"]["succeeded"] == 1
    })
    .await?;
    s.until_gone("the finished Job is taken away by its TTL", "job", "quick")
        .await
}

#[tokio::test]
async fn the_cronjob_controller_makes_jobs_and_orphaning_lets_go_of_them() -> Result<()> {
    let s = scene("cron", OptedIn::Yes).await?;
    let template = labelled(s.job("unused", &json!({"suspend": true})), "default");
    let cron = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": s.namespace},
        "spec": {
            "schedule": "* * * * *",
            "jobTemplate": {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]},
        },
    });
    s.tenant.create(&cron.to_string()).await?;
    // As if the controller had been away: the missed run is made at once.
    let missed = json!({"status": {"lastScheduleTime": "2020-01-01T00:00:00Z"}}).to_string();
    let patch = [
        "patch",
        "cronjob",
        "nightly",
        "-n",
        &s.namespace,
        "--subresource=status",
        "--type=merge",
        "-p",
    ];
    s.admin.run(&[&patch[..], &[&missed]].concat(), "").await?.ok()?;
    let name = eventually("the CronJob has made a Job", Duration::from_secs(75), || async {
        let jobs = s.admin.get(&format!("jobs -n {}", s.namespace)).await?;
        match jobs["items"][0]["metadata"]["name"].as_str() {
            Some(name) => Ok(name.to_owned()),
            None => bail!("there is no Job"),
        }
    })
    .await?;
    s.admit(&name).await?;
    s.tenant
        .line(&format!("delete cronjob nightly -n {} --cascade=orphan", s.namespace))
        .await?
        .ok()?;
    s.until("the garbage collector has cut the Job loose", &name, |job| {
        job["metadata"]["ownerReferences"].is_null()
    })
    .await
}

#[tokio::test]
async fn deletion_of_jobs_and_namespaces_is_never_held_up() -> Result<()> {
    let s = scene("deletion", OptedIn::Yes).await?;
    for name in ["foreground", "orphan", "background", "waiting", "rest"] {
        s.tenant
            .create(&labelled(s.job(name, &json!({"suspend": true})), "default").to_string())
            .await?;
        if name != "waiting" {
            s.admit(name).await?;
            s.until("the Job runs", name, |job| job["status"]["active"] == 1)
                .await?;
        }
    }
    for cascade in ["foreground", "orphan", "background"] {
        let delete = format!(
            "delete job {cascade} -n {} --cascade={cascade} --wait=false",
            s.namespace
        );
        s.tenant.line(&delete).await?.ok()?;
        s.until_gone(
            &format!("the Job deleted with cascade {cascade} is gone"),
            "job",
            cascade,
        )
        .await?;
    }
    s.admin
        .line(&format!("delete namespace {} --wait=false", s.namespace))
        .await?
        .ok()?;
    s.until_gone("the namespace with managed Jobs is gone", "namespace", &s.namespace)
        .await
}

#[tokio::test]
async fn a_job_that_is_being_deleted_may_be_changed() -> Result<()> {
    let s = scene("deleting", OptedIn::Yes).await?;
    let mut going = labelled(s.job("going", &json!({"suspend": true})), "default");
    going["metadata"]["finalizers"] = json!(["example.com/last-words"]);
    s.tenant.create(&going.to_string()).await?;
    s.admit("going").await?;
    s.tenant
        .line(&format!("delete job going -n {} --wait=false", s.namespace))
        .await?
        .ok()?;
    let last_words = json!({"metadata": {"finalizers": null, "annotations": {RECORD: null}, "labels": {QUEUE: null}}});
    s.patch(&s.tenant, "going", &last_words).await?.ok()?;
    s.until_gone("the Job is gone", "job", "going").await
}

#[tokio::test]
async fn without_a_term_nobody_is_held_up() -> Result<()> {
    let s = scene("no-term", OptedIn::Yes).await?;
    let terms = s.admin.get("terms.sluice.internal").await?;
    ensure!(
        terms["items"] == json!([]),
        "this test is about a plane that never had a leader: {terms}"
    );
    s.tenant
        .create(&labelled(s.job("early", &json!({"suspend": true})), "default").to_string())
        .await?;
    s.patch(
        &s.tenant,
        "early",
        &json!({"metadata": {"labels": {"example.com/note": "mine"}}}),
    )
    .await?
    .ok()?;
    s.admit("early").await
}
