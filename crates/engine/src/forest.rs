//! Cohorts, and the trees that they and the ClusterQueues form.
//!
//! Names are enough to know who belongs together: a ClusterQueue names its cohort, a Cohort object its parent. When any of
//! that changes, the trees concerned are taken apart and built anew, and what their units hold is charged again.

use std::collections::{BTreeMap, BTreeSet};

use crate::arena::Arena;
use crate::engine::Engine;
use crate::ids::Name;
use crate::queue::{QueueId, quotas};
use crate::quota::{CellId, ResourceId};
use crate::spec::{CohortSpec, Quota};
use crate::tree::{Given, NodeId, Tree, TreeId};

/// All cohorts, and all trees.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    pub(crate) trees: Arena<TreeId, Tree>,
    /// Trees in which units had claims at the end of the last pass.
    pub(crate) standing: BTreeSet<TreeId>,
    /// The Cohort objects.
    specs: BTreeMap<Name, CohortSpec>,
    /// Where each cohort is that exists or has members.
    places: BTreeMap<Name, (TreeId, NodeId)>,
    /// Who names each cohort.
    members: BTreeMap<Name, Members>,
}

#[derive(Debug, Default)]
struct Members {
    queues: BTreeSet<QueueId>,
    cohorts: BTreeSet<Name>,
}

/// Why nobody below a cohort is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Cycle(Name),
    NoParent { cohort: Name, parent: Name },
}

impl Fault {
    fn message(&self) -> Name {
        match self {
            Self::Cycle(cohort) => format!("cohort {cohort} is its own ancestor by way of parentName").into(),
            Self::NoParent { cohort, parent } => {
                format!("cohort {cohort} names the parent {parent}, which does not exist").into()
            }
        }
    }
}

impl Forest {
    pub(crate) fn place(&self, cohort: &str) -> Option<(TreeId, NodeId)> {
        self.places.get(cohort).copied()
    }

    /// The cohort that is at a place, which costs looking through all.
    pub(crate) fn cohort_at(&self, place: (TreeId, NodeId)) -> Option<&Name> {
        let mut places = self.places.iter();
        places.find(|(_, known)| **known == place).map(|(cohort, _)| cohort)
    }

    pub(crate) fn cohorts(&self) -> impl Iterator<Item = &Name> {
        self.specs.keys()
    }

    fn parent(&self, cohort: &str) -> Option<&Name> {
        self.specs.get(cohort)?.parent.as_ref()
    }

    /// Whether a walk up from the cohort comes back to it.
    fn is_in_cycle(&self, cohort: &Name) -> bool {
        let mut seen = BTreeSet::new();
        let mut above = self.parent(cohort);
        while let Some(next) = above {
            if next == cohort {
                return true;
            }
            if !seen.insert(next) {
                return false;
            }
            above = self.parent(next);
        }
        false
    }

    /// The cohort that it is a member of in the books: not one in a cycle with it, and not one that does not exist.
    fn effective_parent(&self, cohort: &Name) -> Option<&Name> {
        let parent = self.parent(cohort)?;
        (self.specs.contains_key(parent) && !self.is_in_cycle(cohort)).then_some(parent)
    }

    /// Why nobody of this cohort is admitted, if so.
    fn fault(&self, cohort: &Name) -> Option<Fault> {
        let mut at = cohort;
        loop {
            let parent = self.parent(at)?;
            if !self.specs.contains_key(parent) {
                return Some(Fault::NoParent {
                    cohort: at.clone(),
                    parent: parent.clone(),
                });
            }
            if self.is_in_cycle(at) {
                return Some(Fault::Cycle(at.clone()));
            }
            at = parent;
        }
    }

    /// What stops a ClusterQueue of this cohort, in words.
    pub(crate) fn fault_of(&self, cohort: Option<&Name>) -> Option<Name> {
        Some(self.fault(cohort?)?.message())
    }

    fn join(&mut self, cohort: &Name) -> &mut Members {
        self.members.entry(cohort.clone()).or_default()
    }

