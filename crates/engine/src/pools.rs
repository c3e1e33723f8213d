//! A head blocks only those behind it that want a flavor which it waits for: `docs/scheduling.md`, section 9.

use crate::assign::{Ask, Choice, LARGEST, Plan, Taken};
use crate::engine::Engine;
use crate::nominate::{Nominee, asker, least};
use crate::parking::{ClassId, ClassKey};
use crate::pass::Course;
use crate::queue::{Queue, QueueId};
use crate::ranked::Turn;
use crate::report::WaitKind;
use crate::search::Stuck;
use crate::tree::{Book, NodeId, Slot, Tree};
use crate::victims::{Ground, Needs};
use crate::watch::Wakes;

/// What a unit that was asked by pool stands in the way of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Jam {
    /// The cells that those ahead of it blocked when it was asked.
    pub(crate) ahead: Vec<Slot>,
    /// Those that it blocks.
    pub(crate) blocks: Vec<Slot>,
}

/// Who blocks what, as far as a queue has been walked along.
#[derive(Debug, Default)]
struct Road {
    /// In order, each once.
    blocked: Vec<Slot>,
    blockers: Vec<(Turn, Vec<Slot>)>,
}

impl Road {
    fn add(&mut self, turn: Turn, blocks: Vec<Slot>) {
        join(&mut self.blocked, &blocks);
        self.blockers.push((turn, blocks));
    }
}

fn join(blocked: &mut Vec<Slot>, more: &[Slot]) {
    blocked.extend_from_slice(more);
    blocked.sort_unstable();
    blocked.dedup();
}

impl Queue {
    /// The cells that are blocked for a unit.
    pub(crate) fn blocked_ahead(&self, turn: Turn) -> Vec<Slot> {
        let mut blocked = Vec::new();
        for (_, blocks) in self.blockers.iter().take_while(|(blocker, _)| *blocker < turn) {
            join(&mut blocked, blocks);
        }
        blocked
    }

    /// The unit that makes another wait behind it, if one does.
    pub(crate) fn behind(&self, turn: Turn, plan: &Plan, tree: &Tree, node: NodeId) -> Option<Turn> {
        let mut blocked = Vec::new();
        for (blocker, blocks) in self.blockers.iter().take_while(|(blocker, _)| *blocker < turn) {
            join(&mut blocked, blocks);
            if self.is_full(tree, &blocked) || plan.is_blocked(tree, node, &blocked) {
                return Some(*blocker);
            }
        }
        None
    }

    /// Whether all that it has is blocked.
    fn is_full(&self, tree: &Tree, blocked: &[Slot]) -> bool {
        let mut slots = self.quotas.iter().filter_map(|(cell, _)| tree.find(*cell));
        !blocked.is_empty() && slots.all(|slot| blocked.contains(&slot))
    }
}

impl Plan {
    /// Whether all flavors are blocked that could ever serve one of its asks.
    fn is_blocked(&self, tree: &Tree, node: NodeId, blocked: &[Slot]) -> bool {
        let is_blocked = |choice: &Choice| choice.slots.iter().any(|slot| blocked.contains(slot));
        self.asks
            .iter()
            .any(|ask| useful(ask, tree, node).all(|(_, choice)| is_blocked(choice)))
    }
}

/// The flavors that may be used and are not too small for what is asked.
fn useful<'a>(ask: &'a Ask, tree: &'a Tree, node: NodeId) -> impl Iterator<Item = (usize, &'a Choice)> {
    let is_enough = move |choice: &Choice| {
        let mut needs = choice.slots.iter().zip(&ask.needs);
        choice.admitted.is_ok() && needs.all(|(slot, need)| *need <= tree.state(node, *slot).potential.min(LARGEST))
    };
    ask.choices
        .iter()
        .enumerate()
        .filter(move |(_, choice)| is_enough(choice))
}

