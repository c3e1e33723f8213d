//! Writing what units hold into the books, and waking whom a change of these may help.

use crate::Time;
use crate::engine::Engine;
use crate::local_queue::LocalQueueId;
use crate::queue::QueueId;
use crate::quota::{Books, CellId};
use crate::spec::Phase;
use crate::tree::{Book, NodeId, Slot, Tree};
use crate::units::{Body, Held, UnitId};
use crate::victims::{Needs, Rank};
use crate::watch::Parked;

impl Engine {
    /// Takes in that a unit that holds quota holds the same and is further in its life, or otherwise another.
    pub(crate) fn recharge(&mut self, id: UnitId, held: Held) {
        self.delist(id);
        let Some(unit) = self.units.get_mut(id) else { return };
        let local_queue = unit.local_queue;
        let Body::Charged(known) = &mut unit.body else { return };
        let before = std::mem::replace(&mut **known, held);
        self.move_books(local_queue, &before, id);
        self.enlist(id);
        let end = self.units.held(id).and_then(Held::known_end);
        if end != before.known_end() {
            self.wake_after(before.queue, &Needs::new());
        }
    }

    /// Moves what a unit holds from where `before` counted to where it counts now.
    pub(crate) fn move_books(&mut self, local_queue: LocalQueueId, before: &Held, id: UnitId) {
        let Some(held) = self.units.held(id) else { return };
        let (phase, unready) = (held.phase, held.awaits_pods());
        let (queue_id, charges) = (before.queue, &before.charges);
        if let Some(queue) = self.queues.get_mut(queue_id) {
            queue.books.advance(charges, before.phase, phase);
        }
        if let Some(known) = self.local_queues.get_mut(local_queue) {
            known.books.advance(charges, before.phase, phase);
        }
        self.mark_queue(queue_id);
        self.mark_local_queue(local_queue);
        match (before.phase == Phase::Evicting, phase == Phase::Evicting) {
            (false, true) => self.charge_tree(queue_id, charges, -1, &[Book::Planned]),
            (true, false) => self.charge_tree(queue_id, charges, 1, &[Book::Planned]),
            _ => {}
        }
        self.unready += usize::from(unready);
        self.no_longer_unready(before);
    }

    /// Writes what a unit holds into the books and its tree.
    pub(crate) fn charge(&mut self, local_queue: LocalQueueId, held: &Held) {
        self.enter(local_queue, held.queue, &held.charges, held.phase);
        self.charge_held(held, 1);
        self.unready += usize::from(held.awaits_pods());
    }

    /// Strikes what a unit held out of the books and its tree, and wakes whom that may help.
    pub(crate) fn release(&mut self, local_queue: LocalQueueId, held: &Held) {
        self.strike(local_queue, held.queue, &held.charges, held.phase);
        self.charge_held(held, -1);
        self.no_longer_unready(held);
    }

    fn charge_held(&mut self, held: &Held, times: i128) {
        let evicting = held.phase == Phase::Evicting;
        let books: &[Book] = if evicting {
            &[Book::Held]
        } else {
            &[Book::Held, Book::Planned]
        };
        self.charge_tree(held.queue, &held.charges, times, books);
    }

    /// Writes what a unit holds into the books of its queue and its LocalQueue.
    fn enter(&mut self, local_queue: LocalQueueId, queue: QueueId, charges: &[(CellId, crate::Amount)], phase: Phase) {
        self.write_books(local_queue, queue, |books| books.charge(charges, phase));
    }

    /// The opposite of [`Engine::enter`].
    fn strike(&mut self, local_queue: LocalQueueId, queue: QueueId, charges: &[(CellId, crate::Amount)], phase: Phase) {
        self.write_books(local_queue, queue, |books| books.release(charges, phase));
    }

    fn write_books(&mut self, local_queue: LocalQueueId, queue_id: QueueId, write: impl Fn(&mut Books)) {
        if let Some(queue) = self.queues.get_mut(queue_id) {
            write(&mut queue.books);
        }
        if let Some(known) = self.local_queues.get_mut(local_queue) {
            write(&mut known.books);
        }
        self.mark_queue(queue_id);
        self.mark_local_queue(local_queue);
        if self.settings.past_usage.is_some() {
            self.books_changed.insert(local_queue);
        }
    }

    /// Counts off a unit that may have awaited its pods.
    fn no_longer_unready(&mut self, held: &Held) {
        if held.awaits_pods() {
            self.unready -= 1;
            self.pods_came();
        }
    }

    /// Whoever was kept waiting for pods of others may be admitted now.
    fn pods_came(&mut self) {
        if self.unready == 0 && self.settings.block_admission {
            self.dirty.append(&mut self.held_back);
        }
    }

    /// Adds to what a queue uses (`times` 1) or takes away (-1), and wakes whom that may help.
    fn charge_tree(&mut self, queue: QueueId, charges: &[(CellId, crate::Amount)], times: i128, books: &[Book]) {
        let Some((tree_id, node)) = self.queues.get(queue).and_then(|queue| queue.place) else {
            return;
        };
        let Some(tree) = self.forest.trees.get_mut(tree_id) else {
            return;
        };
        let planned = books.contains(&Book::Planned);
        let mut woken = std::mem::take(&mut self.buffers.woken);
        for (cell, amount) in charges {
            let slot = tree.slot(self.cells.with_resource(*cell));
            let amount = amount.wide().saturating_mul(times);
            let mut last = node;
            for book in books {
                last = tree.charge(node, slot, amount, *book);
            }
            if !planned {
                continue;
            }
            if times > 0 {
                tree.watches.charged(slot, &mut woken);
            } else {
                // With claims on top, less may be seen further up as well.
                let last = if tree.standing.is_empty() { last } else { NodeId::ROOT };
                released(tree, node, last, slot, &mut woken);
            }
        }
        if planned {
            tree.watches.shares_changed(&mut woken);
            if times > 0 {
                tree.watches.others_changed(queue, &mut woken);
            }
        }
        self.wake_all(&woken);
        woken.clear();
        self.buffers.woken = woken;
    }

