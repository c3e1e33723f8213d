//! Asking the engine: why a unit waits, what a queue holds. Never changes anything.

use crate::amount::Amount;
use crate::assign::{Ask, Hopeless, Lack, Plan, Verdict};
use crate::engine::Engine;
use crate::ids::{LocalQueueKey, Name, Time, Uid};
use crate::local_queue::LocalQueue;
use crate::queue::Queue;
use crate::quota::{CellId, Node, Slot};
use crate::report::{QueueReport, Shortage, Usage, WaitKind, WaitReason, Waiting};
use crate::shapes::ShapeId;
use crate::spec::{Blocked, Gate, Inactive};
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
    Parked {
        plan: &'a Plan,
        shape: ShapeId,
        node: &'a Node,
    },
}

impl Cause<'_> {
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
            Self::Parked { plan, .. } => plan.kind(),
        }
    }
}

impl Engine {
    /// Where a unit stands and why it waits; none if it does not wait.
    ///
    /// Costs O(log n) and the length of the answer, and never slows a decision. Amounts are those of this moment.
    pub fn waiting(&self, uid: Uid) -> Option<Waiting> {
        let id = self.units.find(uid)?;
        let (unit, waiting) = self.units.waiting(id)?;
        let local_queue = self.local_queues.get(unit.local_queue)?;
        let queue = local_queue.queue().and_then(|queue| self.queues.get(queue));
        Some(Waiting {
            uid,
            local_queue: local_queue.key.clone(),
            queue: queue.map(|queue| queue.name.clone()),
            position: queue.map(|queue| queue.order.rank(&waiting.turn(uid, id))),
            reason: self.reason(self.cause(id, unit, waiting)?),
        })
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
            reserving: queue.reserving,
            admitted: queue.admitted,
            usage: self.usage(Some(queue), &queue.node),
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
            reserving: local_queue.reserving,
            admitted: local_queue.admitted,
            usage: self.usage(queue, &local_queue.books),
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
            .flat_map(|queue| queue.order.iter().map(|turn| turn.uid))
    }

    /// The kind of reason why a unit waits.
    pub(crate) fn kind_of(&self, id: UnitId) -> Option<WaitKind> {
        let (unit, waiting) = self.units.waiting(id)?;
        self.cause(id, unit, waiting).map(Cause::kind)
    }