impl Engine {
    /// The first unit of a queue that has an outcome in what those ahead of it leave it.
    pub(crate) fn nominate_by_pool(&mut self, id: QueueId, course: &mut Course) -> Option<Nominee> {
        let mut road = Road::default();
        let nominee = self.walk(id, course, &mut road);
        let queue = self.queues.get_mut(id)?;
        if queue.blockers != road.blockers {
            let before = std::mem::replace(&mut queue.blockers, road.blockers);
            let concerned = before.iter().chain(&queue.blockers).map(|(turn, _)| turn.unit);
            self.touched.extend(concerned);
        }
        nominee
    }

    fn walk(&mut self, id: QueueId, course: &mut Course, road: &mut Road) -> Option<Nominee> {
        let mut claimed = course
            .blockers
            .get(&id)
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .peekable();
        let mut at = None;
        loop {
            let queue = self.queues.get(id)?;
            let next = queue.parking.head_after(at);
            let is_ahead = |(blocker, _): &(Turn, Vec<Slot>)| next.is_none_or(|(turn, _)| *blocker < turn);
            while let Some((blocker, blocks)) = claimed.next_if(is_ahead) {
                road.add(blocker, blocks);
            }
            let (turn, class) = next?;
            let is_first = at.is_none()
                && course
                    .claims
                    .iter()
                    .all(|(queue, other, _)| *queue != id || *other > turn);
            at = Some(turn);
            let (tree, _) = queue.place?;
            if queue.is_full(self.forest.trees.get(tree)?, &road.blocked) {
                return None;
            }
            self.ensure_plan(id, class);
            let (kind, is_blocked) = self.with_fewest(id, class, |plan, tree, node| {
                (plan.kind(), plan.is_blocked(tree, node, &road.blocked))
            })?;
            // Who was not the very first when it was parked may have something to reserve now that it is.
            let reserves_now = is_first && self.reserve(id, turn, class).is_some();
            let known = self.known_jam(id, class);
            let is_known = |jam: &&Jam| jam.ahead == road.blocked && !reserves_now;
            if kind != WaitKind::WaitingForQuota {
                self.park_for_ever(id, class, kind);
            } else if let Some(jam) = known.filter(is_known) {
                road.add(turn, jam.blocks.clone());
            } else if !is_blocked && let Some(nominee) = self.ask_by_pool(id, turn, class, is_first, course, road) {
                return Some(nominee);
            }
        }
    }

    /// Asks a unit; one that has no outcome and nothing to reserve is parked.
    fn ask_by_pool(
        &mut self,
        id: QueueId,
        turn: Turn,
        class: ClassId,
        is_first: bool,
        course: &mut Course,
        road: &mut Road,
    ) -> Option<Nominee> {
        self.counters.units_examined += 1;
        let mut nominee = Nominee::new(turn, id, class);
        let lifted = self.lift(id, turn, course);
        let asked = self.ask(id, turn, class, &road.blocked, None);
        let jam = match asked {
            Ok(_) => None,
            Err(_) => self.jam(id, turn, class, &road.blocked),
        };
        self.unlift(lifted, course);
        let mut stuck = match asked {
            Ok((found, reduced)) => {
                return Some(Nominee {
                    found,
                    reduced,
                    ..nominee
                });
            }
            Err(stuck) => stuck,
        };
        let (blocks, mut keeps) = jam?;
        if is_first && let Some(reserved) = self.reserve(id, turn, class) {
            raise(&mut keeps, reserved.found.needs);
        }
        if !keeps.is_empty() {
            let claimed = course.blockers.entry(id).or_default();
            claimed.push((turn, blocks.clone()));
            claimed.sort_unstable_by_key(|(turn, _)| *turn);
            road.add(turn, blocks);
            nominee.reserves = true;
            nominee.found.needs = keeps;
            return Some(nominee);
        }
        let key = self.queues.get(id)?.parking.class(class)?.key;
        if key.claims {
            self.rejoin(id, turn, class);
        }
        let plain = self.queues.get(id)?.parking.find(ClassKey { claims: false, ..key })?;
        stuck.wakes = Wakes {
            shares: true,
            ..Wakes::default()
        };
        stuck.pools = Some(Box::new(Jam {
            ahead: road.blocked.clone(),
            blocks: blocks.clone(),
        }));
        // It is asked again, though nothing woke it, when others than before are ahead of it.
        if let Some(queue) = self.queues.get_mut(id) {
            queue.parking.stir(plain);
        }
        self.park(id, plain, stuck, true);
        road.add(turn, blocks);
        None
    }

