//! The order of a queue: one ordered tree that also knows ranks.

use std::cmp::Reverse;
use std::collections::{VecDeque, vec_deque};

use crate::ids::{Time, Uid};
use crate::units::UnitId;

/// A unit's place in the order of its queue: higher priority first, then earlier queue time, then smaller uid.
///
/// A total order: no two units compare equal. (The fields' order is the order of comparison.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) priority: Reverse<i32>,
    pub(crate) queued_at: Time,
    pub(crate) uid: Uid,
    /// Where the unit is stored; decides nothing, because no two turns share a uid.
    pub(crate) unit: UnitId,
}

/// How many entries a node of the tree holds at most: with turns in it, just below what allocators take for large.
const FANOUT: usize = 30;
/// A node with fewer entries than this is merged with a neighbour that has room.
const SPARSE: usize = FANOUT / 4;

/// An ordered set with O(log n) insert, remove, first and rank: a B+ tree whose branches count.
///
/// Entries lie side by side in the leaves, so a waiting unit costs little more here than the 32 bytes of its [`Turn`], also
/// when units arrive in order (a full last leaf is left full). Most units come last and go first: a leaf has two ends.
#[derive(Debug)]
pub(crate) struct Ranked<T = Turn> {
    root: Node<T>,
    len: usize,
}

#[derive(Debug)]
enum Node<T> {
    Leaf(VecDeque<T>),
    Branch(Vec<Child<T>>),
}

#[derive(Debug)]
struct Child<T> {
    /// No entry of this child is smaller, and none of its left neighbour is equal or greater. Says nothing for
    /// the first child, which takes everything smaller as well.
    from: T,
    count: usize,
    node: Node<T>,
}

impl<T> Default for Ranked<T> {
    fn default() -> Self {
        Self {
            root: Node::Leaf(VecDeque::new()),
            len: 0,
        }
    }
}

impl<T: Copy + Ord> Ranked<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `turn`; false if it was there.
    pub(crate) fn insert(&mut self, turn: T) -> bool {
        let Ok(split) = self.root.insert(turn) else {
            return false;
        };
        self.len += 1;
        if let Some(right) = split {
            let left = std::mem::replace(&mut self.root, Node::Branch(Vec::new()));
            // The first child's bound is never compared; any value will do.
            let left = Child {
                from: right.from,
                count: self.len - right.count,
                node: left,
            };
            self.root = Node::Branch(vec![left, right]);
        }
        true
    }

    /// Takes `turn` away; false if it was not there.
    pub(crate) fn remove(&mut self, turn: &T) -> bool {
        if !self.root.remove(turn) {
            return false;
        }
        self.len -= 1;
        while let Node::Branch(children) = &mut self.root {
            if children.len() > 1 {
                break;
            }
            self.root = children
                .pop()
                .map_or_else(|| Node::Leaf(VecDeque::new()), |only| only.node);
        }
        true
    }

    /// The smallest entry.
    pub(crate) fn first(&self) -> Option<T> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(turns) => return turns.front().copied(),
                Node::Branch(children) => node = &children.first()?.node,
            }
        }
    }

    pub(crate) fn contains(&self, turn: &T) -> bool {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(turns) => return turns.binary_search(turn).is_ok(),
                Node::Branch(children) => node = &children[child_for(children, turn)].node,
            }
        }
    }

    /// How many entries are in front of the first for which `is_ahead` is false; it must be true of none after that.
    pub(crate) fn partition_point(&self, is_ahead: impl Fn(&T) -> bool) -> usize {
        let mut node = &self.root;
        let mut ahead = 0;
        loop {
            match node {
                Node::Leaf(turns) => return ahead + turns.partition_point(&is_ahead),
                Node::Branch(children) => {
                    let at = children
                        .partition_point(|child| is_ahead(&child.from))
                        .saturating_sub(1);
                    ahead += children[..at].iter().map(|child| child.count).sum::<usize>();
                    node = &children[at].node;
                }
            }
        }
    }

    /// The entries in order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        Iter {
            pending: vec![std::slice::from_ref(&self.root).into()],
        }
    }

    /// The entries in order, from the one on that `rank` entries are smaller than.
    pub(crate) fn iter_from(&self, rank: usize) -> Iter<'_, T> {
        let mut pending = Vec::new();
        let mut node = &self.root;
        let mut left = rank;
        loop {
            match node {
                Node::Leaf(turns) => {
                    pending.push(Level::Turns(turns.range(left.min(turns.len())..)));
                    return Iter { pending };
                }
                Node::Branch(children) => {
                    let mut rest = children.iter();
                    let Some(child) = rest.find(|child| {
                        let here = left < child.count;
                        left -= if here { 0 } else { child.count };
                        here
                    }) else {
                        return Iter { pending };
                    };
                    pending.push(Level::Children(rest));
                    node = &child.node;
                }
            }
        }
    }

    /// Whether the tree's own counts and bounds hold.
    pub(crate) fn is_sound(&self) -> bool {
        let mut last = None;
        let ordered = self
            .iter()
            .all(|turn| last.replace(turn).is_none_or(|before| before < turn));
        ordered && self.iter().count() == self.len && self.root.is_counted()
    }
}

