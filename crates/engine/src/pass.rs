//! A pass: who may start now, and who must stop: `docs/scheduling.md`, sections 2, 5 and 6.

use std::collections::{BTreeMap, BTreeSet};

use crate::assign::Plan;
use crate::books::released;
use crate::engine::Engine;
use crate::fairness::{Entrant, winner};
use crate::ids::{Name, Time, Uid};
use crate::memory::Evictor;
use crate::parking::ClassKey;
use crate::queue::{Claim, Kept, Queue, QueueId};
use crate::ranked::Turn;
use crate::report::{Action, Admission, Eviction, EvictionCause, Pass, WaitKind};
use crate::search::{Found, Stuck};
use crate::spec::{Phase, PodSetSpec, Reclaim};
use crate::tree::{Book, NodeId, Slot, Tree, TreeId};
use crate::units::{Held, UnitId};
use crate::victims::{Asker, Ground, Needs, Victim};

/// The unit that a queue nominates in a cycle, and what would become of it.
#[derive(Debug)]
struct Nominee {
    turn: Turn,
    queue: QueueId,
    class: ClassKey,
    found: Found,
    /// How many pods the pod set with a minimum is given, if fewer than it asks for.
    reduced: Option<i64>,
    /// It has no outcome and only holds back what its queue could not take back.
    reserves: bool,
}

/// What a pass keeps until its end.
#[derive(Debug, Default)]
struct Course {
    actions: Vec<Action>,
    claims: Vec<(QueueId, Turn, Claim)>,
    /// StrictFIFO queues whose first unit has a claim.
    closed: BTreeSet<QueueId>,
    /// Preemptors that were asked and have no outcome.
    tried: BTreeSet<UnitId>,
}

impl Engine {
    /// Decides everything that can be decided now and assumes it done.
    ///
    /// `now` should not go back: a unit whose back-off was found over stays released. What was parked or woken before
    /// never shows in the outcome.
    pub fn pass(&mut self, now: Time) -> Pass {
        self.pass_at_most(now, usize::MAX)
    }

    /// The same, but ends with the first cycle after which there are `limit` actions or more: a caller that cannot carry
    /// out more yet decides on the rest later, on what is true then. The next pass goes on where this one ended.
    pub fn pass_at_most(&mut self, now: Time, limit: usize) -> Pass {
        self.counters.passes += 1;
        self.now = now;
        self.let_time_pass(now);
        let mut course = Course {
            actions: self.stop_overdue(now),
            ..Course::default()
        };
        let mut open = self.begin_cycles();
        while !open.is_empty() && course.actions.len() < limit && !self.is_held_back() {
            self.counters.cycles += 1;
            let nominees: Vec<Nominee> = open
                .iter()
                .filter_map(|queue| self.nominate(*queue, &mut course))
                .collect();
            open = nominees.iter().map(|nominee| nominee.queue).collect();
            let before = (course.actions.len(), course.claims.len());
            self.take_all(nominees, &mut course);
            self.unsettled.extend(self.dirty.iter().copied());
            open.append(&mut self.dirty);
            if before == (course.actions.len(), course.claims.len()) {
                break;
            }
        }
        if self.is_held_back() {
            self.held_back.append(&mut open);
        }
        self.end_claims(std::mem::take(&mut course.claims));
        self.settle_reasons();
        self.dirty.clear();
        self.dirty.append(&mut open);
        Pass {
            actions: course.actions,
            next: self.next_instant(),
        }
    }

    /// Brings up to date what [`Engine::take_changed`] tells, and decides nothing: for a caller that only follows.
    pub fn settle(&mut self) {
        self.settle_reasons();
    }

    fn let_time_pass(&mut self, now: Time) {
        while let Some((until, unit)) = self.timers.first().copied()
            && until <= now
        {
            self.timers.remove(&(until, unit));
            self.end_back_off(unit);
        }
        while let Some((until, unit)) = self.settling.first().copied()
            && until <= now
        {
            self.settling.remove(&(until, unit));
            self.show_victim(unit);
        }
    }

