//! Whom a unit may evict to get room, and whom of these it takes: `docs/scheduling.md`, section 4.
//!
//! Nothing is evicted here. Candidates are taken out of the planned usage one by one until the preemptor fits, those
//! that turn out unnecessary are put back, and in the end all are: a search leaves the tree as it was.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::ids::{Time, Uid};
use crate::memory::{Evictor, Memory};
use crate::queue::{QueueId, Queues};
use crate::quota::CellId;
use crate::report::PreemptionReason;
use crate::spec::{Preemption, Reclaim, Settings, WithinQueue};
use crate::tree::{Book, NodeId, Slot, Tree};
use crate::units::{UnitId, Units};

/// Needs of one unit per slot, each slot once; most units need few.
pub(crate) type Needs = SmallVec<[(Slot, i128); 2]>;

/// Who looks for room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) queue: QueueId,
    pub(crate) node: NodeId,
    pub(crate) policy: Preemption,
    pub(crate) priority: i32,
    pub(crate) queued_at: Time,
    pub(crate) evicted_by: Option<Evictor>,
}

/// A unit to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) unit: UnitId,
    pub(crate) queue: QueueId,
    pub(crate) reason: PreemptionReason,
}

/// The order in which candidates are used: lower priority, later reserved, smaller uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: i32,
    pub(crate) reserved_at: Reverse<Time>,
    pub(crate) uid: Uid,
    pub(crate) unit: UnitId,
}

impl Rank {
    fn as_evictor(self) -> Evictor {
        Evictor {
            uid: self.uid,
            priority: self.priority,
        }
    }
}

/// By which right a candidate may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    Hierarchical,
    WhileBorrowing,
    WithoutBorrowing,
    Own,
}

impl Right {
    fn group(self) -> u8 {
        match self {
            Self::Hierarchical => 0,
            Self::WhileBorrowing | Self::WithoutBorrowing => 1,
            Self::Own => 2,
        }
    }

    fn reason(self) -> PreemptionReason {
        match self {
            Self::Own => PreemptionReason::InClusterQueue,
            Self::WhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
            Self::Hierarchical | Self::WithoutBorrowing => PreemptionReason::InCohortReclamation,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    right: Right,
    rank: Rank,
    queue: QueueId,
    node: NodeId,
}

/// What a search for victims found.
#[derive(Debug, Default)]
pub(crate) struct Hunt {
    /// Empty: there is no way.
    pub(crate) victims: Vec<Victim>,
    /// What all candidates together hold of each lacking slot.
    pub(crate) within_reach: Needs,
    /// There may be more candidates in other ClusterQueues once these use more or other units of theirs are admitted.
    pub(crate) others: bool,
}

/// The part of the engine that a search reads, and the tree in which it tries things out.
pub(crate) struct Ground<'a> {
    pub(crate) tree: &'a mut Tree,
    pub(crate) queues: &'a Queues,
    pub(crate) units: &'a Units,
    pub(crate) memory: &'a Memory,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Time,
    /// Counts searches for victims.
    pub(crate) hunts: &'a mut u64,
    /// Cells that are left out of the search for flavors.
    pub(crate) without: &'a [Slot],
}

impl Ground<'_> {
    /// Whom `asker` would evict to have room for `needs`.
    pub(crate) fn hunt(&mut self, asker: &Asker, needs: &[(Slot, i128)]) -> Hunt {
        if asker.policy.within_queue == WithinQueue::Never && asker.policy.reclaim == Reclaim::Never {
            return Hunt::default();
        }
        *self.hunts += 1;
        if let Some(rules) = self.settings.fair_sharing {
            return self.fair_hunt(asker, needs, rules);
        }
        let lacking = self.lacking(asker.node, needs);
        let others = self.reclaims(asker, needs, &lacking);
        let mut found = self.candidates(asker, needs, &lacking, others);
        found.sort_unstable_by_key(|candidate| (candidate.right.group(), candidate.rank));
        let mut hunt = Hunt {
            within_reach: self.within_reach(&lacking, found.iter().map(|candidate| candidate.rank.unit)),
            others,
            ..Hunt::default()
        };
        for borrowing in self.attempts(asker, &lacking, &found).iter().copied() {
            hunt.victims = self.attempt(asker, needs, &lacking, &found, borrowing);
            if !hunt.victims.is_empty() {
                break;
            }
        }
        hunt
    }

    /// The slots without enough room.
    pub(crate) fn lacking(&self, node: NodeId, needs: &[(Slot, i128)]) -> Vec<Slot> {
        let short = needs
            .iter()
            .filter(|(slot, need)| self.tree.bar(node, *slot, *need, Book::Planned).is_some());
        short.map(|(slot, _)| *slot).collect()
    }

    pub(crate) fn fits(&self, node: NodeId, needs: &[(Slot, i128)]) -> bool {
        self.tree.fits(node, needs, Book::Planned)
    }

