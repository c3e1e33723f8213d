//! A pass: who may start now.

use crate::assign::{Plan, Verdict};
use crate::engine::Engine;
use crate::ids::Time;
use crate::queue::QueueId;
use crate::ranked::Turn;
use crate::report::{Action, Admission, Pass};
use crate::shapes::ShapeId;
use crate::spec::Phase;
use crate::units::Held;

/// The first unit of a queue that fits, and how.
#[derive(Debug)]
struct Pick {
    turn: Turn,
    queue: QueueId,
    shape: ShapeId,
    chosen: Vec<usize>,
}

impl Engine {
    /// Decides everything that can be decided now and assumes it done.
    ///
    /// Runs in cycles until nothing moves. A cycle finds in every queue the first unit, in queue order, that fits
    /// (in a StrictFIFO queue only the very first is tried) and admits these in one order over all queues: higher
    /// priority, earlier queue time, smaller uid. So every queue gets a turn before any gets its second. What was
    /// parked or woken before never shows in the outcome.
    ///
    /// `now` should not go back: a unit whose back-off was found over stays released.
    pub fn pass(&mut self, now: Time) -> Pass {
        self.pass_at_most(now, usize::MAX)
    }

    /// The same, but ends with the first cycle after which there are `limit` actions or more: a caller that cannot carry
    /// out more yet decides on the rest later, on what is true then. The next pass goes on where this one ended.
    pub fn pass_at_most(&mut self, now: Time, limit: usize) -> Pass {
        self.counters.passes += 1;
        self.end_back_offs(now);
        let mut actions = Vec::new();
        let mut open: Vec<QueueId> = self.dirty.iter().copied().collect();
        while !open.is_empty() && actions.len() < limit {
            self.counters.cycles += 1;
            let mut picks: Vec<Pick> = open.iter().filter_map(|queue| self.first_fit(*queue)).collect();
            picks.sort_unstable_by_key(|pick| pick.turn);
            open = picks.iter().map(|pick| pick.queue).collect();
            actions.extend(
                picks
                    .into_iter()
                    .filter_map(|pick| self.admit(&pick))
                    .map(Action::Admit),
            );
        }
        self.settle_reasons();
        self.dirty.clear();
        self.dirty.extend(open);
        Pass {
            actions,
            next: self.timers.first().map(|(until, _)| *until),
        }
    }

    /// Brings up to date what [`Engine::take_changed`] tells, and decides nothing: for a caller that only follows.
    pub fn settle(&mut self) {
        self.settle_reasons();
    }

    fn end_back_offs(&mut self, now: Time) {
        while let Some((until, unit)) = self.timers.first().copied()
            && until <= now
        {
            self.timers.remove(&(until, unit));
            self.end_back_off(unit);
        }
    }

    /// The first unit of a queue that fits. Whoever is ahead of it and does not is parked on the way.
    fn first_fit(&mut self, id: QueueId) -> Option<Pick> {
        let queue = self.queues.get_mut(id)?;
        if !queue.is_open() {
            return None;
        }
        let strict = queue.is_strict();
        while let Some((turn, shape)) = queue.parking.candidate(strict) {
            self.counters.units_examined += 1;
            let class = queue.parking.class_mut(shape)?;
            let plan = class.plan.get_or_insert_with(|| {
                Plan::new(
                    &self.shapes.get(shape),
                    &queue.groups,
                    &queue.node,
                    &self.cells,
                    &self.flavors,
                )
            });
            match plan.judge(&queue.node) {
                Verdict::Fits(chosen) => {
                    return Some(Pick {
                        turn,
                        queue: id,
                        shape,
                        chosen,
                    });
                }
                Verdict::Lacks(lack) => {
                    self.counters.parks += 1;
                    let kind = plan.kind();
                    if queue.parking.park(shape, lack, kind) {
                        let class = queue.parking.class(shape)?;
                        // In strict order the others of the class are behind their head, whatever it waits for.
                        let concerned = if strict { 1 } else { usize::MAX };
                        self.touched
                            .extend(class.units.iter().take(concerned).map(|turn| turn.uid));
                    }
                }
            }
        }
        None
    }

    fn admit(&mut self, pick: &Pick) -> Option<Admission> {
        let queue = self.queues.get(pick.queue)?;
        let plan = queue.parking.class(pick.shape)?.plan.as_ref()?;
        let shape = self.shapes.get(pick.shape);
        let (pod_sets, charges) = plan.assignment(&shape, &pick.chosen, &queue.node, &self.cells);
        let name = queue.name.clone();
        let held = Held {
            queue: pick.queue,
            priority: pick.turn.priority.0,
            phase: Phase::Assumed,
            charges,
        };
        let local_queue = self.hold(pick.turn.unit, Box::new(held))?;
        self.counters.admissions += 1;
        let local_queue = self.local_queues.get(local_queue)?.key.clone();
        Some(Admission {
            uid: pick.turn.uid,
            queue: name,
            local_queue,
            pod_sets,
        })
    }

    /// Finds the waiting units whose reason is of another kind than last reported.
    fn settle_reasons(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for id in &self.dirty {
            let Some(queue) = self.queues.get_mut(*id) else {
                continue;
            };
            if std::mem::take(&mut queue.resettle) {
                touched.extend(queue.order.iter().map(|turn| turn.uid));
            }
            let head = if queue.is_strict() {
                queue.parking.head().map(|turn| turn.uid)
            } else {
                None
            };
            if head != queue.reported_head {
                touched.extend(std::mem::replace(&mut queue.reported_head, head));
                touched.extend(head);
            }
        }
        for uid in touched {
            let Some(id) = self.units.find(uid) else { continue };
            let Some(kind) = self.kind_of(id) else { continue };
            if let Some(waiting) = self.units.waiting_mut(id)
                && waiting.reported.replace(kind) != Some(kind)
            {
                self.changes.units.insert(uid);
            }
        }
    }
}
