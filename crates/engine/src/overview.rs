//! Asking the engine about many at once, for metrics: what cohorts hold, how many kinds of requests wait. Never changes
//! anything.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::amount::Amount;
use crate::engine::Engine;
use crate::ids::Name;
use crate::quota::CellId;

/// A cohort as the engine sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CohortReport {
    /// Units of all ClusterQueues below it that hold quota by a written admission.
    pub admitted: usize,
    /// What it and its members have and hold, by flavor and resource.
    pub usage: Vec<CohortUsage>,
}

/// What a cohort and its members have and hold of one resource in one flavor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CohortUsage {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// Its own quota and what its members bring in: all of theirs but what their lending limits keep back.
    pub quota: Amount,
    /// Held by all units of all ClusterQueues below it.
    pub reserved: Amount,
}

impl Engine {
    /// Whether there is a cohort of this name: an object, or one that somebody names.
    pub fn has_cohort(&self, name: &str) -> bool {
        self.forest.place(name).is_some()
    }

    /// What a cohort and its members have and hold; none if it neither is an object nor has members.
    ///
    /// Costs the size of the tree below it.
    pub fn cohort(&self, name: &str) -> Option<CohortReport> {
        let (tree, node) = self.forest.place(name)?;
        let tree = self.forest.trees.get(tree)?;
        let mut report = CohortReport::default();
        let mut held: BTreeMap<CellId, i128> = BTreeMap::new();
        let mut open = vec![node];
        while let Some(below) = open.pop() {
            let below = tree.node(below);
            open.extend(&below.children);
            let Some(queue) = below.queue.and_then(|queue| self.queues.get(queue)) else {
                continue;
            };
            report.admitted += queue.books.admitted;
            for (cell, sums) in queue.books.iter() {
                let sum = held.entry(cell).or_default();
                *sum = sum.saturating_add(sums.reserved);
            }
        }
        let usage = tree.cells().map(|(cell, slot)| {
            let (flavor, resource) = self.cells.names(cell);
            CohortUsage {
                flavor: flavor.clone(),
                resource: resource.clone(),
                quota: Amount::from_wide(tree.state(node, slot).subtree),
                reserved: Amount::from_wide(held.get(&cell).copied().unwrap_or(0)),
            }
        });
        report.usage = usage.collect();
        report.usage.sort_unstable();
        Some(report)
    }

    /// How many different requests wait in a ClusterQueue: those that the next pass may look at, and those that wait for
    /// something to change. Units that are set aside do not count. None if it does not exist.
    ///
    /// Costs a look at each kind of request, however many units make it.
    pub fn pending_shapes(&self, name: &str) -> Option<(usize, usize)> {
        let queue = self.queues.get(self.queues.find(name)?)?;
        queue.spec.as_ref()?;
        let mut shapes = (FxHashSet::default(), FxHashSet::default());
        for (_, class) in queue.parking.iter() {
            let active = queue.is_open() && (queue.is_strict() || class.parked().is_none());
            let of_kind = if active { &mut shapes.0 } else { &mut shapes.1 };
            of_kind.insert(class.key.shape);
        }
        Some((shapes.0.len(), shapes.1.len()))
    }
}
