//! Where a waiting unit stands: in the order of its queue, and there among those that may be considered, those in
//! back-off, or neither.

use crate::ageing::Pace;
use crate::backfill::rounded_up;
use crate::books::released;
use crate::engine::Engine;
use crate::ids::Time;
use crate::local_queue::{LocalQueue, LocalQueueId};
use crate::order::{Lane, Order, Ranking};
use crate::parking::{ClassId, ClassKey, Parking};
use crate::pass::Course;
use crate::queue::{Queue, QueueId};
use crate::ranked::Turn;
use crate::tree::NodeId;
use crate::units::{Standing, Unit, UnitId, WaitingUnit};
use crate::victims::Needs;

impl Engine {
    /// What a waiting unit has in common with those that are judged with it.
    pub(crate) fn class_of(&self, unit: &Unit, waiting: &WaitingUnit) -> ClassKey {
        ClassKey {
            shape: waiting.shape,
            priority: waiting.priority,
            evicted_by: self.memory.evicted_by(unit.uid, waiting.priority),
            claims: waiting.claims,
            lane: self.lane_of(unit.local_queue),
            longest: self.longest(unit, waiting),
        }
    }

    fn longest(&self, unit: &Unit, waiting: &WaitingUnit) -> Option<i64> {
        let longest = waiting.runs_at_most_ms()?;
        let queue = self.local_queues.get(unit.local_queue)?.queue()?;
        let keeps_ends = self.queues.get(queue).is_some_and(|queue| queue.keeps_ends);
        keeps_ends.then(|| rounded_up(longest))
    }

    /// Tells the units of a queue apart by how long they may run, or no longer. Everything in it is active.
    pub(crate) fn key_by_ends(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(id) else { return };
        let tree = queue.place.and_then(|(tree, _)| self.forest.trees.get(tree));
        let keeps_ends = tree.is_some_and(|tree| tree.is_backfilled);
        if queue.keeps_ends == keeps_ends {
            return;
        }
        let ready: Vec<Turn> = queue
            .order
            .iter(&queue.ranking, self.aged_to)
            .filter(|turn| {
                let waiting = self.units.waiting(turn.unit).map(|(_, waiting)| waiting);
                waiting
                    .is_some_and(|waiting| waiting.standing == Standing::Ready && waiting.runs_at_most_ms().is_some())
            })
            .collect();
        let before: Vec<Option<ClassKey>> = ready.iter().map(|turn| self.class_of_unit(turn.unit)).collect();
        if let Some(queue) = self.queues.get_mut(id) {
            queue.keeps_ends = keeps_ends;
        }
        for (turn, before) in ready.into_iter().zip(before) {
            let after = self.class_of_unit(turn.unit);
            if let (Some(before), Some(after), Some(queue)) = (before, after, self.queues.get_mut(id)) {
                if let Some(before) = queue.parking.find(before) {
                    queue.parking.remove(before, &turn);
                }
                queue.parking.insert(after, turn);
            }
        }
    }

    pub(crate) fn class_of_unit(&self, id: UnitId) -> Option<ClassKey> {
        let (unit, waiting) = self.units.waiting(id)?;
        Some(self.class_of(unit, waiting))
    }

    /// Puts a waiting unit where it belongs: into the order of its queue, and there among those that may be
    /// considered, those in back-off, or neither.
    pub(crate) fn place(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (turn, lane) = (waiting.turn(unit.uid, id), self.lane_of(unit.local_queue));
        self.touched.push(id);
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        let Some(queue_id) = local_queue.queue() else { return };
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        queue.let_age(self.aged_to);
        queue.order.insert(lane, turn);
        if local_queue.order.len() == 0 {
            local_queue.order = Order::new(queue.order.pace());
        }
        local_queue.order.let_age(self.aged_to);
        local_queue.order.insert(None, turn);
        let standing = if local_queue.is_blocked() || waiting.gate().is_some() {
            Standing::Aside
        } else if let Some(until) = waiting.not_before() {
            self.timers.insert((until, id));
            Standing::BackOff
        } else {
            Standing::Ready
        };
        if let Some(waiting) = self.units.waiting_mut(id) {
            waiting.standing = standing;
            waiting.claims = false;
        }
        self.note_rise(queue_id, turn);
        if standing == Standing::Ready {
            self.make_ready(id);
        }
        self.mark_queue(queue_id);
    }

    /// Puts a unit among those that may be considered.
    fn make_ready(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (turn, class) = (waiting.turn(unit.uid, id), self.class_of(unit, waiting));
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        let Some(queue_id) = local_queue.queue() else { return };
        local_queue.ready += 1;
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        if let Some(class) = queue.parking.insert(class, turn)
            && (queue.may_preempt() || queue.is_backfilled())
        {
            // A new first unit was queued earlier: whom it may evict need not be whom the others may, and a reservation that
            // these are behind need not be ahead of it.
            self.wake_all(&[(queue_id, class)]);
        }
        self.dirty.insert(queue_id);
    }