    fn known_jam(&self, id: QueueId, class: ClassId) -> Option<&Jam> {
        let class = self.queues.get(id)?.parking.class(class)?;
        class.parked()?.pools.as_deref()
    }

    /// Parks a class that can have no outcome as things are, and that waits for nothing which could come.
    fn park_for_ever(&mut self, id: QueueId, class: ClassId, kind: WaitKind) {
        let known = self.queues.get(id).and_then(|queue| queue.parking.class(class));
        if known.is_some_and(|class| class.parked().is_none()) {
            self.park(id, class, Box::new(Stuck::new(kind)), false);
        }
    }

    /// What a unit with no outcome blocks, and what is kept for it.
    fn jam(&mut self, id: QueueId, turn: Turn, class: ClassId, without: &[Slot]) -> Option<(Vec<Slot>, Needs)> {
        let queue = self.queues.get(id)?;
        let (tree_id, node) = queue.place?;
        let fewest = least(&self.shape_of(id, class)?);
        let plan = self.resolve(queue, self.forest.trees.get(tree_id)?, node, &fewest);
        let asker = asker(id, queue, turn, queue.parking.class(class)?.key)?;
        let ground = Ground {
            tree: self.forest.trees.get_mut(tree_id)?,
            queues: &self.queues,
            units: &self.units,
            memory: &self.memory,
            settings: &self.settings,
            now: self.now,
            hunts: &mut self.counters.hunts,
            without,
        };
        let mut taken = Taken::default();
        let mut unserved = Vec::new();
        for ask in &plan.asks {
            match ground.best_that_fits(ask, &asker, queue.fungibility(), &taken) {
                Some((_, at)) => ask.take(at, &mut taken),
                None => unserved.push(ask),
            }
        }
        if unserved.is_empty() {
            unserved.extend(&plan.asks);
        }
        let tree = &*ground.tree;
        let cells = unserved.into_iter().flat_map(|ask| {
            let flavors = queue.groups.get(ask.group).map_or(&[][..], |group| &group.flavors);
            useful(ask, tree, node).flat_map(|(at, _)| flavors.get(at).map_or(&[][..], |flavor| &flavor.cells))
        });
        let mut blocks = Vec::new();
        join(
            &mut blocks,
            &cells.filter_map(|cell| tree.find(*cell)).collect::<Vec<_>>(),
        );
        Some((blocks, own_left(tree, node, taken.into_needs())))
    }

    /// Calls `look` with the plan of a class for the fewest pods that its units may start with.
    pub(crate) fn with_fewest<R>(
        &self,
        id: QueueId,
        class: ClassId,
        look: impl FnOnce(&Plan, &Tree, NodeId) -> R,
    ) -> Option<R> {
        let queue = self.queues.get(id)?;
        let (tree, node) = queue.place?;
        let tree = self.forest.trees.get(tree)?;
        let shape = self.shape_of(id, class)?;
        let known = queue.parking.class(class).and_then(|class| class.plan.as_ref());
        match known.filter(|_| shape.iter().all(|pod_set| pod_set.min_count.is_none())) {
            Some(plan) => Some(look(plan, tree, node)),
            None => Some(look(&self.resolve(queue, tree, node, &least(&shape)), tree, node)),
        }
    }
}

/// Of each need what is left of the own quota.
pub(crate) fn own_left(tree: &Tree, node: NodeId, needs: Needs) -> Needs {
    let left = needs.into_iter().map(|(slot, need)| {
        let state = tree.state(node, slot);
        (slot, need.min(state.nominal.saturating_sub(state.usage(Book::Planned))))
    });
    left.filter(|(_, left)| *left > 0).collect()
}

/// In each cell the greater of two needs.
fn raise(needs: &mut Needs, others: Needs) {
    for (slot, other) in others {
        match needs.iter_mut().find(|(known, _)| *known == slot) {
            Some((_, need)) => *need = (*need).max(other),
            None => needs.push((slot, other)),
        }
    }
}
