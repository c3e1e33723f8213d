//! What cohorts have, hold and share.

use prometheus::Registry;
use sluice_engine::{CohortReport, Name};
use sluice_runtime::label_set;
use sluice_runtime::metrics::Gauge;

use super::queues::{amount, number, share_value};

label_set! { struct CohortLabels { cohort, replica_role } }
label_set! { struct InfoLabels { cohort, parent_cohort, root_cohort, replica_role } }
label_set! { struct QuotaLabels { cohort, flavor, resource, replica_role } }

/// What there is to show of a cohort.
#[derive(Debug, Clone)]
pub(crate) struct CohortSight {
    /// The engine's report.
    pub(crate) report: CohortReport,
    /// Its parent.
    pub(crate) parent: Option<Name>,
    /// The outermost cohort above it; none if there is no such.
    pub(crate) root: Option<Name>,
    /// Its weighted share, if shares decide.
    pub(crate) share: Option<i64>,
}

pub(super) struct CohortGauges {
    info: Gauge<InfoLabels<'static>>,
    weighted_share: Gauge<CohortLabels<'static>>,
    admitted: Gauge<CohortLabels<'static>>,
    quota: Gauge<QuotaLabels<'static>>,
    reservations: Gauge<QuotaLabels<'static>>,
}

impl CohortGauges {
    pub(super) fn register(r: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            info: Gauge::register(
                r,
                "kueue_cohort_info",
                "1 for the cohorts that a cohort is in: the nearest and the outermost, which may be itself.",
            )?,
            weighted_share: Gauge::register(
                r,
                "kueue_cohort_weighted_share",
                "What a cohort borrows of what its parent could give, over its weight, in thousandths; NaN if it is infinite.",
            )?,
            admitted: Gauge::register(
                r,
                "kueue_cohort_subtree_admitted_active_workloads",
                "Jobs of all ClusterQueues below a cohort that are admitted and hold quota.",
            )?,
            quota: Gauge::register(
                r,
                "kueue_cohort_subtree_quota",
                "Quota of a cohort and of what is below it, without what is not lent.",
            )?,
            reservations: Gauge::register(
                r,
                "kueue_cohort_subtree_resource_reservations",
                "Quota held by the Jobs of all ClusterQueues below a cohort, admitted or not.",
            )?,
        })
    }

    pub(super) fn show(&self, cohort: &str, sight: &CohortSight, replica_role: &str) {
        let labels = CohortLabels { cohort, replica_role };
        let info = InfoLabels {
            cohort,
            parent_cohort: sight.parent.as_deref().unwrap_or_default(),
            root_cohort: sight.root.as_deref().unwrap_or_default(),
            replica_role,
        };
        self.info.set(&info, 1.0);
        if let Some(share) = sight.share {
            self.weighted_share.set(&labels, share_value(share));
        }
        self.admitted.set(&labels, number(sight.report.admitted));
        for usage in &sight.report.usage {
            let labels = QuotaLabels {
                cohort,
                flavor: &usage.flavor,
                resource: &usage.resource,
                replica_role,
            };
            let value = |smallest: sluice_engine::Amount| amount(&usage.resource, smallest.get().into());
            self.quota.set(&labels, value(usage.quota));
            self.reservations.set(&labels, value(usage.reserved));
        }
    }
}
