//! Section 10: a reservation for the first unit that does not fit, and who may pass it.

use sluice_engine::*;

use super::pass::{Claimed, Nominee, reserved};
use super::search::{Asking, Found, NOTHING, fewest, most_pods, needs_of};
use super::{At, Book, Cell, Forest, Needs, Twin, holds, turn};

/// What is reserved for a unit.
#[derive(Debug, Clone)]
pub(crate) struct Reserved {
    pub(crate) needs: Needs,
    /// By when it fits; none if nobody knows.
    pub(crate) until: Option<i64>,
}

/// When something fits: now, at an end, or nobody knows.
type When = (u8, i64);
const NOW: When = (0, 0);
const UNKNOWN: When = (2, 0);

/// A duration rounded up to its step.
pub(crate) fn rounded_up(duration: i64) -> i64 {
    if duration < 16 {
        return duration.max(0);
    }
    let step = 1_i64 << (duration.ilog2() - 3);
    match duration % step {
        0 => duration,
        over => duration.saturating_add(step - over),
    }
}

/// When a unit that holds quota is gone, rounded up.
pub(crate) fn end_of(unit: &ChargedUnit) -> Option<i64> {
    let from = unit.reserved_at.0;
    let longest = unit.ends_at?.0.saturating_sub(from);
    Some(from.saturating_add(rounded_up(longest)))
}

impl Twin {
    fn end_if_admitted(&self, unit: &UnitSpec) -> Option<i64> {
        Some(self.now.saturating_add(rounded_up(unit.runs_at_most_ms?)))
    }