    fn leave(&mut self, cohort: &Name, take: impl FnOnce(&mut Members)) {
        if let Some(members) = self.members.get_mut(cohort) {
            take(members);
            if members.queues.is_empty() && members.cohorts.is_empty() {
                self.members.remove(cohort);
            }
        }
    }
}

/// Cohorts and ClusterQueues whose trees are built anew.
#[derive(Debug, Default)]
struct Pool {
    queues: BTreeSet<QueueId>,
    cohorts: BTreeSet<Name>,
}

impl Engine {
    pub(crate) fn replace_cohort(&mut self, name: &Name, spec: Option<CohortSpec>) {
        let known = self.forest.specs.get(name);
        if known == spec.as_ref() {
            return;
        }
        let before = known.and_then(|known| known.parent.clone());
        self.outside_event();
        let after = spec.as_ref().and_then(|spec| spec.parent.clone());
        if let Some(parent) = &before {
            self.forest.leave(parent, |members| {
                members.cohorts.remove(name);
            });
        }
        if let Some(parent) = &after {
            self.forest.join(parent).cohorts.insert(name.clone());
        }
        match spec {
            Some(spec) => self.forest.specs.insert(name.clone(), spec),
            None => self.forest.specs.remove(name),
        };
        let cohorts = [Some(name.clone()), before, after].into_iter().flatten().collect();
        self.rebuild(Pool {
            queues: BTreeSet::new(),
            cohorts,
        });
    }

    /// Moves a ClusterQueue whose spec was replaced to where it belongs now; `before` is the cohort that it named.
    pub(crate) fn replant(&mut self, id: QueueId, before: Option<&Name>) {
        let after = self
            .queues
            .get(id)
            .and_then(|queue| queue.spec.as_ref()?.cohort.clone());
        if let Some(cohort) = before {
            self.forest.leave(cohort, |members| {
                members.queues.remove(&id);
            });
        }
        if let Some(cohort) = &after {
            self.forest.join(cohort).queues.insert(id);
        }
        let cohorts = before.cloned().into_iter().chain(after).collect();
        self.rebuild(Pool {
            queues: BTreeSet::from([id]),
            cohorts,
        });
    }

    /// Takes apart every tree that a member of the pool is in or belongs to, and builds them anew.
    fn rebuild(&mut self, mut pool: Pool) {
        self.gather(&mut pool);
        let roots: Vec<Name> = pool
            .cohorts
            .iter()
            .filter(|cohort| self.forest.effective_parent(cohort).is_none())
            .cloned()
            .collect();
        for root in roots {
            let is_there = self.forest.specs.contains_key(&root) || self.forest.members.contains_key(&root);
            if is_there {
                self.plant(&root);
            }
        }
        for id in pool.queues {
            let alone = self
                .queues
                .get(id)
                .and_then(|queue| queue.spec.as_ref())
                .is_some_and(|spec| spec.cohort.is_none());
            if alone {
                let mut tree = Tree::default();
                let node = tree.add_node(None, Some(id), 0);
                self.settle_tree(tree, &[(id, node)], &[]);
            }
            if let Some(queue) = self.queues.get_mut(id) {
                queue.resettle |= !std::mem::take(&mut queue.claims).is_empty();
            }
            self.refresh(id);
        }
    }

