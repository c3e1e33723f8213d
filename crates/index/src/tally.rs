//! How many Jobs of each queue wait for what, and how many are done: counted step by step as the engine is told, so that
//! showing it never walks the Jobs.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use sluice_api::conditions;
use sluice_engine::{Event, LocalQueueKey, Name, Step, Uid, UnitSpec, WaitKind};

use crate::Index;

/// What the Jobs of a queue wait for, and how many are done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Waiting Jobs by the cause, in Kueue's words where it has one.
    pub unadmitted: BTreeMap<Name, usize>,
    /// What all waiting Jobs ask for together, by resource: cpu in milli-units, everything else in its own unit.
    pub pending: BTreeMap<Name, i128>,
    /// Jobs that ran on quota, are done and still exist.
    pub finished: usize,
}

/// Why a unit waits, as far as it is counted: the kind, and the word of the gate if there is one.
type Cause = (WaitKind, Option<Name>);

/// What one unit counts as.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Counted {
    Waiting { cause: Cause, wants: Box<[(Name, i128)]> },
    Finished,
}

/// The counts of one LocalQueue, and where it leads.
#[derive(Debug, Default)]
struct Branch {
    queue: Option<Name>,
    stopped: bool,
    causes: BTreeMap<Cause, usize>,
    pending: BTreeMap<Name, i128>,
    finished: usize,
}

/// What a ClusterQueue's own spec says, and which LocalQueues lead to it.
#[derive(Debug, Default)]
struct Trunk {
    stopped: bool,
    local_queues: BTreeSet<LocalQueueKey>,
}

/// All counts. It is told what the engine is told.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    units: FxHashMap<Uid, (LocalQueueKey, Counted)>,
    local_queues: BTreeMap<LocalQueueKey, Branch>,
    queues: BTreeMap<Name, Trunk>,
    changed: BTreeSet<LocalQueueKey>,
    changed_queues: BTreeSet<Name>,
}

impl Index {
    /// Tells the engine what is, and counts it.
    pub(crate) fn tell(&mut self, event: Event) {
        self.tallies.note(&event);
        self.note(|| Step::Apply(event.clone()));
        self.engine.apply(event);
    }

    /// What the Jobs of a LocalQueue wait for.
    pub fn local_queue_tally(&self, key: &LocalQueueKey) -> Tally {
        let mut tally = Tally::default();
        self.tallies.add_to(&mut tally, key);
        tally
    }

    /// What the Jobs of all LocalQueues of a ClusterQueue wait for.
    pub fn cluster_queue_tally(&self, name: &str) -> Tally {
        let mut tally = Tally::default();
        for key in self
            .tallies
            .queues
            .get(name)
            .into_iter()
            .flat_map(|queue| &queue.local_queues)
        {
            self.tallies.add_to(&mut tally, key);
        }
        tally
    }
}

impl Tallies {
    fn note(&mut self, event: &Event) {
        match event {
            Event::SetWaiting(spec) => self.waits(spec),
            Event::SetCharged(unit) => self.clear(unit.uid),
            Event::RemoveUnit(uid) => self.clear(*uid),
            Event::SetLocalQueue(spec) => {
                let stopped = spec
                    .blocked
                    .as_ref()
                    .is_some_and(|blocked| &*blocked.reason == conditions::local_queue::STOPPED);
                self.lead(&spec.key, Some(&spec.queue), stopped);
            }
            Event::RemoveLocalQueue(key) => self.lead(key, None, false),
            Event::SetQueue(spec) => {
                self.queues.entry(spec.name.clone()).or_default().stopped = spec
                    .inactive
                    .as_ref()
                    .is_some_and(|inactive| &*inactive.reason == conditions::cluster_queue::STOPPED);
                self.changed_queues.insert(spec.name.clone());
            }
            Event::RemoveQueue(name) => {
                if let Some(queue) = self.queues.get_mut(name) {
                    queue.stopped = false;
                }
                self.prune(name);
            }
            _ => {}
        }
    }

    fn lead(&mut self, key: &LocalQueueKey, to: Option<&Name>, stopped: bool) {
        let branch = self.local_queues.entry(key.clone()).or_default();
        branch.stopped = stopped;
        let from = std::mem::replace(&mut branch.queue, to.cloned());
        if let Some(to) = to {
            self.queues
                .entry(to.clone())
                .or_default()
                .local_queues
                .insert(key.clone());
        }
        if let Some(from) = from.filter(|from| Some(from) != to) {
            if let Some(queue) = self.queues.get_mut(&from) {
                queue.local_queues.remove(key);
            }
            self.prune(&from);
            self.changed_queues.insert(from);
        }
        self.touch(key);
    }

    /// Forgets a ClusterQueue of which there is nothing to remember.
    fn prune(&mut self, name: &Name) {
        if self
            .queues
            .get(name)
            .is_some_and(|queue| queue.local_queues.is_empty() && !queue.stopped)
        {
            self.queues.remove(name);
        }
    }