    fn within_reach(&self, lacking: &[Slot], units: impl Iterator<Item = UnitId>) -> Needs {
        let mut sums: Needs = lacking.iter().map(|slot| (*slot, 0)).collect();
        for unit in units {
            for (slot, amount) in self.holdings(unit) {
                if let Some((_, sum)) = sums.iter_mut().find(|(lacking, _)| *lacking == slot) {
                    *sum = sum.saturating_add(amount);
                }
            }
        }
        sums
    }

    /// What a unit holds, by slot.
    fn holdings(&self, unit: UnitId) -> Needs {
        let held = self.units.held(unit);
        held.map_or_else(Needs::new, |held| self.tree.by_slot(&held.charges))
    }

    /// Whether units of other ClusterQueues may be of use while `asker` and those above it use what they do. If not, none of
    /// them is hierarchical, none may be evicted by priority while borrowing, and an attempt without borrowing is not made.
    fn reclaims(&self, asker: &Asker, needs: &[(Slot, i128)], lacking: &[Slot]) -> bool {
        asker.policy.reclaim != Reclaim::Never
            && (asker.policy.borrow_within_cohort.is_some()
                || self.is_under_nominal(asker, lacking)
                || self.tree.path(asker.node).any(|side| {
                    self.tree.node(side).parent.is_some() && !self.borrows_any(side, asker, needs, lacking)
                }))
    }

    fn is_under_nominal(&self, asker: &Asker, lacking: &[Slot]) -> bool {
        lacking.iter().all(|slot| {
            let state = self.tree.state(asker.node, *slot);
            state.usage(Book::Planned) < state.nominal
        })
    }

    /// Whether the node on the asker's side borrows a lacking cell with what is left of the need there.
    fn borrows_any(&self, side: NodeId, asker: &Asker, needs: &[(Slot, i128)], lacking: &[Slot]) -> bool {
        let mut short = needs.iter().filter(|(slot, _)| lacking.contains(slot));
        short.any(|(slot, need)| {
            let left = self
                .tree
                .climb(asker.node, *slot, *need)
                .find(|(node, _)| *node == side);
            left.is_some_and(|(node, left)| self.tree.state(node, *slot).borrows_with(left))
        })
    }

    /// Whether a node uses more of a lacking cell than it brings in.
    fn borrows(&self, node: NodeId, lacking: &[Slot]) -> bool {
        lacking.iter().any(|slot| self.tree.state(node, *slot).borrows_with(0))
    }

    /// All candidates that an attempt could use: without `others` those of other ClusterQueues are of no use.
    fn candidates(&self, asker: &Asker, needs: &[(Slot, i128)], lacking: &[Slot], others: bool) -> Vec<Candidate> {
        let cells: Vec<CellId> = lacking.iter().map(|slot| self.tree.cell_of(*slot)).collect();
        let mut found = Vec::new();
        if asker.policy.within_queue != WithinQueue::Never {
            for rank in self.own_candidates(asker, &cells) {
                found.push(Candidate {
                    right: Right::Own,
                    rank,
                    queue: asker.queue,
                    node: asker.node,
                });
            }
        }
        if !others {
            return found;
        }
        let path: Vec<NodeId> = self.tree.path(asker.node).collect();
        for step in path.windows(2) {
            let [side, above] = step else { continue };
            let hierarchical = !self.borrows_any(*side, asker, needs, lacking);
            let others = self.tree.node(*above).children.iter().filter(|child| *child != side);
            for child in others {
                self.collect(*child, asker, lacking, &cells, hierarchical, &mut found);
            }
        }
        found
    }

    pub(crate) fn own_candidates(&self, asker: &Asker, cells: &[CellId]) -> Vec<Rank> {
        let within = asker.policy.within_queue;
        self.candidates_in(asker.queue, asker, cells, |rank, queued_at| match within {
            WithinQueue::Never => false,
            WithinQueue::LowerPriority => rank.priority < asker.priority,
            WithinQueue::LowerOrNewerEqualPriority => {
                rank.priority < asker.priority || rank.priority == asker.priority && queued_at > asker.queued_at
            }
        })
    }

    pub(crate) fn other_candidates(&self, queue: QueueId, asker: &Asker, cells: &[CellId]) -> Vec<Rank> {
        let reclaim = asker.policy.reclaim;
        self.candidates_in(queue, asker, cells, |rank, _| match reclaim {
            Reclaim::Never => false,
            Reclaim::LowerPriority => rank.priority < asker.priority,
            Reclaim::Any => true,
        })
    }

