//! What happened to Jobs: counters and times, per ClusterQueue and per LocalQueue.

use prometheus::Registry;
use sluice_engine::LocalQueueKey;
use sluice_index::{Happening, Notice};
use sluice_runtime::label_set;
use sluice_runtime::metrics::{Counter, Histogram, LabelSet};

label_set! { struct QueueClassLabels { cluster_queue, priority_class, replica_role } }
label_set! { struct LocalClassLabels { name, namespace, priority_class, replica_role } }
label_set! { struct EvictionLabels { cluster_queue, reason, underlying_cause, priority_class, replica_role } }
label_set! { struct LocalEvictionLabels { name, namespace, reason, underlying_cause, priority_class, replica_role } }
label_set! { struct PreemptionLabels { preempting_cluster_queue, reason, replica_role } }
label_set! { struct ReasonLabels { cluster_queue, reason, replica_role } }

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct JobMetrics {
    by_queue: ByClass<QueueClassLabels<'static>>,
    by_local_queue: ByClass<LocalClassLabels<'static>>,
    evicted: Counter<EvictionLabels<'static>>,
    evicted_once: Counter<EvictionLabels<'static>>,
    local_evicted: Counter<LocalEvictionLabels<'static>>,
    preempted: Counter<PreemptionLabels<'static>>,
    eviction_latency: Histogram<ReasonLabels<'static>>,
}

/// Why a Job was evicted: a word, and a second one that says more or nothing.
#[derive(Clone, Copy)]
struct Why<'a> {
    reason: &'a str,
    cause: &'a str,
}

/// What is counted per ClusterQueue and per LocalQueue alike.
#[derive(Debug)]
struct ByClass<L> {
    quota_reserved: Counter<L>,
    quota_reserved_wait: Histogram<L>,
    admitted: Counter<L>,
    admission_wait: Histogram<L>,
    finished: Counter<L>,
    execution: Histogram<L>,
}

impl<L> Clone for ByClass<L> {
    fn clone(&self) -> Self {
        Self {
            quota_reserved: self.quota_reserved.clone(),
            quota_reserved_wait: self.quota_reserved_wait.clone(),
            admitted: self.admitted.clone(),
            admission_wait: self.admission_wait.clone(),
            finished: self.finished.clone(),
            execution: self.execution.clone(),
        }
    }
}

/// Kueue's 14 bounds of waits: 1 s, 2.5 s, 5 s, doubling to 10,240 s.
fn short_waits() -> Vec<f64> {
    wait_buckets(12)
}

/// Kueue's 16 bounds of waits: to 40,960 s.
fn long_waits() -> Vec<f64> {
    wait_buckets(14)
}

fn wait_buckets(doublings: u32) -> Vec<f64> {
    [1.0, 2.5]
        .into_iter()
        .chain((0..doublings).map(|power| 5.0 * f64::from(1_u32 << power)))
        .collect()
}

impl<L: LabelSet> ByClass<L> {
    /// The families whose names begin with `prefix`, told apart by `owner`.
    fn register(r: &Registry, prefix: &str, owner: &str, admission_waits: Vec<f64>) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| {
            Counter::register(r, &format!("{prefix}_{name}"), &format!("{help}, per {owner}."))
        };
        let histogram = |name: &str, help: &str, buckets| {
            Histogram::register(
                r,
                &format!("{prefix}_{name}"),
                &format!("{help}, per {owner}."),
                buckets,
            )
        };
        Ok(Self {
            quota_reserved: counter("quota_reserved_workloads_total", "Jobs that were given quota")?,
            quota_reserved_wait: histogram(
                "quota_reserved_wait_time_seconds",
                "Time from a Job's queue time until it was given quota",
                short_waits(),
            )?,
            admitted: counter("admitted_workloads_total", "Jobs that were admitted")?,
            admission_wait: histogram(
                "admission_wait_time_seconds",
                "Time from a Job's queue time until it was admitted",
                admission_waits,
            )?,
            finished: counter("finished_workloads_total", "Admitted Jobs that finished")?,
            execution: histogram(
                "execution_time_seconds",
                "Time from a Job's last admission until it finished",
                long_waits(),
            )?,
        })
    }

    fn admitted(&self, labels: &L::Of<'_>, waited: f64) {
        self.quota_reserved.inc(labels);
        self.quota_reserved_wait.observe(labels, waited);
        self.admitted.inc(labels);
        self.admission_wait.observe(labels, waited);
    }

    fn finished(&self, labels: &L::Of<'_>, ran: f64) {
        self.finished.inc(labels);
        self.execution.observe(labels, ran);
    }

    fn forget(&self, labels: &[(&str, &str)]) {
        self.quota_reserved.forget(labels);
        self.quota_reserved_wait.forget(labels);
        self.admitted.forget(labels);
        self.admission_wait.forget(labels);
        self.finished.forget(labels);
        self.execution.forget(labels);
    }
}

