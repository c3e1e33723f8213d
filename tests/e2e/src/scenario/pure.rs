//! Plays a scenario in memory: the index and engine decide; the API server and the Job controller are a few lines here.
//!
//! Every scenario is played in several ways that a real cluster could take as well: uids rising or falling, the Jobs
//! of a step in either order, decided on one by one or together. A scenario that ends differently is refused.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_engine::{LocalQueueKey, Time, Uid};
use sluice_index::{Answer, Index, Reign, WantedStatus};
use sluice_jobs::view::JobView;

use super::format::{Change, Kind, NewJob, Object, Reference, Scenario, Step, Succeed};
use super::seen::{Seen, SeenJob, SeenQueue};

/// 2026-01-01T00:00:00Z in milliseconds.
const START: i64 = 1_767_225_600_000;
/// More writes than any scenario takes: something goes in circles.
const MOST_WRITES: usize = 1_000;

/// What a real cluster leaves open.
#[derive(Debug, Clone, Copy)]
struct Way {
    falling_uids: bool,
    reversed: bool,
    together: bool,
}

/// Plays a scenario in every way and returns what the cluster shows after each step.
///
/// # Errors
/// An expectation that does not hold, with its step; or an outcome that hangs on what nobody can foretell.
pub fn play(scenario: &Scenario) -> Result<Vec<Seen>> {
    let mut first: Option<Vec<Seen>> = None;
    for number in 0..8 {
        let way = Way {
            falling_uids: number & 1 != 0,
            reversed: number & 2 != 0,
            together: number & 4 != 0,
        };
        let trace = play_in(scenario, way).with_context(|| format!("{} ({way:?})", scenario.name))?;
        let Some(first) = &first else {
            first = Some(trace);
            continue;
        };
        let mut any_order = false;
        for (number, ((step, one), other)) in (1..).zip(scenario.steps.iter().zip(first).zip(&trace)) {
            any_order |= step.any_order;
            one.agrees_with(other, any_order).with_context(|| {
                format!("step {number}: the outcome hangs on the order of uids or of the Jobs of one step ({way:?})")
            })?;
        }
    }
    first.context("no way was played")
}

fn play_in(scenario: &Scenario, way: Way) -> Result<Vec<Seen>> {
    let mut cluster = Memory::new(scenario, way)?;
    let mut trace = Vec::new();
    for (number, step) in (1..).zip(&scenario.steps) {
        let played = cluster.step(step).and_then(|()| cluster.seen()).and_then(|seen| {
            seen.meets(&step.expect)?;
            Ok(seen)
        });
        trace.push(played.with_context(|| format!("step {number}"))?);
    }
    Ok(trace)
}

/// A cluster in memory.
struct Memory<'a> {
    scenario: &'a Scenario,
    way: Way,
    index: Index,
    /// Jobs as the API server stores them, by name.
    jobs: BTreeMap<String, Value>,
    /// Objects that are no Jobs, by kind, namespace and name as the file has them.
    objects: BTreeMap<ObjectKey, Value>,
    version: u64,
    created: u64,
    now: i64,
    /// When time alone changes something.
    next: Option<Time>,
}

type ObjectKey = (Kind, String, String);

fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    serde_json::from_value(value.clone()).with_context(|| format!("cannot be read: {value}"))
}

impl<'a> Memory<'a> {
    fn new(scenario: &'a Scenario, way: Way) -> Result<Self> {
        let mut cluster = Self {
            scenario,
            way,
            index: Index::new("sluice-system"),
            jobs: BTreeMap::new(),
            objects: BTreeMap::new(),
            version: 1,
            created: 0,
            now: START,
            next: None,
        };
        cluster.index.set_configuration(scenario.configuration()?, Time(START));
        cluster.index.begin_reign(Reign { term: 1, barrier: 1 }, Time(START));
        for object in &scenario.objects {
            cluster.apply(object)?;
        }
        cluster.settle()?;
        Ok(cluster)
    }