    /// The opposite of [`Engine::place`].
    pub(crate) fn withdraw(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (turn, standing) = (waiting.turn(unit.uid, id), waiting.standing);
        let (until, class) = (waiting.not_before(), self.class_of(unit, waiting));
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        let Some(queue_id) = local_queue.queue() else { return };
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        queue.order.remove(class.lane, &turn);
        local_queue.order.remove(None, &turn);
        queue.preemptors.remove(&turn);
        queue.blockers.retain(|(blocker, _)| *blocker != turn);
        match (standing, until) {
            (Standing::Ready, _) => {
                local_queue.ready -= 1;
                if let Some(id) = queue.parking.find(class)
                    && let Some(stuck) = queue.parking.remove(id, &turn)
                    && let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree))
                {
                    tree.watches.remove((queue_id, id), class.priority, &stuck.wakes);
                }
                // In a StrictFIFO queue the next one may be the head now.
                self.dirty.insert(queue_id);
            }
            (Standing::BackOff, Some(until)) => {
                self.timers.remove(&(until, id));
            }
            (Standing::BackOff | Standing::Aside | Standing::Lost, _) => {}
        }
        self.forget_rise(queue_id, turn);
        self.drop_claim(queue_id, &turn);
        if let Some(waiting) = self.units.waiting_mut(id) {
            waiting.standing = Standing::Lost;
        }
        self.mark_queue(queue_id);
    }

    /// Lets a unit whose back-off is over be considered again.
    pub(crate) fn end_back_off(&mut self, id: UnitId) {
        let Some((unit, _)) = self.units.waiting(id) else {
            return;
        };
        let local_queue = unit.local_queue;
        self.make_ready(id);
        if let Some(waiting) = self.units.waiting_mut(id) {
            waiting.standing = Standing::Ready;
        }
        self.touched.push(id);
        if let Some(queue) = self.local_queues.get(local_queue).and_then(LocalQueue::queue) {
            self.mark_queue(queue);
        }
        self.mark_local_queue(local_queue);
    }

    /// Forgets the claim of a unit; what it kept from others is theirs to look at again.
    pub(crate) fn drop_claim(&mut self, queue_id: QueueId, turn: &Turn) {
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        let Some(claim) = queue.claims.remove(turn) else { return };
        let none_left = queue.claims.is_empty();
        let Some((tree, _)) = queue.place else { return };
        let Some(tree) = self.forest.trees.get_mut(tree) else {
            return;
        };
        if none_left {
            tree.standing.remove(&queue_id);
        }
        let needs = claim.needs;
        self.wake_after(queue_id, &needs);
    }

    /// Wakes whom it may help that less is claimed of these cells than before.
    pub(crate) fn wake_after(&mut self, queue_id: QueueId, needs: &Needs) {
        let place = self.queues.get(queue_id).and_then(|queue| queue.place);
        let Some((tree, node)) = place.and_then(|(tree, node)| Some((self.forest.trees.get_mut(tree)?, node))) else {
            return;
        };
        let mut woken = Vec::new();
        for (slot, _) in needs {
            released(tree, node, NodeId::ROOT, *slot, &mut woken);
        }
        tree.watches.shares_changed(&mut woken);
        self.wake_all(&woken);
    }

    /// Puts the units of a queue in order anew if they age otherwise than before, or past usage counts where it did not.
    pub(crate) fn reorder(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(id) else { return };
        let ageing = queue.spec.as_ref().and_then(|spec| spec.extras.ageing);
        let by_usage = queue.spec.as_ref().is_some_and(|spec| spec.by_past_usage) && self.settings.past_usage.is_some();
        if queue.order.pace().is_of(ageing) && queue.by_past_usage == by_usage {
            return;
        }
        let preemptors = queue.preemptors.clone();
        let units: Vec<UnitId> = self.in_order(queue).map(|turn| turn.unit).collect();
        for unit in &units {
            self.withdraw(*unit);
        }
        if let Some(queue) = self.queues.get_mut(id) {
            let pace = Pace::new(ageing, self.aged_to);
            (queue.order, queue.parking) = (Order::new(pace), Parking::new(pace));
            (queue.by_past_usage, queue.ranking) = (by_usage, Ranking::default());
        }
        self.revalue_all(id);
        for unit in units {
            self.place(unit);
        }
        if let Some(queue) = self.queues.get_mut(id) {
            queue.preemptors = preemptors;
        }
    }

    /// All units that wait in a queue, in order.
    pub(crate) fn in_order<'a>(&self, queue: &'a Queue) -> impl Iterator<Item = Turn> + 'a {
        queue.order.iter(&queue.ranking, self.aged_to)
    }

    /// The lane of the units of a LocalQueue.
    pub(crate) fn lane_of(&self, local_queue: LocalQueueId) -> Lane {
        let queue = self.local_queues.get(local_queue).and_then(LocalQueue::queue);
        let by_usage = self.queues.get(queue?)?.by_past_usage;
        by_usage.then_some(local_queue)
    }

    /// The first of the preemptors of a queue that can be asked, in queue order.
    pub(crate) fn first_preemptor(&self, queue: &Queue, course: &Course) -> Option<(Turn, ClassId)> {
        let mut askable = queue.preemptors.keys().filter_map(|turn| {
            let class = queue.parking.find(self.class_of_unit(turn.unit)?)?;
            let known = queue.parking.class(class)?;
            let askable = known.parked().is_none() && known.units.contains(turn);
            (askable && !course.tried.contains(&turn.unit)).then_some((*turn, class))
        });
        if !queue.order.pace().is_on() && !queue.by_past_usage {
            return askable.next();
        }
        let seat = |turn| queue.order.pace().seat(turn, self.aged_to);
        let lane = |class| queue.parking.class(class).and_then(|class| class.key.lane);
        askable.min_by_key(|(turn, class)| (queue.ranking.of(lane(*class)), seat(*turn)))
    }
}

impl Queue {
    /// The first unit that may be considered at `now`.
    pub(crate) fn first(&self, now: Time) -> Option<(Turn, ClassId)> {
        self.parking.head(&self.ranking, now)
    }
}
