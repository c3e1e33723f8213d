//! Section 9: a head blocks only those behind it that want a flavor which it waits for.

use std::collections::BTreeSet;

use sluice_engine::*;

use super::pass::{Claimed, Nominee, reserved};
use super::search::{Asking, Found, NOTHING, fewest, needs_of};
use super::{Book, Cell, Forest, Needs, Twin};

/// Who blocks which cells, in queue order.
pub(super) type Blockers = Vec<(Uid, BTreeSet<Cell>)>;

impl Twin {
    /// Walks along the queue, up to a unit if one is given: who blocks what, and the first that has an outcome.
    pub(super) fn walk(&self, forest: &Forest, spec: &QueueSpec, to: Option<Uid>) -> (Blockers, Option<Nominee>) {
        let queue = forest.queue(&spec.name).unwrap();
        let mut blockers = Blockers::new();
        let mut units = self.order(&spec.name);
        units.retain(|unit| self.may_be_considered(unit));
        for (place, unit) in units.into_iter().enumerate() {
            if to == Some(unit.uid) {
                break;
            }
            if let Some(claim) = self.claims.get(&unit.uid) {
                blockers.push((unit.uid, claim.blocks.clone()));
                continue;
            }
            let without: BTreeSet<Cell> = blockers.iter().flat_map(|(_, cells)| cells.clone()).collect();
            if is_full(spec, &without) {
                break;
            }
            let asking = Asking {
                queue,
                spec,
                unit: &unit,
                without: &without,
            };
            if self.never_fits(forest, asking) || self.is_blocked(forest, asking, &without) {
                continue;
            }
            let planned = self.planned_for(forest, &spec.name, &unit);
            if let Some((outcome, found, needs)) = self.asked(&planned, asking) {
                let nominee = Nominee::new(queue, unit.clone(), outcome, found, needs);
                return (blockers, Some(nominee));
            }
            let (blocks, mut keeps) = self.jam(&planned, asking);
            if place == 0
                && let Some(found) = self.reserve(&planned, asking)
            {
                for (cell, amount) in reserved(&planned, queue, &needs_of(&found.assignment)) {
                    let kept = keeps.entry(cell).or_default();
                    *kept = amount.max(*kept);
                }
            }
            if keeps.is_empty() {
                blockers.push((unit.uid, blocks));
                continue;
            }
            let mut nominee = Nominee::new(queue, unit.clone(), Claimed::Reserves, Found::nothing(), keeps);
            nominee.blocks = blocks;
            return (blockers, Some(nominee));
        }
        (blockers, None)
    }

    /// Behind whom a unit waits, if it is not asked.
    pub(super) fn behind(&self, forest: &Forest, asking: Asking<'_>) -> Option<Uid> {
        let (blockers, _) = self.walk(forest, asking.spec, Some(asking.unit.uid));
        let mut blocked = BTreeSet::new();
        blockers.into_iter().find_map(|(uid, blocks)| {
            blocked.extend(blocks);
            (is_full(asking.spec, &blocked) || self.is_blocked(forest, asking, &blocked)).then_some(uid)
        })
    }

    /// Whether a unit never fits as things are, with its fewest pods.
    pub(super) fn never_fits(&self, forest: &Forest, asking: Asking<'_>) -> bool {
        let unit = &fewest(asking.unit);
        let without = &NOTHING;
        let asking = Asking {
            unit,
            without,
            ..asking
        };
        self.search(&Book::empty(forest), asking).is_err()
    }

    /// Whether for some pod set and group all useful flavors are blocked.
    fn is_blocked(&self, forest: &Forest, asking: Asking<'_>, blocked: &BTreeSet<Cell>) -> bool {
        self.useful(forest, asking).into_iter().any(|cells| {
            let is_blocked = |cell: &Vec<Cell>| cell.iter().any(|cell| blocked.contains(cell));
            cells.iter().all(is_blocked)
        })
    }

    /// Per pod set and group that it asks, the useful flavors: all cells of each.
    fn useful(&self, forest: &Forest, asking: Asking<'_>) -> Vec<Vec<Vec<Cell>>> {
        let unit = fewest(asking.unit);
        let mut all = vec![];
        for pod_set in &unit.pod_sets {
            for (group, asked) in asking.asks(pod_set) {
                let useful = group.flavors.iter().filter(|offered| {
                    let flavor = &offered.flavor;
                    let potential = |r: &Name| forest.potential(asking.queue, &(flavor.clone(), r.clone()));
                    let mut asked = asked.iter();
                    self.may_use(flavor, &pod_set.constraints)
                        && asked.all(|(resource, need)| *need <= potential(resource).min(i128::from(i64::MAX)))
                });
                let cells = |offered: &FlavorQuota| -> Vec<Cell> {
                    let resources = group.resources.iter();
                    resources.map(|r| (offered.flavor.clone(), r.clone())).collect()
                };
                all.push(useful.map(cells).collect());
            }
        }
        all
    }

    /// What a unit without outcome blocks, and what is kept for it.
    fn jam(&self, planned: &Book<'_>, asking: Asking<'_>) -> (BTreeSet<Cell>, Needs) {
        let unit = fewest(asking.unit);
        let asking = Asking { unit: &unit, ..asking };
        let useful = self.useful(planned.forest, asking);
        let mut taken = Needs::new();
        let mut unserved = vec![];
        let mut place = 0;
        for pod_set in &unit.pod_sets {
            for (group, asked) in asking.asks(pod_set) {
                match self.flavor_that_fits(planned, asking, pod_set, group, &asked, &taken) {
                    Some(flavor) => {
                        for (resource, need) in asked {
                            *taken.entry((flavor.clone(), resource)).or_default() += need;
                        }
                    }
                    None => unserved.push(useful[place].concat()),
                }
                place += 1;
            }
        }
        if unserved.is_empty() {
            unserved = useful.into_iter().map(|flavors| flavors.concat()).collect();
        }
        let keeps = reserved(planned, asking.queue, &taken);
        (unserved.into_iter().flatten().collect(), keeps)
    }
}

fn is_full(spec: &QueueSpec, blocked: &BTreeSet<Cell>) -> bool {
    let mut cells = spec.groups.iter().flat_map(|group| {
        let flavors = group.flavors.iter();
        flavors.flat_map(|offered| group.resources.iter().map(|r| (offered.flavor.clone(), r.clone())))
    });
    !blocked.is_empty() && cells.all(|cell| blocked.contains(&cell))
}

pub(super) fn is_by_pool(spec: &QueueSpec) -> bool {
    spec.strategy == Strategy::StrictFifo && spec.extras.fifo_per_pool && !spec.extras.backfill
}