/// Which child holds `turn`, or would.
fn child_for<T: Ord>(children: &[Child<T>], turn: &T) -> usize {
    children.partition_point(|child| child.from <= *turn).saturating_sub(1)
}

impl<T: Copy + Ord> Node<T> {
    /// Adds `turn` below this node. Returns the new right neighbour if the node had to be split, or an error if
    /// the turn was there already.
    fn insert(&mut self, turn: T) -> Result<Option<Child<T>>, ()> {
        match self {
            Self::Leaf(turns) => {
                let at = if turns.back().is_none_or(|last| *last < turn) {
                    turns.len()
                } else if let Err(at) = turns.binary_search(&turn) {
                    at
                } else {
                    return Err(());
                };
                let Some(from) = split_point(turns.len(), at) else {
                    if turns.len() == turns.capacity() {
                        turns.reserve_exact(turns.len().max(4).min(FANOUT - turns.len()));
                    }
                    turns.insert(at, turn);
                    return Ok(None);
                };
                let mut right = VecDeque::with_capacity(FANOUT);
                right.extend(turns.drain(from..));
                match at.checked_sub(turns.len()) {
                    Some(at) => right.insert(at, turn),
                    None => turns.insert(at, turn),
                }
                Ok(right.front().copied().map(|from| Child {
                    from,
                    count: right.len(),
                    node: Self::Leaf(right),
                }))
            }
            Self::Branch(children) => {
                let at = child_for(children, &turn);
                let split = children[at].node.insert(turn)?;
                children[at].count += 1;
                let Some(child) = split else { return Ok(None) };
                children[at].count -= child.count;
                let at = at + 1;
                let Some(from) = split_point(children.len(), at) else {
                    children.insert(at, child);
                    return Ok(None);
                };
                let mut right = Vec::with_capacity(FANOUT);
                right.extend(children.drain(from..));
                match at.checked_sub(children.len()) {
                    Some(at) => right.insert(at, child),
                    None => children.insert(at, child),
                }
                let count = right.iter().map(|child| child.count).sum();
                Ok(right.first().map(|child| child.from).map(|from| Child {
                    from,
                    count,
                    node: Self::Branch(right),
                }))
            }
        }
    }

    /// Takes `turn` away below this node; false if it was not there.
    fn remove(&mut self, turn: &T) -> bool {
        match self {
            Self::Leaf(turns) if turns.front() == Some(turn) => turns.pop_front().is_some(),
            Self::Leaf(turns) => turns.binary_search(turn).map(|at| turns.remove(at)).is_ok(),
            Self::Branch(children) => {
                let at = child_for(children, turn);
                if !children[at].node.remove(turn) {
                    return false;
                }
                children[at].count -= 1;
                if children[at].count == 0 {
                    children.remove(at);
                } else if children[at].node.width() < SPARSE {
                    merge_sparse(children, at);
                }
                true
            }
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::Leaf(turns) => turns.len(),
            Self::Branch(children) => children.len(),
        }
    }

    fn is_counted(&self) -> bool {
        match self {
            Self::Leaf(turns) => turns.len() <= FANOUT,
            Self::Branch(children) => {
                children.len() <= FANOUT
                    && children
                        .iter()
                        .all(|child| child.node.total() == child.count && child.node.is_counted())
            }
        }
    }

    fn total(&self) -> usize {
        match self {
            Self::Leaf(turns) => turns.len(),
            Self::Branch(children) => children.iter().map(|child| child.count).sum(),
        }
    }
}

/// Where a node of `len` entries must be split before one more comes to `at`, if it must. At the very end the full node is
/// left as it is, so that entries arriving in order fill their leaves.
fn split_point(len: usize, at: usize) -> Option<usize> {
    (len >= FANOUT).then_some(if at == len { at } else { FANOUT / 2 })
}

