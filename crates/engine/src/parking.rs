//! The parking lot of a queue: units grouped by shape, and what each parked shape waits for.
//!
//! A [`Class`] is all units of one shape that a queue may consider. It is *active* (to be examined, by its first
//! unit) or *parked* (examined, does not fit, and nothing it waits for has happened). Judging, parking and waking
//! concern the class, so their cost does not depend on how many units it has.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::arena::Column;
use crate::assign::{Lack, Plan};
use crate::quota::Slot;
use crate::ranked::{Ranked, Turn};
use crate::report::WaitKind;
use crate::shapes::ShapeId;

/// All units of one shape that a queue may consider.
#[derive(Debug, Default)]
pub(crate) struct Class {
    pub(crate) units: Ranked,
    /// The shape resolved for this queue; made when first examined, forgotten when queue or flavors change.
    pub(crate) plan: Option<Plan>,
    /// What ends its parking; none while it is active.
    pub(crate) parked: Option<Lack>,
    /// Why its units were last found to wait.
    pub(crate) kind: Option<WaitKind>,
}

/// The classes of a queue.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    classes: FxHashMap<ShapeId, Class>,
    /// The first unit of each active class.
    active: BTreeMap<Turn, ShapeId>,
    /// The first unit of each parked class.
    parked: BTreeMap<Turn, ShapeId>,
    /// Per slot: parked classes by how much must be free there.
    until_free: Column<Slot, BTreeSet<(i128, ShapeId)>>,
    /// Per slot: parked classes that may fit when it gets fuller.
    until_fuller: Column<Slot, BTreeSet<ShapeId>>,
    units: usize,
    active_units: usize,
}

impl Parking {
    /// Adds a unit that may be considered. Joining a parked class it is parked too.
    pub(crate) fn insert(&mut self, shape: ShapeId, turn: Turn) {
        let class = self.classes.entry(shape).or_default();
        let heads = if class.parked.is_some() {
            &mut self.parked
        } else {
            &mut self.active
        };
        let before = class.units.first();
        if !class.units.insert(turn) {
            return;
        }
        self.units += 1;
        if before.is_none_or(|head| turn < head) {
            before.map(|head| heads.remove(&head));
            heads.insert(turn, shape);
        }
        if class.parked.is_none() {
            self.active_units += 1;
        }
    }

    /// Takes a unit away; the last one takes its class along.
    pub(crate) fn remove(&mut self, shape: ShapeId, turn: &Turn) {
        let Some(class) = self.classes.get_mut(&shape) else {
            return;
        };
        if !class.units.remove(turn) {
            return;
        }
        self.units -= 1;
        let heads = if class.parked.is_some() {
            &mut self.parked
        } else {
            &mut self.active
        };
        if heads.remove(turn).is_some()
            && let Some(head) = class.units.first()
        {
            heads.insert(head, shape);
        }
        if class.parked.is_none() {
            self.active_units -= 1;
        }
        if class.units.is_empty()
            && let Some(lack) = self.classes.remove(&shape).and_then(|class| class.parked)
        {
            self.unwatch(shape, &lack);
        }
    }

    /// The first unit that has to be examined. In strict order nobody is, while the very first unit is parked.
    pub(crate) fn candidate(&self, strict: bool) -> Option<(Turn, ShapeId)> {
        let (turn, shape) = self.active.first_key_value()?;
        let blocked = strict && self.parked.first_key_value().is_some_and(|(parked, _)| parked < turn);
        (!blocked).then_some((*turn, *shape))
    }

    /// The first unit of all.
    pub(crate) fn head(&self) -> Option<Turn> {
        let (active, parked) = (self.active.first_key_value(), self.parked.first_key_value());
        [active, parked].into_iter().flatten().map(|(turn, _)| *turn).min()
    }

    /// Parks an active class until what it lacks happens. True if its units now wait for another kind of reason.
    pub(crate) fn park(&mut self, shape: ShapeId, lack: Lack, kind: WaitKind) -> bool {
        let Some(class) = self.classes.get_mut(&shape) else {
            return false;
        };
        if let Some(head) = class.units.first() {
            self.active.remove(&head);
            self.parked.insert(head, shape);
        }
        self.active_units -= class.units.len();
        for (slot, need) in &lack.until_free {
            self.until_free.entry(*slot).insert((*need, shape));
        }
        for slot in &lack.until_fuller {
            self.until_fuller.entry(*slot).insert(shape);
        }
        class.parked = Some(lack);
        class.kind.replace(kind) != Some(kind)
    }

