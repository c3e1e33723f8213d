//! The engine's state, and how events change it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;

use crate::arena::{Column, Marks};
use crate::flavors::FlavorSpec;
use crate::forest::Forest;
use crate::ids::{LocalQueueKey, Name, Time, Uid};
use crate::local_queue::{LocalQueueId, LocalQueues};
use crate::memory::Memory;
use crate::pass::Buffers;
use crate::queue::{QueueId, Queues};
use crate::quota::{CellId, Cells, FlavorId};
use crate::report::{Changed, Counters, WaitKind};
use crate::shapes::Shapes;
use crate::spec::{ChargedUnit, Event, LocalQueueSpec, Phase, QueueSpec, Settings, UnitSpec};
use crate::units::{Aside, Body, Charges, Held, Standing, Unit, UnitId, Units, WaitingUnit};

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
    pub(crate) settings: Settings,
    pub(crate) forest: Forest,
    pub(crate) queues: Queues,
    pub(crate) local_queues: LocalQueues,
    pub(crate) units: Units,
    /// Units in back-off by when it ends.
    pub(crate) timers: BTreeSet<(Time, UnitId)>,
    /// Admitted units by when they must be evicted.
    pub(crate) deadlines: BTreeSet<(Time, UnitId)>,
    /// Admitted units that may not be evicted for others yet, by when they may.
    pub(crate) settling: BTreeSet<(Time, UnitId)>,
    /// Queues that shrink to their quota.
    pub(crate) shrinking: BTreeMap<Name, QueueId>,
    /// Since when passes have found that a queue is to shrink in a cell.
    pub(crate) over_since: BTreeMap<Name, BTreeMap<CellId, Time>>,
    /// Queues and LocalQueues that are drained.
    pub(crate) drained: (BTreeSet<QueueId>, BTreeSet<LocalQueueId>),
    pub(crate) memory: Memory,
    /// The instant of the last pass.
    pub(crate) now: Time,
    /// The latest instant of a pass: how old waiting units are.
    pub(crate) aged_to: Time,
    /// Waiting units that waiting still raises, by when it has raised them as far as it can.
    pub(crate) rising: BTreeSet<(Time, UnitId)>,
    /// StrictFIFO queues by when another unit is first by the passing of time alone.
    pub(crate) head_changes: BTreeSet<(Time, QueueId)>,
    /// The last sample of what LocalQueues hold, while they are taken.
    pub(crate) last_sample: Option<i64>,
    /// LocalQueues whose usage is to be counted from the next pass on.
    pub(crate) uncounted: BTreeSet<LocalQueueId>,
    /// LocalQueues that may hold something else than at the end of the last pass.
    pub(crate) books_changed: BTreeSet<LocalQueueId>,
    /// Units that hold quota and whose pods are not ready.
    pub(crate) unready: usize,
    /// Queues that wait for the pods of others.
    pub(crate) held_back: Marks<QueueId>,
    /// Queues in which the next pass may find something to do.
    pub(crate) dirty: Marks<QueueId>,
    /// Queues whose head may have changed since reasons were last told.
    pub(crate) unsettled: Marks<QueueId>,
    /// Units whose reason to wait may have changed since the last pass; some of these ids may name others by now, of which
    /// that is no less true.
    pub(crate) touched: Vec<UnitId>,
    pub(crate) buffers: Buffers,
    pub(crate) changes: Changes,
    pub(crate) counters: Counters,
}

