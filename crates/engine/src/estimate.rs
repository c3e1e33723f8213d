//! Until when a unit has to wait: what the known ends of others tell.

use std::collections::BTreeMap;

use crate::assign::Plan;
use crate::engine::Engine;
use crate::ids::Time;
use crate::parking::ClassKey;
use crate::queue::QueueId;
use crate::ranked::Turn;
use crate::tree::{Slot, Tree};
use crate::units::UnitId;

impl Engine {
    /// The first instant at which units whose end is known have left enough room for a unit, if nobody else takes it and
    /// nobody ends earlier; none if their ends are not enough. `tree` is a copy of the unit's tree, claims included, and is
    /// used up.
    pub(crate) fn earliest_start(
        &self,
        tree: &mut Tree,
        id: QueueId,
        turn: Turn,
        class: ClassKey,
        plan: &Plan,
        without: &[Slot],
    ) -> Option<Time> {
        for (end, units) in self.known_ends(tree) {
            for unit in units {
                self.leave(tree, unit);
            }
            if let Ok(found) = self.ask_in(tree, id, turn, class, plan, without)
                && found.victims.is_empty()
            {
                return Some(end.max(self.now));
            }
        }
        None
    }

    /// The units in a tree that count as planned and whose end is known, by end.
    fn known_ends(&self, tree: &Tree) -> BTreeMap<Time, Vec<UnitId>> {
        let mut ends: BTreeMap<Time, Vec<UnitId>> = BTreeMap::new();
        let queues = tree.nodes().filter_map(|(_, node)| self.queues.get(node.queue?));
        for rank in queues.flat_map(|queue| &queue.running) {
            let end = self.units.held(rank.unit).and_then(|held| held.ends_at);
            if let Some(end) = end {
                ends.entry(end).or_default().push(rank.unit);
            }
        }
        ends
    }

    fn leave(&self, tree: &mut Tree, unit: UnitId) {
        let Some(held) = self.units.held(unit) else { return };
        let Some((_, node)) = self.queues.get(held.queue).and_then(|queue| queue.place) else {
            return;
        };
        tree.plan(node, &tree.by_slot(&held.charges), -1);
    }
}