    fn waits(&mut self, spec: &UnitSpec) {
        // A unit that goes on waiting goes on waiting for the same, until the engine says otherwise.
        let kind = match self.units.get(&spec.uid) {
            Some((_, Counted::Waiting { cause, .. })) => cause.0,
            _ => WaitKind::Pending,
        };
        let branch = self.local_queues.get(&spec.local_queue);
        let mut wants = BTreeMap::new();
        for set in &spec.pod_sets {
            for (resource, amount) in &set.per_pod {
                // The queue's own copy of the name, so that a million units share one.
                let known = branch.and_then(|branch| branch.pending.get_key_value(resource));
                let name = known.map_or(resource, |(name, _)| name).clone();
                *wants.entry(name).or_insert(0) += i128::from(amount.get()) * i128::from(set.count);
            }
        }
        let gate = spec.gate.as_ref().map(|gate| gate.reason.clone());
        let counted = Counted::Waiting {
            cause: (kind, gate),
            wants: wants.into_iter().collect(),
        };
        self.set(spec.uid, &spec.local_queue, counted);
    }

    /// The engine found that a unit waits for another reason than before.
    pub(crate) fn waits_for(&mut self, uid: Uid, kind: WaitKind) {
        let Some((key, Counted::Waiting { cause, wants })) = self.units.get(&uid) else {
            return;
        };
        let counted = Counted::Waiting {
            cause: (kind, cause.1.clone()),
            wants: wants.clone(),
        };
        let key = key.clone();
        self.set(uid, &key, counted);
    }

    /// A unit that ran on quota is done.
    pub(crate) fn finished(&mut self, uid: Uid, local_queue: &LocalQueueKey) {
        self.set(uid, local_queue, Counted::Finished);
    }

    /// A unit neither waits nor is done.
    pub(crate) fn clear(&mut self, uid: Uid) {
        if let Some((key, counted)) = self.units.remove(&uid) {
            self.count(&key, &counted, false);
        }
    }

    fn set(&mut self, uid: Uid, local_queue: &LocalQueueKey, counted: Counted) {
        if self
            .units
            .get(&uid)
            .is_some_and(|(key, known)| key == local_queue && *known == counted)
        {
            return;
        }
        // The new one before the old one goes: what is known of the queue is not forgotten in between.
        self.count(local_queue, &counted, true);
        let key = self
            .local_queues
            .get_key_value(local_queue)
            .map_or(local_queue, |(key, _)| key)
            .clone();
        if let Some((key, known)) = self.units.insert(uid, (key, counted)) {
            self.count(&key, &known, false);
        }
    }

    fn count(&mut self, key: &LocalQueueKey, counted: &Counted, comes: bool) {
        let branch = self.local_queues.entry(key.clone()).or_default();
        match counted {
            Counted::Finished if comes => branch.finished += 1,
            Counted::Finished => branch.finished -= 1,
            Counted::Waiting { cause, wants } => {
                step(&mut branch.causes, cause, if comes { 1 } else { -1 });
                for (resource, amount) in wants {
                    let total = branch.pending.entry(resource.clone()).or_default();
                    *total += if comes { *amount } else { -amount };
                }
            }
        }
        self.touch(key);
    }

    /// Notes that the counts of a LocalQueue changed, and forgets one that is nothing and of which nothing is counted.
    fn touch(&mut self, key: &LocalQueueKey) {
        let Some(branch) = self.local_queues.get(key) else {
            return;
        };
        if let Some(queue) = &branch.queue {
            self.changed_queues.insert(queue.clone());
        } else if branch.causes.is_empty() && branch.finished == 0 {
            self.local_queues.remove(key);
        }
        self.changed.insert(key.clone());
    }

    /// Queues whose counts changed since the last call.
    pub(crate) fn take_changed(&mut self) -> (BTreeSet<Name>, BTreeSet<LocalQueueKey>) {
        (
            std::mem::take(&mut self.changed_queues),
            std::mem::take(&mut self.changed),
        )
    }

    fn add_to(&self, tally: &mut Tally, key: &LocalQueueKey) {
        let Some(branch) = self.local_queues.get(key) else {
            return;
        };
        for (cause, count) in &branch.causes {
            *tally.unadmitted.entry(self.word(branch, cause)).or_default() += count;
        }
        for (resource, amount) in &branch.pending {
            *tally.pending.entry(resource.clone()).or_default() += amount;
        }
        tally.finished += branch.finished;
    }

    /// Kueue's word for a cause, ours where it has none.
    fn word(&self, branch: &Branch, (kind, gate): &Cause) -> Name {
        let queue = branch.queue.as_ref().and_then(|queue| self.queues.get(queue));
        let word = match kind {
            WaitKind::Pending => "PendingEvaluation",
            WaitKind::QueueInactive if queue.is_some_and(|queue| queue.stopped) => "Suspended",
            WaitKind::LocalQueueBlocked if branch.stopped => "Suspended",
            WaitKind::NoLocalQueue | WaitKind::QueueMissing | WaitKind::QueueInactive | WaitKind::LocalQueueBlocked => {
                "Misconfigured"
            }
            WaitKind::Gated => match gate {
                Some(gate) => return gate.clone(),
                None => "AdmissionGated",
            },
            kind => kind.as_str(),
        };
        word.into()
    }
}

fn step(counts: &mut BTreeMap<Cause, usize>, cause: &Cause, by: isize) {
    let count = counts.entry(cause.clone()).or_default();
    *count = count.saturating_add_signed(by);
    if *count == 0 {
        counts.remove(cause);
    }
}
