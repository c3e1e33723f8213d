//! Section 1: the tree and what its books say, and the share of section 6. Every number is worked out from the bottom
//! each time it is asked for; only `subtree`, which no unit changes, is kept.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::*;

/// A flavor and a resource.
pub(crate) type Cell = (Name, Name);

/// How much of each cell.
pub(crate) type Needs = BTreeMap<Cell, i128>;

/// A node, by its place in the forest.
pub(crate) type At = usize;

/// A ClusterQueue or a cohort.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: Name,
    pub(crate) is_queue: bool,
    pub(crate) parent: Option<At>,
    children: Vec<At>,
    quotas: BTreeMap<Cell, Quota>,
    weight: Weight,
    /// In a cycle of parents, or with a parent that is no object: a root for the books, and nobody is admitted below.
    broken: bool,
    subtree: Needs,
}

/// All trees.
#[derive(Debug, Clone)]
pub(crate) struct Forest {
    members: Vec<Member>,
}

impl Forest {
    pub(crate) fn of(queues: &BTreeMap<Name, QueueSpec>, cohorts: &BTreeMap<Name, CohortSpec>) -> Self {
        let named = queues.values().filter_map(|spec| spec.cohort.clone());
        let names: BTreeSet<Name> = named.chain(cohorts.keys().cloned()).collect();
        let place: BTreeMap<Name, At> = names.iter().cloned().zip(0..).collect();
        let mut members = Vec::new();
        for name in &names {
            let spec = cohorts.get(name).cloned().unwrap_or_default();
            let is_missing = spec.parent.as_ref().is_some_and(|parent| !cohorts.contains_key(parent));
            let broken = is_missing || is_in_cycle(name, cohorts);
            let parent = spec.parent.as_ref().filter(|_| !broken).map(|parent| place[parent]);
            members.push(Member::new(name, false, parent, &spec.groups, spec.weight, broken));
        }
        for (name, spec) in queues {
            let parent = spec.cohort.as_ref().map(|cohort| place[cohort]);
            members.push(Member::new(name, true, parent, &spec.groups, spec.weight, false));
        }
        for child in 0..members.len() {
            if let Some(parent) = members[child].parent {
                members[parent].children.push(child);
            }
        }
        let mut forest = Self { members };
        for n in forest.all() {
            let cells = forest.cells_below(n);
            let subtree = cells.into_iter().map(|cell| (cell.clone(), forest.sum(n, &cell)));
            forest.members[n].subtree = subtree.collect();
        }
        forest
    }

    pub(crate) fn all(&self) -> std::ops::Range<At> {
        0..self.members.len()
    }

    pub(crate) fn member(&self, n: At) -> &Member {
        &self.members[n]
    }

    pub(crate) fn queue(&self, name: &str) -> Option<At> {
        self.all()
            .find(|n| self.members[*n].is_queue && *self.members[*n].name == *name)
    }

    pub(crate) fn parent(&self, n: At) -> Option<At> {
        self.members[n].parent
    }

    pub(crate) fn children(&self, n: At) -> &[At] {
        &self.members[n].children
    }

    /// The node itself, its parent and so on up to the root.
    pub(crate) fn way_up(&self, n: At) -> Vec<At> {
        std::iter::successors(Some(n), |n| self.parent(*n)).collect()
    }

    pub(crate) fn root(&self, n: At) -> At {
        *self.way_up(n).last().unwrap()
    }

    pub(crate) fn is_under(&self, n: At, above: At) -> bool {
        self.way_up(n).contains(&above)
    }

    /// Whether no cohort on the way up is in a cycle or misses its parent.
    pub(crate) fn is_sound(&self, n: At) -> bool {
        self.way_up(n).iter().all(|n| !self.members[*n].broken)
    }

    /// The lowest node above both.
    pub(crate) fn common_ancestor(&self, one: At, other: At) -> Option<At> {
        let mut above = self.way_up(one).into_iter().skip(1);
        above.find(|n| self.is_under(other, *n))
    }