    pub(crate) fn wake_all(&mut self, woken: &[Parked]) {
        for (queue_id, class) in woken {
            let Some(queue) = self.queues.get_mut(*queue_id) else {
                continue;
            };
            let Some(known) = queue.parking.class(*class) else {
                continue;
            };
            let (parked, priority) = (known.parked().is_some(), known.key.priority);
            if known.stuck.as_ref().is_some_and(|stuck| stuck.wakes.is_room_alone()) {
                queue.parking.stir(*class);
            } else if let Some(stuck) = queue.parking.wake(*class)
                && let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree))
            {
                tree.watches.remove((*queue_id, *class), priority, &stuck.wakes);
            }
            if !parked {
                continue;
            }
            self.counters.wakes += 1;
            self.dirty.insert(*queue_id);
        }
    }

    /// Notes an admitted unit where admitted ones are looked for.
    pub(crate) fn enlist(&mut self, id: UnitId) {
        let Some(unit) = self.units.get(id) else { return };
        let (uid, local_queue) = (unit.uid, unit.local_queue);
        let Some(held) = self.units.held(id) else { return };
        if let (Some(end), Some(queue)) = (held.known_end(), self.queues.get_mut(held.queue))
            && held.phase != Phase::Evicting
        {
            queue.ends.insert((end, id));
        }
        if held.phase != Phase::Admitted {
            return;
        }
        if let Some(at) = held.deadlines.iter().map(|deadline| deadline.at).min() {
            self.deadlines.insert((at, id));
        }
        let rank = held.rank(uid, id);
        if let Some(queue) = self.queues.get_mut(held.queue) {
            queue.running.insert(rank);
            if queue.min_run_ms() > 0 {
                let settled = Time(held.reserved_at.0.saturating_add(queue.min_run_ms()));
                self.settling.insert((settled, id));
            }
        }
        if let Some(local_queue) = self.local_queues.get_mut(local_queue) {
            local_queue.running.insert(id);
        }
        self.show_victim(id);
    }

    /// The opposite of [`Engine::enlist`].
    pub(crate) fn delist(&mut self, id: UnitId) {
        let Some(unit) = self.units.get(id) else { return };
        let (uid, local_queue) = (unit.uid, unit.local_queue);
        let Some(held) = self.units.held(id) else { return };
        if let (Some(end), Some(queue)) = (held.known_end(), self.queues.get_mut(held.queue)) {
            queue.ends.remove(&(end, id));
        }
        if held.phase != Phase::Admitted {
            return;
        }
        for deadline in &held.deadlines {
            self.deadlines.remove(&(deadline.at, id));
        }
        let rank = held.rank(uid, id);
        if let Some(queue) = self.queues.get_mut(held.queue) {
            queue.running.remove(&rank);
            let settled = Time(held.reserved_at.0.saturating_add(queue.min_run_ms()));
            self.settling.remove(&(settled, id));
        }
        if let Some(local_queue) = self.local_queues.get_mut(local_queue) {
            local_queue.running.remove(&id);
        }
    }

    /// A queue's minimum run time may have changed.
    pub(crate) fn relist_running(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get(id) else { return };
        let running: Vec<Rank> = queue.running.iter().copied().collect();
        let min_run_ms = queue.min_run_ms();
        self.settling
            .retain(|(_, unit)| !running.iter().any(|rank| rank.unit == *unit));
        if min_run_ms > 0 {
            let settled = |rank: &Rank| (Time(rank.reserved_at.0.0.saturating_add(min_run_ms)), rank.unit);
            self.settling.extend(running.iter().map(settled));
        }
    }

    /// A unit that may be evicted appeared, or may be again: whoever could use that is woken.
    pub(crate) fn show_victim(&mut self, id: UnitId) {
        let Some(held) = self.units.held(id) else { return };
        if held.phase != Phase::Admitted {
            return;
        }
        let (queue, priority) = (held.queue, held.priority);
        let place = self.queues.get(queue).and_then(|queue| queue.place);
        let Some(tree) = place.and_then(|(tree, _)| self.forest.trees.get(tree)) else {
            return;
        };
        let mut woken = std::mem::take(&mut self.buffers.woken);
        tree.watches.victim(queue, priority, &mut woken);
        tree.watches.shares_changed(&mut woken);
        self.wake_all(&woken);
        woken.clear();
        self.buffers.woken = woken;
    }
}

/// Who may be helped by a lower use of a slot at a node and those above it, up to `last`.
pub(crate) fn released(tree: &mut Tree, node: NodeId, last: NodeId, slot: Slot, woken: &mut Vec<Parked>) {
    let mut next = Some(node);
    while let Some(node) = next {
        let available = tree.passes(node, slot);
        tree.watches.with_room(node, slot, available, woken);
        tree.watches.released(node, slot, woken);
        next = tree.node(node).parent.filter(|_| node != last);
    }
}
