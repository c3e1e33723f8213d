//! Fair sharing: shares, the tournament that orders admission, and victims by shares: `docs/scheduling.md`, section 6.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use crate::quota::CellId;
use crate::ranked::Turn;
use crate::report::PreemptionReason;
use crate::spec::{FairSharing, Reclaim, ShareRule};
use crate::tree::{Book, NodeId, Slot, Tree};
use crate::victims::{Asker, Ground, Hunt, Rank, Victim};
use crate::wide::Share;

/// The candidates left below each ClusterQueue, in order of use.
type Left = BTreeMap<NodeId, VecDeque<Rank>>;

/// The weighted dominant resource share of a node: what it borrows of the resource of which it borrows most, over what
/// its parent could give, over its weight.
pub(crate) fn share(tree: &Tree, node: NodeId) -> Share {
    let here = tree.node(node);
    let Some(parent) = here.parent else { return Share::ZERO };
    let mut greatest = Share::ZERO;
    for slots in tree.resources() {
        let borrowed: i128 = slots
            .iter()
            .map(|slot| {
                let state = tree.state(node, *slot);
                state.usage(Book::Planned).saturating_sub(state.subtree).max(0)
            })
            .fold(0, i128::saturating_add);
        if borrowed <= 0 {
            continue;
        }
        let lendable = slots
            .iter()
            .map(|slot| tree.state(parent, *slot).potential.max(0))
            .fold(0, i128::saturating_add);
        let over = borrowed.unsigned_abs().saturating_mul(1_000_000_000);
        let under = lendable.unsigned_abs().saturating_mul(u128::from(here.weight));
        greatest = greatest.max(Share::new(over, under));
    }
    greatest
}

/// A unit in the tournament.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entrant<'a> {
    pub(crate) node: NodeId,
    pub(crate) turn: Turn,
    pub(crate) needs: &'a [(Slot, i128)],
}

