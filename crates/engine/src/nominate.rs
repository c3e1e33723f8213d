//! Whom a queue nominates in a cycle: its first unit that has an outcome. Whoever is ahead of it and has none is parked on
//! the way: `docs/scheduling.md`, sections 2 and 5.

use crate::assign::Plan;
use crate::backfill::Reservation;
use crate::engine::Engine;
use crate::parking::{ClassId, ClassKey};
use crate::pass::Course;
use crate::pools::own_left;
use crate::queue::{Queue, QueueId};
use crate::ranked::Turn;
use crate::report::WaitKind;
use crate::search::{Found, Stuck};
use crate::shapes::Shape;
use crate::spec::{PodSetSpec, Reclaim};
use crate::tree::{NodeId, Slot, Tree};
use crate::victims::{Asker, Ground};

/// The unit that a queue nominates in a cycle, and what would become of it.
#[derive(Debug)]
pub(crate) struct Nominee {
    pub(crate) turn: Turn,
    pub(crate) queue: QueueId,
    pub(crate) class: ClassId,
    pub(crate) found: Found,
    /// How many pods the pod set with a minimum is given, if fewer than it asks for.
    pub(crate) reduced: Option<i64>,
    /// It has no outcome and only holds back what its queue could not take back.
    pub(crate) reserves: bool,
    /// What is reserved for it, where others may pass it.
    pub(crate) reservation: Option<Box<Reservation>>,
}

impl Nominee {
    pub(crate) fn new(turn: Turn, queue: QueueId, class: ClassId) -> Self {
        Self {
            turn,
            queue,
            class,
            found: Found::default(),
            reduced: None,
            reserves: false,
            reservation: None,
        }
    }
}

impl Engine {
    /// The first unit of a queue that has an outcome. Whoever is ahead of it and has none is parked on the way.
    pub(crate) fn nominate(&mut self, id: QueueId, course: &mut Course) -> Option<Nominee> {
        let queue = self.queues.get(id)?;
        if !queue.is_open() || course.closed.contains(&id) {
            return None;
        }
        if queue.is_backfilled() {
            return self.nominate_by_reservation(id, course);
        }
        if queue.is_by_pool() {
            return self.nominate_by_pool(id, course);
        }
        let strict = queue.is_strict();
        loop {
            let queue = self.queues.get(id)?;
            let preemptor = if strict {
                None
            } else {
                self.first_preemptor(queue, course)
            };
            let sticky = preemptor.is_some();
            let (turn, class) = preemptor.or_else(|| queue.parking.candidate(strict, &queue.ranking, self.aged_to))?;
            let key = queue.parking.class(class)?.key;
            // Room is not gone for those for whom a claim is lifted.
            if !queue.keeps_ends && self.room_is_gone(id, class) {
                self.unstir(id, class);
                continue;
            }
            self.counters.units_examined += 1;
            let lifted = self.lift(id, turn, course);
            let asked = self.ask(id, turn, class, &[], None);
            self.unlift(lifted, course);
            match asked {
                Ok((found, reduced)) => {
                    return Some(Nominee {
                        found,
                        reduced,
                        ..Nominee::new(turn, id, class)
                    });
                }
                Err(mut stuck) => {
                    if strict && let Some(nominee) = self.reserve(id, turn, class) {
                        return Some(nominee);
                    }
                    if key.claims {
                        self.rejoin(id, turn, class);
                    } else if sticky && !self.is_first_of_class(id, class, turn) {
                        course.tried.insert(turn.unit);
                    } else {
                        if strict {
                            self.watch_for_reserve(id, class, &mut stuck);
                        }
                        self.park(id, class, stuck, strict);
                    }
                }
            }
        }
    }

    /// Whether a class was stirred by room that others have taken since.
    fn room_is_gone(&self, id: QueueId, class: ClassId) -> bool {
        let Some(queue) = self.queues.get(id) else { return false };
        let stirred = queue.parking.class(class).filter(|class| class.stirred);
        let stuck = stirred.and_then(|class| class.stuck.as_ref());
        let tree = queue.place.and_then(|(tree, _)| self.forest.trees.get(tree));
        stuck
            .zip(tree)
            .is_some_and(|(stuck, tree)| !tree.has_room(&stuck.wakes))
    }

