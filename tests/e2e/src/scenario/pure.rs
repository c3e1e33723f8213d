//! Plays a scenario in memory: the index and engine decide; the API server and the Job controller are a few lines here.
//!
//! Every scenario is played in several ways that a real cluster could take as well: uids rising or falling, the Jobs
//! of a step in either order, decided on one by one or together. A scenario that ends differently is refused.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_engine::{LocalQueueKey, Time, Uid};
use sluice_index::{Answer, Index, Reign, WantedStatus};
use sluice_jobs::view::JobView;

use super::format::{Kind, NewJob, Object, Scenario, Step};
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
    cluster_queues: BTreeSet<String>,
    local_queues: BTreeSet<LocalQueueKey>,
    version: u64,
    created: u64,
    now: i64,
}

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
            cluster_queues: BTreeSet::new(),
            local_queues: BTreeSet::new(),
            version: 1,
            created: 0,
            now: START,
        };
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
        let mut jobs: Vec<&NewJob> = step.create.iter().collect();
        let mut finished: Vec<&String> = step.finish.iter().collect();
        if self.way.reversed {
            jobs.reverse();
            finished.reverse();
        }
        for object in &step.apply {
            self.apply(object)?;
            self.settle_between()?;
        }
        for job in jobs {
            self.create(job)?;
            self.settle_between()?;
        }
        for edit in &step.edit {
            self.edit(&edit.job, &edit.patch)?;
            self.settle_between()?;
        }
        for job in finished {
            self.finish(job)?;
            self.settle_between()?;
        }
        for job in &step.delete {
            self.delete(job)?;
            self.settle_between()?;
        }
        self.settle()
    }

    fn apply(&mut self, object: &Object) -> Result<()> {
        let mut manifest = self.scenario.manifest(object);
        self.version += 1;
        manifest["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let now = self.now();
        match object.kind {
            Kind::Namespace => {
                let labels = read(&manifest["metadata"]["labels"])?;
                self.index.set_namespace(&self.scenario.full(&object.name), labels, now);
                self.index.update_ledger(now);
            }
            Kind::ResourceFlavor => self.index.set_flavor(read(&manifest)?, now),
            Kind::ClusterQueue => {
                self.cluster_queues.insert(self.scenario.full(&object.name));
                self.index.set_cluster_queue(read(&manifest)?, now);
            }
            Kind::LocalQueue => {
                let namespace = self.scenario.full(&object.namespace);
                self.local_queues.insert(LocalQueueKey::new(&*namespace, &*object.name));
                self.index.set_local_queue(read(&manifest)?, now);
            }
            Kind::WorkloadPriorityClass => self.index.set_workload_priority_class(&read(&manifest)?, now),
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
        metadata["annotations"] = json!({});
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

    /// What the Job controller makes of it.
    fn control(&mut self, name: &str) -> Result<()> {
        let now = Timestamp::from_second(self.now / 1_000)?.to_string();
        let job = self.stored(name)?;
        let suspended = job["spec"]["suspend"] == true;
        let word = if suspended { "True" } else { "False" };
        let condition = json!({"type": "Suspended", "status": word, "lastTransitionTime": now});
        job["status"] = json!({"conditions": [condition]});
        if !suspended {
            job["status"]["active"] = job["spec"]["parallelism"].clone();
            job["status"]["startTime"] = json!(now);
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
            self.index.pass(now, usize::MAX);
            if let Some(write) = self.index.next_write(now) {
                self.carry_out(&write)?;
            } else if let Some(at) = self.index.next_deadline(None, false, true) {
                self.now = self.now.max(at.0);
                if let Some(probe) = self.index.next_probe(self.now()) {
                    self.index.probed(probe.unit, probe.epoch, Some(false), self.now());
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
        for queue in &self.cluster_queues {
            // The stored object has no status, so the wanted one is always news.
            let wanted = self.index.wanted_cluster_queue_status(queue, self.now());
            let Some(WantedStatus::ClusterQueue { status, .. }) = wanted else {
                bail!("{queue} has no status")
            };
            seen.queues.insert(
                self.scenario.short(queue).to_owned(),
                SeenQueue::of(self.scenario, &status),
            );
        }
        for key in &self.local_queues {
            let wanted = self.index.wanted_local_queue_status(key, self.now());
            let Some(WantedStatus::LocalQueue { status, .. }) = wanted else {
                bail!("{key:?} has no status")
            };
            let name = (self.scenario.short(&key.namespace).to_owned(), key.name.to_string());
            seen.local_queues
                .insert(name, SeenQueue::of_local(self.scenario, &status));
        }
        Ok(seen)
    }
}

fn next_generation(job: &mut Value) {
    let generation = job["metadata"]["generation"].as_i64().unwrap_or(0);
    job["metadata"]["generation"] = json!(generation + 1);
}
