//! The engine's state, and how events change it.

use std::collections::{BTreeMap, BTreeSet};

use crate::arena::Column;
use crate::flavors::FlavorSpec;
use crate::ids::{LocalQueueKey, Name, Time, Uid};
use crate::local_queue::{LocalQueueId, LocalQueues};
use crate::queue::{QueueId, Queues};
use crate::quota::{Book, Cells, FlavorId};
use crate::report::{Changed, Counters, WaitKind};
use crate::shapes::Shapes;
use crate::spec::{ChargedUnit, Event, LocalQueueSpec, QueueSpec, UnitSpec};
use crate::units::{Aside, Body, Held, Standing, Unit, UnitId, Units, WaitingUnit};

/// The brain: quota, queues and units, and the decisions about them.
///
/// [`Engine::apply`] tells it what the world is like now, [`Engine::pass`] asks what to do. Events are states, not
/// changes: applying one twice is the same as once, and the order between different things does not matter.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) cells: Cells,
    pub(crate) flavors: Column<FlavorId, Option<FlavorSpec>>,
    /// Which queues name a flavor.
    flavor_users: Column<FlavorId, BTreeSet<QueueId>>,
    pub(crate) shapes: Shapes,
    pub(crate) queues: Queues,
    pub(crate) local_queues: LocalQueues,
    pub(crate) units: Units,
    /// Units in back-off by when it ends.
    pub(crate) timers: BTreeSet<(Time, UnitId)>,
    /// Queues in which the next pass may find something to do.
    pub(crate) dirty: BTreeSet<QueueId>,
    /// Units whose reason to wait may have changed since the last pass.
    pub(crate) touched: Vec<Uid>,
    pub(crate) changes: Changes,
    pub(crate) counters: Counters,
}

/// What changed since the caller last asked.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    queues: BTreeMap<Name, QueueId>,
    local_queues: BTreeMap<LocalQueueKey, LocalQueueId>,
    pub(crate) units: BTreeSet<Uid>,
}

/// What a unit was before it was taken out.
#[derive(Debug)]
struct Former {
    local_queue: LocalQueueId,
    /// The queue that it was charged to.
    queue: Option<QueueId>,
    /// The reason last reported for it.
    reported: Option<WaitKind>,
}

impl Engine {
    /// An engine that knows of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one event. Decides nothing: that is what [`Engine::pass`] does.
    pub fn apply(&mut self, event: Event) {
        self.counters.events += 1;
        match event {
            Event::SetFlavor(spec) => {
                let id = self.cells.flavors.intern(&spec.name);
                self.replace_flavor(id, Some(spec));
            }
            Event::RemoveFlavor(name) => {
                if let Some(id) = self.cells.flavors.find(&name) {
                    self.replace_flavor(id, None);
                }
            }
            Event::SetQueue(spec) => {
                let id = self.queues.ensure(&spec.name);
                self.replace_queue(id, Some(spec));
            }
            Event::RemoveQueue(name) => {
                if let Some(id) = self.queues.find(&name) {
                    self.replace_queue(id, None);
                    self.collect_queue(id);
                }
            }
            Event::SetCohort(_) | Event::RemoveCohort(_) | Event::SetSettings(_) => {}
            Event::SetLocalQueue(spec) => {
                let id = self.local_queues.ensure(&spec.key);
                self.replace_local_queue(id, Some(spec));
            }
            Event::RemoveLocalQueue(key) => {
                if let Some(id) = self.local_queues.find(&key) {
                    self.replace_local_queue(id, None);
                    self.local_queues.collect(id);
                }
            }
            Event::SetWaiting(spec) => self.set_waiting(spec),
            Event::SetCharged(unit) => self.set_charged(unit),
            Event::RemoveUnit(uid) => {
                self.changes.units.remove(&uid);
                if let Some(former) = self.units.find(uid).and_then(|id| self.take_out(id)) {
                    self.collect_former(&former);
                }
            }
        }
    }

    /// What changed since this was last called, and forgets it.
    pub fn take_changed(&mut self) -> Changed {
        let Changes {
            queues,
            local_queues,
            units,
        } = std::mem::take(&mut self.changes);
        for id in queues.values() {
            if let Some(queue) = self.queues.get_mut(*id) {
                queue.changed = false;
            }
        }
        for id in local_queues.values() {
            if let Some(local_queue) = self.local_queues.get_mut(*id) {
                local_queue.changed = false;
            }
        }
        Changed {
            queues: queues.into_keys().collect(),
            local_queues: local_queues.into_keys().collect(),
            units: units.into_iter().collect(),
        }
    }

