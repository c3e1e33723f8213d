//! What a cluster shows, played in memory or real, in one form; and whether that is as expected.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;
use sluice_api::QuantityText;
use sluice_api::conditions::{ACTIVE, TRUE};
use sluice_api::v1beta2::{ClusterQueueStatus, FlavorUsage, LocalQueueStatus, ResourceUsage};

use super::format::{Expect, ExpectJob, ExpectQueue, Scenario, StageName};
use crate::jobs::{record, stage};

/// What a cluster shows of one scenario. Names are those of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Jobs, by name.
    pub jobs: BTreeMap<String, SeenJob>,
    /// ClusterQueues, by name.
    pub queues: BTreeMap<String, SeenQueue>,
    /// LocalQueues, by namespace and name.
    pub local_queues: BTreeMap<(String, String), SeenQueue>,
}

/// What is seen of a Job.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenJob {
    /// Where it is.
    pub stage: StageName,
    /// The flavor of each resource, once it is admitted.
    pub flavors: BTreeMap<String, String>,
    /// When it was admitted last, if ever: a timestamp that sorts by its text.
    pub admitted_at: Option<String>,
    /// Kinds of reasons why it waits: of the present one in memory, of every event so far on a real cluster.
    pub why: BTreeSet<String>,
    /// Why it was stopped last, as long as it waits: reason and cause.
    pub evicted: Option<String>,
    /// How often it was stopped.
    pub evictions: u64,
    /// How many pods it was admitted with.
    pub pods: Option<i64>,
    /// Its `spec.parallelism`.
    pub parallelism: Option<i64>,
}

/// What the status of a ClusterQueue or LocalQueue says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeenQueue {
    /// Its condition Active and the reason.
    pub active: Option<(bool, String)>,
    /// Jobs that wait.
    pub pending: i32,
    /// Jobs that hold quota.
    pub reserving: i32,
    /// Jobs whose admission is written.
    pub admitted: i32,
    /// What is held, by flavor and resource.
    pub reserved: Amounts,
    /// How much of that is borrowed, where something is.
    pub borrowed: Amounts,
    /// Its weighted share, where shares count.
    pub share: Option<i64>,
}

/// Amounts by flavor and resource.
type Amounts = BTreeMap<String, BTreeMap<String, QuantityText>>;

impl SeenJob {
    /// Reads a Job.
    ///
    /// # Errors
    /// Its record cannot be read.
    pub fn of(scenario: &Scenario, job: &Job, why: BTreeSet<String>) -> Result<Self> {
        let stage = StageName::from(stage(job));
        let record = record(job)?.unwrap_or_default();
        let flavors = record["podSets"][0]["flavors"]
            .as_object()
            .filter(|_| stage != StageName::Held);
        let flavors = flavors.into_iter().flatten().map(|(resource, flavor)| {
            (
                resource.clone(),
                scenario.short(flavor.as_str().unwrap_or_default()).to_owned(),
            )
        });
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let evicted = text(&record["eviction"]["reason"]).map(|reason| match text(&record["eviction"]["cause"]) {
            Some(cause) => format!("{reason}/{cause}"),
            None => reason,
        });
        Ok(Self {
            stage,
            flavors: flavors.collect(),
            admitted_at: text(&record["admittedAt"]),
            why,
            evicted,
            evictions: record["evictions"].as_u64().unwrap_or(0),
            pods: record["podSets"][0]["count"]
                .as_i64()
                .filter(|_| stage != StageName::Held),
            parallelism: job.spec.as_ref().and_then(|spec| spec.parallelism).map(i64::from),
        })
    }
}

impl SeenQueue {
    /// Reads the status of a ClusterQueue.
    pub fn of(scenario: &Scenario, status: &ClusterQueueStatus) -> Self {
        Self {
            active: active(&status.conditions),
            pending: status.pending_workloads,
            reserving: status.reserving_workloads,
            admitted: status.admitted_workloads,
            reserved: amounts(scenario, &status.flavors_reservation, |resource| &resource.total),
            borrowed: borrowed(scenario, &status.flavors_reservation),
            share: status.fair_sharing.as_ref().map(|share| share.weighted_share),
        }
    }