    /// The next instant at which time alone changes a decision.
    fn next_instant(&self) -> Option<Time> {
        let first = |times: &BTreeSet<(Time, UnitId)>| times.first().map(|(at, _)| *at);
        [first(&self.timers), first(&self.deadlines), first(&self.settling)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Evicts whom a policy or the time demands, in the order of their uids.
    fn stop_overdue(&mut self, now: Time) -> Vec<Action> {
        let mut stops: BTreeMap<Uid, (UnitId, EvictionCause)> = BTreeMap::new();
        let mut note = |engine: &Self, unit: UnitId, cause: EvictionCause| {
            if let Some(known) = engine.units.get(unit) {
                stops.entry(known.uid).or_insert((unit, cause));
            }
        };
        for id in &self.drained.0 {
            let running = self.queues.get(*id).into_iter().flat_map(|queue| &queue.running);
            for rank in running {
                note(self, rank.unit, EvictionCause::ClusterQueueStopped);
            }
        }
        for id in &self.drained.1 {
            let running = self.local_queues.get(*id).into_iter().flat_map(|local| &local.running);
            for unit in running {
                note(self, *unit, EvictionCause::LocalQueueStopped);
            }
        }
        for (_, unit) in self.deadlines.iter().take_while(|(at, _)| *at <= now) {
            let deadlines = self.units.held(*unit).map_or(&[][..], |held| &held.deadlines);
            if let Some(first) = deadlines.iter().min() {
                note(self, *unit, EvictionCause::Overdue(first.cause));
            }
        }
        let evicted = stops
            .into_values()
            .filter_map(|(unit, cause)| self.evict(unit, cause).map(Action::Evict));
        evicted.collect()
    }

    /// Whether nobody may be admitted before the pods of others are ready.
    fn is_held_back(&self) -> bool {
        self.settings.block_admission && self.unready > 0
    }

    /// The queues to be asked: those in which something may have changed, and those with claims, which are decided anew.
    fn begin_cycles(&mut self) -> BTreeSet<QueueId> {
        if self.is_held_back() {
            self.unsettled.extend(self.dirty.iter().copied());
            return std::mem::take(&mut self.dirty);
        }
        for tree in std::mem::take(&mut self.forest.standing) {
            self.void_claims(tree);
        }
        self.unsettled.extend(self.dirty.iter().copied());
        std::mem::take(&mut self.dirty)
    }

    /// Ends the claims of a tree: who was kept from something by one is looked at again.
    fn void_claims(&mut self, tree_id: TreeId) {
        let Some(tree) = self.forest.trees.get_mut(tree_id) else {
            return;
        };
        let mut woken = Vec::new();
        let standing = std::mem::take(&mut tree.standing);
        for id in &standing {
            let Some(queue) = self.queues.get_mut(*id) else {
                continue;
            };
            let Some((_, node)) = queue.place else { continue };
            for (turn, claim) in std::mem::take(&mut queue.claims) {
                self.touched.push(turn.uid);
                for (slot, _) in &claim.needs {
                    released(tree, node, NodeId::ROOT, *slot, &mut woken);
                }
            }
        }
        if !standing.is_empty() {
            tree.watches.shares_changed(&mut woken);
        }
        self.dirty.extend(standing);
        self.wake_all(&woken);
    }

    /// The first unit of a queue that has an outcome. Whoever is ahead of it and has none is parked on the way.
    fn nominate(&mut self, id: QueueId, course: &mut Course) -> Option<Nominee> {
        let queue = self.queues.get(id)?;
        if !queue.is_open() || course.closed.contains(&id) {
            return None;
        }
        let strict = queue.is_strict();
        loop {
            let queue = self.queues.get(id)?;
            let mut preemptors = queue.preemptors.keys().filter(|_| !strict).filter_map(|turn| {
                let class = self.class_of_unit(turn.unit)?;
                let known = queue.parking.class(class)?;
                let askable = known.parked.is_none() && known.units.contains(turn);
                (askable && !course.tried.contains(&turn.unit)).then_some((*turn, class))
            });
            let preemptor = preemptors.next();
            let sticky = preemptor.is_some();
            let (turn, class) = preemptor.or_else(|| queue.parking.candidate(strict))?;
            self.counters.units_examined += 1;
            match self.ask(id, turn, class) {
                Ok((found, reduced)) => {
                    return Some(Nominee {
                        turn,
                        queue: id,
                        class,
                        found,
                        reduced,
                        reserves: false,
                    });
                }
                Err(stuck) => {
                    if strict && let Some(nominee) = self.reserve(id, turn, class) {
                        return Some(nominee);
                    }
                    if class.claims {
                        self.rejoin(id, turn, class);
                    } else if sticky && !self.is_first_of_class(id, class, turn) {
                        course.tried.insert(turn.unit);
                    } else {
                        self.park(id, class, *stuck, strict);
                    }
                }
            }
        }
    }

    /// Puts a unit that has no claim any more back among its likes.
    fn rejoin(&mut self, id: QueueId, turn: Turn, class: ClassKey) {
        if let Some(waiting) = self.units.waiting_mut(turn.unit) {
            waiting.claims = false;
        }
        let plain = ClassKey { claims: false, ..class };
        if let Some(queue) = self.queues.get_mut(id) {
            queue.parking.remove(class, &turn);
            queue.parking.insert(plain, turn);
        }
        self.touched.push(turn.uid);
    }

    fn is_first_of_class(&self, id: QueueId, class: ClassKey, turn: Turn) -> bool {
        let class = self.queues.get(id).and_then(|queue| queue.parking.class(class));
        class.is_some_and(|class| class.units.first() == Some(turn))
    }

    /// What would become of a unit, with fewer pods if need be.
    fn ask(&mut self, id: QueueId, turn: Turn, class: ClassKey) -> Result<(Found, Option<i64>), Box<Stuck>> {
        self.ensure_plan(id, class);
        if let Some(kept) = self.ask_kept(id, turn, class) {
            return Ok(kept);
        }
        let shape = self.shapes.get(class.shape);
        let full = self.ask_plan(id, turn, class, None);
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
            match self.ask_plan(id, turn, class, plan.as_ref()) {
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

    /// What a preemptor evicted others for, if it fits now.
    fn ask_kept(&self, id: QueueId, turn: Turn, class: ClassKey) -> Option<(Found, Option<i64>)> {
        let queue = self.queues.get(id)?;
        let kept = queue.preemptors.get(&turn)?.as_ref()?;
        let shape = self.shapes.get(class.shape);
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
        Some(Plan::new(
            &reduced,
            &queue.groups,
            tree,
            node,
            queue.fungibility(),
            &self.cells,
            &self.flavors,
        ))
    }

    fn ensure_plan(&mut self, id: QueueId, key: ClassKey) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get(tree)) else {
            return;
        };
        let Some((_, node)) = queue.place else { return };
        let fungibility = queue.fungibility();
        if let Some(class) = queue.parking.class_mut(key)
            && class.plan.is_none()
        {
            let shape = self.shapes.get(key.shape);
            class.plan = Some(Plan::new(
                &shape,
                &queue.groups,
                tree,
                node,
                fungibility,
                &self.cells,
                &self.flavors,
            ));
        }
    }

    /// Judges a unit by a plan: its class's own, or another.
    fn ask_plan(&mut self, id: QueueId, turn: Turn, class: ClassKey, plan: Option<&Plan>) -> Result<Found, Box<Stuck>> {
        let nothing = || Box::new(Stuck::new(WaitKind::Pending));
        let queue = self.queues.get(id).ok_or_else(nothing)?;
        let (tree, _) = queue.place.ok_or_else(nothing)?;
        let own = queue.parking.class(class).and_then(|class| class.plan.as_ref());
        let plan = plan.or(own).ok_or_else(nothing)?;
        let asker = asker(id, queue, turn, class).ok_or_else(nothing)?;
        let mut ground = Ground {
            tree: self.forest.trees.get_mut(tree).ok_or_else(nothing)?,
            queues: &self.queues,
            units: &self.units,
            memory: &self.memory,
            settings: &self.settings,
            now: self.now,
            hunts: &mut self.counters.hunts,
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
        };
        ground.find(plan, &asker, queue.fungibility())
    }

    /// The head of a StrictFIFO queue of a cohort that waits for quota of its own which it could not take back.
    fn reserve(&self, id: QueueId, turn: Turn, class: ClassKey) -> Option<Nominee> {
        let queue = self.queues.get(id)?;
        let spec = queue.spec.as_ref()?;
        let (tree, node) = queue.place?;
        let tree = self.forest.trees.get(tree)?;
        let plan = queue.parking.class(class)?.plan.as_ref()?;
        if spec.cohort.is_none() || spec.preemption.reclaim == Reclaim::Any || plan.hopeless().is_some() {
            return None;
        }
        let (chosen, taken) = plan.first_choices(|slot| tree.state(node, slot).potential)?;
        let needs = taken.into_needs();
        let own = needs
            .iter()
            .all(|(slot, need)| !tree.state(node, *slot).borrows_with(*need));
        own.then_some(Nominee {
            turn,
            queue: id,
            class,
            found: Found {
                chosen,
                needs,
                level: 0,
                victims: Vec::new(),
            },
            reduced: None,
            reserves: true,
        })
    }

    fn park(&mut self, id: QueueId, key: ClassKey, stuck: Stuck, strict: bool) {
        self.counters.parks += 1;
        let Some(queue) = self.queues.get_mut(id) else { return };
        if let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree)) {
            tree.watches.add((id, key), &stuck.wakes);
        }
        if queue.parking.park(key, stuck)
            && let Some(class) = queue.parking.class(key)
        {
            // In strict order the others of the class are behind their head, whatever it waits for.
            let concerned = if strict { 1 } else { usize::MAX };
            self.touched
                .extend(class.units.iter().take(concerned).map(|turn| turn.uid));
        }
    }