/// Joins the sparse child `at` with a neighbour if both fit well into one node.
fn merge_sparse<T: Copy + Ord>(children: &mut Vec<Child<T>>, at: usize) {
    let left = if at + 1 < children.len() {
        at
    } else {
        at.saturating_sub(1)
    };
    if left + 1 >= children.len() || children[left].node.width() + children[left + 1].node.width() > FANOUT - SPARSE {
        return;
    }
    let right = children.remove(left + 1);
    let into = &mut children[left];
    match (&mut into.node, right.node) {
        (Node::Leaf(turns), Node::Leaf(more)) => turns.extend(more),
        (Node::Branch(grandchildren), Node::Branch(mut more)) => {
            // The first grandchild's bound meant nothing until now; its parent's bound holds for it.
            if let Some(first) = more.first_mut() {
                first.from = right.from;
            }
            grandchildren.extend(more);
        }
        // All leaves are at one depth, so neighbours are of one kind.
        (Node::Leaf(_), Node::Branch(_)) | (Node::Branch(_), Node::Leaf(_)) => {}
    }
    into.count += right.count;
}

/// Walks a [`Ranked`] in order.
#[derive(Debug)]
pub(crate) struct Iter<'a, T> {
    pending: Vec<Level<'a, T>>,
}

#[derive(Debug)]
enum Level<'a, T> {
    Turns(vec_deque::Iter<'a, T>),
    Children(std::slice::Iter<'a, Child<T>>),
}

impl<'a, T> From<&'a [Node<T>]> for Level<'a, T> {
    fn from(nodes: &'a [Node<T>]) -> Self {
        match nodes.first() {
            Some(Node::Leaf(turns)) => Self::Turns(turns.iter()),
            Some(Node::Branch(children)) => Self::Children(children.iter()),
            None => Self::Children([].iter()),
        }
    }
}

impl<T: Copy> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            let below = match self.pending.last_mut()? {
                Level::Turns(turns) => match turns.next() {
                    Some(turn) => return Some(*turn),
                    None => None,
                },
                Level::Children(children) => children.next(),
            };
            match below {
                Some(child) => self.pending.push(std::slice::from_ref(&child.node).into()),
                None => {
                    self.pending.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::arena::Id;

    fn turn(priority: i32, queued_at: i64, uid: u128) -> Turn {
        Turn {
            priority: Reverse(priority),
            queued_at: Time(queued_at),
            uid: Uid(uid),
            unit: UnitId::from_index(0),
        }
    }

    #[test]
    fn higher_priority_then_earlier_time_then_smaller_uid_goes_first() {
        assert!(turn(2, 9, 9) < turn(1, 0, 0));
        assert!(turn(1, 0, 9) < turn(1, 1, 0));
        assert!(turn(1, 0, 0) < turn(1, 0, 1));
        assert!(turn(i32::MAX, 0, 0) < turn(i32::MIN, i64::MIN, 0));
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Turn>(), 32);
    }

    fn leaves(node: &Node<Turn>) -> usize {
        match node {
            Node::Leaf(_) => 1,
            Node::Branch(children) => children.iter().map(|child| leaves(&child.node)).sum(),
        }
    }

    #[test]
    fn arriving_in_order_leaves_full_leaves_behind() {
        let mut tree = Ranked::default();
        for uid in 0..10_000 {
            assert!(tree.insert(turn(0, 0, uid)));
        }
        assert_eq!(leaves(&tree.root), 10_000usize.div_ceil(FANOUT));
        assert!(tree.is_sound());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_ranked_set_agrees_with_a_plain_ordered_set(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u128..600), 0..3000)
        ) {
            let (mut tree, mut plain) = (Ranked::default(), BTreeSet::new());
            for (remove, downwards, uid) in steps {
                let entry = turn(0, 0, if downwards { 600 - uid } else { uid });
                if remove {
                    prop_assert_eq!(tree.remove(&entry), plain.remove(&entry));
                } else {
                    prop_assert_eq!(tree.insert(entry), plain.insert(entry));
                }
                prop_assert_eq!(tree.first(), plain.first().copied());
                prop_assert_eq!(tree.partition_point(|other| *other < entry), plain.range(..entry).count());
            }
            prop_assert!(tree.is_sound());
            prop_assert!(tree.iter().eq(plain.iter().copied()));
            for rank in (0..plain.len() + 2).step_by(7) {
                prop_assert!(tree.iter_from(rank).eq(plain.iter().skip(rank).copied()));
            }
            for entry in plain {
                prop_assert!(tree.remove(&entry));
            }
            prop_assert!(tree.is_empty() && tree.first().is_none());
        }

        #[test]
        fn filling_and_draining_from_either_end_keeps_the_counts(from_front in any::<bool>(), size in 1u128..9000) {
            let mut tree = Ranked::default();
            for uid in 0..size {
                tree.insert(turn(0, 0, uid.wrapping_mul(0x9e37_79b9) % 100_003));
            }
            while tree.len() > 70 {
                let entry = if from_front { tree.first() } else { tree.iter().nth(tree.len() / 2) };
                prop_assert!(tree.remove(&entry.unwrap()));
            }
            prop_assert!(tree.is_sound());
        }
    }
}
