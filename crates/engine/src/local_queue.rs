//! LocalQueues: where users hand units in.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::arena::{Arena, define_id};
use crate::ids::LocalQueueKey;
use crate::order::Order;
use crate::past::Past;
use crate::queue::QueueId;
use crate::quota::Books;
use crate::spec::LocalQueueSpec;
use crate::units::UnitId;

define_id! {
    /// A LocalQueue that exists or is spoken of.
    LocalQueueId
}

/// A LocalQueue: kept while it exists or a unit names it.
#[derive(Debug)]
pub(crate) struct LocalQueue {
    pub(crate) key: LocalQueueKey,
    /// As last set, with the ClusterQueue that it names; none while it does not exist.
    pub(crate) spec: Option<(LocalQueueSpec, QueueId)>,
    /// The first of the list of its waiting units (in no particular order).
    pub(crate) first_waiting: Option<UnitId>,
    pub(crate) waiting: usize,
    /// Those of them that stand in the order of its ClusterQueue, in the same order.
    pub(crate) order: Order,
    /// How many of those may be considered.
    pub(crate) ready: usize,
    /// What its units hold.
    pub(crate) books: Books,
    /// Its admitted units.
    pub(crate) running: BTreeSet<UnitId>,
    /// What it used in the past, while that is counted.
    pub(crate) past: Option<Past>,
    /// It is already listed as changed.
    pub(crate) changed: bool,
}

impl LocalQueue {
    /// The ClusterQueue that it leads to.
    pub(crate) fn queue(&self) -> Option<QueueId> {
        self.spec.as_ref().map(|(_, queue)| *queue)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.spec.as_ref().is_some_and(|(spec, _)| spec.blocked.is_some())
    }
}

/// All LocalQueues by key.
#[derive(Debug, Default)]
pub(crate) struct LocalQueues {
    arena: Arena<LocalQueueId, LocalQueue>,
    ids: FxHashMap<LocalQueueKey, LocalQueueId>,
}

impl LocalQueues {
    pub(crate) fn find(&self, key: &LocalQueueKey) -> Option<LocalQueueId> {
        self.ids.get(key).copied()
    }

    /// The id of `key`, from now on spoken of.
    pub(crate) fn ensure(&mut self, key: &LocalQueueKey) -> LocalQueueId {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = self.arena.insert(LocalQueue {
            key: key.clone(),
            spec: None,
            first_waiting: None,
            waiting: 0,
            order: Order::default(),
            ready: 0,
            books: Books::default(),
            running: BTreeSet::new(),
            past: None,
            changed: false,
        });
        self.ids.insert(key.clone(), id);
        id
    }

    /// Forgets a LocalQueue that neither exists nor is spoken of.
    pub(crate) fn collect(&mut self, id: LocalQueueId) {
        if let Some(idle) = self.get(id)
            && idle.spec.is_none()
            && idle.waiting == 0
            && idle.books.reserving == 0
            && let Some(gone) = self.arena.remove(id)
        {
            self.ids.remove(&gone.key);
        }
    }

    pub(crate) fn get(&self, id: LocalQueueId) -> Option<&LocalQueue> {
        self.arena.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: LocalQueueId) -> Option<&mut LocalQueue> {
        self.arena.get_mut(id)
    }

    /// All of them, in no particular order.
    pub(crate) fn ids(&self) -> Vec<LocalQueueId> {
        self.arena.iter().map(|(id, _)| id).collect()
    }

    /// In the order of their keys, which costs sorting them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LocalQueueId, &LocalQueue)> {
        let mut all: Vec<(&LocalQueueKey, LocalQueueId)> = self.ids.iter().map(|(key, id)| (key, *id)).collect();
        all.sort_unstable();
        all.into_iter().filter_map(|(_, id)| Some((id, self.arena.get(id)?)))
    }
}
