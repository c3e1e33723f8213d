//! Who waits in a queue, by position: what the visibility API shows.

use std::sync::Arc;

use sluice_engine::{LocalQueueKey, Place};
use sluice_jobs::view::JobView;

use crate::Index;

/// A part of the units that wait in a queue, in queue order.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    /// Each Job and where it stands.
    pub rows: Vec<PendingRow>,
    /// The newest resourceVersion of a Job that this rests on.
    pub resource_version: u64,
}

/// A Job that waits, and where it stands.
#[derive(Debug, Clone)]
pub struct PendingRow {
    /// The Job as last seen.
    pub job: Arc<JobView>,
    /// Its position.
    pub place: Place,
}

impl Index {
    /// At most `limit` Jobs that wait in a ClusterQueue, from position `offset` on; none if it does not exist.
    ///
    /// Costs what [`sluice_engine::Engine::places`] costs.
    pub fn pending_in_cluster_queue(&self, name: &str, offset: usize, limit: usize) -> Option<Pending> {
        Some(self.pending(self.engine.places(name, offset, limit)?))
    }

    /// At most `limit` Jobs that wait in a LocalQueue, from position `offset` on; none if it does not exist.
    ///
    /// Costs what [`sluice_engine::Engine::local_places`] costs.
    pub fn pending_in_local_queue(&self, key: &LocalQueueKey, offset: usize, limit: usize) -> Option<Pending> {
        Some(self.pending(self.engine.local_places(key, offset, limit)?))
    }

    fn pending(&self, places: Vec<Place>) -> Pending {
        let rows = places.into_iter().filter_map(|place| {
            let job = Arc::clone(&self.units.get(&place.uid)?.job);
            Some(PendingRow { job, place })
        });
        Pending {
            rows: rows.collect(),
            resource_version: self.newest,
        }
    }
}
