//! A pass: who may start now, and who must stop: `docs/scheduling.md`, sections 2, 5 and 6.

use std::collections::{BTreeMap, BTreeSet};

use crate::backfill::Reservation;
use crate::books::released;
use crate::engine::Engine;
use crate::fairness::{Entrant, winner};
use crate::ids::{Name, Time, Uid};
use crate::nominate::Nominee;
use crate::queue::{Claim, QueueId};
use crate::ranked::Turn;
use crate::report::{Action, EvictionCause, Pass, WaitKind};
use crate::tree::{NodeId, Slot, TreeId};
use crate::units::UnitId;
use crate::watch::Parked;

/// Lists that passes fill and empty again: kept so that their memory is.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Queues to be asked.
    open: Vec<QueueId>,
    unsettled: Vec<QueueId>,
    nominees: Vec<Nominee>,
    /// The nominees' level, none for preemptors, their place in the queue order, and which of them it is.
    order: Vec<(Option<u32>, Turn, usize)>,
    /// Whom something wakes.
    pub(crate) woken: Vec<Parked>,
}

/// What a pass keeps until its end.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) actions: Vec<Action>,
    pub(crate) claims: Vec<(QueueId, Turn, Claim)>,
    /// Units with claims that block others, where units are asked by pool.
    pub(crate) blockers: BTreeMap<QueueId, Vec<(Turn, Vec<Slot>)>>,
    /// What is reserved for the first unit that has no outcome, where others may pass it.
    pub(crate) reserved: BTreeMap<QueueId, Reservation>,
    /// StrictFIFO queues whose first unit has a claim.
    pub(crate) closed: BTreeSet<QueueId>,
    /// Preemptors that were asked and have no outcome.
    pub(crate) tried: BTreeSet<UnitId>,
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
        self.shrink(&mut course.actions);
        let mut open = std::mem::take(&mut self.buffers.open);
        self.begin_cycles(&mut open);
        while !open.is_empty() && course.actions.len() < limit && !self.is_held_back() {
            self.counters.cycles += 1;
            let mut nominees = std::mem::take(&mut self.buffers.nominees);
            nominees.extend(open.drain(..).filter_map(|queue| self.nominate(queue, &mut course)));
            open.extend(nominees.iter().map(|nominee| nominee.queue));
            let before = (course.actions.len(), course.claims.len());
            course.actions.reserve(nominees.len());
            self.take_all(&mut nominees, &mut course);
            self.buffers.nominees = nominees;
            self.unsettled.extend(self.dirty.iter());
            self.dirty.take_into(&mut open);
            open.sort_unstable();
            open.dedup();
            if before == (course.actions.len(), course.claims.len()) {
                break;
            }
        }
        if self.is_held_back() {
            self.held_back.extend(open.drain(..));
        }
        self.end_claims(std::mem::take(&mut course.claims));
        self.note_held();
        self.settle_reasons();
        self.dirty.clear();
        self.dirty.extend(open.drain(..));
        self.buffers.open = open;
        Pass {
            actions: course.actions,
            next: self.next_instant(),
        }
    }

    /// Brings up to date what [`Engine::take_changed`] tells and how old units and what LocalQueues used are, and decides
    /// nothing: for a caller that only follows.
    pub fn settle(&mut self, now: Time) {
        self.now = now;
        self.let_time_pass(now);
        self.note_held();
        self.settle_reasons();
    }

    fn let_time_pass(&mut self, now: Time) {
        self.let_age(now);
        self.sample();
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
        let first = [first(&self.timers), first(&self.deadlines), first(&self.settling)];
        let head_change = self.head_changes.first().map(|(at, _)| *at);
        let others = [head_change, self.next_shrink()];
        first.into_iter().chain(others).flatten().min()
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

    /// Whether nothing may be decided before the pods of others are ready.
    pub(crate) fn is_held_back(&self) -> bool {
        self.settings.block_admission && self.unready > 0
    }

    /// Adds the queues to be asked: those in which something may have changed, and those with claims, which are decided anew.
    fn begin_cycles(&mut self, open: &mut Vec<QueueId>) {
        for tree in std::mem::take(&mut self.forest.standing) {
            self.void_claims(tree);
        }
        self.unsettled.extend(self.dirty.iter());
        self.dirty.take_into(open);
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
                self.touched.push(turn.unit);
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

    /// Takes the nominees one by one in the order that the rules say; leaves nobody.
    fn take_all(&mut self, nominees: &mut Vec<Nominee>, course: &mut Course) {
        if self.settings.fair_sharing.is_some() {
            return self.take_by_tournament(nominees, course);
        }
        // What is sorted is small; the nominees themselves are not.
        let mut order = std::mem::take(&mut self.buffers.order);
        for (index, nominee) in nominees.iter().enumerate() {
            // Room that was made for somebody is that unit's, whoever else would come first.
            let level = if self.is_preemptor(nominee) {
                None
            } else {
                Some(nominee.found.level)
            };
            order.push((level, nominee.turn, index));
        }
        order.sort_unstable();
        for (_, _, index) in order.drain(..) {
            self.take(&nominees[index], course);
        }
        self.buffers.order = order;
        nominees.clear();
    }

    /// The same with fair sharing: preemptors first as well, then tree by tree.
    fn take_by_tournament(&mut self, nominees: &mut Vec<Nominee>, course: &mut Course) {
        let (mut preemptors, nominees): (Vec<Nominee>, Vec<Nominee>) =
            nominees.drain(..).partition(|nominee| self.is_preemptor(nominee));
        preemptors.sort_unstable_by_key(|nominee| nominee.turn);
        for nominee in preemptors {
            self.take(&nominee, course);
        }
        let mut by_tree: BTreeMap<TreeId, Vec<Nominee>> = BTreeMap::new();
        for nominee in nominees {
            if let Some((tree, _)) = self.queues.get(nominee.queue).and_then(|queue| queue.place) {
                by_tree.entry(tree).or_default().push(nominee);
            }
        }
        let mut by_tree: Vec<(TreeId, Vec<Nominee>)> = by_tree.into_iter().collect();
        by_tree.sort_by_cached_key(|(tree, _)| self.first_queue_of(*tree));
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
    fn first_queue_of(&self, tree: TreeId) -> Option<Name> {
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

    /// A unit of a class that is still to be examined is said to wait for that: what its class is found to wait for then is
    /// news for it, even if it is none for the others.
    fn forget_kind(&mut self, id: UnitId) {
        let Some(key) = self.class_of_unit(id) else { return };
        let local_queue = self.units.get(id).map(|unit| unit.local_queue);
        let queue = local_queue.and_then(|id| self.local_queues.get(id)?.queue());
        let Some(queue) = queue.and_then(|queue| self.queues.get_mut(queue)) else {
            return;
        };
        // Asked by pool, those who wait behind others are in no class that is parked.
        queue.resettle |= queue.is_by_pool();
        if let Some(class) = queue.parking.find(key)
            && let Some(class) = queue.parking.class_mut(class)
        {
            class.kind = None;
        }
    }

    /// Finds the waiting units whose reason is of another kind than last reported.
    fn settle_reasons(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        self.unsettled.extend(self.dirty.iter());
        let mut unsettled = std::mem::take(&mut self.buffers.unsettled);
        self.unsettled.take_into(&mut unsettled);
        for id in unsettled.drain(..) {
            let Some(queue) = self.queues.get_mut(id) else {
                continue;
            };
            if std::mem::take(&mut queue.resettle) {
                touched.extend(queue.order.iter(&queue.ranking, self.aged_to).map(|turn| turn.unit));
            }
            let head = if queue.has_blocking_head() {
                queue.first(self.aged_to).map(|(turn, _)| turn)
            } else {
                None
            };
            if head.map(|turn| turn.uid) != queue.reported_head {
                let before = std::mem::replace(&mut queue.reported_head, head.map(|turn| turn.uid));
                touched.extend(before.and_then(|uid| self.units.find(uid)));
                touched.extend(head.map(|turn| turn.unit));
            }
            self.note_head_change(id);
        }
        self.buffers.unsettled = unsettled;
        for id in touched.drain(..) {
            let Some(kind) = self.kind_of(id) else { continue };
            if matches!(kind, WaitKind::Pending | WaitKind::PodsNotReady) {
                self.forget_kind(id);
            }
            let Some(uid) = self.units.get(id).map(|unit| unit.uid) else {
                continue;
            };
            if let Some(waiting) = self.units.waiting_mut(id)
                && waiting.reported.replace(kind) != Some(kind)
            {
                self.changes.units.insert(uid);
            }
        }
        self.touched = touched;
    }
}