    /// Takes the nominees one by one in the order that the rules say.
    fn take_all(&mut self, nominees: Vec<Nominee>, course: &mut Course) {
        // Room that was made for somebody is that unit's, whoever else would come first.
        let (mut preemptors, nominees): (Vec<Nominee>, Vec<Nominee>) =
            nominees.into_iter().partition(|nominee| self.is_preemptor(nominee));
        preemptors.sort_unstable_by_key(|nominee| nominee.turn);
        for nominee in preemptors {
            self.take(&nominee, course);
        }
        if self.settings.fair_sharing.is_none() {
            // What is sorted is small; the nominees themselves are not.
            let keys = nominees.iter().enumerate();
            let mut order: Vec<(u32, Turn, usize)> = keys
                .map(|(index, nominee)| (nominee.found.level, nominee.turn, index))
                .collect();
            order.sort_unstable();
            for (_, _, index) in order {
                self.take(&nominees[index], course);
            }
            return;
        }
        let mut by_tree: BTreeMap<Name, Vec<Nominee>> = BTreeMap::new();
        for nominee in nominees {
            if let Some(first) = self.first_queue_of_tree(nominee.queue) {
                by_tree.entry(first).or_default().push(nominee);
            }
        }
        for (_, mut nominees) in by_tree {
            while let Some(index) = self.tournament(&nominees) {
                let nominee = nominees.swap_remove(index);
                self.take(&nominee, course);
            }
        }
    }