    /// The nodes on the way up from `n` that are below `above`.
    pub(crate) fn way_below(&self, n: At, above: At) -> Vec<At> {
        self.way_up(n).into_iter().take_while(|n| *n != above).collect()
    }

    /// The child of `above` that `n` is, or is under.
    pub(crate) fn side_of(&self, above: At, n: At) -> At {
        *self.way_below(n, above).last().unwrap()
    }

    pub(crate) fn queues_below(&self, n: At) -> Vec<At> {
        self.all()
            .filter(|q| self.members[*q].is_queue && self.is_under(*q, n))
            .collect()
    }

    pub(crate) fn nominal(&self, n: At, cell: &Cell) -> i128 {
        let quota = self.members[n].quotas.get(cell);
        quota.map_or(0, |quota| wide(quota.nominal))
    }

    fn lend(&self, n: At, cell: &Cell) -> Option<i128> {
        self.parent(n)?;
        self.members[n].quotas.get(cell)?.lending_limit.map(wide)
    }

    pub(crate) fn borrow(&self, n: At, cell: &Cell) -> Option<i128> {
        self.parent(n)?;
        self.members[n].quotas.get(cell)?.borrowing_limit.map(wide)
    }

    fn cells_below(&self, n: At) -> BTreeSet<Cell> {
        let below = self.all().filter(|m| self.is_under(*m, n));
        below.flat_map(|m| self.members[m].quotas.keys().cloned()).collect()
    }

    /// `subtree`, from the formula.
    fn sum(&self, n: At, cell: &Cell) -> i128 {
        let lent = self.children(n).iter().map(|child| {
            let subtree = self.sum(*child, cell);
            let local = self.lend(*child, cell).map_or(0, |lend| (subtree - lend).max(0));
            subtree - local
        });
        lent.fold(self.nominal(n, cell), i128::saturating_add)
    }

    pub(crate) fn subtree(&self, n: At, cell: &Cell) -> i128 {
        self.members[n].subtree.get(cell).copied().unwrap_or(0)
    }

    pub(crate) fn local(&self, n: At, cell: &Cell) -> i128 {
        let lend = self.lend(n, cell);
        lend.map_or(0, |lend| (self.subtree(n, cell) - lend).max(0))
    }

    pub(crate) fn potential(&self, n: At, cell: &Cell) -> i128 {
        let Some(parent) = self.parent(n) else {
            return self.subtree(n, cell);
        };
        let from_above = self.local(n, cell).saturating_add(self.potential(parent, cell));
        match self.borrow(n, cell) {
            Some(borrow) => from_above.min(self.subtree(n, cell).saturating_add(borrow)),
            None => from_above,
        }
    }
}

impl Member {
    fn new(
        name: &Name,
        is_queue: bool,
        parent: Option<At>,
        groups: &[ResourceGroup],
        weight: Weight,
        broken: bool,
    ) -> Self {
        let quotas = groups.iter().flat_map(|group| {
            group.flavors.iter().flat_map(|offered| {
                let quotas = group.resources.iter().zip(&offered.quotas);
                quotas.map(|(resource, quota)| ((offered.flavor.clone(), resource.clone()), *quota))
            })
        });
        Self {
            name: name.clone(),
            is_queue,
            parent,
            children: vec![],
            quotas: quotas.collect(),
            weight,
            broken,
            subtree: Needs::new(),
        }
    }
}

fn is_in_cycle(name: &Name, cohorts: &BTreeMap<Name, CohortSpec>) -> bool {
    let above = |name: &Name| cohorts.get(name)?.parent.clone();
    let up = std::iter::successors(above(name), above);
    up.take(cohorts.len()).any(|met| met == *name)
}

fn wide(amount: Amount) -> i128 {
    i128::from(amount.get())
}

/// What each ClusterQueue's units use.
#[derive(Debug, Clone)]
pub(crate) struct Book<'f> {
    pub(crate) forest: &'f Forest,
    used: BTreeMap<At, Needs>,
}