    /// Parks a class again that was stirred by room that is gone.
    fn unstir(&mut self, id: QueueId, class: ClassId) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        let (strict, is_news) = (queue.is_strict(), queue.parking.unstir(class));
        let stuck = queue.parking.class(class).and_then(|class| class.stuck.as_ref());
        if let Some(stuck) = stuck
            && let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree))
        {
            tree.watches.arm(&stuck.wakes);
        }
        if is_news {
            self.touch_class(id, class, strict);
        }
    }

    /// Puts a unit that has no claim any more back among its likes.
    pub(crate) fn rejoin(&mut self, id: QueueId, turn: Turn, class: ClassId) {
        if let Some(waiting) = self.units.waiting_mut(turn.unit) {
            waiting.claims = false;
        }
        if let Some(queue) = self.queues.get_mut(id)
            && let Some(key) = queue.parking.class(class).map(|class| class.key)
        {
            queue.parking.remove(class, &turn);
            queue.parking.insert(ClassKey { claims: false, ..key }, turn);
        }
        self.touched.push(turn.unit);
    }

    fn is_first_of_class(&self, id: QueueId, class: ClassId, turn: Turn) -> bool {
        let class = self.queues.get(id).and_then(|queue| queue.parking.class(class));
        class.is_some_and(|class| class.units.first() == Some(turn))
    }

    /// What would become of a unit, with fewer pods if need be.
    pub(crate) fn ask(
        &mut self,
        id: QueueId,
        turn: Turn,
        class: ClassId,
        without: &[Slot],
        ahead: Option<&Reservation>,
    ) -> Result<(Found, Option<i64>), Box<Stuck>> {
        self.ensure_plan(id, class);
        let is_left_out = |found: &Found| ahead.is_some() || found.needs.iter().any(|(slot, _)| without.contains(slot));
        if let Some(kept) = self.ask_kept(id, turn, class).filter(|(found, _)| !is_left_out(found)) {
            return Ok(kept);
        }
        let full = self.ask_behind(id, turn, class, None, without, ahead);
        let Some(shape) = self.shape_of(id, class) else {
            return full.map(|found| (found, None));
        };
        let Some(flexible) = shape.iter().position(|pod_set| pod_set.min_count.is_some()) else {
            return full.map(|found| (found, None));
        };
        let stuck = match full {
            Ok(found) => return Ok((found, None)),
            Err(stuck) => stuck,
        };
        let pod_set = &shape[flexible];
        let least = pod_set.min_count.unwrap_or(0).max(0);
        if least >= pod_set.count {
            return Err(stuck);
        }
        let (mut low, mut high) = (least, pod_set.count - 1);
        // If nothing is found the fewest pods were asked for last, and what these lack is what is waited for.
        let mut result = Err(stuck);
        while low <= high {
            let middle = low + (high - low) / 2;
            let plan = self.reduced_plan(id, &shape, flexible, middle);
            match self.ask_behind(id, turn, class, plan.as_ref(), without, ahead) {
                Ok(found) => {
                    result = Ok((found, Some(middle)));
                    low = middle + 1;
                }
                Err(stuck) => {
                    result = result.or(Err(stuck));
                    high = middle - 1;
                }
            }
        }
        result
    }

    pub(crate) fn shape_of(&self, id: QueueId, class: ClassId) -> Option<Shape> {
        let class = self.queues.get(id)?.parking.class(class)?;
        Some(self.shapes.get(class.key.shape))
    }

    /// Judges a unit that may be behind a reservation, with the cells left out that this needs if it must be.
    fn ask_behind(
        &mut self,
        id: QueueId,
        turn: Turn,
        class: ClassId,
        plan: Option<&Plan>,
        without: &[Slot],
        ahead: Option<&Reservation>,
    ) -> Result<Found, Box<Stuck>> {
        let found = self.ask_plan(id, turn, class, plan, without)?;
        let Some(reserved) = ahead else { return Ok(found) };
        if self.may_pass(id, turn, &found, reserved) {
            return Ok(found);
        }
        let cells: Vec<Slot> = reserved.needs.iter().map(|(slot, _)| *slot).collect();
        let apart = self.ask_plan(id, turn, class, plan, &cells).ok();
        apart
            .filter(|found| found.victims.is_empty())
            .ok_or_else(|| Box::new(Stuck::new(WaitKind::BehindReservation)))
    }

    /// What a preemptor evicted others for, if it fits now.
    fn ask_kept(&self, id: QueueId, turn: Turn, class: ClassId) -> Option<(Found, Option<i64>)> {
        let queue = self.queues.get(id)?;
        let kept = queue.preemptors.get(&turn)?.as_ref()?;
        let shape = self.shape_of(id, class)?;
        let flexible = shape.iter().position(|pod_set| pod_set.min_count.is_some());
        let reduced = match (kept.reduced, flexible) {
            (Some(count), Some(flexible)) => Some(self.reduced_plan(id, &shape, flexible, count)?),
            _ => None,
        };
        let own = queue.parking.class(class)?.plan.as_ref();
        let plan = reduced.as_ref().or(own)?;
        let (tree, node) = queue.place?;
        let found = plan.with_flavors(&kept.flavors, self.forest.trees.get(tree)?, node)?;
        Some((found, kept.reduced))
    }

    /// The plan of a shape with fewer pods in one pod set.
    pub(crate) fn reduced_plan(&self, id: QueueId, shape: &[PodSetSpec], flexible: usize, count: i64) -> Option<Plan> {
        let queue = self.queues.get(id)?;
        let (tree, node) = queue.place?;
        let reduced = reduced(shape, flexible, count);
        let tree = self.forest.trees.get(tree)?;
        Some(self.resolve(queue, tree, node, &reduced))
    }

    pub(crate) fn ensure_plan(&mut self, id: QueueId, class: ClassId) {
        let Some(queue) = self.queues.get(id) else { return };
        let Some(unplanned) = queue.parking.class(class).filter(|class| class.plan.is_none()) else {
            return;
        };
        let Some((tree, node)) = queue.place else { return };
        let Some(tree) = self.forest.trees.get(tree) else {
            return;
        };
        let plan = self.resolve(queue, tree, node, &self.shapes.get(unplanned.key.shape));
        let class = self.queues.get_mut(id).and_then(|queue| queue.parking.class_mut(class));
        if let Some(class) = class {
            class.plan = Some(plan);
        }
    }

    /// What pod sets ask of a queue at its place in `tree`.
    pub(crate) fn resolve(&self, queue: &Queue, tree: &Tree, node: NodeId, pod_sets: &[PodSetSpec]) -> Plan {
        let fungibility = queue.fungibility();
        Plan::new(
            pod_sets,
            &queue.groups,
            tree,
            node,
            fungibility,
            &self.cells,
            &self.flavors,
        )
    }

    /// Judges a unit by a plan: its class's own, or another.
    fn ask_plan(
        &mut self,
        id: QueueId,
        turn: Turn,
        class: ClassId,
        plan: Option<&Plan>,
        without: &[Slot],
    ) -> Result<Found, Box<Stuck>> {
        let nothing = || Box::new(Stuck::new(WaitKind::Pending));
        let queue = self.queues.get(id).ok_or_else(nothing)?;
        let (tree, _) = queue.place.ok_or_else(nothing)?;
        let class = queue.parking.class(class).ok_or_else(nothing)?;
        let plan = plan.or(class.plan.as_ref()).ok_or_else(nothing)?;
        let asker = asker(id, queue, turn, class.key).ok_or_else(nothing)?;
        let mut ground = Ground {
            tree: self.forest.trees.get_mut(tree).ok_or_else(nothing)?,
            queues: &self.queues,
            units: &self.units,
            memory: &self.memory,
            settings: &self.settings,
            now: self.now,
            hunts: &mut self.counters.hunts,
            without,
        };
        ground.find(plan, &asker, queue.fungibility())
    }

    /// The same in `tree`, a copy of the unit's own. Changes nothing and counts nothing.
    ///
    /// # Errors
    /// Where the unit gets stuck, if it does.
    pub(crate) fn ask_in(
        &self,
        tree: &mut Tree,
        id: QueueId,
        turn: Turn,
        class: ClassKey,
        plan: &Plan,
        without: &[Slot],
    ) -> Result<Found, Box<Stuck>> {
        let nothing = || Box::new(Stuck::new(WaitKind::Pending));
        let queue = self.queues.get(id).ok_or_else(nothing)?;
        let asker = asker(id, queue, turn, class).ok_or_else(nothing)?;
        let mut ground = Ground {
            tree,
            queues: &self.queues,
            units: &self.units,
            memory: &self.memory,
            settings: &self.settings,
            now: self.now,
            hunts: &mut 0,
            without,
        };
        ground.find(plan, &asker, queue.fungibility())
    }

    /// The head of a StrictFIFO queue of a cohort that waits for quota of its own which it could not take back.
    pub(crate) fn reserve(&self, id: QueueId, turn: Turn, class: ClassId) -> Option<Nominee> {
        let queue = self.queues.get(id)?;
        let spec = queue.spec.as_ref()?;
        let (tree, node) = queue.place?;
        let tree = self.forest.trees.get(tree)?;
        let known = queue.parking.class(class)?;
        let plan = known.plan.as_ref()?;
        if spec.cohort.is_none() || spec.preemption.reclaim == Reclaim::Any || plan.hopeless().is_some() {
            return None;
        }
        let (chosen, taken) = plan.first_choices(|slot| tree.state(node, slot).potential)?;
        let needs = taken.into_needs();
        let state = |slot: Slot| tree.state(node, slot);
        if needs.iter().any(|(slot, need)| *need > state(*slot).nominal) {
            return None;
        }
        let needs = own_left(tree, node, needs);
        (!needs.is_empty()).then_some(Nominee {
            found: Found {
                chosen,
                needs,
                level: 0,
                victims: Vec::new(),
            },
            reserves: true,
            ..Nominee::new(turn, id, class)
        })
    }

    /// A head that may not reserve now may when its queue uses less.
    fn watch_for_reserve(&self, id: QueueId, class: ClassId, stuck: &mut Stuck) {
        let Some(queue) = self.queues.get(id) else { return };
        let Some((_, node)) = queue.place else { return };
        let plan = queue.parking.class(class).and_then(|class| class.plan.as_ref());
        let asks = plan.into_iter().flat_map(|plan| &plan.asks);
        let slots = asks.flat_map(|ask| ask.choices.iter().flat_map(|choice| &choice.slots));
        if queue
            .spec
            .as_ref()
            .is_some_and(|spec| spec.cohort.is_some() && spec.preemption.reclaim != Reclaim::Any)
        {
            stuck.wakes.releases.extend(slots.map(|slot| (node, *slot)));
        }
    }

    pub(crate) fn park(&mut self, id: QueueId, class: ClassId, stuck: Box<Stuck>, strict: bool) {
        self.counters.parks += 1;
        let Some(queue) = self.queues.get_mut(id) else { return };
        let Some(known) = queue.parking.class(class) else {
            return;
        };
        if let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree)) {
            let before = known.stuck.as_ref();
            if before == Some(&stuck) {
                tree.watches.arm(&stuck.wakes);
            } else {
                if let Some(before) = before {
                    tree.watches.remove((id, class), known.key.priority, &before.wakes);
                }
                tree.watches.add((id, class), known.key.priority, &stuck.wakes);
            }
        }
        if queue.parking.park(class, stuck) {
            self.touch_class(id, class, strict);
        }
    }

    /// The units of a class wait for another kind of reason than before.
    fn touch_class(&mut self, id: QueueId, class: ClassId, strict: bool) {
        let class = self.queues.get(id).and_then(|queue| queue.parking.class(class));
        // In strict order the others of the class are behind their head, whatever it waits for.
        let concerned = if strict { 1 } else { usize::MAX };
        let units = class.into_iter().flat_map(|class| class.units.iter());
        self.touched.extend(units.take(concerned).map(|turn| turn.unit));
    }
}

/// A unit of `queue` as one that looks for room.
pub(crate) fn asker(id: QueueId, queue: &Queue, turn: Turn, class: ClassKey) -> Option<Asker> {
    let (_, node) = queue.place?;
    Some(Asker {
        queue: id,
        node,
        policy: queue.spec.as_ref()?.preemption,
        priority: class.priority,
        queued_at: turn.queued_at,
        evicted_by: class.evicted_by,
    })
}

/// The same pod sets with the fewest pods that they may be admitted with.
pub(crate) fn least(shape: &[PodSetSpec]) -> Vec<PodSetSpec> {
    let mut pod_sets = shape.to_vec();
    for pod_set in &mut pod_sets {
        pod_set.count = pod_set.count.min(pod_set.min_count.unwrap_or(i64::MAX).max(0));
    }
    pod_sets
}

/// The same pod sets, with fewer pods in one.
pub(crate) fn reduced(shape: &[PodSetSpec], flexible: usize, count: i64) -> Vec<PodSetSpec> {
    let mut pod_sets = shape.to_vec();
    if let Some(pod_set) = pod_sets.get_mut(flexible) {
        pod_set.count = count;
    }
    pod_sets
}
