//! What keeps preemption from going on for ever: `docs/scheduling.md`, section 7.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::ids::Uid;

/// What keeps preemption from going on for ever: `docs/scheduling.md`, section 7.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Counts outside events.
    pub(crate) epoch: u64,
    evictions: FxHashMap<Uid, Evicted>,
    /// Units evicted for others since the last outside event.
    pub(crate) spent: BTreeSet<Uid>,
    /// Units that the engine evicted and that do not wait again yet.
    pub(crate) told_to_stop: BTreeSet<Uid>,
}

/// When a unit was evicted for another last.
#[derive(Clone, Copy, Debug)]
struct Evicted {
    epoch: u64,
    by: Evictor,
    /// The priority that it had then.
    priority: i32,
}

/// Who evicted a unit, and at which priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Evictor {
    pub(crate) uid: Uid,
    pub(crate) priority: i32,
}

impl Memory {
    /// Whether a unit was evicted since the last outside event.
    pub(crate) fn is_spent(&self, uid: Uid) -> bool {
        !self.spent.is_empty()
            && self
                .evictions
                .get(&uid)
                .is_some_and(|evicted| evicted.epoch == self.epoch)
    }

    /// Who evicted a unit last, as long as it has the priority that it had then.
    pub(crate) fn evicted_by(&self, uid: Uid, priority: i32) -> Option<Evictor> {
        let last = self.evictions.get(&uid)?;
        (last.priority == priority).then_some(last.by)
    }

    pub(crate) fn note_stop(&mut self, uid: Uid) {
        self.told_to_stop.insert(uid);
    }

    pub(crate) fn note_preemption(&mut self, uid: Uid, priority: i32, by: Evictor) {
        let evicted = Evicted {
            epoch: self.epoch,
            by,
            priority,
        };
        self.evictions.insert(uid, evicted);
        self.spent.insert(uid);
    }

    pub(crate) fn forget(&mut self, uid: Uid) {
        self.evictions.remove(&uid);
        self.told_to_stop.remove(&uid);
        self.spent.remove(&uid);
    }
}