    fn is_preemptor(&self, nominee: &Nominee) -> bool {
        let queue = self.queues.get(nominee.queue);
        queue.is_some_and(|queue| queue.preemptors.contains_key(&nominee.turn))
    }

    /// What trees are ordered by: the first name of their queues.
    fn first_queue_of_tree(&self, id: QueueId) -> Option<Name> {
        let (tree, _) = self.queues.get(id)?.place?;
        let nodes = self.forest.trees.get(tree)?.nodes();
        let queues = nodes.filter_map(|(_, node)| Some(self.queues.get(node.queue?)?.name.clone()));
        queues.min()
    }

    fn tournament(&mut self, nominees: &[Nominee]) -> Option<usize> {
        let (tree, _) = self.queues.get(nominees.first()?.queue)?.place?;
        let entrants: Vec<Entrant<'_>> = nominees
            .iter()
            .filter_map(|nominee| {
                let (_, node) = self.queues.get(nominee.queue)?.place?;
                Some(Entrant {
                    node,
                    turn: nominee.turn,
                    needs: &nominee.found.needs,
                })
            })
            .collect();
        winner(self.forest.trees.get_mut(tree)?, &entrants)
    }

    /// Carries out what was found for a nominee, unless what was taken before it in this cycle is in the way.
    fn take(&mut self, nominee: &Nominee, course: &mut Course) {
        if nominee.reserves {
            self.claim(nominee, course);
        } else if nominee.found.victims.is_empty() {
            match (self.fits(nominee, Book::Planned), self.fits(nominee, Book::Held)) {
                (true, true) if !self.is_held_back() => course.actions.extend(self.admit(nominee).map(Action::Admit)),
                (true, false) => self.claim(nominee, course),
                _ => {}
            }
        } else if self.can_preempt(nominee) {
            let queue = self.queues.get(nominee.queue).map(|queue| queue.name.clone());
            for victim in &nominee.found.victims {
                let cause = EvictionCause::Preempted {
                    by: nominee.turn.uid,
                    queue: queue.clone().unwrap_or_default(),
                    reason: victim.reason,
                };
                let priority = self.units.held(victim.unit).map_or(0, |held| held.priority);
                if let Some(eviction) = self.evict(victim.unit, cause) {
                    let by = Evictor {
                        uid: nominee.turn.uid,
                        priority: nominee.class.priority,
                    };
                    self.memory.note_preemption(eviction.uid, priority, by);
                    course.actions.push(Action::Evict(eviction));
                }
            }
            let kept = self.keep(nominee);
            if let Some(queue) = self.queues.get_mut(nominee.queue) {
                queue.preemptors.insert(nominee.turn, kept);
            }
            self.claim(nominee, course);
        }
    }

