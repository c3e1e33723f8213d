//! Every scenario again, on a real plane: it must show after each step what the engine alone showed.
//!
//! All that have no Configuration of their own are played on the plane that most tests share, the others on a second one:
//! those of one Configuration together, and between two of them its scheduler is started anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use sluice_api::conditions::ACTIVE;
use sluice_api::v1beta2::{ClusterQueue, LocalQueue};
use sluice_e2e::for_each_scenario;
use sluice_e2e::jobs::{Stage, stage};
use sluice_e2e::manifests;
use sluice_e2e::scenario::format::{Kind, Reference, Scenario, Step};
use sluice_e2e::scenario::pure;
use sluice_e2e::scenario::seen::{Seen, SeenJob, SeenQueue};
use sluice_testkit::{Kubectl, eventually};
use tokio::time::{Instant, sleep_until};

use crate::turns;
use crate::world::{PATIENCE, world};

macro_rules! play {
    ($($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() -> Result<()> {
                play(&Scenario::load(stringify!($name))?).await
            }
        )*
    };
}
for_each_scenario!(play);

/// Plays a scenario on the shared plane.
async fn play(scenario: &Scenario) -> Result<()> {
    let trace = pure::play(scenario)?;
    let turn = match &scenario.config {
        Some(config) => Some(turns::take(config).await?),
        None => None,
    };
    let plane = match &turn {
        Some(turn) => &turn.world.plane,
        None => &world().await?.plane,
    };
    let stand = Stand {
        scenario,
        kubectl: plane.kubectl(),
        client: plane.client().await?,
    };
    let objects = scenario.objects.iter().map(|object| scenario.manifest(object));
    stand.kubectl.apply(&manifests::list(objects)).await?;
    let mut any_order = false;
    for (number, (step, foretold)) in (1..).zip(scenario.steps.iter().zip(&trace)) {
        any_order |= step.any_order;
        let began = Instant::now();
        stand.act(step).await.with_context(|| format!("step {number}"))?;
        let what = format!("{}, step {number}: all is as the engine alone showed it", scenario.name);
        eventually(&what, PATIENCE, || async {
            let seen = stand.seen(step.expect.asks_why()).await?;
            seen.meets(&step.expect)?;
            seen.agrees_with(foretold, any_order)
                .context("on the plane and in memory")
        })
        .await?;
        // What is next may hang on how long it was since, and must not come earlier than in memory.
        let passes = u64::try_from(step.seconds_pass).context("secondsPass is negative")?;
        sleep_until(began + Duration::from_secs(passes)).await;
    }
    if turn.is_some() {
        // A Job whose pods are not ready would hold up whoever plays next there.
        stand.delete_all_jobs().await?;
    }
    Ok(())
}

/// A scenario on the plane.
struct Stand<'a> {
    scenario: &'a Scenario,
    kubectl: Kubectl,
    client: Client,
}

