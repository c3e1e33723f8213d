//! The parking lot of a queue: units grouped by class, and what each parked class waits for.
//!
//! A [`Class`] is all units of one shape and priority that a queue may consider. It is *active* (to be examined, by its
//! first unit) or *parked* (examined, no outcome, and nothing it waits for has happened). Judging, parking and waking
//! concern the class, so their cost does not depend on how many units it has.

use std::collections::BTreeMap;
use std::ops::Bound;

use rustc_hash::FxHashMap;

use crate::assign::Plan;
use crate::memory::Evictor;
use crate::ranked::{Ranked, Turn};
use crate::report::WaitKind;
use crate::search::Stuck;
use crate::shapes::ShapeId;

/// What units have in common that are judged by one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassKey {
    pub(crate) shape: ShapeId,
    pub(crate) priority: i32,
    /// The unit that evicted them last, which they may not evict.
    pub(crate) evicted_by: Option<Evictor>,
    /// They had a claim once: these are asked again whenever something changes, whatever their likes wait for.
    pub(crate) claims: bool,
    /// How many milliseconds they may run at most, rounded up, where that is known and makes a difference.
    pub(crate) longest: Option<i64>,
}

/// All units of one class that a queue may consider.
#[derive(Debug, Default)]
pub(crate) struct Class {
    pub(crate) units: Ranked,
    /// The shape resolved for this queue; made when first examined, forgotten when queue or flavors change.
    pub(crate) plan: Option<Plan>,
    /// Where it was found stuck and what ends that; none while it has not been examined.
    pub(crate) stuck: Option<Stuck>,
    /// There was room for it since: it is active again, and still watched for.
    pub(crate) stirred: bool,
    /// Why its units were last found to wait.
    pub(crate) kind: Option<WaitKind>,
}

impl Class {
    /// What it is parked for, if it is.
    pub(crate) fn parked(&self) -> Option<&Stuck> {
        self.stuck.as_ref().filter(|_| !self.stirred)
    }
}

/// The classes of a queue.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    classes: FxHashMap<ClassKey, Class>,
    /// The first unit of each active class.
    active: BTreeMap<Turn, ClassKey>,
    /// The first unit of each parked class.
    parked: BTreeMap<Turn, ClassKey>,
    units: usize,
    active_units: usize,
}

impl Parking {
    /// Adds a unit that may be considered. Joining a parked class it is parked too. True if it is the first of a parked class now.
    pub(crate) fn insert(&mut self, key: ClassKey, turn: Turn) -> bool {
        let class = self.classes.entry(key).or_default();
        let parked = class.parked().is_some();
        let heads = if parked { &mut self.parked } else { &mut self.active };
        let before = class.units.first();
        if !class.units.insert(turn) {
            return false;
        }
        self.units += 1;
        let first = before.is_none_or(|head| turn < head);
        if first {
            before.map(|head| heads.remove(&head));
            heads.insert(turn, key);
        }
        if !parked {
            self.active_units += 1;
        }
        parked && first
    }

    /// Takes a unit away; the last one takes its class along. Returns what was watched for the class, if it is gone.
    pub(crate) fn remove(&mut self, key: ClassKey, turn: &Turn) -> Option<Stuck> {
        let class = self.classes.get_mut(&key)?;
        if !class.units.remove(turn) {
            return None;
        }
        self.units -= 1;
        let parked = class.parked().is_some();
        let heads = if parked { &mut self.parked } else { &mut self.active };
        if heads.remove(turn).is_some()
            && let Some(head) = class.units.first()
        {
            heads.insert(head, key);
        }
        if !parked {
            self.active_units -= 1;
        }
        if class.units.is_empty() {
            return self.classes.remove(&key).and_then(|class| class.stuck);
        }
        None
    }

    /// The first unit that has to be examined. In strict order nobody is, while the very first unit is parked.
    pub(crate) fn candidate(&self, strict: bool) -> Option<(Turn, ClassKey)> {
        let (turn, key) = self.active.first_key_value()?;
        let blocked = strict && self.parked.first_key_value().is_some_and(|(parked, _)| parked < turn);
        (!blocked).then_some((*turn, *key))
    }

