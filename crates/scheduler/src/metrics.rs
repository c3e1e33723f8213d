//! What operators see: Kueue's names, labels and buckets where the meaning is the same, ours under `sluice_`.

use prometheus::Registry;
use sluice_engine::{LocalQueueKey, Name, QueueReport};
use sluice_index::{Happening, Notice, WriteKind};
use sluice_runtime::label_set;
use sluice_runtime::metrics::{Counter, Gauge, Histogram, NoLabels};

label_set! { pub(crate) struct ResultLabels { result, replica_role } }
label_set! { pub(crate) struct QueueLabels { cluster_queue, replica_role } }
label_set! { pub(crate) struct QueueStatusLabels { cluster_queue, status, replica_role } }
label_set! { pub(crate) struct QueueClassLabels { cluster_queue, priority_class, replica_role } }
label_set! { pub(crate) struct EvictionLabels { cluster_queue, reason, underlying_cause, priority_class, replica_role } }
label_set! { pub(crate) struct QuotaLabels { cohort, cluster_queue, flavor, resource, replica_role } }
label_set! { pub(crate) struct LocalLabels { name, namespace, replica_role } }
label_set! { pub(crate) struct LocalStatusLabels { name, namespace, status, replica_role } }
label_set! { pub(crate) struct LocalActiveLabels { name, namespace, active, replica_role } }
label_set! { pub(crate) struct LocalClassLabels { name, namespace, priority_class, replica_role } }
label_set! { pub(crate) struct LocalEvictionLabels { name, namespace, reason, underlying_cause, priority_class, replica_role } }
label_set! { pub(crate) struct LocalResourceLabels { name, namespace, flavor, resource, replica_role } }
label_set! { pub(crate) struct WriteLabels { kind, outcome } }

/// Every metric of the scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) attempts: Counter<ResultLabels<'static>>,
    pub(crate) attempt_seconds: Histogram<ResultLabels<'static>>,
    pending: Gauge<QueueStatusLabels<'static>>,
    reserving: Gauge<QueueLabels<'static>>,
    admitted_active: Gauge<QueueLabels<'static>>,
    status: Gauge<QueueStatusLabels<'static>>,
    quota_reserved: Counter<QueueClassLabels<'static>>,
    quota_reserved_wait: Histogram<QueueClassLabels<'static>>,
    admitted: Counter<QueueClassLabels<'static>>,
    admission_wait: Histogram<QueueClassLabels<'static>>,
    evicted: Counter<EvictionLabels<'static>>,
    finished: Counter<QueueClassLabels<'static>>,
    execution: Histogram<QueueClassLabels<'static>>,
    reservation: Gauge<QuotaLabels<'static>>,
    usage: Gauge<QuotaLabels<'static>>,
    nominal: Gauge<QuotaLabels<'static>>,
    borrowing_limit: Gauge<QuotaLabels<'static>>,
    lending_limit: Gauge<QuotaLabels<'static>>,
    local_pending: Gauge<LocalStatusLabels<'static>>,
    local_reserving: Gauge<LocalLabels<'static>>,
    local_admitted_active: Gauge<LocalLabels<'static>>,
    local_status: Gauge<LocalActiveLabels<'static>>,
    local_admitted: Counter<LocalClassLabels<'static>>,
    local_admission_wait: Histogram<LocalClassLabels<'static>>,
    local_quota_reserved: Counter<LocalClassLabels<'static>>,
    local_quota_reserved_wait: Histogram<LocalClassLabels<'static>>,
    local_evicted: Counter<LocalEvictionLabels<'static>>,
    local_finished: Counter<LocalClassLabels<'static>>,
    local_execution: Histogram<LocalClassLabels<'static>>,
    local_reservation: Gauge<LocalResourceLabels<'static>>,
    local_usage: Gauge<LocalResourceLabels<'static>>,
    pub(crate) writes: Counter<WriteLabels<'static>>,
    pub(crate) write_seconds: Histogram<WriteLabels<'static>>,
    leader: Gauge<NoLabels<'static>>,
}

/// Kueue's buckets for queue waits: 1 s, 2.5 s, 5 s, doubling.
fn wait_buckets(doublings: u32) -> Vec<f64> {
    [1.0, 2.5]
        .into_iter()
        .chain((0..doublings).map(|power| 5.0 * f64::from(1_u32 << power)))
        .collect()
}