impl Stand<'_> {
    async fn act(&self, step: &Step) -> Result<()> {
        self.change_objects(step).await?;
        if !step.create.is_empty() {
            self.until_the_next_second().await?;
            let jobs = step.create.iter().map(|job| self.scenario.job_manifest(job));
            self.kubectl.create(&manifests::list(jobs)).await?;
        }
        for edit in &step.edit {
            let patch = Patch::Merge(self.scenario.edit(edit));
            self.beside::<Job>(&edit.job)?
                .patch(&edit.job, &PatchParams::default(), &patch)
                .await?;
        }
        // Time passes by itself, and what it brings is waited for.
        self.change_pods(step).await
    }

    async fn change_objects(&self, step: &Step) -> Result<()> {
        if !step.apply.is_empty() {
            let objects = step.apply.iter().map(|object| self.scenario.manifest(object));
            self.kubectl.apply(&manifests::list(objects)).await?;
        }
        for change in &step.change {
            let patch = self.scenario.change(change).to_string();
            let object = self.named(change.kind, &change.name, &change.namespace);
            let line = format!("patch {object} --type=merge -p");
            let arguments: Vec<&str> = line.split(' ').chain([patch.as_str()]).collect();
            self.kubectl.run(&arguments, "").await?.ok()?;
        }
        for Reference { kind, name, namespace } in &step.remove {
            let object = self.named(*kind, name, namespace);
            self.kubectl.line(&format!("delete {object}")).await?.ok()?;
        }
        Ok(())
    }

    async fn change_pods(&self, step: &Step) -> Result<()> {
        for job in &step.ready {
            self.make_ready(job).await?;
        }
        for job in &step.lose {
            self.lose(job).await?;
        }
        for some in &step.succeed {
            self.succeed(&some.job, some.pods).await?;
        }
        for job in &step.finish {
            self.finish(job).await?;
        }
        for job in &step.delete {
            let namespace = self.scenario.full(&self.scenario.job(job)?.namespace);
            self.kubectl
                .line(&format!("delete job {job} -n {namespace}"))
                .await?
                .ok()?;
        }
        for job in &step.gone {
            let namespace = self.scenario.full(&self.scenario.job(job)?.namespace);
            let pods = format!("-n {namespace} -l batch.kubernetes.io/job-name={job}");
            self.kubectl
                .line(&format!("delete pods {pods} --grace-period=0 --force"))
                .await?
                .ok()?;
        }
        Ok(())
    }

    /// Clears up for whoever plays next on the same plane.
    async fn delete_all_jobs(&self) -> Result<()> {
        for namespace in self.scenario.namespaces() {
            self.kubectl
                .line(&format!("delete jobs --all -n {namespace}"))
                .await?
                .ok()?;
        }
        Ok(())
    }

    /// An object, as kubectl names it.
    fn named(&self, kind: Kind, name: &str, namespace: &str) -> String {
        match kind {
            Kind::LocalQueue => format!("localqueue {name} -n {}", self.scenario.full(namespace)),
            _ => format!("{} {}", kind.as_str().to_lowercase(), self.scenario.full(name)),
        }
    }

    /// Creation times have whole seconds, and inside one of them uids decide: Jobs of different steps differ in theirs.
    async fn until_the_next_second(&self) -> Result<()> {
        let jobs = self.jobs().await?;
        let last = jobs
            .iter()
            .filter_map(ResourceExt::creation_timestamp)
            .map(|time| time.0.as_second())
            .max();
        eventually(
            "a second has begun in which none of its Jobs was created",
            PATIENCE,
            || async {
                let now = Timestamp::now().as_second();
                ensure!(last.is_none_or(|last| last < now), "it is still {now}");
                anyhow::Ok(())
            },
        )
        .await
    }

    /// Objects in the namespace of a Job.
    fn beside<K>(&self, job: &str) -> Result<Api<K>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Ok(Api::namespaced(
            self.client.clone(),
            &self.scenario.full(&self.scenario.job(job)?.namespace),
        ))
    }

    /// Its pods become ready, all of them.
    async fn make_ready(&self, name: &str) -> Result<()> {
        let (jobs, pods) = (self.beside::<Job>(name)?, self.beside::<Pod>(name)?);
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now().to_string()});
        let ready = Patch::Merge(json!({"status": {"phase": "Running", "conditions": [ready]}}));
        eventually(&format!("the pods of Job {name} are ready"), PATIENCE, || async {
            for pod in pods.list(&of_job(name)).await? {
                if phase(&pod) == "Pending" {
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &ready)
                        .await?;
                }
            }
            let job = jobs.get(name).await?;
            let (spec, status) = (job.spec.unwrap_or_default(), job.status.unwrap_or_default());
            ensure!(status.ready == spec.parallelism, "{:?} are", status.ready);
            anyhow::Ok(())
        })
        .await
    }

    /// One of its pods fails.
    async fn lose(&self, name: &str) -> Result<()> {
        let (jobs, pods) = (self.beside::<Job>(name)?, self.beside::<Pod>(name)?);
        let running = pods
            .list(&of_job(name))
            .await?
            .into_iter()
            .find(|pod| phase(pod) == "Running");
        let lost = running.with_context(|| format!("no pod of Job {name} runs"))?;
        let failed = Patch::Merge(json!({"status": {"phase": "Failed", "conditions": null}}));
        pods.patch_status(&lost.name_any(), &PatchParams::default(), &failed)
            .await?;
        eventually(&format!("Job {name} has lost a pod"), PATIENCE, || async {
            let status = jobs.get(name).await?.status.unwrap_or_default();
            ensure!(status.failed == Some(1), "{:?} have failed", status.failed);
            anyhow::Ok(())
        })
        .await
    }

    /// So many of its pods succeed.
    async fn succeed(&self, name: &str, count: i64) -> Result<()> {
        let count = usize::try_from(count)?;
        let pods = self.beside::<Pod>(name)?;
        let what = format!("{count} pods of Job {name} run");
        let running = eventually(&what, PATIENCE, || async {
            let mut running = pods.list(&of_job(name)).await?.items;
            running.retain(|pod| phase(pod) == "Running");
            ensure!(running.len() >= count, "{} do", running.len());
            anyhow::Ok(running)
        })
        .await?;
        let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        for pod in running.iter().take(count) {
            pods.patch_status(&pod.name_any(), &PatchParams::default(), &succeeded)
                .await?;
        }
        Ok(())
    }

    /// Its pods succeed, all that the Job controller makes of it.
    async fn finish(&self, name: &str) -> Result<()> {
        let (jobs, pods) = (self.beside::<Job>(name)?, self.beside::<Pod>(name)?);
        let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        eventually(&format!("the pods of Job {name} succeed"), PATIENCE, || async {
            for pod in pods.list(&of_job(name)).await? {
                if phase(&pod) != "Succeeded" {
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &succeeded)
                        .await?;
                }
            }
            let now = stage(&jobs.get(name).await?);
            ensure!(now == Stage::Completed, "it is {now:?}");
            anyhow::Ok(())
        })
        .await
    }

    async fn jobs(&self) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for namespace in self.scenario.namespaces() {
            let api: Api<Job> = Api::namespaced(self.client.clone(), &namespace);
            // One that is being deleted is there until its pods are gone; for its user it is gone.
            let list = api.list(&ListParams::default()).await?;
            jobs.extend(list.into_iter().filter(|job| job.metadata.deletion_timestamp.is_none()));
        }
        Ok(jobs)
    }

    /// Reasons of the events on each Job.
    async fn reasons(&self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let mut reasons: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for namespace in self.scenario.namespaces() {
            let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
            for event in events
                .list(&ListParams::default().fields("involvedObject.kind=Job"))
                .await?
            {
                let job = event.involved_object.name.unwrap_or_default();
                reasons.entry(job).or_default().extend(event.reason);
            }
        }
        Ok(reasons)
    }

    async fn seen(&self, with_reasons: bool) -> Result<Seen> {
        let mut reasons = if with_reasons {
            self.reasons().await?
        } else {
            BTreeMap::new()
        };
        let mut seen = Seen::default();
        for job in self.jobs().await? {
            let name = job.name_any();
            let why = reasons.remove(&name).unwrap_or_default();
            seen.jobs.insert(name, SeenJob::of(self.scenario, &job, why)?);
        }
        let cluster_queues: Api<ClusterQueue> = Api::all(self.client.clone());
        for object in self.scenario.all_of(Kind::ClusterQueue) {
            if let Some(queue) = cluster_queues.get_opt(&self.scenario.full(&object.name)).await? {
                let status = queue.status.unwrap_or_default();
                is_current(&queue.metadata, &status.conditions)?;
                seen.queues
                    .insert(object.name.clone(), SeenQueue::of(self.scenario, &status));
            }
        }
        for object in self.scenario.all_of(Kind::LocalQueue) {
            let local_queues: Api<LocalQueue> =
                Api::namespaced(self.client.clone(), &self.scenario.full(&object.namespace));
            if let Some(queue) = local_queues.get_opt(&object.name).await? {
                let status = queue.status.unwrap_or_default();
                is_current(&queue.metadata, &status.conditions)?;
                let name = (object.namespace.clone(), object.name.clone());
                seen.local_queues
                    .insert(name, SeenQueue::of_local(self.scenario, &status));
            }
        }
        Ok(seen)
    }
}

fn of_job(name: &str) -> ListParams {
    ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"))
}

fn phase(pod: &Pod) -> &str {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

/// The status of a queue speaks of its present spec.
fn is_current(metadata: &ObjectMeta, conditions: &[Condition]) -> Result<()> {
    let judged = conditions.iter().find(|condition| condition.type_ == ACTIVE);
    let judged = judged.and_then(|condition| condition.observed_generation);
    ensure!(
        judged == metadata.generation,
        "{:?} is judged as of generation {judged:?}",
        metadata.name
    );
    Ok(())
}
