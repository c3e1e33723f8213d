//! What parked shapes wait for in a tree: room at a node, any change of a node's use, somebody to evict.
//!
//! Waking one too many costs a judgement, waking one too few loses work: where a condition cannot be told exactly, the
//! wider one is watched. [`crate::Engine::audit`] checks that nobody who is parked has an outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use rustc_hash::FxHashMap;

use crate::parking::ClassId;
use crate::queue::QueueId;
use crate::tree::{Bar, NodeId, Slot};

/// A parked class of a ClusterQueue.
pub(crate) type Parked = (QueueId, ClassId);

/// What ends the parking of a class: any of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// As much as this has to be available at a node.
    pub(crate) rooms: Vec<(Slot, Bar)>,
    /// Somebody under the node uses less of the cell.
    pub(crate) releases: Vec<(NodeId, Slot)>,
    /// Somebody in the tree uses more of the cell.
    pub(crate) charges: Vec<Slot>,
    /// Somebody to evict appears in the own ClusterQueue.
    pub(crate) own_victims: bool,
    /// Somebody to evict appears in another ClusterQueue.
    pub(crate) other_victims: bool,
    /// Anything in the tree changes its use: shares decide.
    pub(crate) shares: bool,
}

impl Wakes {
    /// Whether room at one of these nodes is all that can help, and always the same amount: then as long as there is none
    /// nothing has changed.
    pub(crate) fn is_room_alone(&self) -> bool {
        self.releases.is_empty() && self.charges.is_empty() && !self.own_victims && !self.other_victims && !self.shares
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.rooms.extend(other.rooms);
        self.releases.extend(other.releases);
        self.charges.extend(other.charges);
        self.own_victims |= other.own_victims;
        self.other_victims |= other.other_victims;
        self.shares |= other.shares;
    }
}

/// Who waits for room in one slot of one node, by how much.
#[derive(Debug)]
struct Rooms {
    waiting: BTreeMap<i128, BTreeSet<Parked>>,
    /// Whoever waits for no more than this was woken and is not parked again: many releases in a row wake each once.
    woken_to: i128,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            woken_to: i128::MIN,
        }
    }
}

impl Rooms {
    /// Somebody is parked who waits for this much.
    fn arm(&mut self, need: i128) {
        self.woken_to = self.woken_to.min(need.saturating_sub(1));
    }

    fn remove(&mut self, need: i128, parked: Parked) {
        if let Some(alike) = self.waiting.get_mut(&need) {
            alike.remove(&parked);
            if alike.is_empty() {
                self.waiting.remove(&need);
            }
        }
    }
}

/// All that is watched in one tree.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    rooms: FxHashMap<(NodeId, Slot), Rooms>,
    releases: FxHashMap<(NodeId, Slot), BTreeSet<Parked>>,
    charges: FxHashMap<Slot, BTreeSet<Parked>>,
    /// By priority.
    own_victims: FxHashMap<QueueId, BTreeSet<(i32, ClassId)>>,
    other_victims: BTreeSet<Parked>,
    shares: BTreeSet<Parked>,
}

impl Watches {
    /// `priority` is that of the class.
    pub(crate) fn add(&mut self, parked: Parked, priority: i32, wakes: &Wakes) {
        for (slot, bar) in &wakes.rooms {
            let rooms = self.rooms.entry((bar.node, *slot)).or_default();
            rooms.waiting.entry(bar.need).or_default().insert(parked);
            rooms.arm(bar.need);
        }
        for at in &wakes.releases {
            self.releases.entry(*at).or_default().insert(parked);
        }
        for slot in &wakes.charges {
            self.charges.entry(*slot).or_default().insert(parked);
        }
        if wakes.own_victims {
            let own = self.own_victims.entry(parked.0).or_default();
            own.insert((priority, parked.1));
        }
        if wakes.other_victims {
            self.other_victims.insert(parked);
        }
        if wakes.shares {
            self.shares.insert(parked);
        }
    }

    /// The opposite of [`Watches::add`].
    pub(crate) fn remove(&mut self, parked: Parked, priority: i32, wakes: &Wakes) {
        for (slot, bar) in &wakes.rooms {
            if let Some(rooms) = self.rooms.get_mut(&(bar.node, *slot)) {
                rooms.remove(bar.need, parked);
            }
        }
        for at in &wakes.releases {
            if let Some(waiting) = self.releases.get_mut(at) {
                waiting.remove(&parked);
            }
        }
        for slot in &wakes.charges {
            if let Some(waiting) = self.charges.get_mut(slot) {
                waiting.remove(&parked);
            }
        }
        if wakes.own_victims
            && let Some(own) = self.own_victims.get_mut(&parked.0)
        {
            own.remove(&(priority, parked.1));
        }
        if wakes.other_victims {
            self.other_victims.remove(&parked);
        }
        if wakes.shares {
            self.shares.remove(&parked);
        }
    }

    /// A class that was woken by room is parked again, for the same as before.
    pub(crate) fn arm(&mut self, wakes: &Wakes) {
        for (slot, bar) in &wakes.rooms {
            if let Some(rooms) = self.rooms.get_mut(&(bar.node, *slot)) {
                rooms.arm(bar.need);
            }
        }
    }

    /// Who waits for no more than `available` at a node and was not woken yet: the caller must wake them.
    pub(crate) fn with_room(&mut self, node: NodeId, slot: Slot, available: i128, woken: &mut Vec<Parked>) {
        if let Some(rooms) = self.rooms.get_mut(&(node, slot))
            && available > rooms.woken_to
        {
            let fresh = (Bound::Excluded(rooms.woken_to), Bound::Included(available));
            woken.extend(rooms.waiting.range(fresh).flat_map(|(_, alike)| alike));
            rooms.woken_to = available;
        }
    }

    pub(crate) fn released(&self, node: NodeId, slot: Slot, woken: &mut Vec<Parked>) {
        woken.extend(self.releases.get(&(node, slot)).into_iter().flatten());
    }

    pub(crate) fn charged(&self, slot: Slot, woken: &mut Vec<Parked>) {
        woken.extend(self.charges.get(&slot).into_iter().flatten());
    }

    pub(crate) fn shares_changed(&self, woken: &mut Vec<Parked>) {
        woken.extend(&self.shares);
    }

    /// Who could evict a unit of `queue` with this priority.
    pub(crate) fn victim(&self, queue: QueueId, priority: i32, woken: &mut Vec<Parked>) {
        if let Some(own) = self.own_victims.get(&queue) {
            let own = own.iter().rev().take_while(|(theirs, _)| *theirs >= priority);
            woken.extend(own.map(|(_, class)| (queue, *class)));
        }
        woken.extend(self.other_victims.iter().filter(|(other, _)| *other != queue));
    }

    /// Who watches for units of other ClusterQueues to evict.
    pub(crate) fn others_changed(&self, queue: QueueId, woken: &mut Vec<Parked>) {
        woken.extend(self.other_victims.iter().filter(|(other, _)| *other != queue));
    }

    pub(crate) fn is_watched(&self, parked: Parked, wakes: &Wakes) -> bool {
        let rooms = wakes.rooms.iter().all(|(slot, bar)| {
            self.rooms.get(&(bar.node, *slot)).is_some_and(|rooms| {
                let alike = rooms.waiting.get(&bar.need);
                alike.is_some_and(|alike| alike.contains(&parked)) && rooms.woken_to < bar.need
            })
        });
        let releases = wakes
            .releases
            .iter()
            .all(|at| self.releases.get(at).is_some_and(|waiting| waiting.contains(&parked)));
        rooms && releases
    }
}