/// What changed since the caller last asked.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    queues: Vec<Name>,
    local_queues: Vec<LocalQueueKey>,
    pub(crate) units: FxHashSet<Uid>,
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
            Event::SetCohort(spec) => {
                let name = spec.name.clone();
                self.replace_cohort(&name, Some(spec));
            }
            Event::RemoveCohort(name) => self.replace_cohort(&name, None),
            Event::SetSettings(settings) => self.replace_settings(settings),
            Event::SetLocalQueue(spec) => {
                let id = self.local_queues.ensure(&spec.key);
                self.replace_local_queue(id, Some(spec));
            }
            Event::RemoveLocalQueue(key) => {
                if let Some(id) = self.local_queues.find(&key) {
                    self.replace_local_queue(id, None);
                    self.collect_local_queue(id);
                }
            }
            Event::SetWaiting(spec) => self.set_waiting(spec),
            Event::SetCharged(unit) => self.set_charged(unit),
            Event::RemoveUnit(uid) => {
                self.changes.units.remove(&uid);
                if let Some(former) = self.units.find(uid).and_then(|id| self.take_out(id)) {
                    self.outside_event();
                    self.collect_former(&former);
                }
                self.memory.forget(uid);
            }
        }
    }

    /// What changed since this was last called, and forgets it.
    pub fn take_changed(&mut self) -> Changed {
        let Changes {
            mut queues,
            mut local_queues,
            units,
        } = std::mem::take(&mut self.changes);
        queues.sort_unstable();
        queues.dedup();
        for name in &queues {
            if let Some(queue) = self.queues.find(name).and_then(|id| self.queues.get_mut(id)) {
                queue.changed = false;
            }
        }
        local_queues.sort_unstable();
        local_queues.dedup();
        for key in &local_queues {
            if let Some(local) = self.local_queues.find(key).and_then(|id| self.local_queues.get_mut(id)) {
                local.changed = false;
            }
        }
        let mut units: Vec<Uid> = units.into_iter().collect();
        units.sort_unstable();
        Changed {
            queues,
            local_queues,
            units,
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
            self.changes.queues.push(queue.name.clone());
        }
    }

    pub(crate) fn mark_local_queue(&mut self, id: LocalQueueId) {
        if let Some(local_queue) = self.local_queues.get_mut(id)
            && !local_queue.changed
        {
            local_queue.changed = true;
            self.changes.local_queues.push(local_queue.key.clone());
        }
    }

    fn replace_flavor(&mut self, id: FlavorId, spec: Option<FlavorSpec>) {
        let known = self.flavors.entry(id);
        if *known == spec {
            return;
        }
        *known = spec;
        self.outside_event();
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
        let before = (queue.spec.is_some(), queue.has_blocking_head(), queue.is_by_pool());
        let cohort = queue.spec.as_ref().and_then(|spec| spec.cohort.clone());
        if spec.as_ref().is_some_and(|spec| spec.extras.shrink_after_ms.is_some()) {
            self.shrinking.insert(queue.name.clone(), id);
        } else {
            self.shrinking.remove(&queue.name);
        }
        queue.set_spec(spec, &mut self.cells);
        queue.resettle |= before != (queue.spec.is_some(), queue.has_blocking_head(), queue.is_by_pool());
        self.reorder(id);
        let Some(queue) = self.queues.get(id) else { return };
        for flavor in queue.flavors() {
            self.flavor_users.entry(flavor).insert(id);
        }
        if queue.spec.as_ref().is_some_and(|spec| spec.drain) {
            self.drained.0.insert(id);
        } else {
            self.drained.0.remove(&id);
        }
        self.outside_event();
        self.replant(id, cohort.as_ref());
        self.relist_running(id);
    }

    fn replace_settings(&mut self, settings: Settings) {
        if self.settings == settings {
            return;
        }
        let counts_otherwise = self.settings.past_usage != settings.past_usage;
        self.settings = settings;
        self.outside_event();
        if counts_otherwise {
            self.forget_all_pasts();
        }
        let all: Vec<QueueId> = self.queues.iter().map(|(id, _)| id).collect();
        for id in all {
            self.reorder(id);
            self.refresh(id);
        }
    }

    /// Something happened that the engine did not bring about: who was evicted may be evicted again.
    pub(crate) fn outside_event(&mut self) {
        self.memory.epoch += 1;
        if self.memory.spent.is_empty() {
            return;
        }
        for uid in std::mem::take(&mut self.memory.spent) {
            if let Some(id) = self.units.find(uid) {
                self.show_victim(id);
            }
        }
    }

    /// Looks at a queue with fresh eyes: its state, and everything parked in it.
    pub(crate) fn refresh(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        let cohort = queue.spec.as_ref().and_then(|spec| spec.cohort.as_ref());
        let state = queue.find_state(&self.flavors, &self.cells, self.forest.fault_of(cohort));
        // Slots are those of a tree that may be gone, and what can never fit may have changed.
        queue.blockers.clear();
        queue.judged_by = None;
        queue.resettle |= state.is_ok() != queue.state.is_ok() || queue.is_by_pool();
        queue.state = state;
        let woken = queue.parking.reset();
        self.counters.wakes += woken.len() as u64;
        if let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree)) {
            // A queue that was not open may have to shrink once it is.
            tree.checked = false;
            for (class, stuck) in &woken {
                let priority = queue.parking.class(*class).map_or(0, |class| class.key.priority);
                tree.watches.remove((id, *class), priority, &stuck.wakes);
            }
        }
        let local_queues = queue.local_queues.clone();
        self.key_by_ends(id);
        self.dirty.insert(id);
        self.mark_queue(id);
        for local_queue in local_queues {
            self.mark_local_queue(local_queue);
        }
    }

    fn collect_queue(&mut self, id: QueueId) {
        if self.queues.collect(id) {
            // The id may name another queue soon.
            self.dirty.remove(id);
            self.unsettled.remove(id);
            self.held_back.remove(id);
            self.head_changes.retain(|(_, queue)| *queue != id);
            self.drained.0.remove(&id);
        }
    }

    fn collect_former(&mut self, former: &Former) {
        self.collect_local_queue(former.local_queue);
        if let Some(queue) = former.queue {
            self.collect_queue(queue);
        }
    }

    fn collect_local_queue(&mut self, id: LocalQueueId) {
        self.local_queues.collect(id);
        if self.local_queues.get(id).is_none() {
            self.drained.1.remove(&id);
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
        if resolved.as_ref().is_some_and(|(spec, _)| spec.drain) {
            self.drained.1.insert(id);
        } else {
            self.drained.1.remove(&id);
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
        let known_past =
            |spec: &Option<(LocalQueueSpec, QueueId)>| spec.as_ref().map(|(spec, _)| spec.past_usage.clone());
        let begins = known_past(&local_queue.spec) != known_past(&resolved);
        self.outside_event();
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
            left.ranking.remove(id);
        }
        if let Some((queue, _)) = to
            && let Some(joined) = self.queues.get_mut(queue)
        {
            joined.local_queues.insert(id);
        }
        if begins {
            self.forget_past(id);
        } else {
            self.revalue(id);
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
        let assumed = known
            .and_then(|id| self.units.held(id))
            .is_some_and(|held| held.phase == Phase::Assumed);
        if !self.memory.told_to_stop.remove(&spec.uid) && !assumed {
            self.outside_event();
        }
        let former = known.and_then(|id| self.take_out(id));
        let aside = Aside {
            gate: spec.gate,
            not_before: spec.not_before,
            runs_at_most_ms: spec.runs_at_most_ms,
        };
        let aside = (aside != Aside::default()).then(|| Box::new(aside));
        let waiting = WaitingUnit {
            queued_at: spec.queued_at,
            aside,
            priority: spec.priority,
            shape: self.shapes.acquire(spec.pod_sets),
            before: None,
            after: None,
            standing: Standing::Lost,
            claims: false,
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
            && waiting.runs_at_most_ms() == spec.runs_at_most_ms
            && self
                .local_queues
                .get(unit.local_queue)
                .is_some_and(|known| known.key == spec.local_queue)
            && self.shapes.get(waiting.shape)[..] == spec.pod_sets[..]
    }

    fn set_charged(&mut self, unit: ChargedUnit) {
        let known = self.units.find(unit.uid);
        let (local_queue, queue) = self.ensure_queues(known, &unit);
        let mut charges: Charges = unit
            .charges
            .iter()
            .filter(|charge| !charge.amount.is_zero())
            .map(|charge| (self.cells.intern_names(&charge.flavor, &charge.resource), charge.amount))
            .collect();
        charges.sort_unstable();
        let held = Held {
            queue,
            priority: unit.priority,
            queued_at: unit.queued_at,
            reserved_at: unit.reserved_at,
            deadlines: unit.deadlines,
            ends_at: unit.ends_at,
            pods_ready: unit.pods_ready,
            phase: unit.phase,
            charges,
        };
        let before = known.and_then(|id| Some((self.units.get(id)?.local_queue, self.units.held(id)?)));
        let (follows_up, same_books) = match before {
            Some((from, before)) if from == local_queue && *before == held => return,
            Some((from, before)) => {
                let same_books = from == local_queue && before.queue == queue && before.charges == held.charges;
                let follows_up = before.priority == held.priority && before.queued_at == held.queued_at;
                (same_books && follows_up, same_books)
            }
            None => (false, false),
        };
        if !follows_up {
            self.outside_event();
        }
        self.recheck_quota(queue);
        if held.phase != Phase::Evicting {
            self.memory.told_to_stop.remove(&unit.uid);
        }
        if let Some(id) = known
            && same_books
        {
            return self.recharge(id, held);
        }
        // The new charge before the old one goes: nothing may seem free in between and wake the parked for nothing.
        self.charge(local_queue, &held);
        self.changes.units.remove(&unit.uid);
        let former = known.and_then(|id| self.take_out(id));
        let id = self.units.insert(Unit {
            uid: unit.uid,
            local_queue,
            body: Body::Charged(Box::new(held)),
        });
        self.enlist(id);
        if let Some(former) = former {
            self.collect_former(&former);
        }
    }

    /// The ids of the queues that a unit is charged to; most units stay where they are known to be.
    fn ensure_queues(&mut self, known: Option<UnitId>, unit: &ChargedUnit) -> (LocalQueueId, QueueId) {
        let local_queue = known.and_then(|id| self.units.get(id)).map(|known| known.local_queue);
        let queue = known.and_then(|id| self.units.held(id)).map(|held| held.queue);
        let is_local = |id: &LocalQueueId| self.local_queues.get(*id).is_some_and(|it| it.key == unit.local_queue);
        let is_queue = |id: &QueueId| self.queues.get(*id).is_some_and(|it| it.name == unit.queue);
        let (local_queue, queue) = (local_queue.filter(is_local), queue.filter(is_queue));
        (
            local_queue.unwrap_or_else(|| self.local_queues.ensure(&unit.local_queue)),
            queue.unwrap_or_else(|| self.queues.ensure(&unit.queue)),
        )
    }

    /// Removes a unit with all that it held or waited for.
    fn take_out(&mut self, id: UnitId) -> Option<Former> {
        let reported = self.stop_waiting(id);
        self.delist(id);
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

    /// What a decided admission makes of a unit.
    pub(crate) fn hold(&mut self, id: UnitId, held: Box<Held>) -> Option<LocalQueueId> {
        self.stop_waiting(id);
        let unit = self.units.get_mut(id)?;
        let (uid, local_queue) = (unit.uid, unit.local_queue);
        self.changes.units.remove(&uid);
        self.charge(local_queue, &held);
        self.units.get_mut(id)?.body = Body::Charged(held);
        self.enlist(id);
        Some(local_queue)
    }
}