    /// Reads the status of a LocalQueue.
    pub fn of_local(scenario: &Scenario, status: &LocalQueueStatus) -> Self {
        let reserved = status.flavors_reservation.iter().map(|flavor| {
            let resources = flavor
                .resources
                .iter()
                .map(|resource| (resource.name.clone(), resource.total.clone()));
            (scenario.short(&flavor.name).to_owned(), resources.collect())
        });
        Self {
            active: active(&status.conditions),
            pending: status.pending_workloads,
            reserving: status.reserving_workloads,
            admitted: status.admitted_workloads,
            reserved: reserved.collect(),
            ..Self::default()
        }
    }
}

fn amounts(scenario: &Scenario, usage: &[FlavorUsage], amount: impl Fn(&ResourceUsage) -> &QuantityText) -> Amounts {
    let flavors = usage.iter().map(|flavor| {
        let resources = flavor.resources.iter();
        let resources = resources.map(|resource| (resource.name.clone(), amount(resource).clone()));
        (scenario.short(&flavor.name).to_owned(), resources.collect())
    });
    flavors.collect()
}

fn borrowed(scenario: &Scenario, usage: &[FlavorUsage]) -> Amounts {
    let mut borrowed = amounts(scenario, usage, |resource| &resource.borrowed);
    let is_zero = |amount: &QuantityText| amount.parse().ok() == zero().parse().ok();
    for resources in borrowed.values_mut() {
        resources.retain(|_, amount| !is_zero(amount));
    }
    borrowed.retain(|_, resources| !resources.is_empty());
    borrowed
}

fn active(conditions: &[Condition]) -> Option<(bool, String)> {
    let active = conditions.iter().find(|condition| condition.type_ == ACTIVE)?;
    Some((active.status == TRUE, active.reason.clone()))
}

impl Seen {
    /// How many Jobs are in each stage.
    pub fn counts(&self) -> BTreeMap<StageName, usize> {
        let mut counts = BTreeMap::new();
        for job in self.jobs.values() {
            *counts.entry(job.stage).or_insert(0) += 1;
        }
        counts
    }

    /// Compares with what another way of playing the same scenario shows.
    ///
    /// # Errors
    /// What differs. Times and reasons do not count, and of Jobs in any order only how many are in each stage.
    pub fn agrees_with(&self, other: &Self, any_order: bool) -> Result<()> {
        ensure!(
            self.queues == other.queues,
            "ClusterQueues differ: {:?} and {:?}",
            self.queues,
            other.queues
        );
        let (own, others) = (&self.local_queues, &other.local_queues);
        ensure!(own == others, "LocalQueues differ: {own:?} and {others:?}");
        ensure!(
            self.counts() == other.counts(),
            "stages differ: {:?} and {:?}",
            self.counts(),
            other.counts()
        );
        if !any_order {
            let (own, others) = (self.outcome(), other.outcome());
            ensure!(own == others, "Jobs differ: {own:?} and {others:?}");
        }
        Ok(())
    }

    /// The Jobs without what no two ways have in common.
    fn outcome(&self) -> BTreeMap<&String, SeenJob> {
        let outcome = self.jobs.iter().map(|(name, job)| {
            let job = SeenJob {
                admitted_at: None,
                why: BTreeSet::new(),
                ..job.clone()
            };
            (name, job)
        });
        outcome.collect()
    }

    /// Compares with what a step expects.
    ///
    /// # Errors
    /// The first thing that is otherwise.
    pub fn meets(&self, expect: &Expect) -> Result<()> {
        for (name, wanted) in &expect.jobs {
            self.meets_job(name, wanted)?;
        }
        let counts = self.counts();
        for (stage, wanted) in &expect.counts {
            let count = counts.get(stage).copied().unwrap_or(0);
            ensure!(
                count == *wanted,
                "{count} Jobs are {stage:?}, not {wanted}: {:?}",
                self.jobs
            );
        }
        for (name, wanted) in &expect.queues {
            let Some(queue) = self.queues.get(name) else {
                anyhow::bail!("there is no ClusterQueue {name}")
            };
            queue.meets(name, wanted)?;
        }
        expect.admitted.as_ref().map_or(Ok(()), |order| self.meets_order(order))
    }

