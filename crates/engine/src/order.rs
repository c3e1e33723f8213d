//! Units in queue order at an instant: those that still rise by waiting and those that do not, each in an order of their
//! own that time does not change, are merged when asked.

use std::collections::BTreeMap;

use crate::ageing::{Pace, Rising};
use crate::ids::Time;
use crate::parking::ClassId;
use crate::ranked::{Ranked, Turn};

/// All units that wait in a queue.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pace: Pace,
    rising: Ranked<Rising>,
    /// Those that have risen as far as they can, and all where units do not age.
    settled: Ranked,
}

impl Order {
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    pub(crate) fn let_age(&mut self, now: Time) {
        self.pace.let_age(now);
    }

    pub(crate) fn len(&self) -> usize {
        self.rising.len() + self.settled.len()
    }

    pub(crate) fn insert(&mut self, turn: Turn) {
        match self.pace.rising(turn) {
            Some(rising) => self.rising.insert(rising),
            None => self.settled.insert(turn),
        };
    }

    pub(crate) fn remove(&mut self, turn: &Turn) {
        match self.pace.rising(*turn) {
            Some(rising) => self.rising.remove(&rising),
            None => self.settled.remove(turn),
        };
    }

    /// Takes in that a unit rises no more.
    pub(crate) fn settle(&mut self, turn: Turn) {
        if self.rising.remove(&self.pace.as_rising(turn)) {
            self.settled.insert(turn);
        }
    }

    /// Puts all units in order anew.
    pub(crate) fn repace(&mut self, pace: Pace) {
        let before = std::mem::take(self);
        self.pace = pace;
        let rising = before.rising.iter().map(|rising| rising.turn);
        rising.chain(before.settled.iter()).for_each(|turn| self.insert(turn));
    }

    /// How many units are ahead of one at `now`.
    pub(crate) fn rank(&self, turn: Turn, now: Time) -> usize {
        let seat = self.pace.seat(turn, now);
        let is_ahead = |other: Turn| self.pace.seat(other, now) < seat;
        self.rising.partition_point(|rising| is_ahead(rising.turn))
            + self.settled.partition_point(|turn| is_ahead(*turn))
    }

    /// The units in order at `now`.
    pub(crate) fn iter(&self, now: Time) -> impl Iterator<Item = Turn> {
        let mut rising = self.rising.iter().map(|rising| rising.turn).peekable();
        let mut settled = self.settled.iter().peekable();
        std::iter::from_fn(move || match (rising.peek(), settled.peek()) {
            (Some(one), Some(other)) if self.pace.seat(*one, now) < self.pace.seat(*other, now) => rising.next(),
            (Some(_), None) => rising.next(),
            (_, _) => settled.next(),
        })
    }

    /// The units in order at `now`, from the one on that `rank` units are ahead of. Costs O(log n) for the first where units
    /// do not age, else O(rank).
    pub(crate) fn iter_from(&self, rank: usize, now: Time) -> impl Iterator<Item = Turn> {
        let aged = self.pace.is_on().then(|| self.iter(now).skip(rank));
        let plain = (!self.pace.is_on()).then(|| self.settled.iter_from(rank));
        aged.into_iter().flatten().chain(plain.into_iter().flatten())
    }

    /// Whether every unit is where it belongs.
    pub(crate) fn is_sound(&self) -> bool {
        self.rising.is_sound()
            && self.settled.is_sound()
            && self
                .rising
                .iter()
                .all(|rising| self.pace.rising(rising.turn) == Some(rising))
            && self.settled.iter().all(|turn| self.pace.rising(turn).is_none())
    }
}

/// The first units of some classes of a queue, with their classes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heads {
    pace: Pace,
    rising: BTreeMap<Rising, ClassId>,
    settled: BTreeMap<Turn, ClassId>,
}

impl Heads {
    /// None yet, of a queue whose units age like this.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    pub(crate) fn let_age(&mut self, now: Time) {
        self.pace.let_age(now);
    }

    pub(crate) fn insert(&mut self, turn: Turn, class: ClassId) {
        match self.pace.rising(turn) {
            Some(rising) => self.rising.insert(rising, class),
            None => self.settled.insert(turn, class),
        };
    }

    pub(crate) fn remove(&mut self, turn: &Turn) -> Option<ClassId> {
        match self.pace.rising(*turn) {
            Some(rising) => self.rising.remove(&rising),
            None => self.settled.remove(turn),
        }
    }

    /// Takes in that a unit rises no more, if it is one of these.
    pub(crate) fn settle(&mut self, turn: Turn) {
        if let Some(class) = self.rising.remove(&self.pace.as_rising(turn)) {
            self.settled.insert(turn, class);
        }
    }

    /// Puts all in order anew.
    pub(crate) fn repace(&mut self, pace: Pace) {
        let before = std::mem::replace(self, Self::new(pace));
        let rising = before.rising.into_iter().map(|(rising, class)| (rising.turn, class));
        rising
            .chain(before.settled)
            .for_each(|(turn, class)| self.insert(turn, class));
    }

    /// Takes over all of `other`, of the same queue.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.rising.append(&mut other.rising);
        self.settled.append(&mut other.settled);
    }

    /// The first of all at `now`.
    pub(crate) fn first(&self, now: Time) -> Option<(Turn, ClassId)> {
        let rising = self
            .rising
            .first_key_value()
            .map(|(rising, class)| (rising.turn, *class));
        let settled = self.settled.first_key_value().map(|(turn, class)| (*turn, *class));
        match (rising, settled) {
            (Some(one), Some(other)) if self.pace.seat(one.0, now) < self.pace.seat(other.0, now) => Some(one),
            (one, other) => other.or(one),
        }
    }

    /// The classes, in the order of their first units but for what time changes.
    pub(crate) fn classes(&self) -> impl Iterator<Item = ClassId> {
        self.rising.values().chain(self.settled.values()).copied()
    }
}
