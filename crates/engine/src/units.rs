//! Units: those that wait and those that hold quota.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::amount::Amount;
use crate::arena::{Arena, define_id};
use crate::ids::{Time, Uid};
use crate::local_queue::LocalQueueId;
use crate::queue::QueueId;
use crate::quota::CellId;
use crate::ranked::Turn;
use crate::report::WaitKind;
use crate::shapes::ShapeId;
use crate::spec::{Deadline, Gate, Phase};
use crate::victims::Rank;

define_id! {
    /// Where a unit is stored.
    UnitId
}

/// A unit: it waits or it holds quota, never both.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) uid: Uid,
    pub(crate) local_queue: LocalQueueId,
    pub(crate) body: Body,
}

/// What a unit is doing.
#[derive(Debug)]
pub(crate) enum Body {
    Waiting(WaitingUnit),
    // Boxed so that the many that wait do not pay for the few that run.
    Charged(Box<Held>),
}

/// A unit that waits. There may be a million of these: mind the size.
#[derive(Debug)]
pub(crate) struct WaitingUnit {
    pub(crate) queued_at: Time,
    pub(crate) aside: Option<Box<Aside>>,
    pub(crate) priority: i32,
    pub(crate) shape: ShapeId,
    /// Neighbours in the list of its LocalQueue's waiting units.
    pub(crate) before: Option<UnitId>,
    pub(crate) after: Option<UnitId>,
    pub(crate) standing: Standing,
    /// It had a claim at the end of a pass since it last changed.
    pub(crate) claims: bool,
    /// The kind of reason last reported for it.
    pub(crate) reported: Option<WaitKind>,
}

/// What most units have none of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Aside {
    /// What sets it aside by itself.
    pub(crate) gate: Option<Gate>,
    /// Until when it is set aside.
    pub(crate) not_before: Option<Time>,
    /// How long it can hold quota, if that is known.
    pub(crate) runs_at_most_ms: Option<i64>,
}

/// Where a waiting unit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nowhere: its LocalQueue does not exist.
    Lost,
    /// In its queue's order only: its LocalQueue is blocked or it is gated.
    Aside,
    /// In its queue's order and the timers.
    BackOff,
    /// In its queue's order and its parking lot.
    Ready,
}

/// Amounts per cell; most units hold few.
pub(crate) type Charges = SmallVec<[(CellId, Amount); 2]>;

/// What a unit that holds quota holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) queue: QueueId,
    pub(crate) priority: i32,
    pub(crate) queued_at: Time,
    pub(crate) reserved_at: Time,
    pub(crate) deadlines: Vec<Deadline>,
    pub(crate) ends_at: Option<Time>,
    pub(crate) pods_ready: bool,
    pub(crate) phase: Phase,
    /// Sorted; none is zero.
    pub(crate) charges: Charges,
}

impl Held {
    /// Whether it was admitted and its pods are not ready.
    pub(crate) fn awaits_pods(&self) -> bool {
        matches!(self.phase, Phase::Assumed | Phase::Admitted) && !self.pods_ready
    }

    pub(crate) fn rank(&self, uid: Uid, unit: UnitId) -> Rank {
        Rank {
            priority: self.priority,
            reserved_at: Reverse(self.reserved_at),
            uid,
            unit,
        }
    }
}

impl WaitingUnit {
    pub(crate) fn turn(&self, uid: Uid, unit: UnitId) -> Turn {
        Turn {
            priority: Reverse(self.priority),
            queued_at: self.queued_at,
            uid,
            unit,
        }
    }

    pub(crate) fn gate(&self) -> Option<&Gate> {
        self.aside.as_ref().and_then(|aside| aside.gate.as_ref())
    }

    pub(crate) fn runs_at_most_ms(&self) -> Option<i64> {
        self.aside.as_ref().and_then(|aside| aside.runs_at_most_ms)
    }

    pub(crate) fn not_before(&self) -> Option<Time> {
        self.aside.as_ref().and_then(|aside| aside.not_before)
    }
}

/// All units by uid.
#[derive(Debug, Default)]
pub(crate) struct Units {
    arena: Arena<UnitId, Unit>,
    ids: FxHashMap<Uid, UnitId>,
}

impl Units {
    pub(crate) fn find(&self, uid: Uid) -> Option<UnitId> {
        self.ids.get(&uid).copied()
    }

    pub(crate) fn insert(&mut self, unit: Unit) -> UnitId {
        let uid = unit.uid;
        let id = self.arena.insert(unit);
        self.ids.insert(uid, id);
        id
    }

    pub(crate) fn remove(&mut self, id: UnitId) -> Option<Unit> {
        let unit = self.arena.remove(id)?;
        self.ids.remove(&unit.uid);
        Some(unit)
    }

    pub(crate) fn get(&self, id: UnitId) -> Option<&Unit> {
        self.arena.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: UnitId) -> Option<&mut Unit> {
        self.arena.get_mut(id)
    }

    /// What a unit holds, if it holds quota.
    pub(crate) fn held(&self, id: UnitId) -> Option<&Held> {
        match &self.arena.get(id)?.body {
            Body::Charged(held) => Some(held),
            Body::Waiting(_) => None,
        }
    }

    pub(crate) fn held_mut(&mut self, id: UnitId) -> Option<&mut Held> {
        match &mut self.arena.get_mut(id)?.body {
            Body::Charged(held) => Some(held),
            Body::Waiting(_) => None,
        }
    }

    /// The unit and what it is as a waiting one, if it waits.
    pub(crate) fn waiting(&self, id: UnitId) -> Option<(&Unit, &WaitingUnit)> {
        let unit = self.arena.get(id)?;
        match &unit.body {
            Body::Waiting(waiting) => Some((unit, waiting)),
            Body::Charged(_) => None,
        }
    }

    pub(crate) fn waiting_mut(&mut self, id: UnitId) -> Option<&mut WaitingUnit> {
        match &mut self.arena.get_mut(id)?.body {
            Body::Waiting(waiting) => Some(waiting),
            Body::Charged(_) => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (UnitId, &Unit)> {
        self.arena.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Puts a waiting unit in front of `head`, the list of its LocalQueue's waiting units.
    pub(crate) fn link(&mut self, id: UnitId, head: &mut Option<UnitId>) {
        let after = head.replace(id);
        if let Some(after) = after.and_then(|after| self.waiting_mut(after)) {
            after.before = Some(id);
        }
        if let Some(waiting) = self.waiting_mut(id) {
            (waiting.before, waiting.after) = (None, after);
        }
    }

    /// Takes a waiting unit out of the list that starts at `head`.
    pub(crate) fn unlink(&mut self, id: UnitId, head: &mut Option<UnitId>) {
        let Some(waiting) = self.waiting_mut(id) else { return };
        let (before, after) = (waiting.before.take(), waiting.after.take());
        match before.and_then(|before| self.waiting_mut(before)) {
            Some(before) => before.after = after,
            None => *head = after,
        }
        if let Some(after) = after.and_then(|after| self.waiting_mut(after)) {
            after.before = before;
        }
    }

    /// The list of waiting units that starts at `head`.
    pub(crate) fn list(&self, head: Option<UnitId>) -> impl Iterator<Item = UnitId> {
        std::iter::successors(head, |id| self.waiting(*id).and_then(|(_, waiting)| waiting.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_small() {
        assert!(size_of::<Option<Unit>>() <= 80, "{}", size_of::<Option<Unit>>());
    }
}
