//! Evicting down to a quota that was lowered: `docs/scheduling.md`, section 8.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::ids::{Name, Time};
use crate::queue::QueueId;
use crate::quota::CellId;
use crate::report::{Action, EvictionCause};
use crate::tree::{NodeId, Slot, Tree, TreeId};
use crate::units::UnitId;
use crate::victims::Needs;

impl Engine {
    /// Evicts from every queue that has been over its quota for its grace time, in the order of their names.
    pub(crate) fn shrink(&mut self, actions: &mut Vec<Action>) {
        let mut marks = std::mem::take(&mut self.over_since);
        let queues: Vec<(Name, QueueId)> = self.shrinking.iter().map(|(name, id)| (name.clone(), *id)).collect();
        let mut looked_at = Vec::new();
        for (name, id) in queues {
            let before = marks.remove(&name);
            let Some((tree, node, grace_ms)) = self.place_to_shrink(id) else {
                continue;
            };
            if before.is_none() && self.forest.trees.get(tree).is_some_and(|tree| tree.checked) {
                continue;
            }
            looked_at.push(tree);
            let before = before.unwrap_or_default();
            let over = self.over(tree, node, &before);
            let due: Vec<Slot> = over
                .iter()
                .filter(|(_, (_, since))| since.0.saturating_add(grace_ms) <= self.now.0)
                .map(|(slot, _)| *slot)
                .collect();
            for unit in self.excess(id, tree, node, &due) {
                actions.extend(self.evict(unit, EvictionCause::QuotaShrunk).map(Action::Evict));
            }
            if !over.is_empty() {
                self.over_since.insert(name, over.into_values().collect());
            }
        }
        for tree in looked_at {
            if let Some(tree) = self.forest.trees.get_mut(tree) {
                tree.checked = true;
            }
        }
    }

    /// When a grace time is over next.
    pub(crate) fn next_shrink(&self) -> Option<Time> {
        let ends = self.over_since.iter().filter_map(|(name, cells)| {
            let (.., grace_ms) = self.place_to_shrink(*self.shrinking.get(name)?)?;
            let ends = cells.values().map(|since| Time(since.0.saturating_add(grace_ms)));
            ends.filter(|end| *end > self.now).min()
        });
        ends.min()
    }

    /// Something was charged to a queue from outside: its tree may be over now.
    pub(crate) fn recheck_quota(&mut self, id: QueueId) {
        let place = self.queues.get(id).and_then(|queue| queue.place);
        if let Some(tree) = place.and_then(|(tree, _)| self.forest.trees.get_mut(tree)) {
            tree.checked = false;
        }
    }

    /// Where a queue is, and its grace time in milliseconds, if it shrinks.
    fn place_to_shrink(&self, id: QueueId) -> Option<(TreeId, NodeId, i64)> {
        let queue = self.queues.get(id).filter(|queue| queue.is_open())?;
        let (tree, node) = queue.place?;
        Some((tree, node, queue.spec.as_ref()?.extras.shrink_after_ms?))
    }

    /// The cells in which a queue is to shrink, and since when; `before` says what was known.
    fn over(&self, tree: TreeId, node: NodeId, before: &BTreeMap<CellId, Time>) -> BTreeMap<Slot, (CellId, Time)> {
        let Some(tree) = self.forest.trees.get(tree) else {
            return BTreeMap::new();
        };
        let over = tree.cells().filter(|(_, slot)| is_to_shrink(tree, node, *slot));
        over.map(|(cell, slot)| (slot, (cell, before.get(&cell).copied().unwrap_or(self.now))))
            .collect()
    }

    /// The units of a queue that are to be evicted, so that it need not shrink in these cells any more.
    fn excess(&mut self, id: QueueId, tree: TreeId, node: NodeId, due: &[Slot]) -> Vec<UnitId> {
        let (Some(queue), Some(tree)) = (self.queues.get(id), self.forest.trees.get_mut(tree)) else {
            return Vec::new();
        };
        let is_over = |tree: &Tree| due.iter().any(|slot| is_to_shrink(tree, node, *slot));
        let mut taken: Vec<(UnitId, Needs)> = Vec::new();
        for rank in &queue.running {
            if !is_over(tree) {
                break;
            }
            let Some(held) = self.units.held(rank.unit) else {
                continue;
            };
            let holdings = tree.by_slot(&held.charges);
            let helps = |(slot, _): &(Slot, i128)| due.contains(slot) && is_to_shrink(tree, node, *slot);
            if holdings.iter().any(helps) {
                tree.plan(node, &holdings, -1);
                taken.push((rank.unit, holdings));
            }
        }
        let enough = !is_over(tree);
        for index in (0..taken.len().saturating_sub(1)).rev().filter(|_| enough) {
            tree.plan(node, &taken[index].1, 1);
            if is_over(tree) {
                tree.plan(node, &taken[index].1, -1);
            } else {
                taken.remove(index);
            }
        }
        for (_, holdings) in &taken {
            tree.plan(node, holdings, 1);
        }
        taken.into_iter().map(|(unit, _)| unit).collect()
    }
}

/// Whether a node on the way up from a ClusterQueue is over, and all below it use more than their own.
fn is_to_shrink(tree: &Tree, queue: NodeId, slot: Slot) -> bool {
    for node in tree.path(queue) {
        if tree.is_over(node, slot) {
            return true;
        }
        if !tree.state(node, slot).borrows_with(0) {
            return false;
        }
    }
    false
}
