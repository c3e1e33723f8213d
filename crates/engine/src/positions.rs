//! Who waits in a queue, and at which position: a part of the order, from any position on. Never changes anything.

use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::ids::{LocalQueueKey, Uid};
use crate::local_queue::{LocalQueue, LocalQueueId};
use crate::order::Ranking;
use crate::ranked::Turn;
use crate::units::{Unit, WaitingUnit};

/// A unit that waits, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The unit.
    pub uid: Uid,
    /// Its priority, as its owner asked for it.
    pub priority: i32,
    /// The LocalQueue that it was handed in to.
    pub local_queue: LocalQueueKey,
    /// How many units of its ClusterQueue are ahead of it, those set aside included.
    pub in_queue: usize,
    /// How many units of its LocalQueue are ahead of it, those set aside included.
    pub in_local_queue: usize,
}

impl Engine {
    /// At most `limit` units that wait in a ClusterQueue, from position `offset` on, in queue order; none if it does not
    /// exist.
    ///
    /// Costs O(log n) for the first one (O(offset) where units age) and for each of their LocalQueues, and no more than its
    /// length otherwise.
    pub fn places(&self, queue: &str, offset: usize, limit: usize) -> Option<Vec<Place>> {
        let queue = self.queues.get(self.queues.find(queue)?)?;
        queue.spec.as_ref()?;
        // What stands in a row in the ClusterQueue stands in a row in each LocalQueue.
        let mut next: FxHashMap<LocalQueueId, usize> = FxHashMap::default();
        let turns = queue
            .order
            .iter_from(&queue.ranking, offset, self.aged_to)
            .take(limit)
            .enumerate();
        let places = turns.filter_map(|(index, turn)| {
            let (unit, waiting, local_queue) = self.standing_at(turn)?;
            let position = next
                .entry(unit.local_queue)
                .or_insert_with(|| local_queue.order.rank(&Ranking::default(), None, turn, self.aged_to));
            let place = place(unit, waiting, local_queue, offset + index, *position);
            *position += 1;
            Some(place)
        });
        Some(places.collect())
    }

    /// At most `limit` units that wait in a LocalQueue, from position `offset` on, in queue order; none if it does not
    /// exist.
    ///
    /// Costs O(log n) for each of them (and O(offset) where units age).
    pub fn local_places(&self, key: &LocalQueueKey, offset: usize, limit: usize) -> Option<Vec<Place>> {
        let local_queue = self.local_queues.get(self.local_queues.find(key)?)?;
        let queue = self.queues.get(local_queue.queue()?)?;
        let turns = local_queue
            .order
            .iter_from(&Ranking::default(), offset, self.aged_to)
            .take(limit)
            .enumerate();
        let places = turns.filter_map(|(index, turn)| {
            let (unit, waiting, local_queue) = self.standing_at(turn)?;
            Some(place(
                unit,
                waiting,
                local_queue,
                queue
                    .order
                    .rank(&queue.ranking, self.lane_of(unit.local_queue), turn, self.aged_to),
                offset + index,
            ))
        });
        Some(places.collect())
    }

    fn standing_at(&self, turn: Turn) -> Option<(&Unit, &WaitingUnit, &LocalQueue)> {
        let (unit, waiting) = self.units.waiting(turn.unit)?;
        Some((unit, waiting, self.local_queues.get(unit.local_queue)?))
    }
}

fn place(
    unit: &Unit,
    waiting: &WaitingUnit,
    local_queue: &LocalQueue,
    in_queue: usize,
    in_local_queue: usize,
) -> Place {
    Place {
        uid: unit.uid,
        priority: waiting.priority,
        local_queue: local_queue.key.clone(),
        in_queue,
        in_local_queue,
    }
}
