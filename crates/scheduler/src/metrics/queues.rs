//! What queues and cohorts hold and who waits in them: gauges, made of the last reports when somebody asks.
//!
//! Nothing is set and unset step by step, so no series outlives its queue, its flavor, its cause or this replica's role.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use sluice_engine::{LocalQueueKey, Name, QueueReport};
use sluice_index::Tally;
use sluice_runtime::label_set;
use sluice_runtime::metrics::{Gauge, LabelSet};

use super::cohorts::{CohortGauges, CohortSight};

label_set! { struct QueueLabels { cluster_queue, replica_role } }
label_set! { struct StatusLabels { cluster_queue, status, replica_role } }
label_set! { struct CauseLabels { cluster_queue, reason, underlying_cause, replica_role } }
label_set! { struct ShareLabels { cluster_queue, cohort, replica_role } }
label_set! { struct PendingLabels { cluster_queue, resource, replica_role } }
label_set! { struct InfoLabels { cluster_queue, parent_cohort, root_cohort, replica_role } }
label_set! { struct QuotaLabels { cohort, cluster_queue, flavor, resource, replica_role } }
label_set! { struct LocalLabels { name, namespace, replica_role } }
label_set! { struct LocalStatusLabels { name, namespace, status, replica_role } }
label_set! { struct LocalActiveLabels { name, namespace, active, replica_role } }
label_set! { struct LocalCauseLabels { name, namespace, cluster_queue, reason, underlying_cause, replica_role } }
label_set! { struct LocalResourceLabels { name, namespace, flavor, resource, replica_role } }

/// Why nobody who waits is admitted, as Kueue's condition `Admitted` says it; the cause says more.
const NO_RESERVATION: &str = "NoReservation";

/// What there is to show of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    /// The engine's report.
    pub(crate) report: QueueReport,
    /// What its Jobs wait for.
    pub(crate) tally: Tally,
    /// What it belongs to: a ClusterQueue to a cohort, a LocalQueue to a ClusterQueue.
    pub(crate) parent: Option<Name>,
}

/// What there is to show of a ClusterQueue.
#[derive(Debug, Clone)]
pub(crate) struct ClusterQueueSight {
    /// What every queue has.
    pub(crate) queue: Sight,
    /// The outermost of its cohorts; none if there is no such.
    pub(crate) root: Option<Name>,
    /// Its weighted share in its cohort, if shares decide.
    pub(crate) share: Option<i64>,
    /// How many different requests wait in it: tried, and set aside until something changes.
    pub(crate) shapes: (usize, usize),
}

/// Queues as last reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Shown>>);

#[derive(Debug, Clone)]
struct Shown {
    role: &'static str,
    cluster_queues: BTreeMap<Name, Arc<ClusterQueueSight>>,
    cohorts: BTreeMap<Name, Arc<CohortSight>>,
    local_queues: BTreeMap<LocalQueueKey, Arc<Sight>>,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            role: super::role(false),
            cluster_queues: BTreeMap::new(),
            cohorts: BTreeMap::new(),
            local_queues: BTreeMap::new(),
        }
    }
}

impl Board {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let board = Self::default();
        // What is wrong with a family shows now and not at the first scrape.
        board.families()?;
        registry.register(Box::new(board.clone()))?;
        Ok(board)
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_role(&self, role: &'static str) {
        self.shown().role = role;
    }

    /// Shows a ClusterQueue as it is now.
    pub(crate) fn show_cluster_queue(&self, name: &Name, sight: ClusterQueueSight) {
        self.shown().cluster_queues.insert(name.clone(), Arc::new(sight));
    }

    /// Shows a cohort as it is now.
    pub(crate) fn show_cohort(&self, name: &Name, sight: CohortSight) {
        self.shown().cohorts.insert(name.clone(), Arc::new(sight));
    }

    /// Drops every cohort that is no more.
    pub(crate) fn keep_cohorts(&self, exists: impl Fn(&str) -> bool) {
        self.shown().cohorts.retain(|name, _| exists(name));
    }