    fn now(&self) -> Time {
        Time(self.now)
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        // Creation times have whole seconds: each step has one of its own.
        self.now += 1_000;
        self.change_objects(step)?;
        let mut jobs: Vec<&NewJob> = step.create.iter().collect();
        if self.way.reversed {
            jobs.reverse();
        }
        for job in jobs {
            self.create(job)?;
            self.settle_between()?;
        }
        for edit in &step.edit {
            self.edit(&edit.job, &self.scenario.edit(edit))?;
            self.settle_between()?;
        }
        self.change_pods(step)?;
        self.settle()?;
        self.pass_time(step.seconds_pass)
    }

    fn change_objects(&mut self, step: &Step) -> Result<()> {
        for object in &step.apply {
            self.apply(object)?;
            self.settle_between()?;
        }
        for change in &step.change {
            self.change(change)?;
            self.settle_between()?;
        }
        for reference in &step.remove {
            self.remove(reference)?;
            self.settle_between()?;
        }
        Ok(())
    }

    fn change_pods(&mut self, step: &Step) -> Result<()> {
        for job in &step.ready {
            self.report(job, |job| job["status"]["ready"] = job["status"]["active"].clone())?;
        }
        for job in &step.lose {
            self.report(job, |job| {
                // The replacement is active, and not ready.
                add(&mut job["status"]["ready"], -1);
                add(&mut job["status"]["failed"], 1);
            })?;
        }
        for Succeed { job, pods } in &step.succeed {
            self.report(job, |job| {
                for (field, change) in [("active", -pods), ("ready", -pods), ("succeeded", *pods)] {
                    add(&mut job["status"][field], change);
                }
            })?;
        }
        let mut finished: Vec<&String> = step.finish.iter().collect();
        if self.way.reversed {
            finished.reverse();
        }
        for job in finished {
            self.finish(job)?;
            self.settle_between()?;
        }
        for job in &step.delete {
            self.delete(job)?;
            self.settle_between()?;
        }
        for job in &step.gone {
            self.report(job, |job| job["status"]["terminating"] = json!(0))?;
        }
        Ok(())
    }

    fn apply(&mut self, object: &Object) -> Result<()> {
        let key = (object.kind, object.namespace.clone(), object.name.clone());
        self.store(key, self.scenario.manifest(object))
    }

    fn change(&mut self, change: &Change) -> Result<()> {
        let key = (change.kind, change.namespace.clone(), change.name.clone());
        let mut object = self
            .objects
            .get(&key)
            .with_context(|| format!("there is no {key:?}"))?
            .clone();
        json_patch::merge(&mut object, &self.scenario.change(change));
        self.store(key, object)
    }