impl Metrics {
    #[expect(clippy::too_many_lines, reason = "a list, one entry a metric")]
    pub(crate) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let default = || prometheus::DEFAULT_BUCKETS.to_vec();
        let r = registry;
        Ok(Self {
            attempts: Counter::register(
                r,
                "kueue_admission_attempts_total",
                "Scheduling passes by result: success if they admitted anything, else inadmissible.",
            )?,
            attempt_seconds: Histogram::register(
                r,
                "kueue_admission_attempt_duration_seconds",
                "Time that a scheduling pass took.",
                default(),
            )?,
            pending: Gauge::register(
                r,
                "kueue_pending_workloads",
                "Jobs that wait, by whether they are tried (active) or set aside until something changes (inadmissible).",
            )?,
            reserving: Gauge::register(r, "kueue_reserving_active_workloads", "Jobs that hold quota.")?,
            admitted_active: Gauge::register(
                r,
                "kueue_admitted_active_workloads",
                "Jobs that are admitted and hold quota.",
            )?,
            status: Gauge::register(
                r,
                "kueue_cluster_queue_status",
                "1 for the status that a ClusterQueue has: pending, active or terminating.",
            )?,
            quota_reserved: Counter::register(
                r,
                "kueue_quota_reserved_workloads_total",
                "Jobs that were given quota.",
            )?,
            quota_reserved_wait: Histogram::register(
                r,
                "kueue_quota_reserved_wait_time_seconds",
                "Time from a Job's queue time until it was given quota.",
                wait_buckets(12),
            )?,
            admitted: Counter::register(r, "kueue_admitted_workloads_total", "Jobs that were admitted.")?,
            admission_wait: Histogram::register(
                r,
                "kueue_admission_wait_time_seconds",
                "Time from a Job's queue time until it was admitted.",
                wait_buckets(14),
            )?,
            evicted: Counter::register(r, "kueue_evicted_workloads_total", "Jobs that were evicted.")?,
            finished: Counter::register(r, "kueue_finished_workloads_total", "Admitted Jobs that finished.")?,
            reservation: Gauge::register(
                r,
                "kueue_cluster_queue_resource_reservation",
                "Quota held, admitted or not.",
            )?,
            usage: Gauge::register(r, "kueue_cluster_queue_resource_usage", "Quota held by admitted Jobs.")?,
            nominal: Gauge::register(r, "kueue_cluster_queue_nominal_quota", "Nominal quota.")?,
            local_pending: Gauge::register(
                r,
                "kueue_local_queue_pending_workloads",
                "Jobs that wait, by status, per LocalQueue.",
            )?,
            local_reserving: Gauge::register(
                r,
                "kueue_local_queue_reserving_active_workloads",
                "Jobs that hold quota, per LocalQueue.",
            )?,
            local_admitted_active: Gauge::register(
                r,
                "kueue_local_queue_admitted_active_workloads",
                "Jobs that are admitted and hold quota, per LocalQueue.",
            )?,
            local_status: Gauge::register(
                r,
                "kueue_local_queue_status",
                "1 for the value of the LocalQueue's condition Active.",
            )?,
            local_admitted: Counter::register(
                r,
                "kueue_local_queue_admitted_workloads_total",
                "Jobs that were admitted, per LocalQueue.",
            )?,
            local_admission_wait: Histogram::register(
                r,
                "kueue_local_queue_admission_wait_time_seconds",
                "Time from a Job's queue time until it was admitted, per LocalQueue.",
                wait_buckets(12),
            )?,
            execution: Histogram::register(
                r,
                "kueue_execution_time_seconds",
                "Time from a Job's last admission until it finished.",
                wait_buckets(14),
            )?,
            borrowing_limit: Gauge::register(
                r,
                "kueue_cluster_queue_borrowing_limit",
                "Borrowing limit; without one, +Inf.",
            )?,
            lending_limit: Gauge::register(
                r,
                "kueue_cluster_queue_lending_limit",
                "Lending limit; without one, +Inf.",
            )?,
            local_quota_reserved: Counter::register(
                r,
                "kueue_local_queue_quota_reserved_workloads_total",
                "Jobs that were given quota, per LocalQueue.",
            )?,
            local_quota_reserved_wait: Histogram::register(
                r,
                "kueue_local_queue_quota_reserved_wait_time_seconds",
                "Time from a Job's queue time until it was given quota, per LocalQueue.",
                wait_buckets(12),
            )?,
            local_evicted: Counter::register(
                r,
                "kueue_local_queue_evicted_workloads_total",
                "Jobs that were evicted, per LocalQueue.",
            )?,
            local_finished: Counter::register(
                r,
                "kueue_local_queue_finished_workloads_total",
                "Admitted Jobs that finished, per LocalQueue.",
            )?,
            local_execution: Histogram::register(
                r,
                "kueue_local_queue_execution_time_seconds",
                "Time from a Job's last admission until it finished, per LocalQueue.",
                wait_buckets(12),
            )?,
            local_reservation: Gauge::register(
                r,
                "kueue_local_queue_resource_reservation",
                "Quota held through a LocalQueue, admitted or not.",
            )?,
            local_usage: Gauge::register(
                r,
                "kueue_local_queue_resource_usage",
                "Quota held through a LocalQueue by admitted Jobs.",
            )?,
            writes: Counter::register(
                r,
                "sluice_job_writes_total",
                "Patches of Jobs by what they were for and what came of them.",
            )?,
            write_seconds: Histogram::register(
                r,
                "sluice_job_write_duration_seconds",
                "Time that a patch of a Job took.",
                default(),
            )?,
            leader: Gauge::register(r, "sluice_leader", "1 while this replica decides.")?,
        })
    }

    /// Whether this replica decides.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(&NoLabels::default(), f64::from(u8::from(leads)));
    }

    /// Counts what happened.
    pub(crate) fn count(&self, notice: &Notice, role: &str) {
        let class = QueueClassLabels {
            cluster_queue: &notice.queue,
            priority_class: &notice.priority_class,
            replica_role: role,
        };
        let local = LocalClassLabels {
            name: &notice.local_queue,
            namespace: &notice.job.0,
            priority_class: &notice.priority_class,
            replica_role: role,
        };
        match &notice.what {
            Happening::Admitted { waited_ms, .. } => {
                let seconds = seconds_of(*waited_ms);
                self.quota_reserved.inc(&class);
                self.quota_reserved_wait.observe(&class, seconds);
                self.admitted.inc(&class);
                self.admission_wait.observe(&class, seconds);
                self.local_admitted.inc(&local);
                self.local_admission_wait.observe(&local, seconds);
                self.local_quota_reserved.inc(&local);
                self.local_quota_reserved_wait.observe(&local, seconds);
            }
            Happening::Evicted { reason, .. } => {
                self.evicted.inc(&EvictionLabels {
                    cluster_queue: &notice.queue,
                    reason,
                    underlying_cause: "",
                    priority_class: &notice.priority_class,
                    replica_role: role,
                });
                self.local_evicted.inc(&LocalEvictionLabels {
                    name: &notice.local_queue,
                    namespace: &notice.job.0,
                    reason,
                    underlying_cause: "",
                    priority_class: &notice.priority_class,
                    replica_role: role,
                });
            }
            Happening::Finished { ran_ms } => {
                let seconds = seconds_of(*ran_ms);
                self.finished.inc(&class);
                self.execution.observe(&class, seconds);
                self.local_finished.inc(&local);
                self.local_execution.observe(&local, seconds);
            }
            _ => {}
        }
    }

    /// Shows a ClusterQueue as it is now.
    pub(crate) fn show_cluster_queue(&self, name: &Name, report: &QueueReport, role: &str) {
        let labels = QueueLabels {
            cluster_queue: name,
            replica_role: role,
        };
        for (status, value) in [
            ("active", report.pending_active),
            ("inadmissible", report.pending_inadmissible),
        ] {
            self.pending.set(
                &QueueStatusLabels {
                    cluster_queue: name,
                    status,
                    replica_role: role,
                },
                number(value),
            );
        }
        self.reserving.set(&labels, number(report.reserving));
        self.admitted_active.set(&labels, number(report.admitted));
        let now = match &report.active {
            Ok(()) => "active",
            Err(inactive) if &*inactive.reason == sluice_api::conditions::cluster_queue::TERMINATING => "terminating",
            Err(_) => "pending",
        };
        for status in ["pending", "active", "terminating"] {
            let labels = QueueStatusLabels {
                cluster_queue: name,
                status,
                replica_role: role,
            };
            self.status.set(&labels, f64::from(u8::from(status == now)));
        }
        for usage in &report.usage {
            let labels = QuotaLabels {
                cohort: "",
                cluster_queue: name,
                flavor: &usage.flavor,
                resource: &usage.resource,
                replica_role: role,
            };
            self.reservation
                .set(&labels, amount(&usage.resource, usage.reserved.get()));
            self.usage.set(&labels, amount(&usage.resource, usage.admitted.get()));
            let Some(nominal) = usage.nominal else {
                self.nominal.remove(&labels);
                self.borrowing_limit.remove(&labels);
                self.lending_limit.remove(&labels);
                continue;
            };
            self.nominal.set(&labels, amount(&usage.resource, nominal.get()));
            // A queue that names a limit is not acted on yet, so an active one has none.
            self.borrowing_limit.set(&labels, f64::INFINITY);
            self.lending_limit.set(&labels, f64::INFINITY);
        }
    }

    /// Shows a LocalQueue as it is now.
    pub(crate) fn show_local_queue(&self, key: &LocalQueueKey, report: &QueueReport, role: &str) {
        let (name, namespace) = (&*key.name, &*key.namespace);
        for (status, value) in [
            ("active", report.pending_active),
            ("inadmissible", report.pending_inadmissible),
        ] {
            self.local_pending.set(
                &LocalStatusLabels {
                    name,
                    namespace,
                    status,
                    replica_role: role,
                },
                number(value),
            );
        }
        let labels = LocalLabels {
            name,
            namespace,
            replica_role: role,
        };
        self.local_reserving.set(&labels, number(report.reserving));
        self.local_admitted_active.set(&labels, number(report.admitted));
        let now = if report.active.is_ok() { "True" } else { "False" };
        for active in ["True", "False", "Unknown"] {
            let labels = LocalActiveLabels {
                name,
                namespace,
                active,
                replica_role: role,
            };
            self.local_status.set(&labels, f64::from(u8::from(active == now)));
        }
        for usage in &report.usage {
            let labels = LocalResourceLabels {
                name,
                namespace,
                flavor: &usage.flavor,
                resource: &usage.resource,
                replica_role: role,
            };
            self.local_reservation
                .set(&labels, amount(&usage.resource, usage.reserved.get()));
            self.local_usage
                .set(&labels, amount(&usage.resource, usage.admitted.get()));
        }
    }

    /// Drops the gauges of a deleted ClusterQueue.
    pub(crate) fn forget_cluster_queue(&self, name: &str) {
        self.pending.forget(&[("cluster_queue", name)]);
        self.reserving.forget(&[("cluster_queue", name)]);
        self.admitted_active.forget(&[("cluster_queue", name)]);
        self.status.forget(&[("cluster_queue", name)]);
        self.reservation.forget(&[("cluster_queue", name)]);
        self.usage.forget(&[("cluster_queue", name)]);
        self.nominal.forget(&[("cluster_queue", name)]);
        self.borrowing_limit.forget(&[("cluster_queue", name)]);
        self.lending_limit.forget(&[("cluster_queue", name)]);
    }

    /// Drops the gauges of a deleted LocalQueue.
    pub(crate) fn forget_local_queue(&self, key: &LocalQueueKey, role: &str) {
        let (name, namespace) = (&*key.name, &*key.namespace);
        for status in ["active", "inadmissible"] {
            self.local_pending.remove(&LocalStatusLabels {
                name,
                namespace,
                status,
                replica_role: role,
            });
        }
        let labels = LocalLabels {
            name,
            namespace,
            replica_role: role,
        };
        self.local_reserving.remove(&labels);
        self.local_admitted_active.remove(&labels);
        self.local_reservation
            .forget(&[("name", name), ("namespace", namespace)]);
        self.local_usage.forget(&[("name", name), ("namespace", namespace)]);
        for active in ["True", "False", "Unknown"] {
            self.local_status.remove(&LocalActiveLabels {
                name,
                namespace,
                active,
                replica_role: role,
            });
        }
    }

    /// Counts a write and its duration.
    pub(crate) fn wrote(&self, kind: WriteKind, outcome: &str, seconds: f64) {
        let labels = WriteLabels {
            kind: kind.as_str(),
            outcome,
        };
        self.writes.inc(&labels);
        self.write_seconds.observe(&labels, seconds);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of Jobs stay far below 2^53")]
fn number(count: usize) -> f64 {
    count as f64
}

/// Cpu in cores, everything else in its own unit, as Kueue shows them.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows only floats")]
fn amount(resource: &str, smallest: i64) -> f64 {
    if resource == "cpu" {
        smallest as f64 / 1_000.0
    } else {
        smallest as f64
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
        assert_eq!(wait_buckets(12).last(), Some(&10_240.0));
        assert_eq!(wait_buckets(12).len(), 14);
        assert_eq!(wait_buckets(14).last(), Some(&40_960.0));
        assert_eq!(wait_buckets(14).len(), 16);
    }
}