    /// The parked classes.
    pub(crate) fn parked(&self) -> impl Iterator<Item = ClassKey> + '_ {
        self.parked.values().copied()
    }

    /// The next unit behind one, or the first of all, that is the first of its class.
    pub(crate) fn head_after(&self, turn: Option<Turn>) -> Option<(Turn, ClassKey)> {
        let behind = (turn.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (active, parked) = (self.active.range(behind).next(), self.parked.range(behind).next());
        let next = [active, parked].into_iter().flatten().min_by_key(|(turn, _)| **turn);
        next.map(|(turn, key)| (*turn, *key))
    }

    /// The first unit of all.
    pub(crate) fn head(&self) -> Option<Turn> {
        let (active, parked) = (self.active.first_key_value(), self.parked.first_key_value());
        [active, parked].into_iter().flatten().map(|(turn, _)| *turn).min()
    }

    /// Parks an active class. True if its units now wait for another kind of reason.
    pub(crate) fn park(&mut self, key: ClassKey, stuck: Stuck) -> bool {
        let kind = stuck.kind;
        let Some(class) = self.classes.get_mut(&key) else {
            return false;
        };
        class.stuck = Some(stuck);
        class.stirred = true;
        let changed = class.kind.replace(kind) != Some(kind);
        self.unstir(key);
        changed
    }

    /// Makes a parked class active, as one for which there is room now. True if it was parked.
    pub(crate) fn stir(&mut self, key: ClassKey) -> bool {
        let Some(class) = self.classes.get_mut(&key) else {
            return false;
        };
        if class.parked().is_none() {
            return false;
        }
        class.stirred = true;
        if let Some(head) = class.units.first() {
            self.parked.remove(&head);
            self.active.insert(head, key);
        }
        self.active_units += class.units.len();
        true
    }

    /// Parks a stirred class again: the room is gone.
    pub(crate) fn unstir(&mut self, key: ClassKey) {
        let Some(class) = self.classes.get_mut(&key) else {
            return;
        };
        class.stirred = false;
        if let Some(head) = class.units.first() {
            self.active.remove(&head);
            self.parked.insert(head, key);
        }
        self.active_units -= class.units.len();
    }

    /// Makes a class active that is to be examined whatever it was stuck at; returns what was watched for it.
    pub(crate) fn wake(&mut self, key: ClassKey) -> Option<Stuck> {
        self.stir(key);
        let class = self.classes.get_mut(&key)?;
        class.stirred = false;
        class.stuck.take()
    }

    /// Wakes every class and forgets how shapes were resolved; returns what was watched for each.
    pub(crate) fn reset(&mut self) -> Vec<(ClassKey, Stuck)> {
        let mut woken = Vec::new();
        self.active.append(&mut self.parked);
        for key in self.active.values() {
            if let Some(class) = self.classes.get_mut(key) {
                class.plan = None;
                if class.parked().is_some() {
                    self.active_units += class.units.len();
                }
                class.stirred = false;
                woken.extend(class.stuck.take().map(|stuck| (*key, stuck)));
            }
        }
        woken
    }

    pub(crate) fn class(&self, key: ClassKey) -> Option<&Class> {
        self.classes.get(&key)
    }

    pub(crate) fn class_mut(&mut self, key: ClassKey) -> Option<&mut Class> {
        self.classes.get_mut(&key)
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassKey, &Class)> {
        let heads = self.active.values().chain(self.parked.values());
        heads.filter_map(|key| Some((*key, self.classes.get(key)?)))
    }

    /// Whether heads and counts are what the classes say.
    pub(crate) fn is_sound(&self) -> bool {
        let heads = |parked: bool| {
            let of_kind = self
                .classes
                .iter()
                .filter(move |(_, class)| class.parked().is_some() == parked);
            of_kind
                .filter_map(|(key, class)| Some((class.units.first()?, *key)))
                .collect::<BTreeMap<_, _>>()
        };
        let active_units: usize = self
            .classes
            .values()
            .filter(|class| class.parked().is_none())
            .map(|class| class.units.len())
            .sum();
        heads(false) == self.active
            && heads(true) == self.parked
            && active_units == self.active_units
            && self.classes.values().map(|class| class.units.len()).sum::<usize>() == self.units
            && self
                .classes
                .values()
                .all(|class| !class.units.is_empty() && class.units.is_sound())
    }
}
