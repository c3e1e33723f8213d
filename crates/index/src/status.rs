//! Statuses of ClusterQueues, Cohorts and LocalQueues: what they should say, and whether that is news.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time as K8sTime};
use sluice_api::QuantityText;
use sluice_api::conditions::{self, ACTIVE, EXTRA_RULES};
use sluice_api::v1beta2::{
    ClusterQueue, ClusterQueueStatus, CohortStatus, FairSharingStatus, FlavorUsage, LocalQueueFlavorUsage,
    LocalQueueResourceUsage, LocalQueueStatus, ResourceUsage,
};
use sluice_engine::{Amount, Inactive, LocalQueueKey, QueueReport, Time, Usage};

use crate::Index;
use crate::lower::{quantity_of, timestamp};

/// The status that an object should have.
#[derive(Debug, Clone, PartialEq)]
pub enum WantedStatus {
    /// Of a ClusterQueue.
    ClusterQueue {
        /// Its name.
        name: String,
        /// The whole status.
        status: ClusterQueueStatus,
    },
    /// Of a Cohort.
    Cohort {
        /// Its name.
        name: String,
        /// The whole status.
        status: CohortStatus,
    },
    /// Of a LocalQueue.
    LocalQueue {
        /// Its namespace and name.
        key: LocalQueueKey,
        /// The whole status.
        status: LocalQueueStatus,
    },
}

impl Index {
    /// The status that a ClusterQueue should have, if it exists and has another.
    pub fn wanted_cluster_queue_status(&self, name: &str, now: Time) -> Option<WantedStatus> {
        let queue = self.objects.cluster_queues.get(name)?;
        let report = self.engine.queue(name)?;
        let old = queue.status.clone().unwrap_or_default();
        let generation = queue.metadata.generation;
        let ready = ("Ready", "The ClusterQueue admits jobs");
        let borrows = queue.spec.cohort_name.is_some();
        let status = ClusterQueueStatus {
            conditions: with_extra_rules(
                with_active(&old.conditions, &report.active, ready, generation, now),
                &old.conditions,
                queue,
                now,
            ),
            flavors_reservation: flavors(&report, borrows, |usage| usage.reserved),
            flavors_usage: flavors(&report, borrows, |usage| usage.admitted),
            pending_workloads: pending(&report),
            reserving_workloads: count(report.reserving),
            admitted_workloads: count(report.admitted),
            fair_sharing: self.cluster_queue_share(name).map(shown),
        };
        (Some(&status) != queue.status.as_ref()).then(|| WantedStatus::ClusterQueue {
            name: name.to_owned(),
            status,
        })
    }

    /// The status that a Cohort should have, if it exists and has another.
    pub fn wanted_cohort_status(&self, name: &str) -> Option<WantedStatus> {
        let cohort = self.objects.cohorts.get(name)?;
        let status = CohortStatus {
            fair_sharing: self.cohort_share(name).map(shown),
        };
        (status != cohort.status.clone().unwrap_or_default()).then(|| WantedStatus::Cohort {
            name: name.to_owned(),
            status,
        })
    }

    /// The weighted share of a ClusterQueue, where shares decide something; see [`sluice_engine::Engine::queue_share`].
    pub fn cluster_queue_share(&self, name: &str) -> Option<i64> {
        self.configuration.fair_sharing?;
        self.engine.queue_share(name)
    }

    /// The weighted share of a cohort, where shares decide something; see [`sluice_engine::Engine::cohort_share`].
    pub fn cohort_share(&self, name: &str) -> Option<i64> {
        self.configuration.fair_sharing?;
        self.engine.cohort_share(name)
    }

    /// The status that a LocalQueue should have, if it exists and has another.
    pub fn wanted_local_queue_status(&self, key: &LocalQueueKey, now: Time) -> Option<WantedStatus> {
        let queue = self.objects.local_queues.get(key)?;
        let report = self.engine.local_queue(key)?;
        let old = queue.status.clone().unwrap_or_default();
        let ready = ("Ready", "The LocalQueue passes its jobs on to its ClusterQueue");
        let status = LocalQueueStatus {
            conditions: with_active(&old.conditions, &report.active, ready, queue.metadata.generation, now),
            pending_workloads: pending(&report),
            reserving_workloads: count(report.reserving),
            admitted_workloads: count(report.admitted),
            flavors_reservation: local_flavors(&report, |usage| usage.reserved),
            flavors_usage: local_flavors(&report, |usage| usage.admitted),
            fair_sharing: self.wanted_past(key, old.fair_sharing.as_ref()),
        };
        (Some(&status) != queue.status.as_ref()).then(|| WantedStatus::LocalQueue {
            key: key.clone(),
            status,
        })
    }
}

