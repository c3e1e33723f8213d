//! The books are checked: everything that is kept up to date step by step is rebuilt from scratch and compared.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::engine::Engine;
use crate::ids::{LocalQueueKey, Name, Uid};
use crate::local_queue::LocalQueueId;
use crate::nominate::least;
use crate::order::Ranking;
use crate::parking::ClassKey;
use crate::queue::{Queue, QueueId};
use crate::quota::Books;
use crate::ranked::Turn;
use crate::shapes::ShapeId;
use crate::spec::Phase;
use crate::tree::{Tree, TreeId};
use crate::units::{Body, Standing, UnitId};
use crate::victims::Rank;

/// What an audit found wrong. Any of these is a fault of the engine, never of its input.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuditError {
    /// A ClusterQueue's sums or counts differ from what its units hold.
    #[error("books of ClusterQueue {queue} differ from what its units hold: {what}")]
    QueueBooks {
        /// The queue.
        queue: Name,
        /// What differs.
        what: String,
    },
    /// A LocalQueue's sums or counts differ from what its units hold.
    #[error("books of LocalQueue {local_queue} differ from what its units hold: {what}")]
    LocalQueueBooks {
        /// The LocalQueue.
        local_queue: LocalQueueKey,
        /// What differs.
        what: String,
    },
    /// A ClusterQueue's order or parking lot differs from the units that wait in it.
    #[error("order of ClusterQueue {queue} differs from its waiting units: {what}")]
    Order {
        /// The queue.
        queue: Name,
        /// What differs.
        what: String,
    },
    /// A unit is parked although it fits, or could evict others to fit.
    #[error("unit {uid} is parked in ClusterQueue {queue} although it has an outcome")]
    Idle {
        /// The queue.
        queue: Name,
        /// The first unit of the parked shape.
        uid: Uid,
    },
    /// What a tree of cohorts says is in use differs from what its ClusterQueues use.
    #[error("the tree of ClusterQueue {queue} differs from what its members use")]
    Tree {
        /// A ClusterQueue in it.
        queue: Name,
    },
    /// The units, shapes, timers or lists of the engine disagree with each other.
    #[error("units are kept wrongly: {what}")]
    Units {
        /// What differs.
        what: String,
    },
}

/// Where waiting units should be.
#[derive(Debug, Default)]
struct Expected {
    order: BTreeMap<QueueId, BTreeSet<Turn>>,
    ready: BTreeMap<(QueueId, ClassKey), BTreeSet<Turn>>,
    timers: BTreeSet<(crate::Time, UnitId)>,
    rising: BTreeSet<(crate::Time, UnitId)>,
    shapes: BTreeMap<ShapeId, usize>,
    waiting: BTreeMap<LocalQueueId, (usize, usize)>,
    local_order: BTreeMap<LocalQueueId, BTreeSet<Turn>>,
    of_queues: BTreeMap<QueueId, Books>,
    of_local_queues: BTreeMap<LocalQueueId, Books>,
    running: BTreeMap<QueueId, BTreeSet<Rank>>,
    ends: BTreeMap<QueueId, BTreeSet<(crate::Time, UnitId)>>,
    deadlines: BTreeSet<(crate::Time, UnitId)>,
    unready: usize,
}

impl Engine {
    /// Rebuilds all that is derived from units and specs and compares it with what is kept. For tests, simulations
    /// and debugging: its cost grows with everything there is.
    ///
    /// # Errors
    /// The first difference found.
    pub fn audit(&self) -> Result<(), AuditError> {
        let expected = self.expect()?;
        self.audit_units(&expected)?;
        for (id, queue) in self.queues.iter() {
            Self::audit_books(id, queue, &expected)?;
            self.audit_order(id, queue, &expected)?;
        }
        let trees: BTreeSet<TreeId> = self
            .queues
            .iter()
            .filter_map(|(_, queue)| Some(queue.place?.0))
            .collect();
        for tree in trees {
            self.audit_tree(tree)?;
        }
        self.audit_local_queues(&expected)
    }