    /// What a preemptor evicts others for.
    fn keep(&self, nominee: &Nominee) -> Option<Kept> {
        // A plan for fewer pods has the same asks with the same choices.
        let plan = self
            .queues
            .get(nominee.queue)?
            .parking
            .class(nominee.class)?
            .plan
            .as_ref()?;
        let flavors = plan.asks.iter().zip(&nominee.found.chosen);
        Some(Kept {
            flavors: flavors.map(|(ask, at)| ask.choices[*at].flavor).collect(),
            reduced: nominee.reduced,
        })
    }

    fn fits(&self, nominee: &Nominee, book: Book) -> bool {
        let place = self.queues.get(nominee.queue).and_then(|queue| queue.place);
        place
            .and_then(|(tree, node)| Some((self.forest.trees.get(tree)?, node)))
            .is_some_and(|(tree, node)| {
                let needs = &nominee.found.needs;
                needs
                    .iter()
                    .all(|(slot, need)| tree.bar(node, *slot, *need, book).is_none())
            })
    }

    /// Whether all victims still run and evicting them still makes room.
    fn can_preempt(&mut self, nominee: &Nominee) -> bool {
        let victims = &nominee.found.victims;
        let runs = |victim: &Victim| {
            let held = self.units.held(victim.unit);
            held.is_some_and(|held| held.phase == Phase::Admitted)
        };
        if !victims.iter().all(runs) {
            return false;
        }
        let without: Vec<(QueueId, Needs)> = victims
            .iter()
            .filter_map(|victim| {
                let (tree, _) = self.queues.get(victim.queue)?.place?;
                let tree = self.forest.trees.get(tree)?;
                let charges = &self.units.held(victim.unit)?.charges;
                let needs = charges
                    .iter()
                    .filter_map(|(cell, amount)| Some((tree.find(*cell)?, amount.wide())));
                Some((victim.queue, needs.collect()))
            })
            .collect();
        for (queue, amounts) in &without {
            self.plan(*queue, amounts, -1);
        }
        let fits = self.fits(nominee, Book::Planned);
        for (queue, amounts) in &without {
            self.plan(*queue, amounts, 1);
        }
        fits
    }

    /// Adds to a queue's planned use or takes away, and wakes nobody: for what is taken back, or was never told.
    fn plan(&mut self, queue: QueueId, needs: &[(Slot, i128)], times: i128) {
        let Some((tree, node)) = self.queues.get(queue).and_then(|queue| queue.place) else {
            return;
        };
        if let Some(tree) = self.forest.trees.get_mut(tree) {
            for (slot, need) in needs {
                tree.charge(node, *slot, need.saturating_mul(times), Book::Planned);
            }
        }
    }

    /// Keeps what a unit needs from others until the end of the pass, and the unit from being asked again.
    fn claim(&mut self, nominee: &Nominee, course: &mut Course) {
        let needs = nominee.found.needs.clone();
        self.plan(nominee.queue, &needs, 1);
        self.fuller(nominee.queue, &needs);
        let Some(queue) = self.queues.get_mut(nominee.queue) else {
            return;
        };
        if queue.is_strict() {
            course.closed.insert(nominee.queue);
        }
        queue.parking.remove(nominee.class, &nominee.turn);
        if let Some(waiting) = self.units.waiting_mut(nominee.turn.unit) {
            waiting.claims = true;
        }
        let claim = Claim {
            needs,
            reserve: nominee.reserves,
        };
        course.claims.push((nominee.queue, nominee.turn, claim));
    }

    /// Wakes whom a fuller tree may help.
    fn fuller(&mut self, queue: QueueId, needs: &[(Slot, i128)]) {
        let place = self.queues.get(queue).and_then(|queue| queue.place);
        let Some(tree) = place.and_then(|(tree, _)| self.forest.trees.get(tree)) else {
            return;
        };
        let mut woken = Vec::new();
        for (slot, _) in needs {
            tree.watches.charged(*slot, &mut woken);
        }
        tree.watches.shares_changed(&mut woken);
        tree.watches.others_changed(queue, &mut woken);
        self.wake_all(&woken);
    }

