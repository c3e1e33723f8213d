//! Quota and its use: dense arrays under interned (flavor, resource) cells.
//!
//! A [`Node`] is one holder of quota (a ClusterQueue now; a LocalQueue keeps its share of the books in one too). It
//! numbers the cells that it knows with its own dense slots, so that its size does not depend on how many flavors
//! other queues use. Sums are kept in 128 bits: adding and taking away any number of charges is exact.
#![deny(clippy::arithmetic_side_effects)]

use rustc_hash::FxHashMap;

use crate::amount::Amount;
use crate::arena::{Id, define_id};
use crate::ids::Name;
use crate::interner::Interner;

define_id! {
    /// A flavor, by interned name.
    FlavorId
}
define_id! {
    /// A resource that somewhere has quota or is charged, by interned name.
    ResourceId
}
define_id! {
    /// A resource in a flavor.
    CellId
}
define_id! {
    /// A cell's place in the arrays of one [`Node`].
    Slot
}

/// The interned flavors, resources and their pairs.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    pub(crate) flavors: Interner<FlavorId>,
    pub(crate) resources: Interner<ResourceId>,
    ids: FxHashMap<(FlavorId, ResourceId), CellId>,
    keys: Vec<(FlavorId, ResourceId)>,
}

impl Cells {
    /// The cell of `resource` in `flavor`, a new one if there is none.
    pub(crate) fn intern(&mut self, flavor: FlavorId, resource: ResourceId) -> CellId {
        *self.ids.entry((flavor, resource)).or_insert_with(|| {
            let id = CellId::from_index(self.keys.len());
            self.keys.push((flavor, resource));
            id
        })
    }

    /// The cell of two names.
    pub(crate) fn intern_names(&mut self, flavor: &Name, resource: &Name) -> CellId {
        let (flavor, resource) = (self.flavors.intern(flavor), self.resources.intern(resource));
        self.intern(flavor, resource)
    }

    /// The names of a cell's flavor and resource.
    pub(crate) fn names(&self, cell: CellId) -> (&Name, &Name) {
        let (flavor, resource) = self.keys[cell.index()];
        (self.flavors.name(flavor), self.resources.name(resource))
    }
}

/// One holder of quota: how much it may use of each cell and how much it does.
#[derive(Debug, Default)]
pub(crate) struct Node {
    slots: FxHashMap<CellId, Slot>,
    cells: Vec<CellId>,
    nominal: Vec<Option<Amount>>,
    reserved: Vec<i128>,
    admitted: Vec<i128>,
}

/// Which books a charge is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Book {
    /// Reserved only: the admission is assumed.
    Reserved,
    /// Reserved and admitted: the admission is written.
    Admitted,
}

impl Node {
    /// The slot of `cell`, a new empty one if there is none. Slots that exist keep their numbers.
    pub(crate) fn slot(&mut self, cell: CellId) -> Slot {
        *self.slots.entry(cell).or_insert_with(|| {
            let slot = Slot::from_index(self.cells.len());
            self.cells.push(cell);
            self.nominal.push(None);
            self.reserved.push(0);
            self.admitted.push(0);
            slot
        })
    }

    /// Replaces all quota. What is in use is kept, also where there is no quota (any more). Slots are numbered
    /// anew: whoever remembers one must ask again.
    pub(crate) fn set_nominal(&mut self, quota: impl IntoIterator<Item = (CellId, Amount)>) {
        let before = std::mem::take(self);
        for (cell, nominal) in quota {
            let slot = self.slot(cell);
            self.nominal[slot.index()] = Some(nominal);
        }
        for (index, cell) in before.cells.iter().enumerate() {
            if before.reserved[index] != 0 || before.admitted[index] != 0 {
                let slot = self.slot(*cell);
                self.reserved[slot.index()] = before.reserved[index];
                self.admitted[slot.index()] = before.admitted[index];
            }
        }
    }

    /// Adds to what is in use, beyond the quota if need be.
    pub(crate) fn charge(&mut self, cell: CellId, amount: Amount, book: Book) -> Slot {
        let slot = self.slot(cell);
        let reserved = &mut self.reserved[slot.index()];
        *reserved = reserved.saturating_add(amount.wide());
        if book == Book::Admitted {
            let admitted = &mut self.admitted[slot.index()];
            *admitted = admitted.saturating_add(amount.wide());
        }
        slot
    }

    /// Takes away from what is in use.
    pub(crate) fn release(&mut self, cell: CellId, amount: Amount, book: Book) -> Slot {
        let slot = self.slot(cell);
        let reserved = &mut self.reserved[slot.index()];
        *reserved = reserved.saturating_sub(amount.wide());
        if book == Book::Admitted {
            let admitted = &mut self.admitted[slot.index()];
            *admitted = admitted.saturating_sub(amount.wide());
        }
        slot
    }

    /// The quota of a slot, zero if it has none.
    pub(crate) fn limit(&self, slot: Slot) -> i128 {
        self.nominal[slot.index()].unwrap_or_default().wide()
    }

    /// What is left of the quota: negative when more is in use than the quota allows.
    pub(crate) fn free(&self, slot: Slot) -> i128 {
        self.limit(slot).saturating_sub(self.reserved[slot.index()])
    }

    /// What is reserved and what of it is admitted.
    pub(crate) fn used(&self, cell: CellId) -> (i128, i128) {
        self.slots.get(&cell).map_or((0, 0), |slot| {
            (self.reserved[slot.index()], self.admitted[slot.index()])
        })
    }

    /// The quota of a cell, if it has any.
    pub(crate) fn nominal(&self, cell: CellId) -> Option<Amount> {
        self.slots.get(&cell).and_then(|slot| self.nominal[slot.index()])
    }

    /// All cells of this node: those with quota in the order given, then others in order of first use.
    pub(crate) fn cells(&self) -> &[CellId] {
        &self.cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(index: usize) -> CellId {
        CellId::from_index(index)
    }

    #[test]
    fn use_above_the_quota_counts_and_leaves_less_than_nothing_free() {
        let mut node = Node::default();
        node.set_nominal([(cell(0), Amount::new(3))]);
        let slot = node.charge(cell(0), Amount::new(5), Book::Admitted);
        assert_eq!(node.free(slot), -2);
        node.release(cell(0), Amount::new(5), Book::Admitted);
        assert_eq!(node.free(slot), 3);
    }

    #[test]
    fn sums_beyond_64_bits_come_back_exactly() {
        let mut node = Node::default();
        node.set_nominal([(cell(0), Amount::MAX)]);
        for _ in 0..5 {
            node.charge(cell(0), Amount::MAX, Book::Reserved);
        }
        let slot = node.slot(cell(0));
        assert_eq!(node.free(slot), -4 * i128::from(i64::MAX));
        for _ in 0..5 {
            node.release(cell(0), Amount::MAX, Book::Reserved);
        }
        assert_eq!(node.free(slot), i128::from(i64::MAX));
    }

    #[test]
    fn use_is_remembered_while_its_quota_is_gone() {
        let mut node = Node::default();
        node.set_nominal([(cell(0), Amount::new(3)), (cell(1), Amount::new(1))]);
        node.charge(cell(0), Amount::new(2), Book::Admitted);
        node.set_nominal([(cell(1), Amount::new(1))]);
        assert_eq!(node.cells(), [cell(1), cell(0)]);
        assert_eq!((node.used(cell(0)), node.nominal(cell(0))), ((2, 2), None));
        node.set_nominal([(cell(0), Amount::new(9))]);
        let slot = node.slot(cell(0));
        assert_eq!((node.free(slot), node.cells()), (7, &[cell(0)][..]));
    }
}