    /// Where every unit belongs, from the units and LocalQueues alone.
    fn expect(&self) -> Result<Expected, AuditError> {
        let mut expected = Expected::default();
        for (id, unit) in self.units.iter() {
            let fault = |what: &str| {
                Err(AuditError::Units {
                    what: format!("{} {what}", unit.uid),
                })
            };
            if self.units.find(unit.uid) != Some(id) {
                return fault("is not found under its uid");
            }
            let Some(local_queue) = self.local_queues.get(unit.local_queue) else {
                return fault("names a forgotten LocalQueue");
            };
            let waiting = match &unit.body {
                Body::Charged(held) => {
                    let of_queue = expected.of_queues.entry(held.queue).or_default();
                    of_queue.charge(&held.charges, held.phase);
                    let of_local_queue = expected.of_local_queues.entry(unit.local_queue).or_default();
                    of_local_queue.charge(&held.charges, held.phase);
                    expected.unready += usize::from(held.awaits_pods());
                    let end = held.known_end().filter(|_| held.phase != Phase::Evicting);
                    if let Some(end) = end {
                        expected.ends.entry(held.queue).or_default().insert((end, id));
                    }
                    if held.phase == Phase::Admitted {
                        let running = expected.running.entry(held.queue).or_default();
                        running.insert(held.rank(unit.uid, id));
                        let first = held.deadlines.iter().map(|deadline| (deadline.at, id)).min();
                        expected.deadlines.extend(first);
                    }
                    continue;
                }
                Body::Waiting(waiting) => waiting,
            };
            let counts = expected.waiting.entry(unit.local_queue).or_default();
            counts.0 += 1;
            *expected.shapes.entry(waiting.shape).or_default() += 1;
            let Some(queue) = local_queue.queue() else {
                if waiting.standing == Standing::Lost {
                    continue;
                }
                return fault("stands in a queue without a LocalQueue");
            };
            let turn = waiting.turn(unit.uid, id);
            expected.order.entry(queue).or_default().insert(turn);
            let pace = self.queues.get(queue).map(|queue| queue.order.pace());
            let capped = pace
                .and_then(|pace| pace.capped_at(turn))
                .filter(|at| *at > self.aged_to);
            expected.rising.extend(capped.map(|at| (at, id)));
            expected.local_order.entry(unit.local_queue).or_default().insert(turn);
            let aside = local_queue.is_blocked() || waiting.gate().is_some();
            match (aside, waiting.standing, waiting.not_before()) {
                (true, Standing::Aside, _) => {}
                (false, Standing::BackOff, Some(until)) => {
                    expected.timers.insert((until, id));
                }
                (false, Standing::Ready, _) => {
                    counts.1 += 1;
                    let class = self.class_of(unit, waiting);
                    expected.ready.entry((queue, class)).or_default().insert(turn);
                }
                _ => return fault("stands in the wrong place"),
            }
        }
        Ok(expected)
    }

    fn audit_units(&self, expected: &Expected) -> Result<(), AuditError> {
        let fault = |what: &str| Err(AuditError::Units { what: what.to_owned() });
        if self.units.iter().count() != self.units.len() {
            return fault("there are uids without units");
        }
        if expected.timers != self.timers {
            return fault("timers differ from the units in back-off");
        }
        if expected.rising != self.rising {
            return fault("units that rise by waiting are not those that have not waited long enough");
        }
        if expected.deadlines != self.deadlines {
            return fault("deadlines differ from those of the admitted units");
        }
        if expected.unready != self.unready {
            return fault("units whose pods are not ready are miscounted");
        }
        if self.shapes.iter().collect::<BTreeMap<_, _>>() != expected.shapes {
            return fault("shapes differ from those of the waiting units");
        }
        let known = |id: &QueueId| self.queues.get(*id).is_some();
        if !expected.of_queues.keys().chain(expected.order.keys()).all(known) || !self.dirty.iter().all(|id| known(&id))
        {
            return fault("a forgotten ClusterQueue is in use");
        }
        Ok(())
    }

    fn audit_books(id: QueueId, queue: &Queue, expected: &Expected) -> Result<(), AuditError> {
        let none = Books::default();
        let held = expected.of_queues.get(&id).unwrap_or(&none);
        let fault = |what| {
            Err(AuditError::QueueBooks {
                queue: queue.name.clone(),
                what,
            })
        };
        if *held != queue.books {
            return fault(format!("held {held:?}, kept {:?}", queue.books));
        }
        if *expected.ends.get(&id).unwrap_or(&BTreeSet::new()) != queue.ends {
            return fault("its known ends are not those of its units".to_owned());
        }
        if *expected.running.get(&id).unwrap_or(&BTreeSet::new()) != queue.running {
            return fault("its running units are not those that are admitted".to_owned());
        }
        Ok(())
    }

    /// The usages of a tree are those of its members, what is parked in it is watched, and nobody in it is parked who has an
    /// outcome: work conservation.
    fn audit_tree(&self, id: TreeId) -> Result<(), AuditError> {
        let Some(tree) = self.forest.trees.get(id) else {
            return Err(AuditError::Units {
                what: "a ClusterQueue is in a tree that is gone".to_owned(),
            });
        };
        let members = || {
            tree.nodes()
                .filter_map(|(node, member)| Some((node, member.queue?, self.queues.get(member.queue?)?)))
        };
        let mut rebuilt = tree.without_usage();
        for (node, _, queue) in members() {
            rebuilt.charge_books(node, &queue.books, &self.cells);
        }
        if let Some((_, _, queue)) = members().next()
            && !rebuilt.agrees(tree)
        {
            return Err(AuditError::Tree {
                queue: queue.name.clone(),
            });
        }
        for (node, _, queue) in members() {
            for claim in queue.claims.values() {
                rebuilt.plan(node, &claim.needs, 1);
            }
        }
        // Claims of reservations do not count for everybody alike.
        let open = members().filter(|(_, _, queue)| queue.is_open() && !tree.is_backfilled);
        for (_, id, queue) in open {
            self.audit_parking(id, queue, &mut rebuilt, tree)?;
        }
        Ok(())
    }

