//! Ageing: how waiting raises a unit in the order of its ClusterQueue: `docs/scheduling.md`, section 2.

use std::cmp::{Ordering, Reverse};

use crate::engine::Engine;
use crate::ids::{Time, Uid};
use crate::queue::{Queue, QueueId};
use crate::ranked::Turn;
use crate::spec::Ageing;
use crate::units::UnitId;

/// How the units of a ClusterQueue age, and until when they have.
///
/// Up to the cap all rise at one rate, so that two of them never change places; at the cap none rises any more, so that
/// these do not either. Only one that rises passes one that does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// None: they do not age.
    ageing: Option<Ageing>,
    /// The latest instant that is known of.
    now: Time,
}

/// A unit's place in the order of its queue at an instant: smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat {
    /// Its aged priority, as a multiple of one over the milliseconds per step.
    aged: Reverse<i128>,
    queued_at: Time,
    uid: Uid,
}

/// A unit whose waiting still raises it, in the order that all such units of its queue have as long as they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rising {
    /// What its aged priority would be at instant 0.
    aged: i128,
    pub(crate) turn: Turn,
}

impl Ord for Rising {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |rising: &Self| (Reverse(rising.aged), rising.turn.queued_at, rising.turn.uid);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Rising {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Pace {
    pub(crate) fn new(ageing: Option<Ageing>, now: Time) -> Self {
        let ageing = ageing.map(|ageing| Ageing {
            ms_per_step: ageing.ms_per_step.max(1),
            max_steps: ageing.max_steps.max(1),
        });
        Self { ageing, now }
    }

    pub(crate) fn is_on(self) -> bool {
        self.ageing.is_some()
    }

    /// Whether units age as `ageing` says.
    pub(crate) fn is_of(self, ageing: Option<Ageing>) -> bool {
        self.ageing == Self::new(ageing, self.now).ageing
    }

    pub(crate) fn let_age(&mut self, now: Time) {
        self.now = now;
    }

    /// A unit's place at `now`. (A product of a priority and milliseconds is below 2⁹⁵.)
    pub(crate) fn seat(self, turn: Turn, now: Time) -> Seat {
        let aged = match self.ageing {
            None => i128::from(turn.priority.0),
            Some(ageing) => i128::from(turn.priority.0) * step(ageing) + waited(turn, now).min(cap(ageing)),
        };
        Seat {
            aged: Reverse(aged),
            queued_at: turn.queued_at,
            uid: turn.uid,
        }
    }

    /// The unit as one that rises, if it does.
    pub(crate) fn rising(self, turn: Turn) -> Option<Rising> {
        let ageing = self.ageing?;
        (waited(turn, self.now) < cap(ageing)).then(|| self.as_rising(turn))
    }

    /// The unit as one that rises, whether it still does or not.
    pub(crate) fn as_rising(self, turn: Turn) -> Rising {
        let step = self.ageing.map_or(0, step);
        Rising {
            aged: i128::from(turn.priority.0) * step - i128::from(turn.queued_at.0),
            turn,
        }
    }

    /// When a unit has risen as far as it can; none if it does not age, or no clock gets that far.
    pub(crate) fn capped_at(self, turn: Turn) -> Option<Time> {
        let at = i128::from(turn.queued_at.0) + cap(self.ageing?);
        i64::try_from(at).ok().map(Time)
    }

    /// When `other`, which is behind `first`, passes it by waiting alone; none if it never does.
    ///
    /// One of no higher priority never does: it rises as fast and no further. One of a higher priority does not before
    /// `first` has risen as far as it can, and then it still rises.
    fn passes_at(self, other: Turn, first: Turn) -> Option<Time> {
        let ageing = self.ageing?;
        let ahead_by = i128::from(other.priority.0) - i128::from(first.priority.0);
        if ahead_by <= 0 {
            return None;
        }
        let equal_at = i128::from(other.queued_at.0) + cap(ageing) - ahead_by * step(ageing);
        i64::try_from(equal_at + 1).ok().map(Time)
    }
}

fn step(ageing: Ageing) -> i128 {
    i128::from(ageing.ms_per_step)
}

fn cap(ageing: Ageing) -> i128 {
    i128::from(ageing.max_steps) * step(ageing)
}

fn waited(turn: Turn, now: Time) -> i128 {
    i128::from(now.0) - i128::from(turn.queued_at.0)
}

impl Queue {
    pub(crate) fn let_age(&mut self, now: Time) {
        self.order.let_age(now);
        self.parking.let_age(now);
    }

