//! The naive twin: the rules of `docs/scheduling.md` as written, by full scans over plain maps. It never parks, keeps
//! no sums from one question to the next, and shares no deciding code with the engine.

mod backfill;
mod pass;
mod past;
mod pools;
mod reasons;
mod search;
mod shrink;
mod tests;
mod tree;
mod victims;

use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::*;

pub(crate) use backfill::end_of;
pub(crate) use pass::{Claim, Claimed};
use past::Past;
pub(crate) use reasons::{Stands, Why};
pub(crate) use shrink::is_to_shrink;
pub(crate) use tree::{At, Book, Cell, Forest, Needs};

/// The world as last told, and what the rules need to remember.
#[derive(Debug, Default, Clone)]
pub(crate) struct Twin {
    pub(crate) flavors: BTreeMap<Name, FlavorSpec>,
    pub(crate) queues: BTreeMap<Name, QueueSpec>,
    pub(crate) cohorts: BTreeMap<Name, CohortSpec>,
    pub(crate) settings: Settings,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueueSpec>,
    pub(crate) waiting: BTreeMap<Uid, UnitSpec>,
    pub(crate) charged: BTreeMap<Uid, ChargedUnit>,
    pub(crate) now: i64,
    /// How many outside events there were (section 7).
    pub(crate) epoch: u64,
    /// What is remembered of units that were evicted to make room, until they are removed.
    pub(crate) evicted: BTreeMap<Uid, Evicted>,
    /// Units that hold quota and were told to stop by a pass, for whatever reason, until they wait or are gone.
    pub(crate) stopping: BTreeSet<Uid>,
    /// Waiting units that evicted others, and what they would be given; forgotten when their ClusterQueue changes.
    pub(crate) preemptors: BTreeMap<Uid, Option<search::Assignment>>,
    /// The claims of the pass that runs, or of the last one.
    pub(crate) claims: BTreeMap<Uid, Claim>,
    /// Since which pass each found a ClusterQueue to be to shrink in a cell (section 8).
    pub(crate) over_since: BTreeMap<(Name, Cell), i64>,
    /// What LocalQueues used in the past, while that is counted.
    pasts: BTreeMap<LocalQueueKey, Past>,
    /// The last sample of what they hold.
    last_sample: Option<i64>,
}

/// The last time that a unit was evicted to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) epoch: u64,
    pub(crate) by: Uid,
    /// The priorities that both had then.
    pub(crate) priorities: (i32, i32),
}

impl Twin {
    pub(crate) fn apply(&mut self, event: &Event) {
        if self.is_outside(event) {
            self.epoch += 1;
        }
        match event.clone() {
            Event::SetFlavor(spec) => {
                self.flavors.insert(spec.name.clone(), spec);
            }
            Event::RemoveFlavor(name) => {
                self.flavors.remove(&name);
            }
            Event::SetQueue(spec) => {
                if self.queues.get(&spec.name) != Some(&spec) {
                    self.forget_assignments(&spec.name);
                }
                self.queues.insert(spec.name.clone(), spec);
            }
            Event::RemoveQueue(name) => {
                self.forget_assignments(&name);
                self.queues.remove(&name);
            }
            Event::SetCohort(spec) => {
                self.cohorts.insert(spec.name.clone(), spec);
            }
            Event::RemoveCohort(name) => {
                self.cohorts.remove(&name);
            }
            Event::SetSettings(settings) => {
                if self.settings.past_usage != settings.past_usage {
                    self.pasts.clear();
                    self.last_sample = None;
                }
                self.settings = settings;
            }
            Event::SetLocalQueue(spec) => {
                let before = self.local_queues.get(&spec.key);
                if before.is_some_and(|before| before.queue != spec.queue) {
                    let waiting = &self.waiting;
                    self.preemptors.retain(|uid, _| waiting[uid].local_queue != spec.key);
                }
                if before.is_none_or(|before| before.past_usage != spec.past_usage) {
                    self.pasts.remove(&spec.key);
                }
                self.local_queues.insert(spec.key.clone(), spec);
            }
            Event::RemoveLocalQueue(key) => {
                self.pasts.remove(&key);
                self.local_queues.remove(&key);
            }
            Event::SetWaiting(unit) => self.waits(unit),
            Event::SetCharged(unit) => {
                self.waiting.remove(&unit.uid);
                self.charged.insert(unit.uid, unit);
            }
            Event::RemoveUnit(uid) => {
                self.waiting.remove(&uid);
                self.charged.remove(&uid);
                self.evicted.remove(&uid);
                self.stopping.remove(&uid);
            }
        }
        self.forget_preemptors();
    }