impl<'f> Book<'f> {
    pub(crate) fn empty(forest: &'f Forest) -> Self {
        Self {
            forest,
            used: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, queue: At, needs: &Needs) {
        let used = self.used.entry(queue).or_default();
        for (cell, amount) in needs {
            *used.entry(cell.clone()).or_default() += amount;
        }
    }

    pub(crate) fn take_out(&mut self, queue: At, needs: &Needs) {
        let used = self.used.entry(queue).or_default();
        for (cell, amount) in needs {
            *used.entry(cell.clone()).or_default() -= amount;
        }
    }

    pub(crate) fn with(&self, queue: At, needs: &Needs) -> Self {
        let mut book = self.clone();
        book.add(queue, needs);
        book
    }

    pub(crate) fn without(&self, queue: At, needs: &Needs) -> Self {
        let mut book = self.clone();
        book.take_out(queue, needs);
        book
    }

    pub(crate) fn usage(&self, n: At, cell: &Cell) -> i128 {
        if self.forest.member(n).is_queue {
            let used = self.used.get(&n).and_then(|used| used.get(cell));
            return used.copied().unwrap_or(0);
        }
        let children = self.forest.children(n).iter();
        children
            .map(|child| (self.usage(*child, cell) - self.forest.local(*child, cell)).max(0))
            .fold(0, i128::saturating_add)
    }

    pub(crate) fn free_local(&self, n: At, cell: &Cell) -> i128 {
        (self.forest.local(n, cell) - self.usage(n, cell)).max(0)
    }

    pub(crate) fn available(&self, n: At, cell: &Cell) -> i128 {
        let Some(parent) = self.forest.parent(n) else {
            return self.forest.subtree(n, cell) - self.usage(n, cell);
        };
        let from_above = self.available(parent, cell);
        let from_above = self.slack(n, cell).map_or(from_above, |slack| slack.min(from_above));
        self.free_local(n, cell) + from_above.max(0)
    }

    fn slack(&self, n: At, cell: &Cell) -> Option<i128> {
        let borrow = self.forest.borrow(n, cell)?;
        let (subtree, local) = (self.forest.subtree(n, cell), self.forest.local(n, cell));
        Some(subtree - local - (self.usage(n, cell) - local).max(0) + borrow)
    }

    /// What of `available` is more than the ClusterQueue's own.
    pub(crate) fn borrowable(&self, queue: At, cell: &Cell) -> i128 {
        let free = self.available(queue, cell).max(0);
        let own = (self.forest.subtree(queue, cell) - self.usage(queue, cell)).max(0);
        (free - own).max(0)
    }

    /// The first limit on the way up that leaves too little for a need of the ClusterQueue.
    pub(crate) fn binding(&self, queue: At, cell: &Cell, need: i128) -> Binding {
        let (mut n, mut left) = (queue, need);
        while let Some(parent) = self.forest.parent(n) {
            left -= self.free_local(n, cell);
            if self.slack(n, cell).is_some_and(|slack| left > slack) {
                return if n == queue {
                    Binding::BorrowingLimit
                } else {
                    Binding::CohortBorrowingLimit(self.forest.member(n).name.clone())
                };
            }
            n = parent;
        }
        if n == queue {
            Binding::Nominal
        } else {
            Binding::Cohort(self.forest.member(n).name.clone())
        }
    }

    pub(crate) fn fits(&self, queue: At, needs: &Needs) -> bool {
        needs.iter().all(|(cell, need)| *need <= self.available(queue, cell))
    }

    /// Whether `n` borrows the cell with `more`.
    pub(crate) fn borrows(&self, n: At, cell: &Cell, more: i128) -> bool {
        self.usage(n, cell) + more > self.forest.subtree(n, cell)
    }

    /// What is left at `at` of a need of the ClusterQueue: less what is free locally in each node below `at`.
    pub(crate) fn left_at(&self, at: At, queue: At, cell: &Cell, need: i128) -> i128 {
        let below = self.forest.way_below(queue, at);
        below
            .into_iter()
            .fold(need, |left, n| (left - self.free_local(n, cell)).max(0))
    }

    /// The level at which one cell's need is met.
    pub(crate) fn level(&self, queue: At, cell: &Cell, need: i128) -> usize {
        let (mut n, mut left, mut level) = (queue, need, 0);
        while let Some(parent) = self.forest.parent(n) {
            if !self.borrows(n, cell, left) {
                break;
            }
            left = (left - self.free_local(n, cell)).max(0);
            n = parent;
            level += 1;
        }
        level
    }

    pub(crate) fn greatest_level(&self, queue: At, needs: &Needs) -> usize {
        let levels = needs.iter().map(|(cell, need)| self.level(queue, cell, *need));
        levels.max().unwrap_or(0)
    }

    /// The share of a node, section 6.
    pub(crate) fn share(&self, n: At) -> Share {
        let Some(parent) = self.forest.parent(n) else {
            return Share::NOTHING;
        };
        let mut sums: BTreeMap<Name, (i128, i128)> = BTreeMap::new();
        for cell in self.cells_of_tree(n) {
            let (over, of) = sums.entry(cell.1.clone()).or_default();
            *over += (self.usage(n, &cell) - self.forest.subtree(n, &cell)).max(0);
            *of += self.forest.potential(parent, &cell);
        }
        let weight = self.forest.member(n).weight;
        let shares = sums.into_values().map(|(over, of)| Share::new(over, of, weight));
        shares.max().unwrap_or(Share::NOTHING)
    }

    pub(crate) fn cells_of_tree(&self, n: At) -> BTreeSet<Cell> {
        let root = self.forest.root(n);
        let used = self.used.iter().filter(|(q, _)| self.forest.is_under(**q, root));
        let used = used.flat_map(|(_, used)| used.keys().cloned());
        used.chain(self.forest.cells_below(root)).collect()
    }
}

/// `over / (of × weight)`, exact.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Share {
    Finite { over: u128, of: u128, weight: u128 },
    Infinite,
}