/// The conditions with `Active` as it is now. Its transition time moves only when its value changes.
fn with_active(
    old: &[Condition],
    active: &Result<(), Inactive>,
    ready: (&str, &str),
    generation: Option<i64>,
    now: Time,
) -> Vec<Condition> {
    let (status, reason, message) = match active {
        Ok(()) => (conditions::TRUE, ready.0, ready.1),
        Err(inactive) => (conditions::FALSE, &*inactive.reason, &*inactive.message),
    };
    let new = Condition {
        type_: ACTIVE.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since(old, ACTIVE, status, now),
    };
    let mut conditions: Vec<Condition> = old
        .iter()
        .filter(|condition| condition.type_ != ACTIVE)
        .cloned()
        .collect();
    conditions.push(new);
    conditions
}

/// The conditions with `ExtraRules` as it is now: there if the ClusterQueue uses rules beyond Kueue's.
fn with_extra_rules(
    mut conditions: Vec<Condition>,
    old: &[Condition],
    queue: &ClusterQueue,
    now: Time,
) -> Vec<Condition> {
    conditions.retain(|condition| condition.type_ != EXTRA_RULES);
    let rules = queue.rules_in_force();
    if !rules.is_empty() {
        conditions.push(Condition {
            type_: EXTRA_RULES.to_owned(),
            status: conditions::TRUE.to_owned(),
            reason: conditions::extra_rules::IN_FORCE.to_owned(),
            message: format!("Rules beyond Kueue's are in force: {}", rules.join(", ")),
            observed_generation: queue.metadata.generation,
            last_transition_time: since(old, EXTRA_RULES, conditions::TRUE, now),
        });
    }
    conditions
}

/// Since when a condition has had its value: since now, if it had another.
fn since(old: &[Condition], kind: &str, status: &str, now: Time) -> K8sTime {
    let mut same = old
        .iter()
        .filter(|condition| condition.type_ == kind && condition.status == status);
    // Kubernetes keeps whole seconds: anything finer would differ from what is read back.
    let now = || K8sTime(timestamp(Time(now.0.div_euclid(1_000).saturating_mul(1_000))));
    same.next()
        .map_or_else(now, |condition| condition.last_transition_time.clone())
}

/// Groups usages by flavor, in the order of the report.
fn grouped(report: &QueueReport) -> Vec<(&str, Vec<&Usage>)> {
    let mut groups: Vec<(&str, Vec<&Usage>)> = Vec::new();
    for usage in &report.usage {
        match groups.iter_mut().find(|(flavor, _)| *flavor == &*usage.flavor) {
            Some((_, usages)) => usages.push(usage),
            None => groups.push((&usage.flavor, vec![usage])),
        }
    }
    groups
}

fn flavors(report: &QueueReport, borrows: bool, total: impl Fn(&Usage) -> Amount) -> Vec<FlavorUsage> {
    // Without a cohort there is nobody to borrow from, whatever the usage.
    let borrowed = |usage: &Usage| {
        let above = total(usage)
            .get()
            .saturating_sub(usage.nominal.unwrap_or_default().get());
        Amount::new(if borrows { above.max(0) } else { 0 })
    };
    grouped(report)
        .into_iter()
        .map(|(flavor, usages)| FlavorUsage {
            name: flavor.to_owned(),
            resources: usages
                .into_iter()
                .map(|usage| ResourceUsage {
                    name: usage.resource.to_string(),
                    total: text(&usage.resource, total(usage)),
                    borrowed: text(&usage.resource, borrowed(usage)),
                })
                .collect(),
        })
        .collect()
}

fn local_flavors(report: &QueueReport, total: impl Fn(&Usage) -> Amount) -> Vec<LocalQueueFlavorUsage> {
    grouped(report)
        .into_iter()
        .map(|(flavor, usages)| LocalQueueFlavorUsage {
            name: flavor.to_owned(),
            resources: usages
                .into_iter()
                .map(|usage| LocalQueueResourceUsage {
                    name: usage.resource.to_string(),
                    total: text(&usage.resource, total(usage)),
                })
                .collect(),
        })
        .collect()
}

fn text(resource: &str, amount: Amount) -> QuantityText {
    QuantityText::from(&quantity_of(resource, amount))
}

fn pending(report: &QueueReport) -> i32 {
    count(report.pending_active.saturating_add(report.pending_inadmissible))
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn shown(weighted_share: i64) -> FairSharingStatus {
    FairSharingStatus { weighted_share }
}