    /// The admitted units of a ClusterQueue that hold one of `cells`, may be evicted by the asker and pass `allowed`.
    fn candidates_in(
        &self,
        queue: QueueId,
        asker: &Asker,
        cells: &[CellId],
        allowed: impl Fn(&Rank, Time) -> bool,
    ) -> Vec<Rank> {
        let Some(queue) = self.queues.get(queue) else {
            return Vec::new();
        };
        let min_run_ms = queue.min_run_ms();
        let evictable = queue.running.iter().filter(|rank| {
            self.units.held(rank.unit).is_some_and(|held| {
                allowed(rank, held.queued_at)
                    && held.charges.iter().any(|(cell, _)| cells.contains(cell))
                    && (min_run_ms == 0 || held.reserved_at.0.saturating_add(min_run_ms) <= self.now.0)
            }) && asker.evicted_by != Some(rank.as_evictor())
                && !self.memory.is_spent(rank.uid)
        });
        evictable.copied().collect()
    }

    fn collect(
        &self,
        node: NodeId,
        asker: &Asker,
        lacking: &[Slot],
        cells: &[CellId],
        hierarchical: bool,
        found: &mut Vec<Candidate>,
    ) {
        if !self.borrows(node, lacking) {
            return;
        }
        let Some(queue) = self.tree.node(node).queue else {
            for child in &self.tree.node(node).children {
                self.collect(*child, asker, lacking, cells, hierarchical, found);
            }
            return;
        };
        for rank in self.other_candidates(queue, asker, cells) {
            let while_borrowing = asker.policy.borrow_within_cohort.is_some_and(|policy| {
                rank.priority < asker.priority && policy.max_priority.is_none_or(|most| rank.priority <= most)
            });
            let right = match (hierarchical, while_borrowing) {
                (true, _) => Right::Hierarchical,
                (false, true) => Right::WhileBorrowing,
                (false, false) => Right::WithoutBorrowing,
            };
            found.push(Candidate {
                right,
                rank,
                queue,
                node,
            });
        }
    }

    /// Which attempts are made, in order: true with borrowing.
    fn attempts(&self, asker: &Asker, lacking: &[Slot], found: &[Candidate]) -> &'static [bool] {
        let forbidden = asker.policy.borrow_within_cohort.is_none();
        let others = found.iter().any(|candidate| candidate.right != Right::Own);
        let hierarchical = found.iter().any(|candidate| candidate.right == Right::Hierarchical);
        if !others || forbidden && !self.is_under_nominal(asker, lacking) {
            &[true]
        } else if forbidden && !hierarchical {
            &[false, true]
        } else {
            &[true, false]
        }
    }

    fn attempt(
        &mut self,
        asker: &Asker,
        needs: &[(Slot, i128)],
        lacking: &[Slot],
        found: &[Candidate],
        borrowing: bool,
    ) -> Vec<Victim> {
        let fits = |ground: &Self| {
            let tree = &ground.tree;
            ground.fits(asker.node, needs)
                && (borrowing
                    || tree.node(asker.node).parent.is_none()
                    || needs
                        .iter()
                        .all(|(slot, need)| !tree.state(asker.node, *slot).borrows_with(*need)))
        };
        let mut taken: Vec<(Victim, NodeId)> = Vec::new();
        let mut enough = false;
        for candidate in found {
            if borrowing && candidate.right == Right::WithoutBorrowing
                || candidate.right != Right::Own && !self.still_borrows(candidate.node, asker.node, lacking)
            {
                continue;
            }
            self.plan(candidate.node, candidate.rank.unit, -1);
            let victim = Victim {
                unit: candidate.rank.unit,
                queue: candidate.queue,
                reason: candidate.right.reason(),
            };
            taken.push((victim, candidate.node));
            if fits(self) {
                enough = true;
                break;
            }
        }
        let victims = if enough {
            self.put_back(&mut taken, fits)
        } else {
            Vec::new()
        };
        for (victim, node) in taken {
            self.plan(node, victim.unit, 1);
        }
        victims
    }

    /// Puts back whoever is not needed, from the last but one to the first; returns who is left. They stay taken.
    pub(crate) fn put_back(&mut self, taken: &mut Vec<(Victim, NodeId)>, fits: impl Fn(&Self) -> bool) -> Vec<Victim> {
        for index in (0..taken.len().saturating_sub(1)).rev() {
            let (victim, node) = taken[index];
            self.plan(node, victim.unit, 1);
            if fits(self) {
                taken.remove(index);
            } else {
                self.plan(node, victim.unit, -1);
            }
        }
        taken.iter().map(|(victim, _)| *victim).collect()
    }

    /// Adds what a unit holds to the planned usage (`times` 1) or takes it away (-1).
    pub(crate) fn plan(&mut self, node: NodeId, unit: UnitId, times: i128) {
        let holdings = self.holdings(unit);
        self.tree.plan(node, &holdings, times);
    }

    /// Whether a ClusterQueue and every cohort between it and the common ancestor still borrow a lacking cell.
    pub(crate) fn still_borrows(&self, node: NodeId, asker: NodeId, lacking: &[Slot]) -> bool {
        let below = self
            .tree
            .path(node)
            .take_while(|node| !self.tree.path(asker).any(|own| own == *node));
        below.into_iter().all(|node| self.borrows(node, lacking))
    }
}