/// Which of the entrants of one tree is taken next.
pub(crate) fn winner(tree: &mut Tree, entrants: &[Entrant<'_>]) -> Option<usize> {
    let mut at: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (index, entrant) in entrants.iter().enumerate() {
        at.entry(entrant.node).or_default().push(index);
    }
    let mut order: Vec<NodeId> = tree.nodes().map(|(node, _)| node).collect();
    // Members come after their cohort in the tree.
    order.reverse();
    let mut best: BTreeMap<NodeId, usize> = BTreeMap::new();
    for node in order {
        let own = at.get(&node).into_iter().flatten().copied();
        let members: Vec<NodeId> = tree.node(node).children.clone();
        let contenders: Vec<usize> = own
            .chain(members.iter().filter_map(|member| best.get(member).copied()))
            .collect();
        let chosen = match contenders.as_slice() {
            [] => continue,
            [only] => *only,
            several => {
                let mut key = |index: &usize| standing(tree, node, &entrants[*index]);
                let keyed = several.iter().map(|index| (*index, key(index))).collect::<Vec<_>>();
                let Some((index, _)) = keyed.into_iter().min_by(|one, other| one.1.cmp(&other.1)) else {
                    continue;
                };
                index
            }
        };
        best.insert(node, chosen);
    }
    best.get(&NodeId::ROOT).copied()
}

/// How an entrant stands at a cohort: by the member that it comes from.
fn standing(tree: &mut Tree, cohort: NodeId, entrant: &Entrant<'_>) -> (bool, Share, Turn) {
    let path: Vec<NodeId> = tree.path(entrant.node).collect();
    let member = path
        .iter()
        .zip(path.iter().skip(1))
        .find(|(_, above)| **above == cohort)
        .map_or(entrant.node, |(member, _)| *member);
    let borrows = entrant.needs.iter().any(|(slot, need)| {
        let here = tree
            .climb(entrant.node, *slot, *need)
            .find(|(node, _)| *node == member)
            .map_or(0, |(_, need)| need);
        tree.state(member, *slot).borrows_with(here)
    });
    tree.plan(entrant.node, entrant.needs, 1);
    let share = share(tree, member);
    tree.plan(entrant.node, entrant.needs, -1);
    (borrows, share, entrant.turn)
}

impl Ground<'_> {
    /// Whom `asker` would evict by the rules of fair sharing.
    pub(crate) fn fair_hunt(&mut self, asker: &Asker, needs: &[(Slot, i128)], rules: FairSharing) -> Hunt {
        let lacking = self.lacking(asker.node, needs);
        let cells: Vec<CellId> = lacking.iter().map(|slot| self.tree.cell_of(*slot)).collect();
        self.tree.plan(asker.node, needs, 1);
        let mut left = self.fair_candidates(asker, &cells);
        let mut taken = Vec::new();
        let mut enough = self.take_by(rules.first, asker, needs, &lacking, &mut left, &mut taken);
        if let (false, Some(rule)) = (enough, rules.second) {
            enough = self.take_again(rule, asker, needs, &lacking, &mut left, &mut taken);
        }
        let victims = if enough {
            let mut kept = taken;
            let victims = self.put_back_fairly(asker, needs, &mut kept);
            taken = kept;
            victims
        } else {
            Vec::new()
        };
        for (victim, node) in taken {
            self.plan(node, victim.unit, 1);
        }
        self.tree.plan(asker.node, needs, -1);
        Hunt {
            victims,
            ..Hunt::default()
        }
    }

    fn put_back_fairly(
        &mut self,
        asker: &Asker,
        needs: &[(Slot, i128)],
        taken: &mut Vec<(Victim, NodeId)>,
    ) -> Vec<Victim> {
        self.tree.plan(asker.node, needs, -1);
        let victims = self.put_back(taken, |ground| ground.fits(asker.node, needs));
        self.tree.plan(asker.node, needs, 1);
        victims
    }

    /// Every candidate, by ClusterQueue.
    fn fair_candidates(&self, asker: &Asker, cells: &[CellId]) -> Left {
        let mut left = Left::new();
        let own = self.own_candidates(asker, cells);
        left.insert(asker.node, own.into());
        if asker.policy.reclaim != Reclaim::Never && !share(self.tree, asker.node).is_infinite() {
            for (node, member) in self.tree.nodes() {
                if let Some(queue) = member.queue
                    && node != asker.node
                {
                    left.insert(node, self.other_candidates(queue, asker, cells).into());
                }
            }
        }
        left.retain(|_, candidates| !candidates.is_empty());
        left
    }

    /// Takes candidates by one rule until the asker fits; those that fail it are left.
    fn take_by(
        &mut self,
        rule: ShareRule,
        asker: &Asker,
        needs: &[(Slot, i128)],
        lacking: &[Slot],
        left: &mut Left,
        taken: &mut Vec<(Victim, NodeId)>,
    ) -> bool {
        let mut failed = Left::new();
        while let Some(node) = self.pick(asker, lacking, left) {
            let within = !lacking
                .iter()
                .any(|slot| self.tree.state(asker.node, *slot).borrows_with(0));
            while let Some(rank) = pop(left, node) {
                let reason = if node == asker.node {
                    PreemptionReason::InClusterQueue
                } else if within {
                    PreemptionReason::InCohortReclamation
                } else if self.passes(rule, asker, node, rank) {
                    PreemptionReason::InCohortFairSharing
                } else {
                    failed.entry(node).or_default().push_back(rank);
                    continue;
                };
                self.take(node, rank, reason, taken);
                break;
            }
            if self.fits_charged(asker, needs) {
                *left = failed;
                return true;
            }
        }
        *left = failed;
        false
    }

    /// Gives each ClusterQueue's first candidate left one more try, by another rule.
    fn take_again(
        &mut self,
        rule: ShareRule,
        asker: &Asker,
        needs: &[(Slot, i128)],
        lacking: &[Slot],
        left: &mut Left,
        taken: &mut Vec<(Victim, NodeId)>,
    ) -> bool {
        while let Some(node) = self.pick(asker, lacking, left) {
            let Some(rank) = left.remove(&node).and_then(|mut candidates| candidates.pop_front()) else {
                continue;
            };
            if self.passes(rule, asker, node, rank) {
                self.take(node, rank, PreemptionReason::InCohortFairSharing, taken);
                if self.fits_charged(asker, needs) {
                    return true;
                }
            }
        }
        false
    }

    fn take(&mut self, node: NodeId, rank: Rank, reason: PreemptionReason, taken: &mut Vec<(Victim, NodeId)>) {
        let Some(queue) = self.tree.node(node).queue else {
            return;
        };
        self.plan(node, rank.unit, -1);
        let victim = Victim {
            unit: rank.unit,
            queue,
            reason,
        };
        taken.push((victim, node));
    }

    /// Whether the asker fits, whose need is in the books already.
    fn fits_charged(&mut self, asker: &Asker, needs: &[(Slot, i128)]) -> bool {
        self.tree.plan(asker.node, needs, -1);
        let fits = self.fits(asker.node, needs);
        self.tree.plan(asker.node, needs, 1);
        fits
    }

    /// The ClusterQueue whose candidates are next: from the root down to the member with the greatest share.
    fn pick(&self, asker: &Asker, lacking: &[Slot], left: &Left) -> Option<NodeId> {
        let mut first: BTreeMap<NodeId, Rank> = BTreeMap::new();
        for (node, candidates) in left {
            let Some(rank) = candidates.front() else { continue };
            if !self.still_borrows(*node, asker.node, lacking) {
                continue;
            }
            for above in self.tree.path(*node) {
                let known = first.entry(above).or_insert(*rank);
                *known = (*known).min(*rank);
            }
        }
        let mut node = NodeId::ROOT;
        while self.tree.node(node).queue.is_none() {
            let members = self.tree.node(node).children.iter().filter_map(|member| {
                let rank = first.get(member)?;
                Some((Reverse(share(self.tree, *member)), *rank, *member))
            });
            node = members.min().map(|(_, _, member)| member)?;
        }
        first.contains_key(&node).then_some(node)
    }

    /// Whether a rule lets the asker evict a candidate of another ClusterQueue.
    fn passes(&mut self, rule: ShareRule, asker: &Asker, node: NodeId, rank: Rank) -> bool {
        let own_side: Vec<NodeId> = self.tree.path(asker.node).collect();
        let below: Vec<NodeId> = self
            .tree
            .path(node)
            .take_while(|node| !own_side.contains(node))
            .collect();
        let Some(theirs) = below.last().copied() else {
            return false;
        };
        let Some(common) = self.tree.node(theirs).parent else {
            return false;
        };
        let Some(ours) = own_side
            .iter()
            .copied()
            .find(|side| self.tree.node(*side).parent == Some(common))
        else {
            return false;
        };
        let own = share(self.tree, ours);
        match rule {
            ShareRule::LessThanInitialShare => own < share(self.tree, theirs),
            ShareRule::LessThanOrEqualToFinalShare => {
                self.plan(node, rank.unit, -1);
                let without = share(self.tree, theirs);
                self.plan(node, rank.unit, 1);
                own <= without
            }
        }
    }
}

fn pop(left: &mut Left, node: NodeId) -> Option<Rank> {
    let candidates = left.get_mut(&node)?;
    let rank = candidates.pop_front();
    if candidates.is_empty() {
        left.remove(&node);
    }
    rank
}