    /// The API server stores an object and the watch shows it.
    fn store(&mut self, key: ObjectKey, mut object: Value) -> Result<()> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let now = self.now();
        match key.0 {
            Kind::Namespace => {
                let labels = read(&object["metadata"]["labels"])?;
                self.index.set_namespace(&self.scenario.full(&key.2), labels, now);
                self.index.update_ledger(now);
            }
            Kind::ResourceFlavor => self.index.set_flavor(read(&object)?, now),
            Kind::Cohort => self.index.set_cohort(read(&object)?, now),
            Kind::ClusterQueue => self.index.set_cluster_queue(read(&object)?, now),
            Kind::LocalQueue => self.index.set_local_queue(read(&object)?, now),
            Kind::WorkloadPriorityClass => self.index.set_workload_priority_class(&read(&object)?, now),
        }
        self.objects.insert(key, object);
        Ok(())
    }

    fn remove(&mut self, reference: &Reference) -> Result<()> {
        let Reference { kind, name, namespace } = reference;
        let key = (*kind, namespace.clone(), name.clone());
        ensure!(self.objects.remove(&key).is_some(), "there is no {key:?}");
        let (full, now) = (self.scenario.full(name), self.now());
        match kind {
            Kind::Namespace => bail!("a Namespace cannot be removed by a scenario"),
            Kind::ResourceFlavor => self.index.delete_flavor(&full),
            Kind::Cohort => self.index.delete_cohort(&full, now),
            Kind::ClusterQueue => self.index.delete_cluster_queue(&full),
            Kind::LocalQueue => self.index.delete_local_queue(&self.scenario.full(namespace), name),
            Kind::WorkloadPriorityClass => self.index.delete_workload_priority_class(&full, now),
        }
        Ok(())
    }

    /// The webhook has suspended it; the Job controller has said so.
    fn create(&mut self, job: &NewJob) -> Result<()> {
        self.created += 1;
        let uid = if self.way.falling_uids {
            1_000_000 - self.created
        } else {
            self.created
        };
        let mut manifest = self.scenario.job_manifest(job);
        let metadata = &mut manifest["metadata"];
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{uid:012x}"));
        metadata["generation"] = json!(1);
        metadata["creationTimestamp"] = json!(Timestamp::from_second(self.now / 1_000)?.to_string());
        manifest["spec"]["suspend"] = json!(true);
        self.jobs.insert(job.job.clone(), manifest);
        self.control(&job.job)?;
        self.show(&job.job)
    }

    fn stored(&mut self, name: &str) -> Result<&mut Value> {
        self.jobs.get_mut(name).with_context(|| format!("Job {name} is gone"))
    }

    fn edit(&mut self, name: &str, patch: &Value) -> Result<()> {
        let job = self.stored(name)?;
        let spec = job["spec"].clone();
        json_patch::merge(job, patch);
        if job["spec"] != spec {
            next_generation(job);
        }
        self.show(name)
    }

    fn finish(&mut self, name: &str) -> Result<()> {
        let job = self.stored(name)?;
        ensure!(
            job["spec"]["suspend"] == false,
            "Job {name} does not run, so it cannot finish"
        );
        job["status"] = json!({
            "succeeded": job["spec"]["completions"],
            "conditions": [{"type": "Complete", "status": "True"}],
        });
        self.show(name)
    }

    fn delete(&mut self, name: &str) -> Result<()> {
        let job = self.jobs.remove(name).with_context(|| format!("Job {name} is gone"))?;
        let metadata = &job["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        self.index
            .delete_job(text("namespace"), name, text("uid"), Time(self.now));
        Ok(())
    }

    /// The Job controller reports what became of the pods of a Job.
    fn report(&mut self, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        change(self.stored(name)?);
        self.show(name)?;
        self.settle_between()
    }

    /// What the Job controller makes of it once it was started or stopped.
    fn control(&mut self, name: &str) -> Result<()> {
        let now = Timestamp::from_second(self.now / 1_000)?.to_string();
        let NewJob { slow, lingers, .. } = *self.scenario.job(name)?;
        let job = self.stored(name)?;
        let suspended = job["spec"]["suspend"] == true;
        let word = if suspended { "True" } else { "False" };
        if job["status"]["conditions"][0]["status"] == word {
            return Ok(());
        }
        let stopped = job["status"]["active"].clone();
        let condition = json!({"type": "Suspended", "status": word, "lastTransitionTime": now});
        job["status"] = json!({"conditions": [condition]});
        if !suspended {
            job["status"]["active"] = job["spec"]["parallelism"].clone();
            job["status"]["startTime"] = json!(now);
            if !slow {
                job["status"]["ready"] = job["spec"]["parallelism"].clone();
            }
        } else if lingers {
            job["status"]["terminating"] = stopped;
        }
        Ok(())
    }

    fn view(&self, name: &str) -> Result<JobView> {
        read(self.jobs.get(name).with_context(|| format!("Job {name} is gone"))?)
    }

    /// The watch shows a Job as it is.
    fn show(&mut self, name: &str) -> Result<()> {
        self.touch(name)?;
        let view = self.view(name)?;
        self.index.set_job(view, self.now());
        Ok(())
    }

    fn touch(&mut self, name: &str) -> Result<()> {
        self.version += 1;
        let version = json!(self.version.to_string());
        self.stored(name)?["metadata"]["resourceVersion"] = version;
        Ok(())
    }

    fn settle_between(&mut self) -> Result<()> {
        if self.way.together { Ok(()) } else { self.settle() }
    }

    /// Decides and writes until nothing moves, pods of deleted Jobs gone included.
    fn settle(&mut self) -> Result<()> {
        for _ in 0..MOST_WRITES {
            // Each write has a time of its own, so that the records tell the order.
            self.now += 1;
            let now = self.now();
            self.next = self.index.pass(now, usize::MAX);
            if let Some(write) = self.index.next_write(now) {
                self.carry_out(&write)?;
            } else if let Some(at) = self.index.next_deadline(None, false, true) {
                // The pause before a pod list is no time of the scenario.
                if let Some(probe) = self.index.next_probe(at) {
                    self.index.probed(probe.unit, probe.epoch, Some(false), now);
                }
            } else {
                self.index
                    .engine()
                    .audit()
                    .map_err(|broken| anyhow::anyhow!("the engine's books: {broken:?}"))?;
                return Ok(());
            }
        }
        bail!("it never comes to rest")
    }

    /// Lets time go on, from one instant at which it changes something to the next.
    fn pass_time(&mut self, seconds: i64) -> Result<()> {
        let end = self.now.saturating_add(seconds.saturating_mul(1_000));
        while let Some(at) = self.next.filter(|at| at.0 <= end) {
            self.now = self.now.max(at.0);
            self.settle()?;
        }
        self.now = self.now.max(end);
        self.settle()
    }

    /// The API server stores a write and answers; then the Job controller acts and the watch tells.
    fn carry_out(&mut self, write: &sluice_index::Write) -> Result<()> {
        let job = self.stored(&write.name)?;
        sluice_jobs::apply::apply(job, &write.patch)?;
        next_generation(job);
        self.touch(&write.name)?;
        let view = self.view(&write.name)?;
        self.index
            .answer(write.uid, write.ticket, Answer::Applied(Box::new(view)), self.now());
        self.control(&write.name)?;
        self.show(&write.name)
    }

    fn seen(&mut self) -> Result<Seen> {
        let mut seen = Seen::default();
        for (name, job) in &self.jobs {
            let uid = job["metadata"]["uid"].as_str().unwrap_or_default().replace('-', "");
            let waiting = self.index.engine().waiting(Uid(u128::from_str_radix(&uid, 16)?));
            let why = waiting.map(|waiting| waiting.reason.kind().to_string());
            let job = SeenJob::of(self.scenario, &read(job)?, why.into_iter().collect())?;
            seen.jobs.insert(name.clone(), job);
        }
        for (kind, namespace, name) in self.objects.keys() {
            // The stored object has no status, so the wanted one is always news.
            let now = self.now();
            match kind {
                Kind::ClusterQueue => {
                    let wanted = self.index.wanted_cluster_queue_status(&self.scenario.full(name), now);
                    let Some(WantedStatus::ClusterQueue { status, .. }) = wanted else {
                        bail!("ClusterQueue {name} has no status")
                    };
                    seen.queues.insert(name.clone(), SeenQueue::of(self.scenario, &status));
                }
                Kind::LocalQueue => {
                    let key = LocalQueueKey::new(&*self.scenario.full(namespace), &**name);
                    let wanted = self.index.wanted_local_queue_status(&key, now);
                    let Some(WantedStatus::LocalQueue { status, .. }) = wanted else {
                        bail!("LocalQueue {name} has no status")
                    };
                    let key = (namespace.clone(), name.clone());
                    seen.local_queues
                        .insert(key, SeenQueue::of_local(self.scenario, &status));
                }
                _ => {}
            }
        }
        Ok(seen)
    }
}

fn add(number: &mut Value, change: i64) {
    *number = json!(number.as_i64().unwrap_or(0).saturating_add(change));
}

fn next_generation(job: &mut Value) {
    let generation = job["metadata"]["generation"].as_i64().unwrap_or(0);
    job["metadata"]["generation"] = json!(generation + 1);
}
