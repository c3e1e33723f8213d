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
    by: Uid,
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

    pub(crate) fn evicted_by(&self, uid: Uid) -> Option<Uid> {
        self.evictions.get(&uid).map(|evicted| evicted.by)
    }

    pub(crate) fn note_stop(&mut self, uid: Uid) {
        self.told_to_stop.insert(uid);
    }

    pub(crate) fn note_preemption(&mut self, uid: Uid, by: Uid) {
        let epoch = self.epoch;
        self.evictions.insert(uid, Evicted { epoch, by });
        self.spent.insert(uid);
    }

    pub(crate) fn forget(&mut self, uid: Uid) {
        self.evictions.remove(&uid);
        self.told_to_stop.remove(&uid);
        self.spent.remove(&uid);
    }
}