    /// Makes a parked class active again.
    fn wake(&mut self, shape: ShapeId) {
        let Some(class) = self.classes.get_mut(&shape) else {
            return;
        };
        let Some(lack) = class.parked.take() else { return };
        if let Some(head) = class.units.first() {
            self.parked.remove(&head);
            self.active.insert(head, shape);
        }
        self.active_units += class.units.len();
        self.unwatch(shape, &lack);
    }

    fn unwatch(&mut self, shape: ShapeId, lack: &Lack) {
        for (slot, need) in &lack.until_free {
            self.until_free.entry(*slot).remove(&(*need, shape));
        }
        for slot in &lack.until_fuller {
            self.until_fuller.entry(*slot).remove(&shape);
        }
    }

    /// Wakes the classes for which `free` is enough in `slot`; returns how many.
    pub(crate) fn freed(&mut self, slot: Slot, free: i128) -> u64 {
        let mut woken = 0;
        while let Some((need, shape)) = self.until_free.get(slot).and_then(|waiting| waiting.first().copied())
            && need <= free
        {
            self.wake(shape);
            woken += 1;
        }
        woken
    }

    /// Wakes the classes that may fit now that `slot` is fuller; returns how many.
    pub(crate) fn filled(&mut self, slot: Slot) -> u64 {
        let mut woken = 0;
        while let Some(shape) = self.until_fuller.get(slot).and_then(|waiting| waiting.first().copied()) {
            self.wake(shape);
            woken += 1;
        }
        woken
    }

    /// Wakes every class and forgets how shapes were resolved; returns how many were parked.
    pub(crate) fn reset(&mut self) -> u64 {
        let mut woken = 0;
        self.active.append(&mut self.parked);
        self.until_free.iter_mut().for_each(BTreeSet::clear);
        self.until_fuller.iter_mut().for_each(BTreeSet::clear);
        for shape in self.active.values() {
            if let Some(class) = self.classes.get_mut(shape) {
                class.plan = None;
                if class.parked.take().is_some() {
                    self.active_units += class.units.len();
                    woken += 1;
                }
            }
        }
        woken
    }

    pub(crate) fn class(&self, shape: ShapeId) -> Option<&Class> {
        self.classes.get(&shape)
    }

    pub(crate) fn class_mut(&mut self, shape: ShapeId) -> Option<&mut Class> {
        self.classes.get_mut(&shape)
    }

    /// How many units are in active classes.
    pub(crate) fn active_units(&self) -> usize {
        self.active_units
    }

    /// How many units there are, parked or not.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    /// The classes in the order of their first units.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShapeId, &Class)> {
        let heads = self.active.values().chain(self.parked.values());
        heads.filter_map(|shape| Some((*shape, self.classes.get(shape)?)))
    }

    /// Whether heads, counts and watches are what the classes say.
    pub(crate) fn is_sound(&self) -> bool {
        let heads = |parked: bool| {
            let of_kind = self
                .classes
                .iter()
                .filter(move |(_, class)| class.parked.is_some() == parked);
            of_kind
                .filter_map(|(shape, class)| Some((class.units.first()?, *shape)))
                .collect::<BTreeMap<_, _>>()
        };
        let watched = |(shape, class): (&ShapeId, &Class)| {
            class.parked.as_ref().is_none_or(|lack| {
                let free = lack.until_free.iter().all(|(slot, need)| {
                    self.until_free
                        .get(*slot)
                        .is_some_and(|waiting| waiting.contains(&(*need, *shape)))
                });
                let fuller = lack.until_fuller.iter().all(|slot| {
                    self.until_fuller
                        .get(*slot)
                        .is_some_and(|waiting| waiting.contains(shape))
                });
                free && fuller
            })
        };
        let active_units: usize = self
            .classes
            .values()
            .filter(|class| class.parked.is_none())
            .map(|class| class.units.len())
            .sum();
        heads(false) == self.active
            && heads(true) == self.parked
            && active_units == self.active_units
            && self.classes.values().map(|class| class.units.len()).sum::<usize>() == self.units
            && self.classes.iter().all(watched)
            && self
                .classes
                .values()
                .all(|class| !class.units.is_empty() && class.units.is_sound())
    }
}