    /// The book as a unit of a ClusterQueue is looked at with.
    pub(crate) fn planned_for<'f>(&self, forest: &'f Forest, queue: &Name, unit: &UnitSpec) -> Book<'f> {
        let mut book = self.planned(forest);
        for (uid, claim) in &self.claims {
            let Some(what) = &claim.reserved else { continue };
            let ends_in_time = self
                .end_if_admitted(unit)
                .zip(what.until)
                .is_some_and(|(end, until)| end <= until);
            let lifted = if claim.queue == *queue {
                turn(&self.waiting[uid]) < turn(unit)
            } else {
                ends_in_time
            };
            if let Some(at) = forest.queue(&claim.queue).filter(|_| lifted) {
                book.take_out(at, &claim.needs);
            }
        }
        book
    }

    /// The unit of a ClusterQueue that something is reserved for.
    pub(super) fn reserved_in(&self, queue: &Name) -> Option<(Uid, Reserved)> {
        let mut claims = self.claims.iter().filter(|(_, claim)| claim.queue == *queue);
        claims.find_map(|(uid, claim)| Some((*uid, claim.reserved.clone()?)))
    }

    /// The same, if a unit is behind it.
    pub(super) fn reserved_ahead(&self, queue: &Name, unit: &UnitSpec) -> Option<(Uid, Reserved)> {
        let reserved = self.reserved_in(queue)?;
        (turn(&self.waiting[&reserved.0]) < turn(unit)).then_some(reserved)
    }

    pub(super) fn nominee_by_reservation(&self, forest: &Forest, spec: &QueueSpec) -> Option<Nominee> {
        let queue = forest.queue(&spec.name).unwrap();
        for unit in self.order(&spec.name) {
            if !self.may_be_considered(&unit) || self.claims.contains_key(&unit.uid) {
                continue;
            }
            let asking = Asking {
                queue,
                spec,
                unit: &unit,
                without: &NOTHING,
            };
            if self.never_fits(forest, asking) {
                continue;
            }
            let book = self.planned_for(forest, &spec.name, &unit);
            let found = match self.reserved_ahead(&spec.name, &unit) {
                None => self.asked(&book, asking),
                Some((_, ahead)) => {
                    let found = most_pods(asking, |asking| self.passing(&book, asking, &ahead));
                    found.map(|found| (Claimed::Fits, found.clone(), needs_of(&found.assignment)))
                }
            };
            if let Some((outcome, found, needs)) = found {
                return Some(Nominee::new(queue, unit.clone(), outcome, found, needs));
            }
            if self.reserved_in(&spec.name).is_some() {
                continue;
            }
            if let Some(what) = self.reservation(&book, asking) {
                let needs = reserved(&book, queue, &what.needs);
                let mut nominee = Nominee::new(queue, unit.clone(), Claimed::Reserves, Found::nothing(), needs);
                nominee.reserved = Some(what);
                return Some(nominee);
            }
        }
        None
    }

    /// How a unit may start that is behind a reservation.
    fn passing(&self, book: &Book<'_>, asking: Asking<'_>, ahead: &Reserved) -> Option<Found> {
        let first = self.search(book, asking).ok()?;
        if self.may_pass(book, asking.queue, asking.unit, &first, ahead) {
            return Some(first);
        }
        let without = &ahead.needs.keys().cloned().collect();
        let second = self.search(book, Asking { without, ..asking }).ok()?;
        second.victims.is_empty().then_some(second)
    }

    /// Whether a unit does not delay the one that something is reserved for.
    pub(super) fn may_pass(
        &self,
        book: &Book<'_>,
        queue: At,
        unit: &UnitSpec,
        found: &Found,
        ahead: &Reserved,
    ) -> bool {
        let needs = needs_of(&found.assignment);
        let ends_before = || {
            self.end_if_admitted(unit)
                .zip(ahead.until)
                .is_some_and(|(end, until)| end <= until)
        };
        let is_apart = || needs.keys().all(|cell| !ahead.needs.contains_key(cell));
        let still_fits = || {
            ahead.until.is_some_and(|until| {
                let then = self.at(&book.with(queue, &needs), until);
                then.fits(queue, &ahead.needs)
            })
        };
        found.victims.is_empty() && (ends_before() || is_apart() || still_fits())
    }

    /// The book without all who end by then.
    fn at<'f>(&self, book: &Book<'f>, until: i64) -> Book<'f> {
        let mut then = book.clone();
        for unit in self.charged.values().filter(|unit| unit.phase != Phase::Evicting) {
            if let Some(queue) = then
                .forest
                .queue(&unit.queue)
                .filter(|_| end_of(unit).is_some_and(|end| end <= until))
            {
                then.take_out(queue, &holds(unit));
            }
        }
        then
    }

    fn when(&self, book: &Book<'_>, queue: At, needs: &Needs) -> When {
        if book.fits(queue, needs) {
            return NOW;
        }
        let holding = self.charged.values().filter(|unit| unit.phase != Phase::Evicting);
        let mut ends: Vec<i64> = holding.filter_map(end_of).collect();
        ends.sort_unstable();
        let end = ends.into_iter().find(|end| self.at(book, *end).fits(queue, needs));
        end.map_or(UNKNOWN, |end| (1, end))
    }

    /// What is to be reserved for a unit; none if some pod set and group has no flavor for it.
    fn reservation(&self, book: &Book<'_>, asking: Asking<'_>) -> Option<Reserved> {
        let unit = fewest(asking.unit);
        let mut needs = Needs::new();
        let mut latest = NOW;
        for pod_set in &unit.pod_sets {
            for (group, asked) in asking.asks(pod_set) {
                let mut best: Option<(When, Name)> = None;
                for flavor in group.flavors.iter().map(|offered| &offered.flavor) {
                    let in_flavor: Needs = asked
                        .iter()
                        .map(|(resource, need)| {
                            let cell: Cell = (flavor.clone(), resource.clone());
                            let before = needs.get(&cell).copied().unwrap_or(0);
                            (cell, need + before)
                        })
                        .collect();
                    let potential = |cell: &Cell| book.forest.potential(asking.queue, cell).min(i128::from(i64::MAX));
                    let never = in_flavor.iter().any(|(cell, need)| *need > potential(cell));
                    if never || !self.may_use(flavor, &pod_set.constraints) {
                        continue;
                    }
                    let when = self.when(book, asking.queue, &in_flavor);
                    if best.as_ref().is_none_or(|(earliest, _)| when < *earliest) {
                        best = Some((when, flavor.clone()));
                    }
                }
                let (when, flavor) = best?;
                latest = latest.max(when);
                for (resource, need) in asked {
                    *needs.entry((flavor.clone(), resource)).or_default() += need;
                }
            }
        }
        let until = match latest {
            NOW => Some(self.now),
            UNKNOWN => None,
            (_, end) => Some(end),
        };
        Some(Reserved { needs, until })
    }

    /// After a unit that passed has what it needs, what is held back is what it would be now.
    pub(super) fn keep_what_is_left(&mut self, forest: &Forest, queue: At, head: Uid) {
        let mut without = self.clone();
        let Some(claim) = without.claims.remove(&head) else {
            return;
        };
        let Some(what) = claim.reserved else { return };
        let left = reserved(&without.planned(forest), queue, &what.needs);
        if let Some(claim) = self.claims.get_mut(&head) {
            claim.needs = left;
        }
    }
}