    /// Shows a LocalQueue as it is now.
    pub(crate) fn show_local_queue(&self, key: &LocalQueueKey, sight: Sight) {
        self.shown().local_queues.insert(key.clone(), Arc::new(sight));
    }

    pub(super) fn forget_cluster_queue(&self, name: &str) {
        self.shown().cluster_queues.remove(name);
    }

    pub(super) fn forget_local_queue(&self, key: &LocalQueueKey) {
        self.shown().local_queues.remove(key);
    }

    fn families(&self) -> prometheus::Result<Vec<MetricFamily>> {
        // A copy of the pointers: whoever reports must not wait for whoever asks.
        let shown = self.shown().clone();
        let registry = Registry::new();
        let gauges = ClusterQueueGauges::register(&registry)?;
        for (name, sight) in &shown.cluster_queues {
            gauges.show(name, sight, shown.role);
        }
        let gauges = CohortGauges::register(&registry)?;
        for (name, sight) in &shown.cohorts {
            gauges.show(name, sight, shown.role);
        }
        let gauges = LocalQueueGauges::register(&registry)?;
        for (key, sight) in &shown.local_queues {
            gauges.show(key, sight, shown.role);
        }
        Ok(registry.gather())
    }
}

impl Collector for Board {
    /// None: the families exist only while they are collected.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // The only errors are bad names, which registering has met already.
        self.families().unwrap_or_default()
    }
}

/// Gauges that ClusterQueues and LocalQueues have alike.
struct Common<L, S> {
    pending: Gauge<S>,
    reserving: Gauge<L>,
    admitted: Gauge<L>,
    finished: Gauge<L>,
}

impl<L: LabelSet, S: LabelSet> Common<L, S> {
    fn register(r: &Registry, prefix: &str, owner: &str) -> prometheus::Result<Self> {
        let name = |name: &str| format!("{prefix}_{name}");
        let help = |help: &str| format!("{help}, per {owner}.");
        Ok(Self {
            pending: Gauge::register(
                r,
                &name("pending_workloads"),
                &help(
                    "Jobs that wait, by whether they are tried (active) or set aside until something changes (inadmissible)",
                ),
            )?,
            reserving: Gauge::register(r, &name("reserving_active_workloads"), &help("Jobs that hold quota"))?,
            admitted: Gauge::register(
                r,
                &name("admitted_active_workloads"),
                &help("Jobs that are admitted and hold quota"),
            )?,
            finished: Gauge::register(
                r,
                &name("finished_workloads"),
                &help("Jobs that were admitted, are finished and still exist"),
            )?,
        })
    }

    fn show<'a>(&self, labels: &L::Of<'a>, sight: &Sight, of_status: impl Fn(&'static str) -> S::Of<'a>) {
        let Sight { report, tally, .. } = sight;
        self.pending.set(&of_status("active"), number(report.pending_active));
        self.pending
            .set(&of_status("inadmissible"), number(report.pending_inadmissible));
        self.reserving.set(labels, number(report.reserving));
        self.admitted.set(labels, number(report.admitted));
        self.finished.set(labels, number(tally.finished));
    }
}

struct ClusterQueueGauges {
    common: Common<QueueLabels<'static>, StatusLabels<'static>>,
    status: Gauge<StatusLabels<'static>>,
    info: Gauge<InfoLabels<'static>>,
    unadmitted: Gauge<CauseLabels<'static>>,
    shapes: Gauge<StatusLabels<'static>>,
    weighted_share: Gauge<ShareLabels<'static>>,
    resource_pending: Gauge<PendingLabels<'static>>,
    reservation: Gauge<QuotaLabels<'static>>,
    usage: Gauge<QuotaLabels<'static>>,
    nominal: Gauge<QuotaLabels<'static>>,
    borrowing_limit: Gauge<QuotaLabels<'static>>,
    lending_limit: Gauge<QuotaLabels<'static>>,
}

