//! The books are checked: everything that is kept up to date step by step is rebuilt from scratch and compared.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::assign::Verdict;
use crate::engine::Engine;
use crate::ids::{LocalQueueKey, Name, Uid};
use crate::local_queue::LocalQueueId;
use crate::queue::{Queue, QueueId};
use crate::quota::{Book, CellId, Node};
use crate::ranked::Turn;
use crate::shapes::ShapeId;
use crate::units::{Body, Held, Standing};

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
    /// A unit is parked although it fits.
    #[error("unit {uid} is parked in ClusterQueue {queue} although it fits")]
    Idle {
        /// The queue.
        queue: Name,
        /// The first unit of the parked shape.
        uid: Uid,
    },
    /// The units, shapes, timers or lists of the engine disagree with each other.
    #[error("units are kept wrongly: {what}")]
    Units {
        /// What differs.
        what: String,
    },
}

/// What one holder's units hold.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    cells: BTreeMap<CellId, (i128, i128)>,
    reserving: usize,
    admitted: usize,
}

impl Sums {
    fn add(&mut self, held: &Held) {
        let admitted = held.book() == Book::Admitted;
        self.reserving += 1;
        self.admitted += usize::from(admitted);
        for (cell, amount) in &held.charges {
            let sums = self.cells.entry(*cell).or_default();
            sums.0 += amount.wide();
            sums.1 += if admitted { amount.wide() } else { 0 };
        }
    }

    /// What a node and two counters say, in the same form.
    fn kept(node: &Node, reserving: usize, admitted: usize) -> Self {
        let used = node.cells().iter().map(|cell| (*cell, node.used(*cell)));
        Self {
            cells: used.filter(|(_, used)| *used != (0, 0)).collect(),
            reserving,
            admitted,
        }
    }
}

/// Where waiting units should be.
#[derive(Debug, Default)]
struct Expected {
    order: BTreeMap<QueueId, BTreeSet<Turn>>,
    ready: BTreeMap<(QueueId, ShapeId), BTreeSet<Turn>>,
    timers: BTreeSet<(crate::Time, crate::units::UnitId)>,
    shapes: BTreeMap<ShapeId, usize>,
    waiting: BTreeMap<LocalQueueId, (usize, usize)>,
    of_queues: BTreeMap<QueueId, Sums>,
    of_local_queues: BTreeMap<LocalQueueId, Sums>,
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
            audit_order(id, queue, &expected)?;
            audit_parking(queue)?;
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
                    expected.of_queues.entry(held.queue).or_default().add(held);
                    expected.of_local_queues.entry(unit.local_queue).or_default().add(held);
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
            let aside = local_queue.is_blocked() || waiting.gate().is_some();
            match (aside, waiting.standing, waiting.not_before()) {
                (true, Standing::Aside, _) => {}
                (false, Standing::BackOff, Some(until)) => {
                    expected.timers.insert((until, id));
                }
                (false, Standing::Ready, _) => {
                    counts.1 += 1;
                    expected.ready.entry((queue, waiting.shape)).or_default().insert(turn);
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
        if self.shapes.iter().collect::<BTreeMap<_, _>>() != expected.shapes {
            return fault("shapes differ from those of the waiting units");
        }
        let known = |id: &QueueId| self.queues.get(*id).is_some();
        if !expected.of_queues.keys().chain(expected.order.keys()).all(known) || !self.dirty.iter().all(known) {
            return fault("a forgotten ClusterQueue is in use");
        }
        Ok(())
    }

    fn audit_books(id: QueueId, queue: &Queue, expected: &Expected) -> Result<(), AuditError> {
        let none = Sums::default();
        let (held, kept) = (
            expected.of_queues.get(&id).unwrap_or(&none),
            Sums::kept(&queue.node, queue.reserving, queue.admitted),
        );
        if *held == kept {
            return Ok(());
        }
        Err(AuditError::QueueBooks {
            queue: queue.name.clone(),
            what: format!("held {held:?}, kept {kept:?}"),
        })
    }

    fn audit_local_queues(&self, expected: &Expected) -> Result<(), AuditError> {
        let none = Sums::default();
        for (id, local_queue) in self.local_queues.iter() {
            let fault = |what| {
                Err(AuditError::LocalQueueBooks {
                    local_queue: local_queue.key.clone(),
                    what,
                })
            };
            let held = expected.of_local_queues.get(&id).unwrap_or(&none);
            let kept = Sums::kept(&local_queue.books, local_queue.reserving, local_queue.admitted);
            if *held != kept {
                return fault(format!("held {held:?}, kept {kept:?}"));
            }
            let counts = expected.waiting.get(&id).copied().unwrap_or_default();
            let listed = self.units.list(local_queue.first_waiting);
            let own = listed
                .filter(|unit| self.units.get(*unit).is_some_and(|unit| unit.local_queue == id))
                .count();
            if counts != (local_queue.waiting, local_queue.ready) || own != counts.0 {
                return fault("waiting units are miscounted".to_owned());
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
}

fn audit_order(id: QueueId, queue: &Queue, expected: &Expected) -> Result<(), AuditError> {
    let fault = |what: &str| {
        Err(AuditError::Order {
            queue: queue.name.clone(),
            what: what.to_owned(),
        })
    };
    let none = BTreeSet::new();
    let order = expected.order.get(&id).unwrap_or(&none);
    if !queue.order.is_sound() || !queue.order.iter().eq(order.iter().copied()) {
        return fault("the order is not that of its units");
    }
    if !queue.parking.is_sound() {
        return fault("the parking lot contradicts itself");
    }
    let parked: BTreeMap<_, BTreeSet<Turn>> = queue
        .parking
        .iter()
        .map(|(shape, class)| ((id, shape), class.units.iter().collect()))
        .collect();
    let ready = expected.ready.iter().filter(|((queue, _), _)| *queue == id);
    if !ready.eq(parked.iter()) {
        return fault("the parking lot does not hold the units that may be considered");
    }
    Ok(())
}

/// Work conservation: who is parked does not fit.
fn audit_parking(queue: &Queue) -> Result<(), AuditError> {
    for (_, class) in queue.parking.iter().filter(|(_, class)| class.parked.is_some()) {
        let Some(plan) = &class.plan else {
            return Err(AuditError::Order {
                queue: queue.name.clone(),
                what: "a parked shape has no plan".to_owned(),
            });
        };
        if let (Verdict::Fits(_), Some(head)) = (plan.judge(&queue.node), class.units.first()) {
            return Err(AuditError::Idle {
                queue: queue.name.clone(),
                uid: head.uid,
            });
        }
    }
    Ok(())
}
