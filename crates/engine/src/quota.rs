//! Cells, and the books of what is held in them.
//!
//! A [`Books`] adds up what the units of one holder (a ClusterQueue, a LocalQueue) hold, per cell. Sums are kept in
//! 128 bits: adding and taking away any number of charges is exact.
#![deny(clippy::arithmetic_side_effects)]

use rustc_hash::FxHashMap;

use crate::amount::Amount;
use crate::arena::{Id, define_id};
use crate::ids::Name;
use crate::interner::Interner;
use crate::spec::Phase;

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

    /// A cell with its resource.
    pub(crate) fn with_resource(&self, cell: CellId) -> (CellId, ResourceId) {
        (cell, self.keys[cell.index()].1)
    }
}

/// What the units of one holder hold of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// By all of them.
    pub(crate) reserved: i128,
    /// By those whose admission is written.
    pub(crate) admitted: i128,
    /// By those that are being evicted.
    pub(crate) evicting: i128,
}

impl Sums {
    pub(crate) fn add(&mut self, amount: i128, phase: Phase) {
        self.reserved = self.reserved.saturating_add(amount);
        if phase != Phase::Assumed {
            self.admitted = self.admitted.saturating_add(amount);
        }
        if phase == Phase::Evicting {
            self.evicting = self.evicting.saturating_add(amount);
        }
    }

    /// What counts as going to be in use.
    pub(crate) fn planned(self) -> i128 {
        self.reserved.saturating_sub(self.evicting)
    }
}

/// What the units of one holder hold, and how many they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// Sorted by cell; none is zero. There are few: a holder uses the cells of its own queue.
    cells: Vec<(CellId, Sums)>,
    pub(crate) reserving: usize,
    pub(crate) admitted: usize,
}

impl Books {
    /// Writes a unit in.
    pub(crate) fn charge(&mut self, charges: &[(CellId, Amount)], phase: Phase) {
        for (cell, amount) in charges {
            let at = self.cells.partition_point(|(known, _)| known < cell);
            if self.cells.get(at).is_none_or(|(known, _)| known != cell) {
                self.cells.insert(at, (*cell, Sums::default()));
            }
            self.cells[at].1.add(amount.wide(), phase);
        }
        self.reserving = self.reserving.saturating_add(1);
        self.admitted = self.admitted.saturating_add(usize::from(phase != Phase::Assumed));
    }

    /// Strikes a unit out.
    pub(crate) fn release(&mut self, charges: &[(CellId, Amount)], phase: Phase) {
        for (cell, amount) in charges {
            if let Ok(at) = self.cells.binary_search_by_key(cell, |(known, _)| *known) {
                let sums = &mut self.cells[at].1;
                sums.add(amount.wide().saturating_neg(), phase);
                if *sums == Sums::default() {
                    self.cells.remove(at);
                }
            }
        }
        self.reserving = self.reserving.saturating_sub(1);
        self.admitted = self.admitted.saturating_sub(usize::from(phase != Phase::Assumed));
    }

    /// Notes that a unit written in is in another phase.
    pub(crate) fn advance(&mut self, charges: &[(CellId, Amount)], before: Phase, after: Phase) {
        for (cell, amount) in charges {
            if let Ok(at) = self.cells.binary_search_by_key(cell, |(known, _)| *known) {
                let sums = &mut self.cells[at].1;
                sums.add(amount.wide().saturating_neg(), before);
                sums.add(amount.wide(), after);
            }
        }
        self.admitted = self.admitted.saturating_add(usize::from(after != Phase::Assumed));
        self.admitted = self.admitted.saturating_sub(usize::from(before != Phase::Assumed));
    }

    pub(crate) fn sums(&self, cell: CellId) -> Sums {
        let at = self.cells.binary_search_by_key(&cell, |(known, _)| *known);
        at.map_or_else(|_| Sums::default(), |at| self.cells[at].1)
    }

    /// The cells in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (CellId, Sums)> {
        self.cells.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_beyond_64_bits_come_back_exactly() {
        let mut books = Books::default();
        let charges = [(CellId::from_index(0), Amount::MAX)];
        for _ in 0..5 {
            books.charge(&charges, Phase::Assumed);
        }
        assert_eq!(books.sums(charges[0].0).reserved, 5 * i128::from(i64::MAX));
        for _ in 0..5 {
            books.release(&charges, Phase::Assumed);
        }
        assert_eq!(books, Books::default());
    }

    #[test]
    fn what_is_being_evicted_is_held_but_not_planned() {
        let mut books = Books::default();
        let charges = [(CellId::from_index(0), Amount::new(3))];
        books.charge(&charges, Phase::Evicting);
        let sums = books.sums(charges[0].0);
        assert_eq!((sums.reserved, sums.admitted, sums.planned()), (3, 3, 0));
    }
}
