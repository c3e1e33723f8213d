//! Sections 4 and 6: whom a unit evicts to get room.

use std::cmp::Reverse;

use sluice_engine::*;

use super::search::Asking;
use super::{At, Book, Needs, Twin, holds};

/// Who is evicted, and by which right.
#[derive(Debug, Clone)]
pub(crate) struct Victim {
    pub(crate) uid: Uid,
    pub(crate) queue: At,
    pub(crate) holds: Needs,
    pub(crate) reason: PreemptionReason,
}

/// Who could be evicted.
#[derive(Debug, Clone)]
struct Candidate {
    uid: Uid,
    queue: At,
    holds: Needs,
    priority: i32,
    reserved_at: Time,
}

impl Candidate {
    /// Lower priority first, then reserved later, then the smaller uid.
    fn key(&self) -> (i32, Reverse<Time>, Uid) {
        (self.priority, Reverse(self.reserved_at), self.uid)
    }

    fn as_victim(&self, reason: PreemptionReason) -> Victim {
        Victim {
            uid: self.uid,
            queue: self.queue,
            holds: self.holds.clone(),
            reason,
        }
    }
}

/// Why a unit of another ClusterQueue is a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Hierarchical,
    PriorityWhileBorrowing,
    PriorityWithoutBorrowing,
    Own,
}

impl Class {
    fn reason(self) -> PreemptionReason {
        match self {
            Self::Hierarchical | Self::PriorityWithoutBorrowing => PreemptionReason::InCohortReclamation,
            Self::PriorityWhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
            Self::Own => PreemptionReason::InClusterQueue,
        }
    }
}

/// A unit that looks for victims for some needs.
struct Preemptor<'a> {
    twin: &'a Twin,
    planned: &'a Book<'a>,
    queue: At,
    spec: &'a QueueSpec,
    unit: &'a UnitSpec,
    needs: &'a Needs,
    /// The part of the needs for which there is no room.
    lacking: Needs,
}

impl Twin {
    /// The victims whose eviction makes room for these needs, in the order in which they were chosen.
    pub(crate) fn victims(&self, planned: &Book<'_>, asking: Asking<'_>, needs: &Needs) -> Option<Vec<Victim>> {
        let Asking { queue, spec, unit, .. } = asking;
        let mut lacking = needs.clone();
        lacking.retain(|cell, need| *need > planned.available(queue, cell));
        let preemptor = Preemptor {
            twin: self,
            planned,
            queue,
            spec,
            unit,
            needs,
            lacking,
        };
        match self.settings.fair_sharing {
            None => preemptor.by_priority(),
            Some(rules) => preemptor.by_share(rules),
        }
    }
}