    fn forget_assignments(&mut self, queue: &Name) {
        let of_queue: Vec<Uid> = self.order(queue).into_iter().map(|unit| unit.uid).collect();
        for (_, assignment) in self.preemptors.iter_mut().filter(|(uid, _)| of_queue.contains(uid)) {
            *assignment = None;
        }
    }

    fn waits(&mut self, unit: UnitSpec) {
        self.charged.remove(&unit.uid);
        self.stopping.remove(&unit.uid);
        if self.waiting.get(&unit.uid) != Some(&unit) {
            self.preemptors.remove(&unit.uid);
        }
        self.waiting.insert(unit.uid, unit);
    }

    /// Whoever no longer waits, or is set aside, is no preemptor any more.
    fn forget_preemptors(&mut self) {
        let (waiting, local_queues) = (&self.waiting, &self.local_queues);
        self.preemptors.retain(|uid, _| {
            let unit = waiting.get(uid).filter(|unit| unit.gate.is_none());
            let local_queue = unit.and_then(|unit| local_queues.get(&unit.local_queue));
            local_queue.is_some_and(|spec| spec.blocked.is_none())
        });
    }

    /// Whether an event, not yet applied, is an outside event (section 7).
    fn is_outside(&self, event: &Event) -> bool {
        match event {
            Event::SetFlavor(spec) => self.flavors.get(&spec.name) != Some(spec),
            Event::RemoveFlavor(name) => self.flavors.contains_key(name),
            Event::SetQueue(spec) => self.queues.get(&spec.name) != Some(spec),
            Event::RemoveQueue(name) => self.queues.contains_key(name),
            Event::SetCohort(spec) => self.cohorts.get(&spec.name) != Some(spec),
            Event::RemoveCohort(name) => self.cohorts.contains_key(name),
            Event::SetSettings(settings) => self.settings != *settings,
            Event::SetLocalQueue(spec) => self.local_queues.get(&spec.key) != Some(spec),
            Event::RemoveLocalQueue(key) => self.local_queues.contains_key(key),
            Event::SetWaiting(unit) if self.charged.contains_key(&unit.uid) => {
                !self.stopping.contains(&unit.uid) && self.charged[&unit.uid].phase != Phase::Assumed
            }
            Event::SetWaiting(unit) => self.waiting.get(&unit.uid) != Some(unit),
            Event::SetCharged(unit) => {
                let known = self.charged.get(&unit.uid);
                !known.is_some_and(|known| is_only_further(known, unit))
            }
            Event::RemoveUnit(uid) => self.waiting.contains_key(uid) || self.charged.contains_key(uid),
        }
    }

    /// All units that wait in a queue, in order.
    pub(crate) fn order(&self, queue: &str) -> Vec<UnitSpec> {
        self.order_at(queue, self.now)
    }

    /// The same as it will be if nothing happens until `now` but that time passes.
    pub(crate) fn order_at(&self, queue: &str, now: i64) -> Vec<UnitSpec> {
        let leads_here = |unit: &&UnitSpec| {
            let local_queue = self.local_queues.get(&unit.local_queue);
            local_queue.is_some_and(|spec| *spec.queue == *queue)
        };
        let mut units: Vec<UnitSpec> = self.waiting.values().filter(leads_here).cloned().collect();
        let ageing = self.queues.get(queue).and_then(|spec| spec.extras.ageing);
        units.sort_by_cached_key(|unit| {
            let (_, queued_at, uid) = turn(unit);
            (self.counts(unit), -aged(unit, ageing, now), queued_at, uid)
        });
        units
    }

