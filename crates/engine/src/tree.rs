//! The quota of one tree of cohorts: what each node has, lends, borrows and uses, per cell.
//!
//! The formulas are those of `docs/scheduling.md`, section 1. A [`Tree`] numbers the cells that it knows with its own
//! dense slots, the same in all its nodes, and keeps its nodes in one array, parents before children. It is built
//! anew when quota or membership changes; what is in use is then charged again. Charging is exact in both directions,
//! so a what-if is a list of charges that is taken back.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::amount::Amount;
use crate::arena::{Id, define_id};
use crate::queue::QueueId;
use crate::quota::{Books, CellId, Cells, ResourceId};
use crate::victims::Needs;
use crate::watch::{Wakes, Watches};

define_id! {
    /// A tree of cohorts.
    TreeId
}
define_id! {
    /// A ClusterQueue's or cohort's place in its [`Tree`].
    NodeId
}
define_id! {
    /// A cell's place in the arrays of one [`Tree`].
    Slot
}

impl NodeId {
    /// The root of any tree.
    pub(crate) const ROOT: Self = Self(0);
}

/// Which usage: that of all who hold quota, or of those who are not being evicted, with claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Book {
    Planned,
    Held,
}

/// One cell of one node. Everything is derived from the specs but the two usages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellState {
    /// Quota of its own.
    pub(crate) nominal: i128,
    /// What the node and its members bring in together.
    pub(crate) subtree: i128,
    /// What of it the parent never sees.
    pub(crate) local: i128,
    /// The most it may use beyond its own.
    pub(crate) borrow: Option<i128>,
    /// The most it could ever use.
    pub(crate) potential: i128,
    planned: i128,
    held: i128,
}

impl CellState {
    pub(crate) fn usage(&self, book: Book) -> i128 {
        match book {
            Book::Planned => self.planned,
            Book::Held => self.held,
        }
    }

    fn usage_mut(&mut self, book: Book) -> &mut i128 {
        match book {
            Book::Planned => &mut self.planned,
            Book::Held => &mut self.held,
        }
    }

    /// What of `usage` the parent sees.
    fn visible(&self, usage: i128) -> i128 {
        usage.saturating_sub(self.local).max(0)
    }

    /// What is left of what the parent never sees.
    pub(crate) fn free_local(&self, book: Book) -> i128 {
        self.local.saturating_sub(self.usage(book)).max(0)
    }

    /// How much more the parent may be asked for; none: as much as it has.
    fn slack(&self, book: Book) -> Option<i128> {
        let borrow = self.borrow?;
        let lent = self.subtree.saturating_sub(self.local);
        Some(
            lent.saturating_sub(self.visible(self.usage(book)))
                .saturating_add(borrow),
        )
    }

    /// Whether the node uses more than its own with `more` in addition.
    pub(crate) fn borrows_with(&self, more: i128) -> bool {
        self.planned.saturating_add(more) > self.subtree
    }
}

/// One ClusterQueue or cohort.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) parent: Option<NodeId>,
    pub(crate) children: Vec<NodeId>,
    /// The ClusterQueue that this is; none for a cohort.
    pub(crate) queue: Option<QueueId>,
    /// In thousand-millionths.
    pub(crate) weight: u64,
    cells: Vec<CellState>,
}

/// Quota of a node as its spec gives it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) nominal: i128,
    pub(crate) borrow: Option<i128>,
    pub(crate) lend: Option<i128>,
}

/// What a need is short of: the node at which it does not pass, and how much would have to be available there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) node: NodeId,
    pub(crate) need: i128,
    /// Nodes below keep quota for themselves here, so their use changes how much is needed above.
    pub(crate) shifting: bool,
}

/// One tree of cohorts, or one ClusterQueue without.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    slots: FxHashMap<CellId, Slot>,
    cells: Vec<CellId>,
    by_resource: BTreeMap<ResourceId, Vec<Slot>>,
    nodes: Vec<Node>,
    pub(crate) watches: Watches,
    /// ClusterQueues whose units had claims at the end of the last pass.
    pub(crate) standing: BTreeSet<QueueId>,
    /// A ClusterQueue in it reserves for who does not fit.
    pub(crate) is_backfilled: bool,
    /// It was looked at for ClusterQueues that are to shrink, and nothing that could make one so has happened since.
    pub(crate) checked: bool,
}

impl Tree {
    /// The root, added first, is its own parent's absence; every other node's parent must have been added.
    pub(crate) fn add_node(&mut self, parent: Option<NodeId>, queue: Option<QueueId>, weight: u64) -> NodeId {
        let id = NodeId::from_index(self.nodes.len());
        self.nodes.push(Node {
            parent,
            children: Vec::new(),
            queue,
            weight,
            cells: Vec::new(),
        });
        if let Some(parent) = parent {
            self.nodes[parent.index()].children.push(id);
        }
        id
    }

