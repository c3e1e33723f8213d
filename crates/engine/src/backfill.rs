//! A reservation for the first unit that does not fit, and who may pass it: `docs/scheduling.md`, section 10.

use rustc_hash::FxHashMap;

use crate::assign::{LARGEST, Taken};
use crate::engine::Engine;
use crate::ids::Time;
use crate::nominate::{Nominee, least};
use crate::parking::{ClassId, ClassKey};
use crate::pass::Course;
use crate::pools::own_left;
use crate::queue::{Queue, QueueId};
use crate::ranked::Turn;
use crate::report::WaitKind;
use crate::search::{Found, Stuck};
use crate::tree::{Book, NodeId, Slot, Tree, TreeId};
use crate::units::{Held, UnitId};
use crate::victims::Needs;
use crate::watch::Wakes;

/// What is reserved for the first unit of a queue that has no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) turn: Turn,
    /// All that it needs.
    pub(crate) needs: Needs,
    /// When it fits by the ends that are known; none if these are not enough.
    pub(crate) until: Option<Time>,
    /// What is held back for it now.
    pub(crate) kept: Needs,
}

/// Claims taken out of the books while a unit is looked at that does not touch them, or ends in time.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct Lifted(Vec<QueueId>);

/// Units of which all have the same outcome.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Alike {
    class: ClassKey,
    is_behind: bool,
    ends_before: Vec<bool>,
}

/// A duration in milliseconds rounded up so that few values exist and none grows by more than an eighth.
pub(crate) fn rounded_up(duration: i64) -> i64 {
    let duration = duration.max(0);
    let bits = 63_u32.saturating_sub(duration.leading_zeros());
    let step = 1_i64 << bits.saturating_sub(3);
    // Below 16 the step is one.
    let over = duration % step;
    if over == 0 {
        duration
    } else {
        duration.saturating_add(step - over)
    }
}

impl Held {
    /// When what it holds is free again at the latest, rounded up, if that is known.
    pub(crate) fn known_end(&self) -> Option<Time> {
        let from = self.reserved_at.0;
        let longest = self.ends_at?.0.saturating_sub(from);
        Some(Time(from.saturating_add(rounded_up(longest))))
    }
}

impl Queue {
    /// Whether who does not fit gets a reservation and others may pass it.
    pub(crate) fn is_backfilled(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.extras.backfill)
    }

    /// The reservation of the last pass that a unit was behind.
    pub(crate) fn reserved_ahead(&self, turn: Turn) -> Option<&Reservation> {
        let mut reserved = self.claims.values().filter_map(|claim| claim.reserved.as_deref());
        reserved.find(|reserved| reserved.turn < turn)
    }
}

impl Reservation {
    /// Whether nothing is taken of a cell that it needs.
    fn is_apart_from(&self, needs: &Needs) -> bool {
        let mut needs = needs.iter();
        needs.all(|(slot, _)| self.needs.iter().all(|(own, _)| own != slot))
    }

    /// Whether a unit of another queue that ends then, if it is known when, may have what is held back.
    pub(crate) fn is_over_after(&self, end: Option<Time>) -> bool {
        end.zip(self.until).is_some_and(|(end, until)| end <= until)
    }
}

impl Engine {
    /// When a waiting unit that were admitted now would be gone, rounded up, if that is known.
    pub(crate) fn end_if_admitted(&self, id: UnitId) -> Option<Time> {
        let (_, waiting) = self.units.waiting(id)?;
        Some(Time(self.now.0.saturating_add(rounded_up(waiting.runs_at_most_ms()?))))
    }

    /// Takes those claims out of the books that do not count for a unit.
    pub(crate) fn lift(&mut self, id: QueueId, turn: Turn, course: &Course) -> Lifted {
        if course.reserved.is_empty() {
            return Lifted::default();
        }
        let tree_of = |id: QueueId| self.queues.get(id)?.place.map(|(tree, _)| tree);
        let end = self.end_if_admitted(turn.unit);
        let is_lifted = |(other, reserved): &(&QueueId, &Reservation)| {
            if **other == id {
                return reserved.turn < turn;
            }
            reserved.is_over_after(end) && tree_of(**other) == tree_of(id)
        };
        let lifted: Vec<QueueId> = course.reserved.iter().filter(is_lifted).map(|(id, _)| *id).collect();
        for other in &lifted {
            self.plan(*other, &course.reserved[other].kept, -1);
        }
        Lifted(lifted)
    }

    /// Puts back what was lifted, as it is to be kept now.
    pub(crate) fn unlift(&mut self, lifted: Lifted, course: &Course) {
        for other in lifted.0 {
            self.plan(other, &course.reserved[&other].kept, 1);
        }
    }