    fn audit_parking(&self, id: QueueId, queue: &Queue, tree: &mut Tree, real: &Tree) -> Result<(), AuditError> {
        for (class_id, class) in queue.parking.iter() {
            let key = class.key;
            let (Some(stuck), Some(head)) = (class.parked(), class.units.first()) else {
                continue;
            };
            let blocked = queue.blocked_ahead(head);
            if stuck.pools.as_ref().is_some_and(|jam| jam.ahead != blocked) {
                // It is asked again, though nothing woke it.
                continue;
            }
            if !real.watches.is_watched((id, class_id), &stuck.wakes) {
                return Err(AuditError::Order {
                    queue: queue.name.clone(),
                    what: "a parked shape is not watched".to_owned(),
                });
            }
            let Some((_, node)) = queue.place else { continue };
            let pod_sets = least(&self.shapes.get(key.shape));
            let plan = self.resolve(queue, tree, node, &pod_sets);
            if self.ask_in(tree, id, head, key, &plan, &blocked).is_ok() {
                return Err(AuditError::Idle {
                    queue: queue.name.clone(),
                    uid: head.uid,
                });
            }
        }
        Ok(())
    }

    fn audit_local_queues(&self, expected: &Expected) -> Result<(), AuditError> {
        let none = Books::default();
        for (id, local_queue) in self.local_queues.iter() {
            let fault = |what| {
                Err(AuditError::LocalQueueBooks {
                    local_queue: local_queue.key.clone(),
                    what,
                })
            };
            let held = expected.of_local_queues.get(&id).unwrap_or(&none);
            if *held != local_queue.books {
                return fault(format!("held {held:?}, kept {:?}", local_queue.books));
            }
            let counts = expected.waiting.get(&id).copied().unwrap_or_default();
            let listed = self.units.list(local_queue.first_waiting);
            let own = listed
                .filter(|unit| self.units.get(*unit).is_some_and(|unit| unit.local_queue == id))
                .count();
            if counts != (local_queue.waiting, local_queue.ready) || own != counts.0 {
                return fault("waiting units are miscounted".to_owned());
            }
            let own = &local_queue.order;
            let mut order: Vec<Turn> = expected.local_order.get(&id).into_iter().flatten().copied().collect();
            order.sort_by_key(|turn| own.pace().seat(*turn, self.aged_to));
            if !own.is_sound() || !own.iter(&Ranking::default(), self.aged_to).eq(order) {
                return fault("the order is not that of its units".to_owned());
            }
            let joined = local_queue.queue().is_none_or(|queue| {
                self.queues
                    .get(queue)
                    .is_some_and(|queue| queue.local_queues.contains(&id))
            });
            if !joined {
                return fault("its ClusterQueue does not know it".to_owned());
            }
        }
        Ok(())
    }

    fn audit_order(&self, id: QueueId, queue: &Queue, expected: &Expected) -> Result<(), AuditError> {
        let fault = |what: &str| {
            Err(AuditError::Order {
                queue: queue.name.clone(),
                what: what.to_owned(),
            })
        };
        let none = BTreeSet::new();
        let order = expected.order.get(&id).unwrap_or(&none);
        let mut order: Vec<Turn> = order.iter().copied().collect();
        order.sort_by_cached_key(|turn| {
            let lane = self
                .units
                .get(turn.unit)
                .and_then(|unit| self.lane_of(unit.local_queue));
            (queue.ranking.of(lane), queue.order.pace().seat(*turn, self.aged_to))
        });
        if !queue.order.is_sound() || !self.in_order(queue).eq(order) {
            return fault("the order is not that of its units");
        }
        if !queue.parking.is_sound() {
            return fault("the parking lot contradicts itself");
        }
        let parked: BTreeMap<_, BTreeSet<Turn>> = queue
            .parking
            .iter()
            .map(|(_, class)| ((id, class.key), class.units.iter().collect()))
            .collect();
        let ready = expected.ready.iter().filter(|((queue, _), _)| *queue == id);
        if !ready.eq(parked.iter()) {
            return fault("the parking lot does not hold the units that may be considered");
        }
        Ok(())
    }
}
