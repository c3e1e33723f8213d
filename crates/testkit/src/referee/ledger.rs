//! The referee's books: who is charged for what, and what may not be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use sluice_quantity::{Format, Quantity};
use tokio::time::Instant;

use super::objects::{self, Admission, Key, Milli, Quota, Record};
use super::{Kind, Peak, Seen, Verdict, Violation};

/// How stale the quota may be that a decision was made on.
const STALENESS: Duration = Duration::from_secs(2);

/// ClusterQueue, flavor, resource.
type Place = (String, String, String);

#[derive(Default)]
struct JobEntry {
    /// `namespace/name`.
    name: String,
    /// The last admission seen; it stays after a stop, for the pods that still run.
    admission: Option<Admission>,
    /// Whether the record says that it may run, and it is there and not over.
    runs: bool,
    /// Pods that it still needs.
    needed: i64,
    queued: bool,
    deleted: bool,
    /// Pods that are not over.
    live_pods: BTreeSet<String>,
}

#[derive(Default)]
struct QueueEntry {
    quotas: BTreeMap<Key, Quota>,
    /// Quotas that were replaced, with the time of that.
    replaced: VecDeque<(Instant, BTreeMap<Key, Quota>)>,
}

#[derive(Default)]
pub(super) struct Ledger {
    jobs: BTreeMap<String, JobEntry>,
    queues: BTreeMap<String, QueueEntry>,
    usage: BTreeMap<Place, Milli>,
    peaks: BTreeMap<Place, Milli>,
    admissions: BTreeMap<String, u64>,
    violations: Vec<Violation>,
}

