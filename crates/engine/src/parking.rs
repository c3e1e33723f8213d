//! The parking lot of a queue: units grouped by class, and what each parked class waits for.
//!
//! A [`Class`] is all units of one shape and priority that a queue may consider. It is *active* (to be examined, by its
//! first unit) or *parked* (examined, no outcome, and nothing it waits for has happened). Judging, parking and waking
//! concern the class, so their cost does not depend on how many units it has.

use rustc_hash::FxHashMap;

use crate::ageing::Pace;
use crate::arena::{Arena, define_id};
use crate::assign::Plan;
use crate::ids::Time;
use crate::memory::Evictor;
use crate::order::{Heads, Lane, Ranking};
use crate::ranked::{Ranked, Turn};
use crate::report::WaitKind;
use crate::search::Stuck;
use crate::shapes::ShapeId;

define_id! {
    /// A class's place in the parking lot of its queue, for as long as the class has units.
    ClassId
}

/// What units have in common that are judged by one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassKey {
    pub(crate) shape: ShapeId,
    pub(crate) priority: i32,
    /// The unit that evicted them last, which they may not evict.
    pub(crate) evicted_by: Option<Evictor>,
    /// They had a claim once: these are asked again whenever something changes, whatever their likes wait for.
    pub(crate) claims: bool,
    /// Their LocalQueue, where units are ordered by what that used in the past.
    pub(crate) lane: Lane,
    /// How many milliseconds they may run at most, rounded up, where that is known and makes a difference.
    pub(crate) longest: Option<i64>,
}

/// All units of one class that a queue may consider.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) key: ClassKey,
    pub(crate) units: Ranked,
    /// The shape resolved for this queue; made when first examined, forgotten when queue or flavors change.
    pub(crate) plan: Option<Plan>,
    /// Where it was found stuck and what ends that; none while it has not been examined.
    pub(crate) stuck: Option<Box<Stuck>>,
    /// There was room for it since: it is active again, and still watched for.
    pub(crate) stirred: bool,
    /// Why its units were last found to wait.
    pub(crate) kind: Option<WaitKind>,
}

impl Class {
    fn new(key: ClassKey) -> Self {
        Self {
            key,
            units: Ranked::default(),
            plan: None,
            stuck: None,
            stirred: false,
            kind: None,
        }
    }

    /// What it is parked for, if it is.
    pub(crate) fn parked(&self) -> Option<&Stuck> {
        self.stuck.as_deref().filter(|_| !self.stirred)
    }
}

/// The classes of a queue.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    pace: Pace,
    ids: FxHashMap<ClassKey, ClassId>,
    classes: Arena<ClassId, Class>,
    /// The first unit of each active class.
    active: Heads,
    /// The first unit of each parked class.
    parked: Heads,
    units: usize,
    active_units: usize,
}