    /// Removes the trees concerned and makes the pool everything that was in them or belongs with it.
    fn gather(&mut self, pool: &mut Pool) {
        let mut queues: Vec<QueueId> = pool.queues.iter().copied().collect();
        let mut cohorts: Vec<Name> = pool.cohorts.iter().cloned().collect();
        while !queues.is_empty() || !cohorts.is_empty() {
            let mut trees = BTreeSet::new();
            for id in queues.drain(..) {
                pool.queues.insert(id);
                if let Some(queue) = self.queues.get_mut(id) {
                    trees.extend(queue.place.take().map(|(tree, _)| tree));
                }
            }
            let mut more = Vec::new();
            for cohort in cohorts.drain(..) {
                pool.cohorts.insert(cohort.clone());
                trees.extend(self.forest.places.remove(&cohort).map(|(tree, _)| tree));
                more.extend(self.forest.effective_parent(&cohort).cloned());
                if let Some(members) = self.forest.members.get(&cohort) {
                    more.extend(members.cohorts.iter().cloned());
                    queues.extend(members.queues.iter().filter(|id| !pool.queues.contains(*id)));
                }
            }
            more.extend(
                self.forest
                    .places
                    .iter()
                    .filter(|(_, (tree, _))| trees.contains(tree))
                    .map(|(cohort, _)| cohort.clone()),
            );
            more.retain(|cohort| !pool.cohorts.contains(cohort));
            cohorts = more;
            for tree in trees {
                self.forest.standing.remove(&tree);
                if let Some(gone) = self.forest.trees.remove(tree) {
                    let members = gone.nodes().filter_map(|(_, node)| node.queue);
                    queues.extend(members.filter(|id| !pool.queues.contains(id)));
                }
            }
        }
    }

    /// Builds the tree below a cohort that is a root.
    fn plant(&mut self, root: &Name) {
        let mut tree = Tree::default();
        let mut queues = Vec::new();
        let mut cohorts: Vec<(Name, NodeId)> = Vec::new();
        let mut open = vec![(root.clone(), None)];
        while let Some((cohort, parent)) = open.pop() {
            let weight = self.forest.specs.get(&cohort).map_or(0, |spec| spec.weight.0);
            let node = tree.add_node(parent, None, weight);
            if let Some(members) = self.forest.members.get(&cohort) {
                for id in &members.queues {
                    let spec = self.queues.get(*id).and_then(|queue| queue.spec.as_ref());
                    let weight = spec.map_or(0, |spec| spec.weight.0);
                    queues.push((*id, tree.add_node(Some(node), Some(*id), weight)));
                }
                let below = members
                    .cohorts
                    .iter()
                    .filter(|member| self.forest.effective_parent(member) == Some(&cohort));
                open.extend(below.map(|member| (member.clone(), Some(node))));
            }
            cohorts.push((cohort, node));
        }
        self.settle_tree(tree, &queues, &cohorts);
    }

    /// Gives a tree its quotas and what is in use, and notes who is where in it.
    fn settle_tree(&mut self, mut tree: Tree, queues: &[(QueueId, NodeId)], cohorts: &[(Name, NodeId)]) {
        let mut given: Vec<(NodeId, (CellId, ResourceId), Given)> = Vec::new();
        for (cohort, node) in cohorts {
            if let Some(spec) = self.forest.specs.get(cohort) {
                for (cell, quota) in quotas(&spec.groups, &mut self.cells) {
                    given.push((*node, self.cells.with_resource(cell), wide(quota)));
                }
            }
        }
        for (id, node) in queues {
            let quotas = self.queues.get(*id).map_or(&[][..], |queue| &queue.quotas);
            given.extend(
                quotas
                    .iter()
                    .map(|(cell, quota)| (*node, self.cells.with_resource(*cell), wide(*quota))),
            );
        }
        tree.derive(&given);
        for (id, node) in queues {
            let Some(queue) = self.queues.get(*id) else { continue };
            tree.charge_books(*node, &queue.books, &self.cells);
            tree.is_backfilled |= queue.is_backfilled();
        }
        let id = self.forest.trees.insert(tree);
        for (queue, node) in queues {
            if let Some(queue) = self.queues.get_mut(*queue) {
                queue.place = Some((id, *node));
            }
        }
        for (cohort, node) in cohorts {
            self.forest.places.insert(cohort.clone(), (id, *node));
        }
    }
}

fn wide(quota: Quota) -> Given {
    Given {
        nominal: quota.nominal.wide(),
        borrow: quota.borrowing_limit.map(crate::Amount::wide),
        lend: quota.lending_limit.map(crate::Amount::wide),
    }
}