impl Ledger {
    pub(super) fn see(&mut self, seen: Seen, arrived: Instant) {
        match seen {
            Seen::Applied(Kind::Job, job) => self.job_applied(&job, arrived),
            Seen::Deleted(Kind::Job, job) => self.job_deleted(&job),
            Seen::Applied(Kind::Pod, pod) => self.pod_applied(&pod),
            Seen::Deleted(Kind::Pod, pod) => self.pod_gone(&pod),
            Seen::Applied(Kind::ClusterQueue, queue) => self.queue_applied(&queue, arrived),
            Seen::Deleted(Kind::ClusterQueue, queue) => {
                self.queues.remove(&queue.name_any());
            }
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        let peaks = self.peaks.iter().map(|(place, used)| {
            let quota = self.quota(place);
            let peak = Peak {
                used: print(*used, quota.map(|quota| quota.format)),
                quota: quota.map(|quota| print(quota.amount, Some(quota.format))),
            };
            (place.clone(), peak)
        });
        Verdict {
            violations: self.violations.clone(),
            peaks: peaks.collect(),
            admissions: self.admissions.clone(),
        }
    }

    pub(super) fn usage(&self, cluster_queue: &str, flavor: &str, resource: &str) -> String {
        let place = (cluster_queue.to_owned(), flavor.to_owned(), resource.to_owned());
        let used = self.usage.get(&place).copied().unwrap_or_default();
        print(used, self.quota(&place).map(|quota| quota.format))
    }

    fn job_applied(&mut self, job: &DynamicObject, arrived: Instant) {
        let uid = job.uid().unwrap_or_default();
        let mut entry = self.jobs.remove(&uid).unwrap_or_default();
        self.charge(&entry, -1);
        entry.name = format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
        entry.queued = objects::is_queued(job) || entry.admission.is_some();
        let ran = entry.runs;
        let mut admitted = false;
        match objects::record(job) {
            Record::Admitted(admission) => {
                entry.runs = !objects::is_suspended(job) && !objects::is_finished(job);
                entry.needed = objects::pods_needed(job, admission.count);
                let renamed = entry.admission.as_ref().is_none_or(|last| last.name != admission.name);
                admitted = entry.runs && (!ran || renamed);
                if admitted && ran {
                    self.violations.push(Violation::AdmittedTwice {
                        job: entry.name.clone(),
                    });
                }
                entry.admission = Some(admission);
            }
            Record::None | Record::Stopped => entry.runs = false,
            Record::Unreadable(reason) => {
                entry.runs = false;
                self.violations.push(Violation::UnreadableRecord {
                    job: entry.name.clone(),
                    reason,
                });
            }
        }
        self.charge(&entry, 1);
        if admitted {
            *self.admissions.entry(entry.name.clone()).or_default() += 1;
            self.judge(&entry, arrived);
        }
        self.jobs.insert(uid, entry);
    }

    fn job_deleted(&mut self, job: &DynamicObject) {
        let uid = job.uid().unwrap_or_default();
        self.change(&uid, |entry| {
            entry.runs = false;
            entry.deleted = true;
        });
    }

    fn pod_applied(&mut self, pod: &DynamicObject) {
        let Some(uid) = objects::controller(pod) else { return };
        if !objects::is_live(pod) {
            return self.pod_gone(pod);
        }
        let name = pod.name_any();
        let Some(entry) = self.jobs.get(&uid) else { return };
        let is_new = !entry.live_pods.contains(&name);
        if is_new
            && entry.queued
            && entry.admission.is_none()
            && !entry.deleted
            && pod.metadata.deletion_timestamp.is_none()
        {
            self.violations.push(Violation::PodBeforeAdmission {
                job: entry.name.clone(),
                pod: name.clone(),
            });
        }
        self.change(&uid, |entry| {
            entry.live_pods.insert(name);
        });
    }

    fn pod_gone(&mut self, pod: &DynamicObject) {
        let Some(uid) = objects::controller(pod) else { return };
        let name = pod.name_any();
        self.change(&uid, |entry| {
            entry.live_pods.remove(&name);
        });
    }

    fn change(&mut self, uid: &str, change: impl FnOnce(&mut JobEntry)) {
        let Some(mut entry) = self.jobs.remove(uid) else { return };
        self.charge(&entry, -1);
        change(&mut entry);
        self.charge(&entry, 1);
        if !(entry.deleted && entry.live_pods.is_empty()) {
            self.jobs.insert(uid.to_owned(), entry);
        }
    }

    fn queue_applied(&mut self, queue: &DynamicObject, arrived: Instant) {
        let quotas = objects::quotas(queue);
        let entry = self.queues.entry(queue.name_any()).or_default();
        if entry.quotas != quotas {
            let old = std::mem::replace(&mut entry.quotas, quotas);
            entry.replaced.push_back((arrived, old));
        }
        while entry
            .replaced
            .front()
            .is_some_and(|(since, _)| *since + STALENESS < arrived)
        {
            entry.replaced.pop_front();
        }
    }

    /// A running Job is charged what its record says for the pods it still needs, any other what its live pods hold.
    fn charge(&mut self, entry: &JobEntry, sign: Milli) {
        let Some(admission) = &entry.admission else { return };
        let live = i64::try_from(entry.live_pods.len()).unwrap_or(i64::MAX);
        let pods = if entry.runs {
            entry.needed
        } else {
            live.min(admission.count)
        };
        for ((flavor, resource), amount) in &admission.usage {
            let share = amount * Milli::from(pods) / Milli::from(admission.count.max(1));
            let place = (admission.cluster_queue.clone(), flavor.clone(), resource.clone());
            let used = self.usage.entry(place.clone()).or_default();
            *used += sign * share;
            let peak = self.peaks.entry(place).or_default();
            *peak = (*peak).max(*used);
        }
    }

    fn judge(&mut self, entry: &JobEntry, arrived: Instant) {
        let Some(admission) = &entry.admission else { return };
        let Some(queue) = self.queues.get(&admission.cluster_queue) else {
            return;
        };
        for (key, amount) in &admission.usage {
            let place = (admission.cluster_queue.clone(), key.0.clone(), key.1.clone());
            let recent = queue.replaced.iter().filter(|(since, _)| *since + STALENESS >= arrived);
            let quota = recent
                .map(|(_, quotas)| quotas)
                .chain([&queue.quotas])
                .filter_map(|quotas| quotas.get(key));
            let Some(quota) = quota.max_by_key(|quota| quota.amount) else {
                continue;
            };
            let used = self.usage.get(&place).copied().unwrap_or_default();
            if *amount > 0 && used > quota.amount {
                self.violations.push(Violation::OverQuota {
                    job: entry.name.clone(),
                    cluster_queue: place.0,
                    flavor: place.1,
                    resource: place.2,
                    used: print(used, Some(quota.format)),
                    quota: print(quota.amount, Some(quota.format)),
                });
            }
        }
    }

    fn quota(&self, (cluster_queue, flavor, resource): &Place) -> Option<Quota> {
        self.queues
            .get(cluster_queue)?
            .quotas
            .get(&(flavor.clone(), resource.clone()))
            .copied()
    }
}

fn print(amount: Milli, format: Option<Format>) -> String {
    let milli = i64::try_from(amount).unwrap_or(i64::MAX);
    Quantity::from_milli(milli)
        .with_format(format.unwrap_or_default())
        .to_string()
}