impl Parking {
    /// None yet, of a queue whose units age like this.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            active: Heads::new(pace),
            parked: Heads::new(pace),
            ..Self::default()
        }
    }

    /// Adds a unit that may be considered. Joining a parked class it is parked too. The class, if it is the first of a parked
    /// one now.
    pub(crate) fn insert(&mut self, key: ClassKey, turn: Turn) -> Option<ClassId> {
        let id = *self
            .ids
            .entry(key)
            .or_insert_with(|| self.classes.insert(Class::new(key)));
        let class = self.classes.get_mut(id)?;
        let parked = class.parked().is_some();
        let heads = if parked { &mut self.parked } else { &mut self.active };
        let before = class.units.first();
        if !class.units.insert(turn) {
            return None;
        }
        self.units += 1;
        let first = before.is_none_or(|head| turn < head);
        if first {
            before.map(|head| heads.remove(key.lane, &head));
            heads.insert(key.lane, turn, id);
        }
        if !parked {
            self.active_units += 1;
        }
        (parked && first).then_some(id)
    }

    /// Takes a unit away; the last one takes its class along. Returns what was watched for the class, if it is gone.
    pub(crate) fn remove(&mut self, id: ClassId, turn: &Turn) -> Option<Box<Stuck>> {
        let class = self.classes.get_mut(id)?;
        if !class.units.remove(turn) {
            return None;
        }
        self.units -= 1;
        let parked = class.parked().is_some();
        let heads = if parked { &mut self.parked } else { &mut self.active };
        if heads.remove(class.key.lane, turn)
            && let Some(head) = class.units.first()
        {
            heads.insert(class.key.lane, head, id);
        }
        if !parked {
            self.active_units -= 1;
        }
        if !class.units.is_empty() {
            return None;
        }
        let gone = self.classes.remove(id)?;
        self.ids.remove(&gone.key);
        gone.stuck
    }

    /// The first unit that has to be examined at `now`. In strict order nobody is, while the very first unit is parked.
    pub(crate) fn candidate(&self, strict: bool, ranking: &Ranking, now: Time) -> Option<(Turn, ClassId)> {
        let first = self.active.first(ranking, now)?;
        let blocked = strict && self.head(ranking, now) != Some(first);
        (!blocked).then_some(first)
    }

    /// The first unit of all at `now`.
    pub(crate) fn head(&self, ranking: &Ranking, now: Time) -> Option<(Turn, ClassId)> {
        let first = |heads: &Heads| heads.first(ranking, now);
        let (Some(one), Some(other)) = (first(&self.active), first(&self.parked)) else {
            return first(&self.active).or_else(|| first(&self.parked));
        };
        let seat = |(turn, id): (Turn, ClassId)| {
            let lane = self.class(id).and_then(|class| class.key.lane);
            (ranking.of(lane), self.pace.seat(turn, now))
        };
        Some(if seat(one) < seat(other) { one } else { other })
    }

    /// The next unit behind one, or the first of all, that is the first of its class, where nothing but turns counts.
    pub(crate) fn head_after(&self, turn: Option<Turn>) -> Option<(Turn, ClassId)> {
        let next = [self.active.after(turn), self.parked.after(turn)];
        next.into_iter().flatten().min_by_key(|(turn, _)| *turn)
    }

    /// The parked classes.
    pub(crate) fn parked(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.parked.classes()
    }

    /// Whether there are units of more than one LocalQueue, where past usage counts.
    pub(crate) fn has_several_local_queues(&self) -> bool {
        let mut all = self.active.local_queues().chain(self.parked.local_queues());
        let first = all.next();
        all.any(|other| Some(other) != first)
    }

    pub(crate) fn let_age(&mut self, now: Time) {
        self.pace.let_age(now);
        self.active.let_age(now);
        self.parked.let_age(now);
    }

    /// Takes in that waiting raises a unit no more.
    pub(crate) fn settle(&mut self, lane: Lane, turn: Turn) {
        self.active.settle(lane, turn);
        self.parked.settle(lane, turn);
    }

    /// Parks an active class. True if its units now wait for another kind of reason.
    pub(crate) fn park(&mut self, id: ClassId, stuck: Box<Stuck>) -> bool {
        let Some(class) = self.classes.get_mut(id) else {
            return false;
        };
        class.stuck = Some(stuck);
        class.stirred = true;
        self.unstir(id)
    }

    /// Makes a parked class active, as one for which there is room now. True if it was parked.
    pub(crate) fn stir(&mut self, id: ClassId) -> bool {
        let Some(class) = self.classes.get_mut(id) else {
            return false;
        };
        if class.parked().is_none() {
            return false;
        }
        class.stirred = true;
        if let Some(head) = class.units.first() {
            self.parked.remove(class.key.lane, &head);
            self.active.insert(class.key.lane, head, id);
        }
        self.active_units += class.units.len();
        true
    }

    /// Parks a stirred class again: the room is gone. True if its units now wait for another kind of reason.
    pub(crate) fn unstir(&mut self, id: ClassId) -> bool {
        let Some(class) = self.classes.get_mut(id) else {
            return false;
        };
        class.stirred = false;
        let kind = class.stuck.as_ref().map(|stuck| stuck.kind);
        let changed = std::mem::replace(&mut class.kind, kind) != kind;
        if let Some(head) = class.units.first() {
            self.active.remove(class.key.lane, &head);
            self.parked.insert(class.key.lane, head, id);
        }
        self.active_units -= class.units.len();
        changed
    }

    /// Makes a class active that is to be examined whatever it was stuck at; returns what was watched for it.
    pub(crate) fn wake(&mut self, id: ClassId) -> Option<Box<Stuck>> {
        self.stir(id);
        let class = self.classes.get_mut(id)?;
        class.stirred = false;
        class.stuck.take()
    }

    /// Wakes every class and forgets how shapes were resolved; returns what was watched for each.
    pub(crate) fn reset(&mut self) -> Vec<(ClassId, Box<Stuck>)> {
        let mut woken = Vec::new();
        self.active.append(&mut self.parked);
        for id in self.active.classes() {
            if let Some(class) = self.classes.get_mut(id) {
                class.plan = None;
                if class.parked().is_some() {
                    self.active_units += class.units.len();
                }
                class.stirred = false;
                woken.extend(class.stuck.take().map(|stuck| (id, stuck)));
            }
        }
        woken
    }

    pub(crate) fn find(&self, key: ClassKey) -> Option<ClassId> {
        self.ids.get(&key).copied()
    }

    pub(crate) fn class(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(id)
    }

    pub(crate) fn class_mut(&mut self, id: ClassId) -> Option<&mut Class> {
        self.classes.get_mut(id)
    }

    /// How many units are in active classes.
    pub(crate) fn active_units(&self) -> usize {
        self.active_units
    }

    /// How many units there are, parked or not.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    /// The classes, in an order that depends on their first units alone.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        let heads = self.active.classes().chain(self.parked.classes());
        heads.filter_map(|id| Some((id, self.classes.get(id)?)))
    }

    /// Whether heads and counts are what the classes say.
    pub(crate) fn is_sound(&self) -> bool {
        let classes = || self.classes.iter().map(|(_, class)| class);
        let heads = |parked: bool| {
            let of_kind = self
                .classes
                .iter()
                .filter(move |(_, class)| class.parked().is_some() == parked);
            let mut heads = Heads::new(self.pace);
            for (id, class) in of_kind {
                class
                    .units
                    .first()
                    .into_iter()
                    .for_each(|head| heads.insert(class.key.lane, head, id));
            }
            heads
        };
        let active_units: usize = classes()
            .filter(|class| class.parked().is_none())
            .map(|class| class.units.len())
            .sum();
        heads(false) == self.active
            && heads(true) == self.parked
            && active_units == self.active_units
            && classes().map(|class| class.units.len()).sum::<usize>() == self.units
            && classes().count() == self.ids.len()
            && self.classes.iter().all(|(id, class)| self.find(class.key) == Some(id))
            && classes().all(|class| !class.units.is_empty() && class.units.is_sound())
    }
}
