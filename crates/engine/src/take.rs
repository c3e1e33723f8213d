//! What becomes of a nominee whose turn it is: it is admitted, evicts others, or gets a claim: `docs/scheduling.md`, section 2.

use crate::backfill::Reservation;
use crate::engine::Engine;
use crate::ids::Time;
use crate::memory::Evictor;
use crate::nominate::{Nominee, reduced};
use crate::pass::Course;
use crate::queue::{Claim, Kept, QueueId};
use crate::ranked::Turn;
use crate::report::{Action, Admission, Eviction, EvictionCause};
use crate::spec::Phase;
use crate::tree::{Book, Slot};
use crate::units::{Held, UnitId};
use crate::victims::{Needs, Victim};

impl Engine {
    /// Carries out what was found for a nominee, unless what was taken before it in this cycle is in the way.
    pub(crate) fn take(&mut self, nominee: &Nominee, course: &mut Course) {
        if self.is_held_back() {
            return;
        }
        let lifted = self.lift(nominee.queue, nominee.turn, course);
        let ahead = course.reserved.get(&nominee.queue).cloned();
        let ahead = ahead.filter(|reserved| reserved.turn < nominee.turn);
        let may_pass = |reserved: &Reservation| self.may_pass(nominee.queue, nominee.turn, &nominee.found, reserved);
        if ahead.as_ref().is_none_or(may_pass) {
            self.take_now(nominee, course);
            if ahead.is_some() {
                self.keep_what_is_left(nominee.queue, course);
            }
        }
        self.unlift(lifted, course);
    }

    /// The same, for whom no claim is in the way that does not count for it.
    fn take_now(&mut self, nominee: &Nominee, course: &mut Course) {
        if nominee.reserves {
            self.claim(nominee, course);
        } else if nominee.found.victims.is_empty() {
            match (self.fits(nominee, Book::Planned), self.fits(nominee, Book::Held)) {
                (true, true) => course.actions.extend(self.admit(nominee).map(Action::Admit)),
                (true, false) => self.claim(nominee, course),
                _ => {}
            }
        } else if self.can_preempt(nominee) {
            let queue = self.queues.get(nominee.queue).map(|queue| queue.name.clone());
            for victim in &nominee.found.victims {
                let cause = EvictionCause::Preempted {
                    by: nominee.turn.uid,
                    queue: queue.clone().unwrap_or_default(),
                    reason: victim.reason,
                };
                let priority = self.units.held(victim.unit).map_or(0, |held| held.priority);
                if let Some(eviction) = self.evict(victim.unit, cause) {
                    let by = Evictor {
                        uid: nominee.turn.uid,
                        priority: nominee.turn.priority.0,
                    };
                    self.memory.note_preemption(eviction.uid, priority, by);
                    course.actions.push(Action::Evict(eviction));
                }
            }
            let kept = self.keep(nominee);
            if let Some(queue) = self.queues.get_mut(nominee.queue) {
                queue.preemptors.insert(nominee.turn, kept);
            }
            self.claim(nominee, course);
        }
    }

    /// What a preemptor evicts others for.
    fn keep(&self, nominee: &Nominee) -> Option<Kept> {
        // A plan for fewer pods has the same asks with the same choices.
        let plan = self
            .queues
            .get(nominee.queue)?
            .parking
            .class(nominee.class)?
            .plan
            .as_ref()?;
        let flavors = plan.asks.iter().zip(&nominee.found.chosen);
        Some(Kept {
            flavors: flavors.map(|(ask, at)| ask.choices[*at].flavor).collect(),
            reduced: nominee.reduced,
        })
    }

    fn fits(&self, nominee: &Nominee, book: Book) -> bool {
        let place = self.queues.get(nominee.queue).and_then(|queue| queue.place);
        let tree = place.and_then(|(tree, node)| Some((self.forest.trees.get(tree)?, node)));
        tree.is_some_and(|(tree, node)| tree.fits(node, &nominee.found.needs, book))
    }

    /// Whether all victims still run and evicting them still makes room.
    fn can_preempt(&mut self, nominee: &Nominee) -> bool {
        let victims = &nominee.found.victims;
        let runs = |victim: &Victim| {
            let held = self.units.held(victim.unit);
            held.is_some_and(|held| held.phase == Phase::Admitted)
        };
        if !victims.iter().all(runs) {
            return false;
        }
        let without: Vec<(QueueId, Needs)> = victims
            .iter()
            .filter_map(|victim| {
                let (tree, _) = self.queues.get(victim.queue)?.place?;
                let tree = self.forest.trees.get(tree)?;
                Some((victim.queue, tree.by_slot(&self.units.held(victim.unit)?.charges)))
            })
            .collect();
        for (queue, amounts) in &without {
            self.plan(*queue, amounts, -1);
        }
        let fits = self.fits(nominee, Book::Planned);
        for (queue, amounts) in &without {
            self.plan(*queue, amounts, 1);
        }
        fits
    }

    /// [`Tree::plan`](crate::tree::Tree::plan) in the tree of a queue.
    pub(crate) fn plan(&mut self, queue: QueueId, needs: &[(Slot, i128)], times: i128) {
        let Some((tree, node)) = self.queues.get(queue).and_then(|queue| queue.place) else {
            return;
        };
        if let Some(tree) = self.forest.trees.get_mut(tree) {
            tree.plan(node, needs, times);
        }
    }