    /// How much work was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn mark_queue(&mut self, id: QueueId) {
        if let Some(queue) = self.queues.get_mut(id)
            && !queue.changed
        {
            queue.changed = true;
            self.changes.queues.insert(queue.name.clone(), id);
        }
    }

    fn mark_local_queue(&mut self, id: LocalQueueId) {
        if let Some(local_queue) = self.local_queues.get_mut(id)
            && !local_queue.changed
        {
            local_queue.changed = true;
            self.changes.local_queues.insert(local_queue.key.clone(), id);
        }
    }

    fn replace_flavor(&mut self, id: FlavorId, spec: Option<FlavorSpec>) {
        let known = self.flavors.entry(id);
        if *known == spec {
            return;
        }
        *known = spec;
        for queue in self.flavor_users.entry(id).clone() {
            self.refresh(queue);
        }
    }

    fn replace_queue(&mut self, id: QueueId, spec: Option<QueueSpec>) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        if queue.spec == spec {
            return;
        }
        for flavor in queue.flavors() {
            self.flavor_users.entry(flavor).remove(&id);
        }
        let before = (queue.spec.is_some(), queue.is_strict());
        queue.set_spec(spec, &mut self.cells);
        queue.resettle |= before != (queue.spec.is_some(), queue.is_strict());
        for flavor in queue.flavors() {
            self.flavor_users.entry(flavor).insert(id);
        }
        self.refresh(id);
    }

    /// Looks at a queue with fresh eyes: its state, and everything parked in it.
    fn refresh(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        let state = queue.find_state(&self.flavors, &self.cells);
        queue.resettle |= state.is_ok() != queue.state.is_ok();
        queue.state = state;
        self.counters.wakes += queue.parking.reset();
        let local_queues = queue.local_queues.clone();
        self.dirty.insert(id);
        self.mark_queue(id);
        for local_queue in local_queues {
            self.mark_local_queue(local_queue);
        }
    }

    fn collect_queue(&mut self, id: QueueId) {
        if self.queues.collect(id) {
            // The id may name another queue soon.
            self.dirty.remove(&id);
        }
    }

    fn collect_former(&mut self, former: &Former) {
        self.local_queues.collect(former.local_queue);
        if let Some(queue) = former.queue {
            self.collect_queue(queue);
        }
    }

    fn replace_local_queue(&mut self, id: LocalQueueId, spec: Option<LocalQueueSpec>) {
        let resolved = spec.map(|spec| {
            let queue = self.queues.ensure(&spec.queue);
            (spec, queue)
        });
        let Some(local_queue) = self.local_queues.get_mut(id) else {
            return;
        };
        if local_queue.spec == resolved {
            return;
        }
        let places = |spec: &Option<(LocalQueueSpec, QueueId)>| {
            spec.as_ref().map(|(spec, queue)| (*queue, spec.blocked.is_some()))
        };
        let (from, to) = (places(&local_queue.spec), places(&resolved));
        let moved: Vec<UnitId> = if from == to {
            Vec::new()
        } else {
            self.units.list(local_queue.first_waiting).collect()
        };
        for unit in &moved {
            self.withdraw(*unit);
        }
        if let Some(local_queue) = self.local_queues.get_mut(id) {
            local_queue.spec = resolved;
        }
        if let Some((queue, _)) = from
            && let Some(left) = self.queues.get_mut(queue)
        {
            left.local_queues.remove(&id);
        }
        if let Some((queue, _)) = to
            && let Some(joined) = self.queues.get_mut(queue)
        {
            joined.local_queues.insert(id);
        }
        for unit in moved {
            self.place(unit);
        }
        self.mark_local_queue(id);
        if let Some((queue, _)) = from {
            self.collect_queue(queue);
        }
    }

    fn set_waiting(&mut self, spec: UnitSpec) {
        let known = self.units.find(spec.uid);
        if known.is_some_and(|id| self.waits_as(id, &spec)) {
            return;
        }
        let local_queue = self.local_queues.ensure(&spec.local_queue);
        let former = known.and_then(|id| self.take_out(id));
        let aside = (spec.gate.is_some() || spec.not_before.is_some()).then(|| {
            Box::new(Aside {
                gate: spec.gate,
                not_before: spec.not_before,
            })
        });
        let waiting = WaitingUnit {
            queued_at: spec.queued_at,
            aside,
            priority: spec.priority,
            shape: self.shapes.acquire(spec.pod_sets),
            before: None,
            after: None,
            standing: Standing::Lost,
            reported: former.as_ref().and_then(|former| former.reported),
        };
        let id = self.units.insert(Unit {
            uid: spec.uid,
            local_queue,
            body: Body::Waiting(waiting),
        });
        if let Some(local_queue) = self.local_queues.get_mut(local_queue) {
            local_queue.waiting += 1;
            self.units.link(id, &mut local_queue.first_waiting);
        }
        self.mark_local_queue(local_queue);
        self.place(id);
        if let Some(former) = former {
            self.collect_former(&former);
        }
    }

    /// Whether a unit already waits exactly as `spec` says.
    fn waits_as(&self, id: UnitId, spec: &UnitSpec) -> bool {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return false;
        };
        waiting.priority == spec.priority
            && waiting.queued_at == spec.queued_at
            && waiting.gate() == spec.gate.as_ref()
            && waiting.not_before() == spec.not_before
            && self
                .local_queues
                .get(unit.local_queue)
                .is_some_and(|known| known.key == spec.local_queue)
            && self.shapes.get(waiting.shape)[..] == spec.pod_sets[..]
    }

    fn set_charged(&mut self, unit: ChargedUnit) {
        let queue = self.queues.ensure(&unit.queue);
        let local_queue = self.local_queues.ensure(&unit.local_queue);
        let mut charges: Vec<_> = unit
            .charges
            .iter()
            .filter(|charge| !charge.amount.is_zero())
            .map(|charge| (self.cells.intern_names(&charge.flavor, &charge.resource), charge.amount))
            .collect();
        charges.sort_unstable();
        let held = Box::new(Held {
            queue,
            priority: unit.priority,
            phase: unit.phase,
            charges,
        });
        let known = self.units.find(unit.uid);
        if let Some(known) = known.and_then(|id| self.units.get(id))
            && known.local_queue == local_queue
            && matches!(&known.body, Body::Charged(before) if *before == held)
        {
            return;
        }
        // The new charge before the old one goes: nothing may seem free in between and wake the parked for nothing.
        self.charge(local_queue, &held);
        self.changes.units.remove(&unit.uid);
        let former = known.and_then(|id| self.take_out(id));
        self.units.insert(Unit {
            uid: unit.uid,
            local_queue,
            body: Body::Charged(held),
        });
        if let Some(former) = former {
            self.collect_former(&former);
        }
    }

    /// Writes what a unit holds into the books of its queue and its LocalQueue.
    pub(crate) fn charge(&mut self, local_queue: LocalQueueId, held: &Held) {
        let book = held.book();
        if let Some(queue) = self.queues.get_mut(held.queue) {
            let mut woken = 0;
            for (cell, amount) in &held.charges {
                let slot = queue.node.charge(*cell, *amount, book);
                woken += queue.parking.filled(slot);
            }
            queue.reserving += 1;
            queue.admitted += usize::from(book == Book::Admitted);
            self.note_woken(held.queue, woken);
        }
        if let Some(local_queue) = self.local_queues.get_mut(local_queue) {
            for (cell, amount) in &held.charges {
                local_queue.books.charge(*cell, *amount, book);
            }
            local_queue.reserving += 1;
            local_queue.admitted += usize::from(book == Book::Admitted);
        }
        self.mark_queue(held.queue);
        self.mark_local_queue(local_queue);
    }

    /// Strikes what a unit held out of the books, and wakes whom that may help.
    fn release(&mut self, local_queue: LocalQueueId, held: &Held) {
        let book = held.book();
        if let Some(queue) = self.queues.get_mut(held.queue) {
            let mut woken = 0;
            for (cell, amount) in &held.charges {
                let slot = queue.node.release(*cell, *amount, book);
                woken += queue.parking.freed(slot, queue.node.free(slot));
            }
            queue.reserving -= 1;
            queue.admitted -= usize::from(book == Book::Admitted);
            self.note_woken(held.queue, woken);
        }
        if let Some(local_queue) = self.local_queues.get_mut(local_queue) {
            for (cell, amount) in &held.charges {
                local_queue.books.release(*cell, *amount, book);
            }
            local_queue.reserving -= 1;
            local_queue.admitted -= usize::from(book == Book::Admitted);
        }
        self.mark_queue(held.queue);
        self.mark_local_queue(local_queue);
    }

    fn note_woken(&mut self, queue: QueueId, woken: u64) {
        if woken > 0 {
            self.counters.wakes += woken;
            self.dirty.insert(queue);
        }
    }

    /// Removes a unit with all that it held or waited for.
    fn take_out(&mut self, id: UnitId) -> Option<Former> {
        let reported = self.stop_waiting(id);
        let unit = self.units.remove(id)?;
        let mut queue = None;
        if let Body::Charged(held) = &unit.body {
            queue = Some(held.queue);
            self.release(unit.local_queue, held);
        }
        Some(Former {
            local_queue: unit.local_queue,
            queue,
            reported,
        })
    }

    /// Takes a waiting unit out of everything that waiting units are in, but for the unit itself. Returns the
    /// reason last reported for it.
    pub(crate) fn stop_waiting(&mut self, id: UnitId) -> Option<WaitKind> {
        let (unit, waiting) = self.units.waiting(id)?;
        let (local_queue, shape, reported) = (unit.local_queue, waiting.shape, waiting.reported);
        self.withdraw(id);
        self.shapes.release(shape);
        if let Some(known) = self.local_queues.get_mut(local_queue) {
            known.waiting -= 1;
            self.units.unlink(id, &mut known.first_waiting);
        }
        self.mark_local_queue(local_queue);
        reported
    }

    /// Puts a waiting unit where it belongs: into the order of its queue, and there among those that may be
    /// considered, those in back-off, or neither.
    fn place(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (uid, turn, shape) = (unit.uid, waiting.turn(unit.uid, id), waiting.shape);
        self.touched.push(uid);
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        let Some(queue_id) = local_queue.queue() else { return };
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        queue.order.insert(turn);
        let standing = if local_queue.is_blocked() || waiting.gate().is_some() {
            Standing::Aside
        } else if let Some(until) = waiting.not_before() {
            self.timers.insert((until, id));
            Standing::BackOff
        } else {
            local_queue.ready += 1;
            queue.parking.insert(shape, turn);
            self.dirty.insert(queue_id);
            Standing::Ready
        };
        if let Some(waiting) = self.units.waiting_mut(id) {
            waiting.standing = standing;
        }
        self.mark_queue(queue_id);
    }

    /// The opposite of [`Engine::place`].
    fn withdraw(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (turn, shape, standing) = (waiting.turn(unit.uid, id), waiting.shape, waiting.standing);
        let until = waiting.not_before();
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        let Some(queue_id) = local_queue.queue() else { return };
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        queue.order.remove(&turn);
        match (standing, until) {
            (Standing::Ready, _) => {
                local_queue.ready -= 1;
                queue.parking.remove(shape, &turn);
                // In a StrictFIFO queue the next one may be the head now.
                self.dirty.insert(queue_id);
            }
            (Standing::BackOff, Some(until)) => {
                self.timers.remove(&(until, id));
            }
            (Standing::BackOff | Standing::Aside | Standing::Lost, _) => {}
        }
        if let Some(waiting) = self.units.waiting_mut(id) {
            waiting.standing = Standing::Lost;
        }
        self.mark_queue(queue_id);
    }

    /// Lets a unit whose back-off is over be considered again.
    pub(crate) fn end_back_off(&mut self, id: UnitId) {
        let Some((unit, waiting)) = self.units.waiting(id) else {
            return;
        };
        let (uid, turn, shape) = (unit.uid, waiting.turn(unit.uid, id), waiting.shape);
        let Some(local_queue) = self.local_queues.get_mut(unit.local_queue) else {
            return;
        };
        let Some(queue_id) = local_queue.queue() else { return };
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        local_queue.ready += 1;
        queue.parking.insert(shape, turn);
        let local_queue = unit.local_queue;
        if let Some(waiting) = self.units.waiting_mut(id) {
            waiting.standing = Standing::Ready;
        }
        self.touched.push(uid);
        self.dirty.insert(queue_id);
        self.mark_queue(queue_id);
        self.mark_local_queue(local_queue);
    }

    /// What a decided admission makes of a unit.
    pub(crate) fn hold(&mut self, id: UnitId, held: Box<Held>) -> Option<LocalQueueId> {
        self.stop_waiting(id);
        let unit = self.units.get_mut(id)?;
        let (uid, local_queue) = (unit.uid, unit.local_queue);
        self.changes.units.remove(&uid);
        self.charge(local_queue, &held);
        self.units.get_mut(id)?.body = Body::Charged(held);
        Some(local_queue)
    }
}