    fn is_unblocked(&self, unit: &UnitSpec) -> bool {
        let local_queue = self.local_queues.get(&unit.local_queue);
        local_queue.is_some_and(|spec| spec.blocked.is_none())
    }

    pub(crate) fn may_be_considered(&self, unit: &UnitSpec) -> bool {
        self.is_unblocked(unit) && unit.gate.is_none() && unit.not_before.is_none_or(|until| until.0 <= self.now)
    }

    pub(crate) fn forest(&self) -> Forest {
        Forest::of(&self.queues, &self.cohorts)
    }

    pub(crate) fn is_open(&self, spec: &QueueSpec, forest: &Forest) -> bool {
        let mut offers = spec
            .groups
            .iter()
            .flat_map(|group| group.flavors.iter().map(move |offered| (group, offered)));
        let extras = &spec.extras;
        let moves = extras.ageing.is_some() || spec.by_past_usage;
        spec.inactive.is_none()
            && !(moves && (extras.backfill || extras.fifo_per_pool))
            && offers.all(|(group, offered)| {
                self.flavors.contains_key(&offered.flavor) && offered.quotas.len() == group.resources.len()
            })
            && forest.queue(&spec.name).is_some_and(|queue| forest.is_sound(queue))
    }

    /// What all units that hold quota use.
    pub(crate) fn held<'f>(&self, forest: &'f Forest) -> Book<'f> {
        let mut book = Book::empty(forest);
        for unit in self.charged.values() {
            if let Some(queue) = forest.queue(&unit.queue) {
                book.add(queue, &holds(unit));
            }
        }
        book
    }

    /// The same without the evicting ones, and with what was claimed in this pass.
    pub(crate) fn planned<'f>(&self, forest: &'f Forest) -> Book<'f> {
        let mut book = Book::empty(forest);
        for unit in self.charged.values().filter(|unit| unit.phase != Phase::Evicting) {
            if let Some(queue) = forest.queue(&unit.queue) {
                book.add(queue, &holds(unit));
            }
        }
        for claim in self.claims.values() {
            if let Some(queue) = forest.queue(&claim.queue) {
                book.add(queue, &claim.needs);
            }
        }
        book
    }
}

/// What a unit holds of each cell.
pub(crate) fn holds(unit: &ChargedUnit) -> Needs {
    let mut needs = Needs::new();
    for charge in &unit.charges {
        let cell = (charge.flavor.clone(), charge.resource.clone());
        *needs.entry(cell).or_default() += i128::from(charge.amount.get());
    }
    needs.retain(|_, amount| *amount > 0);
    needs
}

/// Whether a unit that holds quota still is what it was and only got further in its life.
fn is_only_further(known: &ChargedUnit, told: &ChargedUnit) -> bool {
    known.queue == told.queue
        && known.local_queue == told.local_queue
        && known.priority == told.priority
        && known.queued_at == told.queued_at
        && holds(known) == holds(told)
}

/// The aged priority of a unit times the milliseconds that are worth one step, which makes it a whole number.
pub(crate) fn aged(unit: &UnitSpec, ageing: Option<Ageing>, now: i64) -> i128 {
    let priority = i128::from(unit.priority);
    let Some(Ageing { ms_per_step, max_steps }) = ageing else {
        return priority;
    };
    let (ms_per_step, max_steps) = (i128::from(ms_per_step), i128::from(max_steps));
    let waited = i128::from(now) - i128::from(unit.queued_at.0);
    priority * ms_per_step + waited.min(max_steps * ms_per_step)
}

/// Where a unit stands among those of other ClusterQueues.
pub(crate) fn turn(unit: &UnitSpec) -> (i64, i64, u128) {
    (-i64::from(unit.priority), unit.queued_at.0, unit.uid.0)
}

pub(crate) fn saturated(amount: i128) -> Amount {
    Amount::new(i64::try_from(amount.max(0)).unwrap_or(i64::MAX))
}
