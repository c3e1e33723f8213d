//! What ClusterQueues and LocalQueues have in common where they are reported.

use sluice_engine::{LocalQueueKey, Name, Time};
use sluice_index::{Index, WantedStatus};

use crate::metrics::{ClusterQueueSight, CohortSight, Metrics, Sight};

/// The name of a queue of one kind.
pub(crate) trait QueueKey: Ord {
    /// Brings the queue's metrics up to date.
    fn show(&self, index: &Index, metrics: &Metrics);

    /// The status that its object should have, if it has another.
    fn wanted_status(&self, index: &Index, now: Time) -> Option<WantedStatus>;
}

impl QueueKey for Name {
    fn show(&self, index: &Index, metrics: &Metrics) {
        let Some(report) = index.engine().queue(self) else {
            return metrics.forget_cluster_queue(self);
        };
        let cohort = index.cohort_of(self);
        let sight = ClusterQueueSight {
            root: cohort.as_deref().and_then(|cohort| index.root_of_cohort(cohort)),
            queue: Sight {
                report,
                tally: index.cluster_queue_tally(self),
                parent: cohort,
            },
            share: index.cluster_queue_share(self),
            shapes: index.engine().pending_shapes(self).unwrap_or_default(),
        };
        metrics.board.show_cluster_queue(self, sight);
    }

    fn wanted_status(&self, index: &Index, now: Time) -> Option<WantedStatus> {
        index.wanted_cluster_queue_status(self, now)
    }
}

impl QueueKey for LocalQueueKey {
    fn show(&self, index: &Index, metrics: &Metrics) {
        let Some(report) = index.engine().local_queue(self) else {
            return metrics.forget_local_queue(self);
        };
        let sight = Sight {
            report,
            tally: index.local_queue_tally(self),
            parent: index.cluster_queue_of(self),
        };
        metrics.board.show_local_queue(self, sight);
    }

    fn wanted_status(&self, index: &Index, now: Time) -> Option<WantedStatus> {
        index.wanted_local_queue_status(self, now)
    }
}

/// Brings a cohort's metrics up to date.
pub(crate) fn show_cohort(name: &Name, index: &Index, metrics: &Metrics) {
    let Some(report) = index.engine().cohort(name) else {
        return;
    };
    let sight = CohortSight {
        report,
        parent: index.parent_of_cohort(name),
        root: index.root_of_cohort(name),
        share: index.cohort_share(name),
    };
    metrics.board.show_cohort(name, sight);
}
