//! Asking the engine: why a unit waits, what a queue holds. Never changes anything.

use crate::amount::Amount;
use crate::assign::{Ask, Hopeless, Taken};
use crate::engine::Engine;
use crate::fairness;
use crate::ids::{LocalQueueKey, Name, Time, Uid};
use crate::local_queue::LocalQueue;
use crate::nominate::least;
use crate::parking::ClassId;
use crate::queue::{Claim, Queue, QueueId};
use crate::quota::{Books, CellId};
use crate::ranked::Turn;
use crate::report::{Binding, QueueReport, Shortage, Usage, WaitKind, WaitReason, Waiting};
use crate::spec::{Blocked, Gate, Inactive, Quota};
use crate::tree::{Book, NodeId, Slot, Tree, TreeId};
use crate::units::{Standing, Unit, UnitId, WaitingUnit};

/// Why a unit waits, before the details are looked up. The first that applies, in this order.
#[derive(Clone, Copy, Debug)]
enum Cause<'a> {
    NoLocalQueue(&'a LocalQueueKey),
    QueueMissing(&'a Name),
    QueueInactive(&'a Inactive),
    LocalQueueBlocked(&'a Blocked),
    Gated(&'a Gate),
    BackOff(Time),
    BehindHead(Uid),
    Pending,
    PodsNotReady,
    Claims,
    BehindReservation(Uid, Option<Time>),
    /// It has no outcome; what it lacks has to be found.
    Stuck(WaitKind),
}

impl Cause<'_> {
    /// The reason, unless it has to be found.
    fn reason(self) -> Option<WaitReason> {
        Some(match self {
            Self::NoLocalQueue(key) => WaitReason::NoLocalQueue(key.clone()),
            Self::QueueMissing(name) => WaitReason::QueueMissing(name.clone()),
            Self::QueueInactive(inactive) => WaitReason::QueueInactive(inactive.clone()),
            Self::LocalQueueBlocked(blocked) => WaitReason::LocalQueueBlocked(blocked.clone()),
            Self::Gated(gate) => WaitReason::Gated(gate.clone()),
            Self::BackOff(until) => WaitReason::BackOff(until),
            Self::BehindHead(head) => WaitReason::BehindHead(head),
            Self::Pending => WaitReason::Pending,
            Self::PodsNotReady => WaitReason::PodsNotReady,
            Self::Claims => WaitReason::WaitingForPreempted,
            Self::BehindReservation(head, until) => WaitReason::BehindReservation { head, until },
            Self::Stuck(_) => return None,
        })
    }

    fn kind(self) -> WaitKind {
        match self {
            Self::NoLocalQueue(_) => WaitKind::NoLocalQueue,
            Self::QueueMissing(_) => WaitKind::QueueMissing,
            Self::QueueInactive(_) => WaitKind::QueueInactive,
            Self::LocalQueueBlocked(_) => WaitKind::LocalQueueBlocked,
            Self::Gated(_) => WaitKind::Gated,
            Self::BackOff(_) => WaitKind::BackOff,
            Self::BehindHead(_) => WaitKind::BehindHead,
            Self::Pending => WaitKind::Pending,
            Self::PodsNotReady => WaitKind::PodsNotReady,
            Self::Claims => WaitKind::WaitingForPreempted,
            Self::BehindReservation(..) => WaitKind::BehindReservation,
            Self::Stuck(kind) => kind,
        }
    }
}

impl Engine {
    /// Where a unit stands and why it waits; none if it does not wait.
    ///
    /// Costs O(log n), a copy of the numbers of the unit's tree of cohorts, and the length of the answer; independent of how
    /// many wait. Where past usage counts, a look at each LocalQueue of its ClusterQueue as well. Amounts are those of this moment.
    pub fn waiting(&self, uid: Uid) -> Option<Waiting> {
        let id = self.units.find(uid)?;
        let (unit, waiting) = self.units.waiting(id)?;
        let local_queue = self.local_queues.get(unit.local_queue)?;
        let queue_id = local_queue.queue();
        let queue = queue_id.and_then(|queue| self.queues.get(queue));
        let (turn, lane) = (waiting.turn(uid, id), self.lane_of(unit.local_queue));
        let reason = self.cause(id, unit, waiting)?.reason();
        let is_stuck = reason.is_none();
        let mut told = Waiting {
            uid,
            local_queue: local_queue.key.clone(),
            queue: queue.map(|queue| queue.name.clone()),
            position: queue.map(|queue| queue.order.rank(&queue.ranking, lane, turn, self.aged_to)),
            ahead: queue.map_or_else(Vec::new, |queue| {
                let ahead = self.in_order(queue).take_while(|other| *other != turn);
                ahead.take(Waiting::AHEAD).map(|other| other.uid).collect()
            }),
            reason: reason.unwrap_or(WaitReason::Pending),
            earliest_start: None,
        };
        if let (true, Some(queue)) = (is_stuck, queue_id) {
            let lack = self.lack(queue, turn);
            let (reason, earliest_start) = lack.unwrap_or_else(|| (self.just_waits_for_quota(waiting), None));
            told.reason = reason;
            let claim = self.queues.get(queue).and_then(|queue| queue.claims.get(&turn));
            told.earliest_start = match claim.and_then(|claim| claim.reserved.as_ref()) {
                Some(reserved) => reserved.until.map(|until| until.max(self.now)),
                None => earliest_start,
            };
        }
        Some(told)
    }

    /// The kind of reason why a unit waits, which costs nothing to know; none if it does not wait.
    pub fn wait_kind(&self, uid: Uid) -> Option<WaitKind> {
        self.kind_of(self.units.find(uid)?)
    }

    /// What a ClusterQueue holds and who waits in it; none if it does not exist.
    pub fn queue(&self, name: &str) -> Option<QueueReport> {
        let queue = self.queues.get(self.queues.find(name)?)?;
        queue.spec.as_ref()?;
        let pending_active = match (queue.is_open(), queue.is_strict()) {
            (false, _) => 0,
            (true, true) => queue.parking.units(),
            (true, false) => queue.parking.active_units(),
        };
        Some(QueueReport {
            active: queue.state.clone(),
            pending_active,
            pending_inadmissible: queue.order.len() - pending_active,
            reserving: queue.books.reserving,
            admitted: queue.books.admitted,
            usage: self.usage(Some(queue), &queue.books, true),
        })
    }

    /// What the units of a LocalQueue hold and how many of them wait; none if it does not exist.
    pub fn local_queue(&self, key: &LocalQueueKey) -> Option<QueueReport> {
        let local_queue = self.local_queues.get(self.local_queues.find(key)?)?;
        let (spec, queue) = local_queue.spec.as_ref()?;
        let queue = self.queues.get(*queue).filter(|queue| queue.spec.is_some());
        let active = match (&spec.blocked, queue.map(|queue| &queue.state)) {
            (Some(blocked), _) => Err(Inactive {
                reason: blocked.reason.clone(),
                message: blocked.message.clone(),
            }),
            (None, None) => Err(Inactive {
                reason: "ClusterQueueDoesNotExist".into(),
                message: format!("ClusterQueue {} does not exist", spec.queue).into(),
            }),
            (None, Some(Err(inactive))) => Err(Inactive {
                reason: "ClusterQueueIsInactive".into(),
                message: format!("ClusterQueue {} is not active: {}", spec.queue, inactive.message).into(),
            }),
            (None, Some(Ok(()))) => Ok(()),
        };
        let pending_active = queue.map_or(0, |queue| self.active_units(local_queue, queue));
        Some(QueueReport {
            active,
            pending_active,
            pending_inadmissible: local_queue.waiting - pending_active,
            reserving: local_queue.books.reserving,
            admitted: local_queue.books.admitted,
            usage: self.usage(queue, &local_queue.books, false),
        })
    }

    /// The ClusterQueues that exist, by name.
    pub fn queues(&self) -> impl Iterator<Item = &Name> + '_ {
        self.queues
            .iter()
            .filter(|(_, queue)| queue.spec.is_some())
            .map(|(_, queue)| &queue.name)
    }

    /// The LocalQueues that exist, by namespace and name.
    pub fn local_queues(&self) -> impl Iterator<Item = &LocalQueueKey> + '_ {
        let existing = self
            .local_queues
            .iter()
            .filter(|(_, local_queue)| local_queue.spec.is_some());
        existing.map(|(_, local_queue)| &local_queue.key)
    }

    /// The units that wait in a ClusterQueue, in queue order, those set aside included.
    pub fn pending(&self, queue: &str) -> impl Iterator<Item = Uid> + '_ {
        let queue = self.queues.find(queue).and_then(|id| self.queues.get(id));
        queue
            .into_iter()
            .flat_map(|queue| self.in_order(queue).map(|turn| turn.uid))
    }

    /// The kind of reason why a unit waits.
    pub(crate) fn kind_of(&self, id: UnitId) -> Option<WaitKind> {
        let (unit, waiting) = self.units.waiting(id)?;
        self.cause(id, unit, waiting).map(Cause::kind)
    }

    fn cause<'a>(&'a self, id: UnitId, unit: &'a Unit, waiting: &'a WaitingUnit) -> Option<Cause<'a>> {
        let local_queue = self.local_queues.get(unit.local_queue)?;
        let Some((spec, queue_id)) = &local_queue.spec else {
            return Some(Cause::NoLocalQueue(&local_queue.key));
        };
        let queue = self.queues.get(*queue_id)?;
        if queue.spec.is_none() {
            return Some(Cause::QueueMissing(&queue.name));
        }
        if let Err(inactive) = &queue.state {
            return Some(Cause::QueueInactive(inactive));
        }
        if let Some(blocked) = &spec.blocked {
            return Some(Cause::LocalQueueBlocked(blocked));
        }
        if let Some(gate) = waiting.gate() {
            return Some(Cause::Gated(gate));
        }
        if let (Standing::BackOff, Some(until)) = (waiting.standing, waiting.not_before()) {
            return Some(Cause::BackOff(until));
        }
        let turn = waiting.turn(unit.uid, id);
        let key = self.class_of(unit, waiting);
        if queue.is_by_pool() {
            if let Some(cause) = self.cause_by_pool(*queue_id, queue, turn, queue.parking.find(key)?) {
                return Some(cause);
            }
        } else if queue.has_blocking_head() {
            let (head, _) = queue.first(self.aged_to)?;
            if head != turn {
                return Some(Cause::BehindHead(head.uid));
            }
        }
        let class = queue.parking.class(queue.parking.find(key)?)?;
        Some(match (class.parked(), queue.claims.get(&turn)) {
            (Some(parked), _) if parked.kind == WaitKind::BehindReservation => {
                let ahead = queue.reserved_ahead(turn);
                ahead.map_or(Cause::Pending, |reserved| {
                    Cause::BehindReservation(reserved.turn.uid, reserved.until.map(|until| until.max(self.now)))
                })
            }
            (Some(parked), _) => Cause::Stuck(parked.kind),
            (None, Some(claim)) if claim.reserve => Cause::Stuck(WaitKind::WaitingForQuota),
            (None, Some(_)) => Cause::Claims,
            (None, None) if self.is_held_back() => Cause::PodsNotReady,
            (None, None) => Cause::Pending,
        })
    }

    /// What keeps a unit that is asked by pool from being asked, or for ever from an outcome.
    fn cause_by_pool(&self, id: QueueId, queue: &Queue, turn: Turn, class: ClassId) -> Option<Cause<'_>> {
        if queue.claims.contains_key(&turn) {
            return None;
        }
        self.with_fewest(id, class, |plan, tree, node| match plan.kind() {
            WaitKind::WaitingForQuota => {
                let behind = queue.behind(turn, plan, tree, node)?;
                Some(Cause::BehindHead(behind.uid))
            }
            never => Some(Cause::Stuck(never)),
        })?
    }

    /// For the head of a StrictFIFO queue that reserved before others made room in the same pass: the next one sees it.
    fn just_waits_for_quota(&self, waiting: &WaitingUnit) -> WaitReason {
        let shape = self.shapes.get(waiting.shape);
        WaitReason::WaitingForQuota {
            pod_set: shape.first().map_or_else(|| "".into(), |pod_set| pod_set.name.clone()),
            shortages: Vec::new(),
            mismatches: Vec::new(),
        }
    }

    /// What a unit lacks that has no outcome, with the claims of others in the books, and until when at least; none if it
    /// has one.
    fn lack(&self, id: QueueId, turn: Turn) -> Option<(WaitReason, Option<Time>)> {
        let class = self.class_of_unit(turn.unit)?;
        let shape = self.shapes.get(class.shape);
        // With a minimum it waits for what the fewest pods need.
        let pod_sets = least(&shape);
        let queue = self.queues.get(id)?;
        let (tree_id, node) = queue.place?;
        let tree = self.forest.trees.get(tree_id)?;
        let plan = self.resolve(queue, tree, node, &pod_sets);
        let pod_set = |index: usize| {
            shape
                .get(index)
                .map_or_else(|| Name::from(""), |pod_set| pod_set.name.clone())
        };
        if let Some(Hopeless::NotCovered {
            pod_set: index,
            resource,
        }) = plan.hopeless()
        {
            let reason = WaitReason::ResourceNotCovered {
                pod_set: pod_set(*index),
                resource: resource.clone(),
            };
            return Some((reason, None));
        }
        let mut tree = tree.with_usage();
        let blocked = queue.blocked_ahead(turn);
        self.add_claims(&mut tree, tree_id, turn);
        let stuck = match plan.hopeless() {
            Some(_) => None,
            None => Some(self.ask_in(&mut tree, id, turn, class, &plan, &blocked).err()?),
        };
        let (index, taken) = match stuck {
            Some(stuck) => (stuck.ask, stuck.taken),
            None => plan.stuck_when_empty(&tree, node, queue.fungibility())?,
        };
        let ask = plan.ask(index)?;
        let pod_set = pod_set(ask.pod_set);
        let mismatches = ask.choices.iter().filter_map(|choice| {
            let mismatch = choice.admitted.clone().err()?;
            Some((self.cells.flavors.name(choice.flavor).clone(), mismatch))
        });
        let mismatches = mismatches.collect();
        let reason = match plan.hopeless() {
            Some(Hopeless::NoFlavor) => WaitReason::NoMatchingFlavor { pod_set, mismatches },
            Some(_) => WaitReason::ExceedsMaxQuota {
                pod_set,
                shortages: self.shortages(ask, &taken, (tree_id, &tree.without_usage()), &tree, node),
                mismatches,
            },
            None => WaitReason::WaitingForQuota {
                pod_set,
                shortages: self.shortages(ask, &taken, (tree_id, &tree), &tree, node),
                mismatches,
            },
        };
        let earliest_start = match plan.hopeless() {
            Some(_) => None,
            None => self.earliest_start(&mut tree, id, turn, class, &plan, &blocked),
        };
        Some((reason, earliest_start))
    }

    /// Adds the claims of all units of a tree but one to `tree`, a copy of it.
    fn add_claims(&self, tree: &mut Tree, id: TreeId, turn: Turn) {
        let standing = self.forest.trees.get(id).into_iter().flat_map(|tree| &tree.standing);
        let end = self.end_if_admitted(turn.unit);
        for (other_id, queue) in standing.filter_map(|id| Some((id, self.queues.get(*id)?))) {
            let Some((_, node)) = queue.place else { continue };
            let is_own = self.queue_of(turn.unit) == Some(*other_id);
            let counts = |claim: &Claim| {
                claim.reserved.as_ref().is_none_or(|reserved| {
                    let lifted = if is_own {
                        reserved.turn < turn
                    } else {
                        reserved.is_over_after(end)
                    };
                    !lifted
                })
            };
            let others = queue
                .claims
                .iter()
                .filter(|(other, claim)| **other != turn && counts(claim));
            for (_, claim) in others {
                tree.plan(node, &claim.needs, 1);
            }
        }
    }

    /// The ClusterQueue that a unit waits in.
    fn queue_of(&self, id: UnitId) -> Option<QueueId> {
        self.local_queues.get(self.units.get(id)?.local_queue)?.queue()
    }

    /// Every resource in every usable flavor of `ask` for which there is too little in `room`: the tree as it is, or empty.
    fn shortages(&self, ask: &Ask, taken: &Taken, room: (TreeId, &Tree), tree: &Tree, node: NodeId) -> Vec<Shortage> {
        let usable = ask.choices.iter().filter(|choice| choice.admitted.is_ok());
        let wants = usable.flat_map(|choice| {
            let wants = ask.wants(choice, taken).zip(&ask.resources);
            wants.map(move |((slot, need), resource)| (choice.flavor, *resource, slot, need))
        });
        let short = wants.filter(|(_, _, slot, need)| *need > room.1.available(node, *slot, Book::Planned));
        short
            .map(|(flavor, resource, slot, need)| {
                let state = tree.state(node, slot);
                let free = tree.available(node, slot, Book::Planned);
                let own = state
                    .subtree
                    .saturating_sub(state.usage(Book::Planned))
                    .clamp(0, free.max(0));
                Shortage {
                    flavor: self.cells.flavors.name(flavor).clone(),
                    resource: self.cells.resources.name(resource).clone(),
                    need: Amount::from_wide(need),
                    free: Amount::from_wide(free),
                    borrowable: Amount::from_wide(free.max(0).saturating_sub(own)),
                    nominal: Amount::from_wide(state.nominal),
                    limit: Amount::from_wide(state.potential),
                    binding: self.binding(room, node, slot, need),
                }
            })
            .collect()
    }

    /// Which limit keeps a need of a ClusterQueue out of `room`: the first on the way up from it, else all that there is.
    fn binding(&self, (id, room): (TreeId, &Tree), queue: NodeId, slot: Slot, need: i128) -> Binding {
        let bar = room.bar(queue, slot, need, Book::Planned);
        let at = bar.map_or(NodeId::ROOT, |bar| bar.node);
        let is_root = room.node(at).parent.is_none();
        if at == queue {
            return if is_root {
                Binding::Nominal
            } else {
                Binding::BorrowingLimit
            };
        }
        let cohort = self.forest.cohort_at((id, at)).cloned().unwrap_or_else(|| "".into());
        if is_root {
            Binding::Cohort(cohort)
        } else {
            Binding::CohortBorrowingLimit(cohort)
        }
    }

    /// The weighted share of a ClusterQueue in its cohort, in thousandths, rounded up; the largest number when it is infinite,
    /// none without a cohort.
    pub fn queue_share(&self, name: &str) -> Option<i64> {
        let (tree, node) = self.queues.get(self.queues.find(name)?)?.place?;
        let tree = self.forest.trees.get(tree)?;
        tree.node(node).parent?;
        Some(fairness::share(tree, node).in_thousandths())
    }

    /// The weighted share of a cohort in its parent, in thousandths, rounded up; 0 without a parent, none if there is no
    /// such cohort.
    pub fn cohort_share(&self, name: &str) -> Option<i64> {
        let (tree, node) = self.forest.place(name)?;
        Some(fairness::share(self.forest.trees.get(tree)?, node).in_thousandths())
    }

    /// The Cohort objects, by name.
    pub fn cohorts(&self) -> impl Iterator<Item = &Name> + '_ {
        self.forest.cohorts()
    }

    /// How many units of a LocalQueue the next pass may look at.
    fn active_units(&self, local_queue: &LocalQueue, queue: &Queue) -> usize {
        if !queue.is_open() || local_queue.ready == 0 {
            return 0;
        }
        if queue.is_strict() || queue.parking.active_units() == queue.parking.units() {
            return local_queue.ready;
        }
        if queue.parking.active_units() == 0 {
            return 0;
        }
        // Only between an event and the next pass.
        let active = |id: &UnitId| {
            self.units.waiting(*id).is_some_and(|(_, waiting)| {
                let class = self.class_of_unit(*id).and_then(|key| queue.parking.find(key));
                let class = class.and_then(|class| queue.parking.class(class));
                waiting.standing == Standing::Ready && class.is_some_and(|class| class.parked().is_none())
            })
        };
        self.units.list(local_queue.first_waiting).filter(active).count()
    }

    /// What `books` say of each cell that `queue` has quota for, then of others in use, by name.
    fn usage(&self, queue: Option<&Queue>, books: &Books, with_quota: bool) -> Vec<Usage> {
        let quotas = queue.map_or(&[][..], |queue| &queue.quotas);
        let usage = |cell: CellId, quota: Option<Quota>| {
            let (flavor, resource) = self.cells.names(cell);
            let sums = books.sums(cell);
            let quota = quota.filter(|_| with_quota);
            Usage {
                flavor: flavor.clone(),
                resource: resource.clone(),
                nominal: quota.map(|quota| quota.nominal),
                borrowing_limit: quota.and_then(|quota| quota.borrowing_limit),
                lending_limit: quota.and_then(|quota| quota.lending_limit),
                reserved: Amount::from_wide(sums.reserved),
                admitted: Amount::from_wide(sums.admitted),
            }
        };
        let has_quota = |cell: CellId| quotas.iter().any(|(known, _)| *known == cell);
        let mut others: Vec<Usage> = books
            .iter()
            .filter(|(cell, _)| !has_quota(*cell))
            .map(|(cell, _)| usage(cell, None))
            .collect();
        others.sort_unstable_by(|one, other| (&one.flavor, &one.resource).cmp(&(&other.flavor, &other.resource)));
        quotas
            .iter()
            .map(|(cell, quota)| usage(*cell, Some(*quota)))
            .chain(others)
            .collect()
    }
}