    fn meets_job(&self, name: &str, wanted: &ExpectJob) -> Result<()> {
        let Some(job) = self.jobs.get(name) else {
            anyhow::bail!("Job {name} is gone")
        };
        let stage = job.stage;
        ensure!(
            stage == wanted.stage,
            "Job {name} is {stage:?}, not {:?} ({:?})",
            wanted.stage,
            job.why
        );
        if let Some(flavors) = &wanted.flavors {
            ensure!(
                job.flavors == *flavors,
                "Job {name} got {:?}, not {flavors:?}",
                job.flavors
            );
        }
        if let Some(why) = &wanted.why {
            ensure!(
                job.why.contains(why),
                "Job {name} waits because of {:?}, not {why}",
                job.why
            );
        }
        job.meets(name, wanted)
    }

    /// The listed Jobs and no others were admitted, none before the one listed ahead of it.
    fn meets_order(&self, order: &[String]) -> Result<()> {
        let time = |name: &String| self.jobs.get(name).and_then(|job| job.admitted_at.as_deref());
        let mut last = "";
        for name in order {
            let Some(at) = time(name) else {
                anyhow::bail!("Job {name} was never admitted")
            };
            ensure!(
                last <= at,
                "Job {name} was admitted at {at}, ahead of the one before it in the list at {last}"
            );
            last = at;
        }
        let others: Vec<_> = self
            .jobs
            .keys()
            .filter(|name| time(name).is_some() && !order.contains(name))
            .collect();
        ensure!(others.is_empty(), "others were admitted too: {others:?}");
        Ok(())
    }
}

impl SeenJob {
    fn meets(&self, name: &str, wanted: &ExpectJob) -> Result<()> {
        if wanted.evicted.is_some() {
            ensure!(
                self.evicted == wanted.evicted,
                "Job {name} was stopped because of {:?}, not {:?}",
                self.evicted,
                wanted.evicted
            );
        }
        if let Some(times) = wanted.evictions {
            ensure!(
                self.evictions == times,
                "Job {name} was stopped {} times, not {times}",
                self.evictions
            );
        }
        if wanted.pods.is_some() {
            ensure!(
                self.pods == wanted.pods,
                "Job {name} was admitted with {:?} pods, not {:?}",
                self.pods,
                wanted.pods
            );
        }
        if wanted.parallelism.is_some() {
            ensure!(
                self.parallelism == wanted.parallelism,
                "Job {name} has parallelism {:?}, not {:?}",
                self.parallelism,
                wanted.parallelism
            );
        }
        Ok(())
    }
}

impl SeenQueue {
    fn meets(&self, name: &str, wanted: &ExpectQueue) -> Result<()> {
        let active = self.active.as_ref();
        if let Some(wanted) = wanted.active {
            ensure!(
                active.is_some_and(|(active, _)| *active == wanted),
                "ClusterQueue {name}: Active is {active:?}"
            );
        }
        if let Some(wanted) = &wanted.reason {
            ensure!(
                active.is_some_and(|(_, reason)| reason == wanted),
                "ClusterQueue {name}: Active is {active:?}"
            );
        }
        if let Some(wanted) = wanted.pending {
            ensure!(
                self.pending == wanted,
                "ClusterQueue {name} has {} pending, not {wanted}",
                self.pending
            );
        }
        if let Some(wanted) = wanted.reserving {
            ensure!(
                self.reserving == wanted,
                "ClusterQueue {name} has {} reserving, not {wanted}",
                self.reserving
            );
        }
        if wanted.share.is_some() {
            ensure!(
                self.share == wanted.share,
                "ClusterQueue {name} has the share {:?}, not {:?}",
                self.share,
                wanted.share
            );
        }
        meet_amounts(name, "holds", &self.reserved, &wanted.reserved)?;
        meet_amounts(name, "borrows", &self.borrowed, &wanted.borrowed)
    }
}

fn zero() -> QuantityText {
    QuantityText::from("0")
}

/// What is not held or borrowed at all is zero.
fn meet_amounts(name: &str, verb: &str, all: &Amounts, wanted: &Amounts) -> Result<()> {
    for (flavor, resources) in wanted {
        for (resource, wanted) in resources {
            let amount = all.get(flavor).and_then(|amounts| amounts.get(resource));
            let amount = amount.cloned().unwrap_or_else(zero);
            ensure!(
                amount.parse().ok() == wanted.parse().ok(),
                "ClusterQueue {name} {verb} {amount} of {resource} in {flavor}, not {wanted}"
            );
        }
    }
    Ok(())
}