    /// Takes the claims of a pass out of the books; they are remembered for whoever asks, and decided anew by the next
    /// pass in which something changed in their tree.
    fn end_claims(&mut self, claims: Vec<(QueueId, Turn, Claim)>) {
        for (id, turn, claim) in claims {
            self.plan(id, &claim.needs, -1);
            self.touched.push(turn.uid);
            let Some(class) = self.class_of_unit(turn.unit) else {
                continue;
            };
            let Some(queue) = self.queues.get_mut(id) else { continue };
            queue.parking.insert(class, turn);
            queue.claims.insert(turn, claim);
            let place = queue.place;
            self.wake_all(&[(id, class)]);
            if let Some((tree_id, _)) = place
                && let Some(tree) = self.forest.trees.get_mut(tree_id)
            {
                tree.standing.insert(id);
                self.forest.standing.insert(tree_id);
            }
        }
    }

    fn admit(&mut self, nominee: &Nominee) -> Option<Admission> {
        let queue = self.queues.get(nominee.queue)?;
        let (tree, _) = queue.place?;
        let shape = self.shapes.get(nominee.class.shape);
        let flexible = shape.iter().position(|pod_set| pod_set.min_count.is_some());
        let tree = self.forest.trees.get(tree)?;
        let (pod_sets, charges) = if let (Some(count), Some(flexible)) = (nominee.reduced, flexible) {
            let plan = self.reduced_plan(nominee.queue, &shape, flexible, count)?;
            let shape = reduced(&shape, flexible, count);
            plan.assignment(&shape, &nominee.found.chosen, tree, &self.cells)
        } else {
            let plan = queue.parking.class(nominee.class)?.plan.as_ref()?;
            plan.assignment(&shape, &nominee.found.chosen, tree, &self.cells)
        };
        let name = queue.name.clone();
        let held = Held {
            queue: nominee.queue,
            priority: nominee.class.priority,
            queued_at: nominee.turn.queued_at,
            reserved_at: self.now,
            deadlines: Vec::new(),
            ends_at: None,
            pods_ready: false,
            phase: Phase::Assumed,
            charges,
        };
        let local_queue = self.hold(nominee.turn.unit, Box::new(held))?;
        self.counters.admissions += 1;
        let local_queue = self.local_queues.get(local_queue)?.key.clone();
        Some(Admission {
            uid: nominee.turn.uid,
            queue: name,
            local_queue,
            pod_sets,
        })
    }

    /// Tells an admitted unit to stop: from now on it holds its quota only until its pods are gone.
    fn evict(&mut self, unit: UnitId, cause: EvictionCause) -> Option<Eviction> {
        let known = self.units.get(unit)?;
        let (uid, local_queue) = (known.uid, known.local_queue);
        self.delist(unit);
        let held = self.units.held_mut(unit)?;
        let before = held.clone();
        held.phase = Phase::Evicting;
        let name = self.queues.get(before.queue)?.name.clone();
        self.move_books(local_queue, &before, unit);
        self.memory.note_stop(uid);
        self.counters.evictions += 1;
        Some(Eviction {
            uid,
            queue: name,
            cause,
        })
    }

    /// Finds the waiting units whose reason is of another kind than last reported.
    fn settle_reasons(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        self.unsettled.extend(self.dirty.iter().copied());
        for id in std::mem::take(&mut self.unsettled) {
            let Some(queue) = self.queues.get_mut(id) else {
                continue;
            };
            if std::mem::take(&mut queue.resettle) {
                touched.extend(queue.order.iter().map(|turn| turn.uid));
            }
            let head = if queue.is_strict() {
                queue.parking.head().map(|turn| turn.uid)
            } else {
                None
            };
            if head != queue.reported_head {
                touched.extend(std::mem::replace(&mut queue.reported_head, head));
                touched.extend(head);
            }
        }
        for uid in touched {
            let Some(id) = self.units.find(uid) else { continue };
            let Some(kind) = self.kind_of(id) else { continue };
            if let Some(waiting) = self.units.waiting_mut(id)
                && waiting.reported.replace(kind) != Some(kind)
            {
                self.changes.units.insert(uid);
            }
        }
    }
}

/// A unit of `queue` as one that looks for room.
fn asker(id: QueueId, queue: &Queue, turn: Turn, class: ClassKey) -> Option<Asker> {
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
fn reduced(shape: &[PodSetSpec], flexible: usize, count: i64) -> Vec<PodSetSpec> {
    let mut pod_sets = shape.to_vec();
    if let Some(pod_set) = pod_sets.get_mut(flexible) {
        pod_set.count = count;
    }
    pod_sets
}