impl Share {
    pub(crate) const NOTHING: Self = Self::Finite {
        over: 0,
        of: 1,
        weight: 1,
    };

    pub(crate) fn new(over: i128, of: i128, weight: Weight) -> Self {
        let (over, of) = (over.unsigned_abs(), of.unsigned_abs());
        let weight = u128::from(weight.0);
        match (over, of, weight) {
            (0, _, _) => Self::NOTHING,
            (_, 0, _) | (_, _, 0) => Self::Infinite,
            _ => Self::Finite { over, of, weight },
        }
    }

    pub(crate) fn is_infinite(self) -> bool {
        matches!(self, Self::Infinite)
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        match (*self, *other) {
            (Self::Infinite, Self::Infinite) => Ordering::Equal,
            (Self::Infinite, _) => Ordering::Greater,
            (_, Self::Infinite) => Ordering::Less,
            (
                Self::Finite { over, of, weight },
                Self::Finite {
                    over: other_over,
                    of: other_of,
                    weight: other_weight,
                },
            ) => product([over, other_of, other_weight]).cmp(&product([other_over, of, weight])),
        }
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

/// The product as base-2^32 digits, highest first, as on paper.
pub(super) fn product(factors: [u128; 3]) -> [u64; 12] {
    let digits = |number: u128| (0..4).map(move |place| (number >> (32 * place)) & 0xffff_ffff);
    let mut lowest_first = [0_u128; 12];
    lowest_first[0] = 1;
    for factor in factors {
        let mut sum = [0_u128; 12];
        for (place, digit) in lowest_first.iter().enumerate().filter(|(_, digit)| **digit > 0) {
            for (shift, other) in digits(factor).enumerate().filter(|(_, other)| *other > 0) {
                sum[place + shift] += digit * other;
            }
        }
        for place in 1..12 {
            sum[place] += sum[place - 1] >> 32;
            sum[place - 1] &= 0xffff_ffff;
        }
        lowest_first = sum;
    }
    let mut product = lowest_first.map(|digit| u64::try_from(digit).unwrap());
    product.reverse();
    product
}