impl JobMetrics {
    pub(super) fn register(r: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            by_queue: ByClass::register(r, "kueue", "ClusterQueue", long_waits())?,
            by_local_queue: ByClass::register(r, "kueue_local_queue", "LocalQueue", short_waits())?,
            evicted: Counter::register(r, "kueue_evicted_workloads_total", "Jobs that were evicted.")?,
            evicted_once: Counter::register(
                r,
                "kueue_evicted_workloads_once_total",
                "Jobs that were evicted for the first time for this reason and cause.",
            )?,
            local_evicted: Counter::register(
                r,
                "kueue_local_queue_evicted_workloads_total",
                "Jobs that were evicted, per LocalQueue.",
            )?,
            preempted: Counter::register(
                r,
                "kueue_preempted_workloads_total",
                "Jobs that were evicted to make room, per ClusterQueue that got it.",
            )?,
            eviction_latency: Histogram::register(
                r,
                "kueue_workload_eviction_latency_seconds",
                "Time from a Job's eviction until its quota was free.",
                short_waits(),
            )?,
        })
    }

    /// Counts what happened.
    pub(super) fn count(&self, notice: &Notice, replica_role: &str) {
        let class = QueueClassLabels {
            cluster_queue: &notice.queue,
            priority_class: &notice.priority_class,
            replica_role,
        };
        let local = LocalClassLabels {
            name: &notice.local_queue,
            namespace: &notice.job.0,
            priority_class: &notice.priority_class,
            replica_role,
        };
        match &notice.what {
            Happening::Admitted { waited_ms, .. } => {
                self.by_queue.admitted(&class, seconds_of(*waited_ms));
                self.by_local_queue.admitted(&local, seconds_of(*waited_ms));
            }
            Happening::Finished { ran_ms } => {
                self.by_queue.finished(&class, seconds_of(*ran_ms));
                self.by_local_queue.finished(&local, seconds_of(*ran_ms));
            }
            Happening::Evicted {
                reason,
                cause,
                first,
                preemptor,
                ..
            } => {
                let why = Why { reason, cause };
                self.evicted(notice, why, *first, replica_role);
                if let Some(preemptor) = preemptor {
                    self.preempted.inc(&PreemptionLabels {
                        preempting_cluster_queue: preemptor,
                        reason: cause,
                        replica_role,
                    });
                }
            }
            Happening::QuotaReturned { reason, after_ms } => {
                let labels = ReasonLabels {
                    cluster_queue: &notice.queue,
                    reason,
                    replica_role,
                };
                self.eviction_latency.observe(&labels, seconds_of(*after_ms));
            }
            _ => {}
        }
    }

    fn evicted(&self, notice: &Notice, why: Why<'_>, first: bool, replica_role: &str) {
        let Why { reason, cause } = why;
        let labels = EvictionLabels {
            cluster_queue: &notice.queue,
            reason,
            underlying_cause: cause,
            priority_class: &notice.priority_class,
            replica_role,
        };
        self.evicted.inc(&labels);
        if first {
            self.evicted_once.inc(&labels);
        }
        self.local_evicted.inc(&LocalEvictionLabels {
            name: &notice.local_queue,
            namespace: &notice.job.0,
            reason,
            underlying_cause: cause,
            priority_class: &notice.priority_class,
            replica_role,
        });
    }

    pub(super) fn forget_cluster_queue(&self, name: &str) {
        let labels = [("cluster_queue", name)];
        self.by_queue.forget(&labels);
        self.evicted.forget(&labels);
        self.evicted_once.forget(&labels);
        self.eviction_latency.forget(&labels);
        self.preempted.forget(&[("preempting_cluster_queue", name)]);
    }

    pub(super) fn forget_local_queue(&self, key: &LocalQueueKey) {
        let labels = [("name", &*key.name), ("namespace", &*key.namespace)];
        self.by_local_queue.forget(&labels);
        self.local_evicted.forget(&labels);
    }
}

#[expect(clippy::cast_precision_loss, reason = "waits stay far below 2^53 milliseconds")]
fn seconds_of(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_buckets_are_kueues() {
        assert_eq!((short_waits().last(), short_waits().len()), (Some(&10_240.0), 14));
        assert_eq!((long_waits().last(), long_waits().len()), (Some(&40_960.0), 16));
    }
}