impl ClusterQueueGauges {
    fn register(r: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            common: Common::register(r, "kueue", "ClusterQueue")?,
            status: Gauge::register(
                r,
                "kueue_cluster_queue_status",
                "1 for the status that a ClusterQueue has: pending, active or terminating.",
            )?,
            info: Gauge::register(
                r,
                "kueue_cluster_queue_info",
                "1 for the cohorts that a ClusterQueue is in: the nearest and the outermost.",
            )?,
            unadmitted: Gauge::register(
                r,
                "kueue_unadmitted_workloads",
                "Jobs that wait, by the cause, per ClusterQueue.",
            )?,
            shapes: Gauge::register(
                r,
                "kueue_pending_scheduling_hashes",
                "Different requests among the Jobs that may be considered, by whether they are tried (active) or set aside until something changes (inadmissible).",
            )?,
            weighted_share: Gauge::register(
                r,
                "kueue_cluster_queue_weighted_share",
                "What a ClusterQueue borrows of what its cohort could give, over its weight, in thousandths; NaN if it is infinite.",
            )?,
            resource_pending: Gauge::register(
                r,
                "kueue_cluster_queue_resource_pending",
                "What all waiting Jobs ask for together.",
            )?,
            reservation: Gauge::register(
                r,
                "kueue_cluster_queue_resource_reservation",
                "Quota held, admitted or not.",
            )?,
            usage: Gauge::register(r, "kueue_cluster_queue_resource_usage", "Quota held by admitted Jobs.")?,
            nominal: Gauge::register(r, "kueue_cluster_queue_nominal_quota", "Nominal quota.")?,
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
        })
    }

    fn show(&self, name: &str, shown: &ClusterQueueSight, replica_role: &str) {
        let sight = &shown.queue;
        let labels = QueueLabels {
            cluster_queue: name,
            replica_role,
        };
        let of_status = |status| StatusLabels {
            cluster_queue: name,
            status,
            replica_role,
        };
        self.common.show(&labels, sight, of_status);
        let now = match &sight.report.active {
            Ok(()) => "active",
            Err(inactive) if &*inactive.reason == sluice_api::conditions::cluster_queue::TERMINATING => "terminating",
            Err(_) => "pending",
        };
        for status in ["pending", "active", "terminating"] {
            self.status.set(&of_status(status), f64::from(u8::from(status == now)));
        }
        let cohort = sight.parent.as_deref().unwrap_or_default();
        let info = InfoLabels {
            cluster_queue: name,
            parent_cohort: cohort,
            root_cohort: shown.root.as_deref().unwrap_or_default(),
            replica_role,
        };
        self.info.set(&info, 1.0);
        if let Some(share) = shown.share {
            let labels = ShareLabels {
                cluster_queue: name,
                cohort,
                replica_role,
            };
            self.weighted_share.set(&labels, share_value(share));
        }
        self.shapes.set(&of_status("active"), number(shown.shapes.0));
        self.shapes.set(&of_status("inadmissible"), number(shown.shapes.1));
        self.show_waiting(name, sight, replica_role);
        self.show_quota(name, cohort, &sight.report, replica_role);
    }

    fn show_waiting(&self, name: &str, sight: &Sight, replica_role: &str) {
        for (cause, count) in &sight.tally.unadmitted {
            let labels = CauseLabels {
                cluster_queue: name,
                reason: NO_RESERVATION,
                underlying_cause: cause,
                replica_role,
            };
            self.unadmitted.set(&labels, number(*count));
        }
        for (resource, pending) in &sight.tally.pending {
            let labels = PendingLabels {
                cluster_queue: name,
                resource,
                replica_role,
            };
            self.resource_pending.set(&labels, amount(resource, *pending));
        }
    }

    fn show_quota(&self, name: &str, cohort: &str, report: &QueueReport, replica_role: &str) {
        for usage in &report.usage {
            let labels = QuotaLabels {
                cohort,
                cluster_queue: name,
                flavor: &usage.flavor,
                resource: &usage.resource,
                replica_role,
            };
            let value = |smallest: sluice_engine::Amount| amount(&usage.resource, smallest.get().into());
            self.reservation.set(&labels, value(usage.reserved));
            self.usage.set(&labels, value(usage.admitted));
            if let Some(nominal) = usage.nominal {
                self.nominal.set(&labels, value(nominal));
                let limit = |limit: Option<sluice_engine::Amount>| limit.map_or(f64::INFINITY, value);
                self.borrowing_limit.set(&labels, limit(usage.borrowing_limit));
                self.lending_limit.set(&labels, limit(usage.lending_limit));
            }
        }
    }
}