    /// Computes what follows from the specs: `given` says what a node's spec gives of a cell.
    pub(crate) fn derive(&mut self, quotas: &[(NodeId, (CellId, ResourceId), Given)]) {
        for (_, cell, _) in quotas {
            self.slot(*cell);
        }
        let width = self.cells.len();
        let mut given = vec![Given::default(); self.nodes.len().saturating_mul(width)];
        let at = |node: usize, slot: usize| node.saturating_mul(width).saturating_add(slot);
        for (node, (cell, _), quota) in quotas {
            if let Some(slot) = self.find(*cell) {
                given[at(node.index(), slot.index())] = *quota;
            }
        }
        for index in (0..self.nodes.len()).rev() {
            let parent = self.nodes[index].parent;
            for slot in 0..width {
                let quota = given[at(index, slot)];
                let cell = &mut self.nodes[index].cells[slot];
                cell.nominal = quota.nominal;
                cell.subtree = cell.subtree.saturating_add(quota.nominal);
                if parent.is_some() {
                    cell.borrow = quota.borrow;
                    cell.local = quota.lend.map_or(0, |lend| cell.subtree.saturating_sub(lend).max(0));
                }
                let visible = cell.subtree.saturating_sub(cell.local);
                if let Some(parent) = parent {
                    let above = &mut self.nodes[parent.index()].cells[slot];
                    above.subtree = above.subtree.saturating_add(visible);
                }
            }
        }
        for index in 0..self.nodes.len() {
            for slot in 0..width {
                let above = self.nodes[index]
                    .parent
                    .map(|parent| self.nodes[parent.index()].cells[slot].potential);
                let cell = &mut self.nodes[index].cells[slot];
                let limit = cell
                    .borrow
                    .map_or(i128::MAX, |borrow| cell.subtree.saturating_add(borrow));
                cell.potential = above.map_or(cell.subtree, |above| cell.local.saturating_add(above).min(limit));
            }
        }
    }

