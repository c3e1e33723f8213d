//! Section 8: evicting down to quota.

use std::cmp::Reverse;

use sluice_engine::*;

use super::{At, Book, Cell, Forest, Twin, holds};

impl Twin {
    /// Evicts from each ClusterQueue that was to shrink for its grace time.
    pub(super) fn shrink(&mut self, forest: &Forest, actions: &mut Vec<Action>) {
        let before = std::mem::take(&mut self.over_since);
        for spec in self.queues.clone().into_values() {
            let Some(grace) = spec.extras.shrink_after_ms.filter(|_| self.is_open(&spec, forest)) else {
                continue;
            };
            let queue = forest.queue(&spec.name).unwrap();
            let planned = self.planned(forest);
            let mut due: Vec<Cell> = vec![];
            for cell in planned.cells_of_tree(queue) {
                if !is_to_shrink(&planned, queue, &cell) {
                    continue;
                }
                let key = (spec.name.clone(), cell.clone());
                let since = before.get(&key).copied().unwrap_or(self.now);
                self.over_since.insert(key, since);
                if self.now >= since.saturating_add(grace) {
                    due.push(cell);
                }
            }
            for uid in self.excess(planned, queue, &due) {
                actions.push(self.evict(uid, EvictionCause::QuotaShrunk));
            }
        }
    }

    /// Whom to evict so that the ClusterQueue is to shrink in none of the cells.
    fn excess(&self, mut book: Book<'_>, queue: At, due: &[Cell]) -> Vec<Uid> {
        let name = &book.forest.member(queue).name.clone();
        let admitted = self.charged.values().filter(|unit| unit.phase == Phase::Admitted);
        let mut candidates: Vec<&ChargedUnit> = admitted.filter(|unit| unit.queue == *name).collect();
        candidates.sort_by_key(|unit| (unit.priority, Reverse(unit.reserved_at), unit.uid));
        let still = |book: &Book<'_>| -> Vec<Cell> {
            let cells = due.iter().filter(|cell| is_to_shrink(book, queue, cell));
            cells.cloned().collect()
        };
        let mut out = vec![];
        for candidate in candidates {
            let holds = holds(candidate);
            if still(&book).iter().any(|cell| holds.contains_key(cell)) {
                book.take_out(queue, &holds);
                out.push(candidate);
            }
        }
        if still(&book).is_empty() {
            for place in (0..out.len().saturating_sub(1)).rev() {
                let with = book.with(queue, &holds(out[place]));
                if still(&with).is_empty() {
                    book = with;
                    out.remove(place);
                }
            }
        }
        out.into_iter().map(|unit| unit.uid).collect()
    }
}

/// Whether a node on the way up is over in a cell, and each one below it uses more than its subtree.
pub(crate) fn is_to_shrink(book: &Book<'_>, queue: At, cell: &Cell) -> bool {
    let forest = book.forest;
    forest.way_up(queue).into_iter().any(|a| {
        let most = match (forest.parent(a), forest.borrow(a, cell)) {
            (None, _) => Some(forest.subtree(a, cell)),
            (Some(_), borrow) => borrow.map(|borrow| forest.subtree(a, cell) + borrow),
        };
        let mut below = forest.way_below(queue, a).into_iter();
        most.is_some_and(|most| book.usage(a, cell) > most) && below.all(|n| book.borrows(n, cell, 0))
    })
}