struct LocalQueueGauges {
    common: Common<LocalLabels<'static>, LocalStatusLabels<'static>>,
    status: Gauge<LocalActiveLabels<'static>>,
    unadmitted: Gauge<LocalCauseLabels<'static>>,
    reservation: Gauge<LocalResourceLabels<'static>>,
    usage: Gauge<LocalResourceLabels<'static>>,
}

impl LocalQueueGauges {
    fn register(r: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            common: Common::register(r, "kueue_local_queue", "LocalQueue")?,
            status: Gauge::register(
                r,
                "kueue_local_queue_status",
                "1 for the value of the LocalQueue's condition Active.",
            )?,
            unadmitted: Gauge::register(
                r,
                "kueue_local_queue_unadmitted_workloads",
                "Jobs that wait, by the cause, per LocalQueue.",
            )?,
            reservation: Gauge::register(
                r,
                "kueue_local_queue_resource_reservation",
                "Quota held through a LocalQueue, admitted or not.",
            )?,
            usage: Gauge::register(
                r,
                "kueue_local_queue_resource_usage",
                "Quota held through a LocalQueue by admitted Jobs.",
            )?,
        })
    }

    fn show(&self, key: &LocalQueueKey, sight: &Sight, replica_role: &str) {
        let (name, namespace) = (&*key.name, &*key.namespace);
        let labels = LocalLabels {
            name,
            namespace,
            replica_role,
        };
        let of_status = |status| LocalStatusLabels {
            name,
            namespace,
            status,
            replica_role,
        };
        self.common.show(&labels, sight, of_status);
        let now = if sight.report.active.is_ok() { "True" } else { "False" };
        for active in ["True", "False", "Unknown"] {
            let labels = LocalActiveLabels {
                name,
                namespace,
                active,
                replica_role,
            };
            self.status.set(&labels, f64::from(u8::from(active == now)));
        }
        for (cause, count) in &sight.tally.unadmitted {
            let labels = LocalCauseLabels {
                name,
                namespace,
                cluster_queue: sight.parent.as_deref().unwrap_or_default(),
                reason: NO_RESERVATION,
                underlying_cause: cause,
                replica_role,
            };
            self.unadmitted.set(&labels, number(*count));
        }
        for usage in &sight.report.usage {
            let labels = LocalResourceLabels {
                name,
                namespace,
                flavor: &usage.flavor,
                resource: &usage.resource,
                replica_role,
            };
            let value = |smallest: sluice_engine::Amount| amount(&usage.resource, smallest.get().into());
            self.reservation.set(&labels, value(usage.reserved));
            self.usage.set(&labels, value(usage.admitted));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of Jobs stay far below 2^53")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}

/// Cpu in cores, everything else in its own unit, as Kueue shows them.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows only floats")]
pub(super) fn amount(resource: &str, smallest: i128) -> f64 {
    if resource == "cpu" {
        smallest as f64 / 1_000.0
    } else {
        smallest as f64
    }
}

/// A weighted share; the engine gives the largest number for an infinite one.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows only floats")]
pub(super) fn share_value(thousandths: i64) -> f64 {
    if thousandths == i64::MAX {
        f64::NAN
    } else {
        thousandths as f64
    }
}