    /// When another unit is first in queue order by waiting alone; none if that never happens.
    fn head_changes_at(&self, now: Time) -> Option<Time> {
        let pace = self.order.pace();
        if !pace.is_on() {
            return None;
        }
        let (head, class) = self.first(now)?;
        let lane = self.parking.class(class)?.key.lane;
        // Among units of one class the first stays the first.
        let is_level = |other| self.ranking.of(other) == self.ranking.of(lane);
        let classes = self.parking.iter().filter(|(_, class)| is_level(class.key.lane));
        let first_ones = classes.filter_map(|(_, class)| class.units.first());
        first_ones.filter_map(|other| pace.passes_at(other, head)).min()
    }
}

impl Engine {
    /// Lets the units of all queues be as old as they are at `now`. Time never goes back here.
    pub(crate) fn let_age(&mut self, now: Time) {
        self.aged_to = self.aged_to.max(now);
        while let Some((at, unit)) = self.rising.first().copied()
            && at <= self.aged_to
        {
            self.rising.remove(&(at, unit));
            self.end_rise(unit);
        }
        while let Some((at, queue)) = self.head_changes.first().copied()
            && at <= self.aged_to
        {
            self.head_changes.remove(&(at, queue));
            self.dirty.insert(queue);
        }
    }

    fn end_rise(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (turn, lane) = (waiting.turn(unit.uid, id), self.lane_of(unit.local_queue));
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        local_queue.order.let_age(self.aged_to);
        local_queue.order.settle(None, turn);
        if let Some(queue) = local_queue.queue().and_then(|queue| self.queues.get_mut(queue)) {
            queue.let_age(self.aged_to);
            queue.order.settle(lane, turn);
            queue.parking.settle(lane, turn);
        }
    }

    /// Notes when a waiting unit will have risen as far as it can.
    pub(crate) fn note_rise(&mut self, queue: QueueId, turn: Turn) {
        let pace = self.queues.get(queue).map(|queue| queue.order.pace());
        if let Some(pace) = pace.filter(|pace| pace.rising(turn).is_some()) {
            self.rising.extend(pace.capped_at(turn).map(|at| (at, turn.unit)));
        }
    }

    /// The opposite of [`Engine::note_rise`].
    pub(crate) fn forget_rise(&mut self, queue: QueueId, turn: Turn) {
        let at = self
            .queues
            .get(queue)
            .and_then(|queue| queue.order.pace().capped_at(turn));
        if let Some(at) = at {
            self.rising.remove(&(at, turn.unit));
        }
    }

    /// Notes when another unit of a StrictFIFO queue may be first by the passing of time alone: by waiting, or because past
    /// usage counts less.
    pub(crate) fn note_head_change(&mut self, id: QueueId) {
        let next_sample = self.next_sample();
        let Some(queue) = self.queues.get_mut(id) else { return };
        let asks_first_alone = queue.is_strict() && queue.is_open();
        let at = asks_first_alone.then(|| {
            let goes_by_usage = queue.by_past_usage && queue.parking.has_several_local_queues();
            let by_usage = next_sample.filter(|_| goes_by_usage);
            [queue.head_changes_at(self.aged_to), by_usage]
                .into_iter()
                .flatten()
                .min()
        });
        let at = at.flatten();
        let before = std::mem::replace(&mut queue.head_change, at);
        if let Some(before) = before {
            self.head_changes.remove(&(before, id));
        }
        self.head_changes.extend(at.map(|at| (at, id)));
    }
}