impl Preemptor<'_> {
    /// Who holds something lacking and may be evicted at all, the first to be evicted first.
    fn may_be_evicted(&self) -> Vec<Candidate> {
        let twin = self.twin;
        let evicted_me = |unit: &ChargedUnit| {
            let last = twin.evicted.get(&self.unit.uid);
            last.is_some_and(|last| last.by == unit.uid && last.priorities == (self.unit.priority, unit.priority))
        };
        let mut candidates = vec![];
        for unit in twin.charged.values().filter(|unit| unit.phase == Phase::Admitted) {
            let Some(queue) = self.planned.forest.queue(&unit.queue) else {
                continue;
            };
            let holds = holds(unit);
            let holds_lacking = self.lacking.keys().any(|cell| holds.contains_key(cell));
            let was_evicted = twin.evicted.get(&unit.uid).is_some_and(|last| last.epoch == twin.epoch);
            let min_run = twin.queues[&unit.queue].extras.min_run_ms;
            let has_run = min_run <= 0 || twin.now >= unit.reserved_at.0.saturating_add(min_run);
            if holds_lacking && !was_evicted && !evicted_me(unit) && has_run {
                candidates.push(Candidate {
                    uid: unit.uid,
                    queue,
                    holds,
                    priority: unit.priority,
                    reserved_at: unit.reserved_at,
                });
            }
        }
        candidates.sort_by_key(Candidate::key);
        candidates
    }

    /// Candidates of the own ClusterQueue.
    fn own(&self) -> Vec<Candidate> {
        let allowed = |candidate: &Candidate| {
            let queued_at = self.twin.charged[&candidate.uid].queued_at;
            let is_lower = candidate.priority < self.unit.priority;
            let is_newer = candidate.priority == self.unit.priority && queued_at > self.unit.queued_at;
            match self.spec.preemption.within_queue {
                WithinQueue::Never => false,
                WithinQueue::LowerPriority => is_lower,
                WithinQueue::LowerOrNewerEqualPriority => is_lower || is_newer,
            }
        };
        let mut own = self.may_be_evicted();
        own.retain(|candidate| candidate.queue == self.queue && allowed(candidate));
        own
    }

    /// Candidates of other ClusterQueues of the tree.
    fn others(&self) -> Vec<Candidate> {
        let allowed = |candidate: &Candidate| match self.spec.preemption.reclaim {
            Reclaim::Never => false,
            Reclaim::LowerPriority => candidate.priority < self.unit.priority,
            Reclaim::Any => true,
        };
        let mut others = self.may_be_evicted();
        others.retain(|candidate| {
            candidate.queue != self.queue && allowed(candidate) && self.all_borrow(self.planned, candidate.queue)
        });
        others
    }

    /// Whether every node from another ClusterQueue up to below the common ancestor borrows a lacking cell; false in
    /// another tree.
    fn all_borrow(&self, book: &Book<'_>, other: At) -> bool {
        let forest = book.forest;
        let Some(above) = forest.common_ancestor(self.queue, other) else {
            return false;
        };
        let mut below = forest.way_below(other, above).into_iter();
        below.all(|n| self.borrows_lacking(book, n))
    }

    fn borrows_lacking(&self, book: &Book<'_>, n: At) -> bool {
        self.lacking.keys().any(|cell| book.borrows(n, cell, 0))
    }

    fn class(&self, candidate: &Candidate) -> Class {
        let forest = self.planned.forest;
        let above = forest.common_ancestor(self.queue, candidate.queue).unwrap();
        let side = forest.side_of(above, self.queue);
        let side_borrows = self.lacking.iter().any(|(cell, need)| {
            let left = self.planned.left_at(side, self.queue, cell, *need);
            self.planned.borrows(side, cell, left)
        });
        if !side_borrows {
            return Class::Hierarchical;
        }
        match self.spec.preemption.borrow_within_cohort {
            Some(BorrowWithinCohort { max_priority })
                if candidate.priority < self.unit.priority
                    && max_priority.is_none_or(|max| candidate.priority <= max) =>
            {
                Class::PriorityWhileBorrowing
            }
            _ => Class::PriorityWithoutBorrowing,
        }
    }

    /// Section 4.
    fn by_priority(&self) -> Option<Vec<Victim>> {
        let others = self.others().into_iter();
        let others: Vec<(Class, Candidate)> = others.map(|candidate| (self.class(&candidate), candidate)).collect();
        let (hierarchical, by_priority): (Vec<_>, Vec<_>) = others
            .iter()
            .cloned()
            .partition(|(class, _)| *class == Class::Hierarchical);
        let own = self.own().into_iter().map(|candidate| (Class::Own, candidate));

        let borrow_off = self.spec.preemption.borrow_within_cohort.is_none();
        let mut lacking = self.lacking.keys();
        let above_nominal =
            lacking.any(|cell| self.planned.usage(self.queue, cell) >= self.planned.forest.nominal(self.queue, cell));
        let attempts: &[bool] = if others.is_empty() || (borrow_off && above_nominal) {
            &[true]
        } else if borrow_off && hierarchical.is_empty() {
            &[false, true]
        } else {
            &[true, false]
        };
        let in_order: Vec<_> = hierarchical.into_iter().chain(by_priority).chain(own).collect();
        attempts
            .iter()
            .find_map(|borrowing| self.attempt(&in_order, *borrowing))
    }

    fn attempt(&self, in_order: &[(Class, Candidate)], borrowing: bool) -> Option<Vec<Victim>> {
        let fits = |book: &Book<'_>| {
            let mut needs = self.needs.iter();
            book.fits(self.queue, self.needs)
                && (borrowing || needs.all(|(cell, need)| !book.borrows(self.queue, cell, *need)))
        };
        let mut book = self.planned.clone();
        let mut victims = vec![];
        for (class, candidate) in in_order {
            let passed_over = match class {
                Class::Own => false,
                Class::PriorityWithoutBorrowing if borrowing => true,
                _ => !self.all_borrow(&book, candidate.queue),
            };
            if passed_over {
                continue;
            }
            book.take_out(candidate.queue, &candidate.holds);
            victims.push(candidate.as_victim(class.reason()));
            if fits(&book) {
                return Some(put_back(book, victims, fits));
            }
        }
        None
    }

    /// Section 6.
    fn by_share(&self, rules: FairSharing) -> Option<Vec<Victim>> {
        let mut book = self.planned.with(self.queue, self.needs);
        let mut left = self.own();
        if !book.share(self.queue).is_infinite() {
            left.extend(self.others());
        }
        left.sort_by_key(Candidate::key);
        let fits = |book: &Book<'_>| book.without(self.queue, self.needs).fits(self.queue, self.needs);

        let mut victims = vec![];
        let mut aside: Vec<Candidate> = vec![];
        while let Some(queue) = self.choose(&book, &left) {
            let (here, elsewhere) = left.into_iter().partition(|candidate| candidate.queue == queue);
            let mut here = Vec::<Candidate>::into_iter(here);
            left = elsewhere;
            for candidate in here.by_ref() {
                let reason = if queue == self.queue {
                    PreemptionReason::InClusterQueue
                } else if !self.borrows_lacking(&book, self.queue) {
                    PreemptionReason::InCohortReclamation
                } else if self.passes(rules.first, &book, &candidate) {
                    PreemptionReason::InCohortFairSharing
                } else {
                    aside.push(candidate);
                    continue;
                };
                book.take_out(queue, &candidate.holds);
                victims.push(candidate.as_victim(reason));
                if fits(&book) {
                    return Some(put_back(book, victims, fits));
                }
                break;
            }
            left.extend(here);
            left.sort_by_key(Candidate::key);
        }
        let second = rules.second?;
        while let Some(queue) = self.choose(&book, &aside) {
            let first = aside.iter().find(|candidate| candidate.queue == queue).cloned()?;
            aside.retain(|candidate| candidate.queue != queue);
            if self.passes(second, &book, &first) {
                book.take_out(queue, &first.holds);
                victims.push(first.as_victim(PreemptionReason::InCohortFairSharing));
                if fits(&book) {
                    return Some(put_back(book, victims, fits));
                }
            }
        }
        None
    }

    /// The ClusterQueue whose turn it is to give a victim: from the root down, at each cohort the member with the
    /// greatest share. Candidates count only if every node on the way down to them from the common ancestor still borrows
    /// a lacking cell.
    fn choose(&self, book: &Book<'_>, left: &[Candidate]) -> Option<At> {
        let forest = book.forest;
        let root = forest.root(self.queue);
        let mut reachable: Vec<&Candidate> = left
            .iter()
            .filter(|candidate| candidate.queue == self.queue || self.all_borrow(book, candidate.queue))
            .collect();
        reachable.sort_by_key(|candidate| candidate.key());
        let mut n = root;
        while !forest.member(n).is_queue {
            let first_of = |child: At| {
                reachable
                    .iter()
                    .find(|candidate| forest.is_under(candidate.queue, child))
            };
            let members = forest.children(n).iter().copied();
            let members = members.filter_map(|child| Some((child, first_of(child)?.key())));
            n = members
                .min_by_key(|(child, first)| (Reverse(book.share(*child)), *first))?
                .0;
        }
        reachable.iter().any(|candidate| candidate.queue == n).then_some(n)
    }

    fn passes(&self, rule: ShareRule, book: &Book<'_>, candidate: &Candidate) -> bool {
        let forest = book.forest;
        let above = forest.common_ancestor(self.queue, candidate.queue).unwrap();
        let mine = book.share(forest.side_of(above, self.queue));
        let side = forest.side_of(above, candidate.queue);
        match rule {
            ShareRule::LessThanOrEqualToFinalShare => {
                mine <= book.without(candidate.queue, &candidate.holds).share(side)
            }
            ShareRule::LessThanInitialShare => mine < book.share(side),
        }
    }
}

/// From the last but one back to the first, each victim without which there still is room goes free.
fn put_back(mut book: Book<'_>, victims: Vec<Victim>, fits: impl Fn(&Book<'_>) -> bool) -> Vec<Victim> {
    let mut kept = vec![];
    let mut backwards = victims.into_iter().rev();
    kept.extend(backwards.next());
    for victim in backwards {
        book.add(victim.queue, &victim.holds);
        if !fits(&book) {
            book.take_out(victim.queue, &victim.holds);
            kept.push(victim);
        }
    }
    kept.reverse();
    kept
}