    /// The first unit of a queue that has an outcome, or the reservation for the first that has none.
    pub(crate) fn nominate_by_reservation(&mut self, id: QueueId, course: &Course) -> Option<Nominee> {
        let mut known: FxHashMap<Alike, Box<Stuck>> = FxHashMap::default();
        loop {
            let queue = self.queues.get(id)?;
            let may_preempt = queue.may_preempt();
            let (turn, class) = queue.parking.candidate(false, &queue.ranking, self.aged_to)?;
            let key = queue.parking.class(class)?.key;
            self.ensure_plan(id, class);
            let kind = self.with_fewest(id, class, |plan, _, _| plan.kind())?;
            let alike = self.alike(id, turn, key, course);
            let judged = known.get(&alike).filter(|_| !may_preempt);
            let stuck = match judged {
                _ if kind != WaitKind::WaitingForQuota => Box::new(Stuck::new(kind)),
                Some(stuck) => stuck.clone(),
                None => match self.ask_by_reservation(id, turn, class, course) {
                    Ok(nominee) => return Some(nominee),
                    Err(stuck) => stuck,
                },
            };
            if key.claims {
                self.rejoin(id, turn, class);
                continue;
            }
            if kind == WaitKind::WaitingForQuota && judged.is_none() {
                known.insert(alike, stuck.clone());
            }
            self.park(id, class, stuck, false);
        }
    }

    /// What a unit is judged by besides how long it may run: its shape, whether it is behind the reservation of its queue, and
    /// which reservations it ends before.
    fn alike(&self, id: QueueId, turn: Turn, class: ClassKey, course: &Course) -> Alike {
        let end = self.end_if_admitted(turn.unit);
        let ends_before = course.reserved.values().map(|reserved| reserved.is_over_after(end));
        Alike {
            class: ClassKey { longest: None, ..class },
            is_behind: course.reserved.get(&id).is_some_and(|reserved| reserved.turn < turn),
            ends_before: ends_before.collect(),
        }
    }

    /// Asks a unit; the first without outcome is nominated with a reservation.
    ///
    /// # Errors
    /// Where it gets stuck, if nothing is to be reserved for it.
    fn ask_by_reservation(
        &mut self,
        id: QueueId,
        turn: Turn,
        class: ClassId,
        course: &Course,
    ) -> Result<Nominee, Box<Stuck>> {
        self.counters.units_examined += 1;
        let reserved = course.reserved.get(&id);
        let ahead = reserved.filter(|reserved| reserved.turn < turn);
        let lifted = self.lift(id, turn, course);
        let asked = self.ask(id, turn, class, &[], ahead);
        let reservation = match (&asked, reserved) {
            (Err(_), None) => self.reservation(id, turn, class),
            _ => None,
        };
        self.unlift(lifted, course);
        let mut nominee = Nominee::new(turn, id, class);
        match (asked, reservation) {
            (Ok((found, reduced)), _) => {
                nominee.found = found;
                nominee.reduced = reduced;
                Ok(nominee)
            }
            (Err(_), Some(reservation)) => {
                nominee.reserves = true;
                nominee.found.needs.clone_from(&reservation.kept);
                nominee.reservation = Some(Box::new(reservation));
                Ok(nominee)
            }
            (Err(mut stuck), None) => {
                stuck.wakes = Wakes {
                    shares: true,
                    ..Wakes::default()
                };
                Err(stuck)
            }
        }
    }

    /// Whether a unit that would be given this is no obstacle to the one that a reservation is for, whose claim is lifted.
    pub(crate) fn may_pass(&mut self, id: QueueId, turn: Turn, found: &Found, reserved: &Reservation) -> bool {
        found.victims.is_empty()
            && (reserved.is_over_after(self.end_if_admitted(turn.unit))
                || reserved.is_apart_from(&found.needs)
                || reserved
                    .until
                    .is_some_and(|until| self.still_fits(id, until, &reserved.needs, &found.needs)))
    }

    /// Whether needs of a queue fit, `more` of it in use, once all are gone that end by an instant.
    fn still_fits(&mut self, id: QueueId, until: Time, needs: &Needs, more: &Needs) -> bool {
        let Some((tree_id, node)) = self.queues.get(id).and_then(|queue| queue.place) else {
            return false;
        };
        let leaving = self.leaving(tree_id, Some(until), needs);
        let Some(tree) = self.forest.trees.get_mut(tree_id) else {
            return false;
        };
        tree.plan(node, more, 1);
        for (_, from, holdings) in &leaving {
            tree.plan(*from, holdings, -1);
        }
        let fits = tree.fits(node, needs, Book::Planned);
        for (_, from, holdings) in &leaving {
            tree.plan(*from, holdings, 1);
        }
        tree.plan(node, more, -1);
        fits
    }