    /// Keeps what a unit needs from others until the end of the pass, and the unit from being asked again.
    fn claim(&mut self, nominee: &Nominee, course: &mut Course) {
        let needs = nominee.found.needs.clone();
        self.plan(nominee.queue, &needs, 1);
        self.fuller(nominee.queue, &needs);
        let Some(queue) = self.queues.get_mut(nominee.queue) else {
            return;
        };
        if queue.has_blocking_head() {
            course.closed.insert(nominee.queue);
        }
        if let Some(stuck) = queue.parking.remove(nominee.class, &nominee.turn)
            && let Some(tree) = queue.place.and_then(|(tree, _)| self.forest.trees.get_mut(tree))
        {
            let parked = (nominee.queue, nominee.class);
            tree.watches.remove(parked, nominee.turn.priority.0, &stuck.wakes);
        }
        if let Some(waiting) = self.units.waiting_mut(nominee.turn.unit) {
            waiting.claims = true;
        }
        let claim = Claim {
            needs,
            reserve: nominee.reserves,
            reserved: nominee.reservation.clone(),
        };
        if let Some(reserved) = nominee.reservation.as_deref() {
            self.judge_by(nominee.queue, reserved);
            course.reserved.insert(nominee.queue, reserved.clone());
        }
        course.claims.push((nominee.queue, nominee.turn, claim));
    }

    /// Wakes those who were judged by another reservation.
    fn judge_by(&mut self, id: QueueId, reserved: &Reservation) {
        let Some(queue) = self.queues.get_mut(id) else { return };
        let same = |judged: &Reservation| {
            (judged.turn, &judged.needs, judged.until) == (reserved.turn, &reserved.needs, reserved.until)
        };
        if queue.judged_by.as_ref().is_some_and(same) {
            return;
        }
        queue.judged_by = Some(reserved.clone());
        let woken: Vec<_> = queue.parking.parked().map(|class| (id, class)).collect();
        self.wake_all(&woken);
    }

    /// Wakes whom a fuller tree may help.
    fn fuller(&mut self, queue: QueueId, needs: &[(Slot, i128)]) {
        let place = self.queues.get(queue).and_then(|queue| queue.place);
        let Some(tree) = place.and_then(|(tree, _)| self.forest.trees.get(tree)) else {
            return;
        };
        let mut woken = Vec::new();
        for (slot, _) in needs {
            tree.watches.charged(*slot, &mut woken);
        }
        tree.watches.shares_changed(&mut woken);
        tree.watches.others_changed(queue, &mut woken);
        self.wake_all(&woken);
    }

    /// Takes the claims of a pass out of the books; they are remembered for whoever asks, and decided anew by the next
    /// pass.
    pub(crate) fn end_claims(&mut self, claims: Vec<(QueueId, Turn, Claim)>) {
        for (id, turn, claim) in claims {
            self.plan(id, &claim.needs, -1);
            self.touched.push(turn.unit);
            let Some(key) = self.class_of_unit(turn.unit) else {
                continue;
            };
            let Some(queue) = self.queues.get_mut(id) else { continue };
            queue.parking.insert(key, turn);
            queue.claims.insert(turn, claim);
            let (place, class) = (queue.place, queue.parking.find(key));
            if let Some(class) = class {
                self.wake_all(&[(id, class)]);
            }
            if let Some((tree_id, _)) = place
                && let Some(tree) = self.forest.trees.get_mut(tree_id)
            {
                tree.standing.insert(id);
                self.forest.standing.insert(tree_id);
            }
        }
    }

    fn admit(&mut self, nominee: &Nominee) -> Option<Admission> {
        let queue = self.queues.get(nominee.queue)?;
        let (tree, _) = queue.place?;
        let class = queue.parking.class(nominee.class)?;
        let shape = self.shapes.get(class.key.shape);
        let flexible = shape.iter().position(|pod_set| pod_set.min_count.is_some());
        let tree = self.forest.trees.get(tree)?;
        let (pod_sets, charges) = if let (Some(count), Some(flexible)) = (nominee.reduced, flexible) {
            let plan = self.reduced_plan(nominee.queue, &shape, flexible, count)?;
            let shape = reduced(&shape, flexible, count);
            plan.assignment(&shape, &nominee.found.chosen, tree, &self.cells)
        } else {
            let plan = class.plan.as_ref()?;
            plan.assignment(&shape, &nominee.found.chosen, tree, &self.cells)
        };
        let name = queue.name.clone();
        let longest = self
            .units
            .waiting(nominee.turn.unit)
            .and_then(|(_, waiting)| waiting.runs_at_most_ms());
        let held = Held {
            queue: nominee.queue,
            priority: nominee.turn.priority.0,
            queued_at: nominee.turn.queued_at,
            reserved_at: self.now,
            deadlines: Vec::new(),
            ends_at: longest.map(|longest| Time(self.now.0.saturating_add(longest))),
            pods_ready: false,
            phase: Phase::Assumed,
            charges,
        };
        let local_queue = self.hold(nominee.turn.unit, Box::new(held))?;
        self.note_entry(nominee.turn.unit);
        self.counters.admissions += 1;
        let local_queue = self.local_queues.get(local_queue)?.key.clone();
        Some(Admission {
            uid: nominee.turn.uid,
            queue: name,
            local_queue,
            pod_sets,
        })
    }

    /// Tells an admitted unit to stop: from now on it holds its quota only until its pods are gone.
    pub(crate) fn evict(&mut self, unit: UnitId, cause: EvictionCause) -> Option<Eviction> {
        let known = self.units.get(unit)?;
        let (uid, local_queue) = (known.uid, known.local_queue);
        self.delist(unit);
        let held = self.units.held_mut(unit)?;
        let before = held.clone();
        held.phase = Phase::Evicting;
        let name = self.queues.get(before.queue)?.name.clone();
        self.move_books(local_queue, &before, unit);
        self.memory.note_stop(uid);
        self.counters.evictions += 1;
        Some(Eviction {
            uid,
            queue: name,
            cause,
        })
    }
}