    fn cause<'a>(&'a self, id: UnitId, unit: &'a Unit, waiting: &'a WaitingUnit) -> Option<Cause<'a>> {
        let local_queue = self.local_queues.get(unit.local_queue)?;
        let Some((spec, queue)) = &local_queue.spec else {
            return Some(Cause::NoLocalQueue(&local_queue.key));
        };
        let queue = self.queues.get(*queue)?;
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
        let head = queue.parking.head()?;
        if queue.is_strict() && head != waiting.turn(unit.uid, id) {
            return Some(Cause::BehindHead(head.uid));
        }
        let class = queue.parking.class(waiting.shape)?;
        Some(match (&class.parked, &class.plan) {
            (Some(_), Some(plan)) => Cause::Parked {
                plan,
                shape: waiting.shape,
                node: &queue.node,
            },
            _ => Cause::Pending,
        })
    }

    fn reason(&self, cause: Cause<'_>) -> WaitReason {
        match cause {
            Cause::NoLocalQueue(key) => WaitReason::NoLocalQueue(key.clone()),
            Cause::QueueMissing(name) => WaitReason::QueueMissing(name.clone()),
            Cause::QueueInactive(inactive) => WaitReason::QueueInactive(inactive.clone()),
            Cause::LocalQueueBlocked(blocked) => WaitReason::LocalQueueBlocked(blocked.clone()),
            Cause::Gated(gate) => WaitReason::Gated(gate.clone()),
            Cause::BackOff(until) => WaitReason::BackOff(until),
            Cause::BehindHead(head) => WaitReason::BehindHead(head),
            Cause::Pending => WaitReason::Pending,
            Cause::Parked { plan, shape, node } => self.lack(plan, shape, node),
        }
    }

    /// What a parked shape lacks.
    fn lack(&self, plan: &Plan, shape: ShapeId, node: &Node) -> WaitReason {
        let shape = self.shapes.get(shape);
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
            return WaitReason::ResourceNotCovered {
                pod_set: pod_set(*index),
                resource: resource.clone(),
            };
        }
        let verdict = if plan.hopeless().is_some() {
            plan.judge_empty(node)
        } else {
            plan.judge(node)
        };
        // Whoever is parked does not fit (audit checks it), and what does not fit got stuck at an ask.
        let Verdict::Lacks(lack) = verdict else {
            return WaitReason::Pending;
        };
        let Some(ask) = plan.ask(lack.ask) else {
            return WaitReason::Pending;
        };
        let pod_set = pod_set(ask.pod_set);
        let mismatches = ask.choices.iter().filter_map(|choice| {
            let mismatch = choice.admitted.clone().err()?;
            Some((self.cells.flavors.name(choice.flavor).clone(), mismatch))
        });
        let mismatches = mismatches.collect();
        match plan.hopeless() {
            Some(Hopeless::NoFlavor) => WaitReason::NoMatchingFlavor { pod_set, mismatches },
            Some(_) => {
                let shortages = self.shortages(ask, &lack, node, |slot| node.limit(slot));
                WaitReason::ExceedsMaxQuota {
                    pod_set,
                    shortages,
                    mismatches,
                }
            }
            None => {
                let shortages = self.shortages(ask, &lack, node, |slot| node.free(slot));
                WaitReason::WaitingForQuota {
                    pod_set,
                    shortages,
                    mismatches,
                }
            }
        }
    }

    /// Every resource in every usable flavor of `ask` for which `bound` is too little.
    fn shortages(&self, ask: &Ask, lack: &Lack, node: &Node, bound: impl Fn(Slot) -> i128) -> Vec<Shortage> {
        let usable = ask.choices.iter().filter(|choice| choice.admitted.is_ok());
        let wants = usable.flat_map(|choice| {
            let wants = ask.wants(choice, &lack.taken).zip(&ask.resources);
            wants.map(move |((slot, need), resource)| (choice.flavor, *resource, slot, need))
        });
        let short = wants.filter(|(_, _, slot, need)| *need > bound(*slot));
        short
            .map(|(flavor, resource, slot, need)| Shortage {
                flavor: self.cells.flavors.name(flavor).clone(),
                resource: self.cells.resources.name(resource).clone(),
                need: Amount::from_wide(need),
                free: Amount::from_wide(node.free(slot)),
                nominal: Amount::from_wide(node.limit(slot)),
            })
            .collect()
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
                let class = queue.parking.class(waiting.shape);
                waiting.standing == Standing::Ready && class.is_some_and(|class| class.parked.is_none())
            })
        };
        self.units.list(local_queue.first_waiting).filter(active).count()
    }

    /// What `books` say of each cell that `queue` has quota for, then of others in use, by name.
    fn usage(&self, queue: Option<&Queue>, books: &Node) -> Vec<Usage> {
        let own_quota = queue.is_some_and(|queue| std::ptr::eq(&raw const queue.node, books));
        let usage = |cell: CellId| {
            let (flavor, resource) = self.cells.names(cell);
            let (reserved, admitted) = books.used(cell);
            Usage {
                flavor: flavor.clone(),
                resource: resource.clone(),
                nominal: if own_quota { books.nominal(cell) } else { None },
                reserved: Amount::from_wide(reserved),
                admitted: Amount::from_wide(admitted),
            }
        };
        let with_quota = |cell: &CellId| queue.is_some_and(|queue| queue.node.nominal(*cell).is_some());
        let quotas = queue
            .map_or(&[][..], |queue| queue.node.cells())
            .iter()
            .copied()
            .filter(with_quota);
        let mut others: Vec<Usage> = books
            .cells()
            .iter()
            .copied()
            .filter(|cell| !with_quota(cell) && books.used(*cell) != (0, 0))
            .map(usage)
            .collect();
        others.sort_unstable_by(|one, other| (&one.flavor, &one.resource).cmp(&(&other.flavor, &other.resource)));
        quotas.map(usage).chain(others).collect()
    }
}