    /// What units of a tree hold of the cells of these needs, by when they end, if that is known and not too late.
    fn leaving(&self, tree: TreeId, until: Option<Time>, of: &[(Slot, i128)]) -> Vec<(Time, NodeId, Needs)> {
        let Some(tree) = self.forest.trees.get(tree) else {
            return Vec::new();
        };
        let mut leaving = Vec::new();
        for (node, member) in tree.nodes() {
            let queue = member.queue.and_then(|queue| self.queues.get(queue));
            let ends = queue.into_iter().flat_map(|queue| &queue.ends);
            for (end, unit) in ends.take_while(|(end, _)| until.is_none_or(|until| *end <= until)) {
                let Some(held) = self.units.held(*unit) else { continue };
                let mut holdings = tree.by_slot(&held.charges);
                holdings.retain(|(slot, _)| of.iter().any(|(needed, _)| needed == slot));
                if !holdings.is_empty() {
                    leaving.push((*end, node, holdings));
                }
            }
        }
        leaving.sort_by_key(|(end, ..)| *end);
        leaving
    }

    /// What is to be reserved for a unit, in the flavors that it fits in first; none if some pod set has none at all.
    fn reservation(&mut self, id: QueueId, turn: Turn, class: ClassId) -> Option<Reservation> {
        let queue = self.queues.get(id)?;
        let (tree_id, node) = queue.place?;
        let fewest = least(&self.shape_of(id, class)?);
        let plan = self.resolve(queue, self.forest.trees.get(tree_id)?, node, &fewest);
        let choices = plan.asks.iter().flat_map(|ask| &ask.choices);
        let slots: Vec<(Slot, i128)> = choices
            .flat_map(|choice| choice.slots.iter().map(|slot| (*slot, 0)))
            .collect();
        let leaving = self.leaving(tree_id, None, &slots);
        let tree = self.forest.trees.get_mut(tree_id)?;
        let mut taken = Taken::default();
        let mut until = Fit::Now;
        for ask in &plan.asks {
            let mut best: Option<(Fit, usize)> = None;
            for (at, choice) in ask.choices.iter().enumerate() {
                let needs: Needs = ask.wants(choice, &taken).collect();
                let potential = |slot: Slot| tree.state(node, slot).potential.min(LARGEST);
                if choice.admitted.is_err() || needs.iter().any(|(slot, need)| *need > potential(*slot)) {
                    continue;
                }
                let fit = fit(tree, node, &needs, &leaving);
                if best.is_none_or(|(other, _)| fit < other) {
                    best = Some((fit, at));
                }
            }
            let (fit, at) = best?;
            until = until.max(fit);
            ask.take(at, &mut taken);
        }
        let needs = taken.into_needs();
        Some(Reservation {
            turn,
            kept: own_left(tree, node, needs.clone()),
            needs,
            until: match until {
                Fit::Now => Some(self.now),
                Fit::At(time) => Some(time),
                Fit::Unknown => None,
            },
        })
    }

    /// What a reservation keeps follows what its queue uses: `reserved` is that of the queue, lifted at this moment.
    pub(crate) fn keep_what_is_left(&mut self, id: QueueId, course: &mut Course) {
        let (Some(queue), Some(reserved)) = (self.queues.get(id), course.reserved.get_mut(&id)) else {
            return;
        };
        let Some((tree_id, node)) = queue.place else { return };
        let Some(tree) = self.forest.trees.get(tree_id) else {
            return;
        };
        let kept = own_left(tree, node, reserved.needs.clone());
        if kept == reserved.kept {
            return;
        }
        reserved.kept.clone_from(&kept);
        let claim = course
            .claims
            .iter_mut()
            .find(|(queue, turn, _)| *queue == id && *turn == reserved.turn);
        if let Some((.., claim)) = claim {
            claim.needs = kept;
        }
        self.wake_after(id, &reserved.needs.clone());
    }
}

/// When something fits, the earliest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Now,
    At(Time),
    Unknown,
}

/// When needs fit if units leave a tree in this order; leaves it as it was.
fn fit(tree: &mut Tree, node: NodeId, needs: &Needs, leaving: &[(Time, NodeId, Needs)]) -> Fit {
    if tree.fits(node, needs, Book::Planned) {
        return Fit::Now;
    }
    let mut gone = 0;
    let mut fit = Fit::Unknown;
    for (end, from, holdings) in leaving {
        tree.plan(*from, holdings, -1);
        gone += 1;
        if tree.fits(node, needs, Book::Planned) {
            fit = Fit::At(*end);
            break;
        }
    }
    for (_, from, holdings) in &leaving[..gone] {
        tree.plan(*from, holdings, 1);
    }
    fit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_few_values_by_at_most_an_eighth() {
        let cases = [
            (-5, 0),
            (0, 0),
            (15, 15),
            (16, 16),
            (17, 18),
            (31, 32),
            (33, 36),
            (12_000, 12_288),
        ];
        for (duration, rounded) in cases {
            assert_eq!(rounded_up(duration), rounded, "{duration}");
        }
        assert_eq!(rounded_up(i64::MAX), i64::MAX);
        let distinct: std::collections::BTreeSet<i64> = (0..1_000_000).map(rounded_up).collect();
        assert!(distinct.len() < 150, "{}", distinct.len());
        assert!((1..1_000_000).all(|d| rounded_up(d) >= d && rounded_up(d) - d <= d / 8));
    }
}