    /// The same tree with what is in use and nobody watching.
    pub(crate) fn with_usage(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            children: node.children.clone(),
            cells: node.cells.clone(),
            ..*node
        });
        Self {
            slots: self.slots.clone(),
            cells: self.cells.clone(),
            by_resource: self.by_resource.clone(),
            nodes: nodes.collect(),
            watches: Watches::default(),
            standing: BTreeSet::new(),
            is_backfilled: self.is_backfilled,
            checked: false,
        }
    }

    /// The same tree with nothing in use and nobody watching.
    pub(crate) fn without_usage(&self) -> Self {
        let mut empty = self.with_usage();
        for cell in empty.nodes.iter_mut().flat_map(|node| &mut node.cells) {
            (cell.planned, cell.held) = (0, 0);
        }
        empty
    }

    /// Whether everything is in use alike.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        self.nodes
            .iter()
            .map(|node| &node.cells)
            .eq(other.nodes.iter().map(|node| &node.cells))
    }

    /// The slot of a cell that some node here has quota for or uses; a new one if there is none.
    pub(crate) fn slot(&mut self, (cell, resource): (CellId, ResourceId)) -> Slot {
        if let Some(slot) = self.find(cell) {
            return slot;
        }
        let slot = Slot::from_index(self.cells.len());
        self.slots.insert(cell, slot);
        self.cells.push(cell);
        self.by_resource.entry(resource).or_default().push(slot);
        for node in &mut self.nodes {
            node.cells.push(CellState::default());
        }
        slot
    }

    pub(crate) fn find(&self, cell: CellId) -> Option<Slot> {
        // A look through a few costs less than a hash.
        if self.cells.len() <= 8 {
            let at = self.cells.iter().position(|known| *known == cell);
            return at.map(Slot::from_index);
        }
        self.slots.get(&cell).copied()
    }

    pub(crate) fn cell_of(&self, slot: Slot) -> CellId {
        self.cells[slot.index()]
    }

    /// The slots of each resource.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &[Slot]> {
        self.by_resource.values().map(Vec::as_slice)
    }

    /// The cells and their slots.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (CellId, Slot)> {
        let cells = self.cells.iter().enumerate();
        cells.map(|(index, cell)| (*cell, Slot::from_index(index)))
    }

    pub(crate) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.index()]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (NodeId::from_index(index), node))
    }

    pub(crate) fn state(&self, node: NodeId, slot: Slot) -> &CellState {
        &self.nodes[node.index()].cells[slot.index()]
    }

    /// The node and those above it, up to the root.
    pub(crate) fn path(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(Some(node), |node| self.nodes[node.index()].parent)
    }

    /// Whether a node uses more of a cell than its quota and limit allow.
    pub(crate) fn is_over(&self, node: NodeId, slot: Slot) -> bool {
        let state = self.state(node, slot);
        let beyond = match self.nodes[node.index()].parent {
            Some(_) => state.borrow,
            None => Some(0),
        };
        beyond.is_some_and(|beyond| state.planned > state.subtree.saturating_add(beyond))
    }

    /// Adds to what a ClusterQueue uses, or takes away with a negative amount; what its parents see follows. Returns the
    /// last node, on the way up, whose usage changed.
    pub(crate) fn charge(&mut self, queue: NodeId, slot: Slot, amount: i128, book: Book) -> NodeId {
        let (mut node, mut amount) = (queue, amount);
        loop {
            let state = &mut self.nodes[node.index()].cells[slot.index()];
            let before = state.visible(state.usage(book));
            let usage = state.usage_mut(book);
            *usage = usage.saturating_add(amount);
            let after = state.visible(state.usage(book));
            amount = after.saturating_sub(before);
            match self.nodes[node.index()].parent {
                Some(parent) if amount != 0 => node = parent,
                _ => return node,
            }
        }
    }

    /// How much more a node may use of a cell; a root may have less than nothing left.
    pub(crate) fn available(&self, node: NodeId, slot: Slot, book: Book) -> i128 {
        let state = self.state(node, slot);
        let Some(parent) = self.nodes[node.index()].parent else {
            return state.subtree.saturating_sub(state.usage(book));
        };
        let above = self.available(parent, slot, book);
        let room = state.slack(book).map_or(above, |slack| slack.min(above));
        state.free_local(book).saturating_add(room.max(0))
    }

    /// What is available at a node if its own limit did not hold: what a need that has come up to here meets.
    fn headroom(&self, node: NodeId, slot: Slot, book: Book) -> i128 {
        let state = self.state(node, slot);
        if self.nodes[node.index()].parent.is_some() {
            state.slack(book).unwrap_or(i128::MAX)
        } else {
            state.subtree.saturating_sub(state.usage(book))
        }
    }

    /// Where a need of a ClusterQueue does not pass, if anywhere.
    pub(crate) fn bar(&self, queue: NodeId, slot: Slot, need: i128, book: Book) -> Option<Bar> {
        let (mut need, mut shifting) = (need, false);
        for node in self.path(queue) {
            let state = self.state(node, slot);
            if self.nodes[node.index()].parent.is_some() {
                need = need.saturating_sub(state.free_local(book));
                shifting |= state.local > 0;
                if need <= 0 {
                    return None;
                }
            }
            if need > self.headroom(node, slot, book) {
                return Some(Bar { node, need, shifting });
            }
        }
        None
    }

    /// Whether there is room for all of a ClusterQueue's needs.
    pub(crate) fn fits(&self, queue: NodeId, needs: &[(Slot, i128)], book: Book) -> bool {
        needs
            .iter()
            .all(|(slot, need)| self.bar(queue, *slot, *need, book).is_none())
    }

    /// Adds to what a ClusterQueue is planned to use (`times` 1) or takes away (-1), and wakes nobody: for what is taken back.
    pub(crate) fn plan(&mut self, queue: NodeId, needs: &[(Slot, i128)], times: i128) {
        for (slot, need) in needs {
            self.charge(queue, *slot, need.saturating_mul(times), Book::Planned);
        }
    }

    /// Charges by slot; what is of a cell unknown here is left out.
    pub(crate) fn by_slot(&self, charges: &[(CellId, Amount)]) -> Needs {
        let known = charges
            .iter()
            .filter_map(|(cell, amount)| Some((self.find(*cell)?, amount.wide())));
        known.collect()
    }

    /// Charges what the units of a ClusterQueue hold in all.
    pub(crate) fn charge_books(&mut self, queue: NodeId, books: &Books, cells: &Cells) {
        for (cell, sums) in books.iter() {
            let slot = self.slot(cells.with_resource(cell));
            self.charge(queue, slot, sums.reserved, Book::Held);
            self.charge(queue, slot, sums.planned(), Book::Planned);
        }
    }

    /// Whether a need that does not pass at `node` now could: what [`Bar::need`] is compared with.
    pub(crate) fn passes(&self, node: NodeId, slot: Slot) -> i128 {
        self.headroom(node, slot, Book::Planned)
    }

    /// Whether there is room for any of these.
    pub(crate) fn has_room(&self, wakes: &Wakes) -> bool {
        let mut rooms = wakes.rooms.iter();
        rooms.any(|(slot, bar)| bar.need <= self.passes(bar.node, *slot))
    }

    /// What a need of a ClusterQueue is at each node on the way up, free local quota below taken off.
    pub(crate) fn climb(&self, queue: NodeId, slot: Slot, need: i128) -> impl Iterator<Item = (NodeId, i128)> + '_ {
        let mut need = need;
        self.path(queue).map(move |node| {
            let here = need;
            need = need
                .saturating_sub(self.state(node, slot).free_local(Book::Planned))
                .max(0);
            (node, here)
        })
    }

    /// The same while nobody in the tree holds anything.
    pub(crate) fn level_when_empty(&self, queue: NodeId, slot: Slot, need: i128) -> u32 {
        let (mut level, mut need) = (0, need);
        for node in self.path(queue) {
            let state = self.state(node, slot);
            if self.nodes[node.index()].parent.is_none() || need <= state.subtree {
                break;
            }
            need = need.saturating_sub(state.local.max(0)).max(0);
            level = u32::saturating_add(level, 1);
        }
        level
    }

    /// How many levels up a need of a ClusterQueue is met without borrowing, or the root is reached.
    pub(crate) fn level(&self, queue: NodeId, slot: Slot, need: i128) -> u32 {
        let mut level = 0;
        for (node, need) in self.climb(queue, slot, need) {
            if self.nodes[node.index()].parent.is_none() || !self.state(node, slot).borrows_with(need) {
                break;
            }
            level = u32::saturating_add(level, 1);
        }
        level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(nominal: i128, borrow: Option<i128>, lend: Option<i128>) -> Given {
        Given { nominal, borrow, lend }
    }

    /// A root with two queues of 10, the second of which lends only 4 and borrows at most 3.
    fn pair() -> (Tree, NodeId, NodeId, Slot) {
        let mut tree = Tree::default();
        let root = tree.add_node(None, None, 0);
        let (a, b) = (tree.add_node(Some(root), None, 0), tree.add_node(Some(root), None, 0));
        let cell = (CellId::from_index(7), ResourceId::from_index(0));
        tree.derive(&[(a, cell, given(10, None, None)), (b, cell, given(10, Some(3), Some(4)))]);
        let slot = tree.find(cell.0).unwrap();
        (tree, a, b, slot)
    }

    #[test]
    fn what_is_not_lent_is_nobody_elses() {
        let (tree, a, b, slot) = pair();
        assert_eq!(tree.available(a, slot, Book::Planned), 14);
        assert_eq!(tree.available(b, slot, Book::Planned), 13);
        assert_eq!((tree.state(a, slot).potential, tree.state(b, slot).potential), (14, 13));
    }

    #[test]
    fn use_comes_up_only_beyond_what_is_kept_and_goes_back_the_same_way() {
        let (mut tree, a, b, slot) = pair();
        assert_eq!(tree.charge(b, slot, 5, Book::Planned), b);
        assert_eq!(tree.available(a, slot, Book::Planned), 14);
        assert_eq!(tree.charge(b, slot, 4, Book::Planned), NodeId::ROOT);
        assert_eq!(tree.available(a, slot, Book::Planned), 11);
        assert_eq!(tree.charge(b, slot, -9, Book::Planned), NodeId::ROOT);
        assert_eq!(tree.available(a, slot, Book::Planned), 14);
        assert_eq!(tree.available(a, slot, Book::Held), 14);
    }

    #[test]
    fn a_need_meets_the_bar_where_it_is_too_large() {
        let (mut tree, a, b, slot) = pair();
        assert_eq!(tree.bar(b, slot, 13, Book::Planned), None);
        let at_b = Bar {
            node: b,
            need: 8,
            shifting: true,
        };
        assert_eq!(tree.bar(b, slot, 14, Book::Planned), Some(at_b));
        tree.charge(a, slot, 10, Book::Planned);
        let at_root = Bar {
            node: NodeId::ROOT,
            need: 5,
            shifting: true,
        };
        assert_eq!(tree.bar(b, slot, 11, Book::Planned), Some(at_root));
        assert_eq!(tree.bar(b, slot, 10, Book::Planned), None);
    }

    #[test]
    fn a_level_counts_the_nodes_that_borrow() {
        let (tree, a, _, slot) = pair();
        assert_eq!(
            (
                tree.level(a, slot, 10),
                tree.level(a, slot, 11),
                tree.level(a, slot, 99)
            ),
            (0, 1, 1)
        );
    }
}
