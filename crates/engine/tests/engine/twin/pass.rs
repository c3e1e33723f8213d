//! Sections 2, 5, 6 (the tournament) and 7: what a pass does.

use std::collections::BTreeSet;

use sluice_engine::*;

use super::backfill::Reserved;
use super::pools::is_by_pool;
use super::search::{Asking, Assignment, Found, NOTHING, needs_of};
use super::tree::Share;
use super::{At, Book, Cell, Evicted, Forest, Needs, Twin, saturated, turn};

/// What a unit holds in `planned` until the end of the pass.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) queue: Name,
    pub(crate) needs: Needs,
    pub(crate) why: Claimed,
    /// What it blocks for those behind it (section 9).
    pub(crate) blocks: BTreeSet<Cell>,
    /// What it is the claim of (section 10).
    pub(crate) reserved: Option<Reserved>,
}

/// Why a unit got a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It fits once those that are evicted have stopped.
    Fits,
    /// It evicted others in this pass.
    Preempts,
    /// It is the head of a StrictFIFO queue that keeps its own quota for it.
    Reserves,
}

/// A unit that its ClusterQueue nominates in a cycle.
#[derive(Debug, Clone)]
pub(super) struct Nominee {
    queue: At,
    unit: UnitSpec,
    outcome: Claimed,
    found: Found,
    needs: Needs,
    pub(super) blocks: BTreeSet<Cell>,
    pub(super) reserved: Option<Reserved>,
}

impl Nominee {
    pub(super) fn new(queue: At, unit: UnitSpec, outcome: Claimed, found: Found, needs: Needs) -> Self {
        Self {
            queue,
            unit,
            outcome,
            found,
            needs,
            blocks: BTreeSet::new(),
            reserved: None,
        }
    }
}

impl Twin {
    pub(crate) fn pass(&mut self, now: i64) -> Pass {
        self.now = now;
        self.claims.clear();
        self.sample();
        let forest = self.forest();
        let mut actions = self.demanded();
        self.shrink(&forest, &mut actions);
        while !self.is_held_back() {
            let before = (actions.len(), self.claims.len());
            self.cycle(&forest, &mut actions);
            if before == (actions.len(), self.claims.len()) {
                break;
            }
        }
        self.note_held();
        let next = self.next();
        Pass { actions, next }
    }

    /// Whether pods have to become ready before anything is decided.
    pub(crate) fn is_held_back(&self) -> bool {
        let mut running = self.charged.values();
        self.settings.block_admission
            && running.any(|unit| matches!(unit.phase, Phase::Assumed | Phase::Admitted) && !unit.pods_ready)
    }

    /// Evictions that time or a policy demands.
    fn demanded(&mut self) -> Vec<Action> {
        let admitted = self.charged.values().filter(|unit| unit.phase == Phase::Admitted);
        let demanded: Vec<(Uid, EvictionCause)> = admitted
            .filter_map(|unit| Some((unit.uid, self.demand(unit)?)))
            .collect();
        let evict = |(uid, cause)| self.evict(uid, cause);
        demanded.into_iter().map(evict).collect()
    }

    fn demand(&self, unit: &ChargedUnit) -> Option<EvictionCause> {
        if self.queues.get(&unit.queue).is_some_and(|spec| spec.drain) {
            return Some(EvictionCause::ClusterQueueStopped);
        }
        if self.local_queues.get(&unit.local_queue).is_some_and(|spec| spec.drain) {
            return Some(EvictionCause::LocalQueueStopped);
        }
        let over = unit.deadlines.iter().filter(|deadline| deadline.at.0 <= self.now);
        over.min().map(|deadline| EvictionCause::Overdue(deadline.cause))
    }

    pub(super) fn evict(&mut self, uid: Uid, cause: EvictionCause) -> Action {
        let unit = self.charged.get_mut(&uid).unwrap();
        unit.phase = Phase::Evicting;
        self.stopping.insert(uid);
        Action::Evict(Eviction {
            uid,
            queue: unit.queue.clone(),
            cause,
        })
    }

    /// The next instant at which time alone changes something.
    fn next(&self) -> Option<Time> {
        let waiting = self.waiting.values();
        let waiting = waiting.filter(|unit| unit.gate.is_none() && self.is_unblocked(unit));
        let back_offs = waiting.filter_map(|unit| unit.not_before);
        let admitted = || self.charged.values().filter(|unit| unit.phase == Phase::Admitted);
        let deadlines = admitted().flat_map(|unit| unit.deadlines.iter().map(|deadline| deadline.at));
        let min_runs = admitted().filter_map(|unit| {
            let min_run = self.queues.get(&unit.queue)?.extras.min_run_ms;
            (min_run > 0).then(|| Time(unit.reserved_at.0.saturating_add(min_run)))
        });
        let forest = self.forest();
        let open = self.queues.values().filter(|spec| self.is_open(spec, &forest));
        let strict = open.filter(|spec| spec.strategy == Strategy::StrictFifo);
        let heads = strict.flat_map(|spec| [self.head_change(&spec.name), self.next_sample(spec)]);
        let heads = heads.flatten();
        let graces = self.over_since.iter().map(|((name, _), since)| {
            let grace = self.queues[name].extras.shrink_after_ms.unwrap();
            Time(since.saturating_add(grace))
        });
        let all = back_offs.chain(deadlines).chain(min_runs).chain(heads).chain(graces);
        all.filter(|at| at.0 > self.now).min()
    }

    /// When another unit of a StrictFIFO queue is first by ageing alone, what counts of LocalQueues being as it is: whoever was passed stays behind.
    fn head_change(&self, queue: &str) -> Option<Time> {
        let head = |now| {
            let mut order = self.order_at(queue, now).into_iter();
            order.find(|unit| self.may_be_considered(unit)).map(|unit| unit.uid)
        };
        let (mut same, mut other) = (self.now, i64::MAX);
        if head(same) == head(other) {
            return None;
        }
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if head(middle) == head(self.now) {
                same = middle;
            } else {
                other = middle;
            }
        }
        Some(Time(other))
    }

    fn cycle(&mut self, forest: &Forest, actions: &mut Vec<Action>) {
        let mut nominees: Vec<Nominee> = self
            .queues
            .values()
            .filter(|spec| self.is_open(spec, forest))
            .filter_map(|spec| self.nominee(forest, spec))
            .collect();
        let mut evicted = BTreeSet::new();
        while let Some(nominee) = self.take_next(forest, &mut nominees) {
            self.take(forest, &nominee, &mut evicted, actions);
        }
    }

    /// The unit that a ClusterQueue nominates.
    fn nominee(&self, forest: &Forest, spec: &QueueSpec) -> Option<Nominee> {
        if spec.extras.backfill {
            return self.nominee_by_reservation(forest, spec);
        }
        if is_by_pool(spec) {
            return self.walk(forest, spec, None).1;
        }
        let mut units = self.order(&spec.name);
        units.retain(|unit| self.may_be_considered(unit));
        if spec.strategy == Strategy::StrictFifo {
            units.truncate(1);
        } else {
            let (preemptors, rest): (Vec<_>, Vec<_>) = units
                .into_iter()
                .partition(|unit| self.preemptors.contains_key(&unit.uid));
            units = preemptors.into_iter().chain(rest).collect();
        }
        units.retain(|unit| !self.claims.contains_key(&unit.uid));
        units.into_iter().find_map(|unit| {
            let planned = self.planned_for(forest, &spec.name, &unit);
            let queue = forest.queue(&spec.name).unwrap();
            let asking = Asking {
                queue,
                spec,
                unit: &unit,
                without: &NOTHING,
            };
            let reserves = || {
                let found = self.reserve(&planned, asking)?;
                let needs = reserved(&planned, queue, &needs_of(&found.assignment));
                Some((Claimed::Reserves, found, needs))
            };
            let (outcome, found, needs) = self.asked(&planned, asking).or_else(reserves)?;
            Some(Nominee::new(queue, unit, outcome, found, needs))
        })
    }

    /// The outcome of a unit that is asked: what it evicted others for comes first.
    pub(super) fn asked(&self, planned: &Book<'_>, asking: Asking<'_>) -> Option<(Claimed, Found, Needs)> {
        let kept = self.kept(planned, asking);
        let found = kept.or_else(|| self.outcome(planned, asking))?;
        let needs = needs_of(&found.assignment);
        if found.victims.is_empty() {
            return Some((Claimed::Fits, found, needs));
        }
        Some((Claimed::Preempts, found, needs))
    }

    /// What a preemptor evicted others for, if it fits now.
    fn kept(&self, planned: &Book<'_>, asking: Asking<'_>) -> Option<Found> {
        let assignment = self.preemptors.get(&asking.unit.uid)?.clone()?;
        let usable = asking
            .unit
            .pod_sets
            .iter()
            .zip(&assignment)
            .all(|(pod_set, (_, given))| {
                let mut flavors = given.values().map(|(flavor, _)| flavor);
                flavors.all(|flavor| self.may_use(flavor, &pod_set.constraints))
            });
        let needs = needs_of(&assignment);
        let left_out = needs.keys().any(|cell| asking.without.contains(cell));
        (usable && !left_out && planned.fits(asking.queue, &needs)).then(|| Found {
            level: planned.greatest_level(asking.queue, &needs),
            assignment,
            victims: vec![],
        })
    }

    /// Section 5.
    pub(super) fn reserve(&self, planned: &Book<'_>, asking: Asking<'_>) -> Option<Found> {
        let Asking { queue, spec, .. } = asking;
        let is_strict = spec.strategy == Strategy::StrictFifo;
        if !is_strict || spec.cohort.is_none() || spec.preemption.reclaim == Reclaim::Any {
            return None;
        }
        let assignment = self.first_flavors(planned, asking)?;
        let needs = needs_of(&assignment);
        let nominal = |cell| planned.forest.nominal(queue, cell);
        let is_own = needs.iter().all(|(cell, need)| *need <= nominal(cell));
        let reserves = is_own && !reserved(planned, queue, &needs).is_empty();
        reserves.then_some(Found {
            assignment,
            level: 0,
            victims: vec![],
        })
    }

    /// Takes out the nominee whose turn it is.
    fn take_next(&self, forest: &Forest, nominees: &mut Vec<Nominee>) -> Option<Nominee> {
        let is_preemptor = |nominee: &&Nominee| self.preemptors.contains_key(&nominee.unit.uid);
        let preemptor = nominees
            .iter()
            .filter(is_preemptor)
            .min_by_key(|nominee| turn(&nominee.unit));
        let first = if let Some(preemptor) = preemptor {
            nominees
                .iter()
                .position(|nominee| nominee.unit.uid == preemptor.unit.uid)?
        } else if self.settings.fair_sharing.is_some() {
            self.winner(forest, nominees)?
        } else {
            let order = |nominee: &Nominee| (nominee.found.level, turn(&nominee.unit));
            (0..nominees.len()).min_by_key(|place| order(&nominees[*place]))?
        };
        Some(nominees.remove(first))
    }

    /// The tournament: trees one after the other, and in a tree from the ClusterQueues up to the root.
    fn winner(&self, forest: &Forest, nominees: &[Nominee]) -> Option<usize> {
        let first_queue = |root: At| {
            forest
                .queues_below(root)
                .into_iter()
                .map(|q| &forest.member(q).name)
                .min()
        };
        let roots = nominees.iter().map(|nominee| forest.root(nominee.queue));
        let root = roots.min_by_key(|root| first_queue(*root))?;
        winner_below(forest, root, nominees, &self.planned(forest))
    }

    fn take(&mut self, forest: &Forest, nominee: &Nominee, evicted: &mut BTreeSet<Uid>, actions: &mut Vec<Action>) {
        if self.is_held_back() {
            return;
        }
        let Nominee { queue, found, .. } = nominee;
        let name = forest.member(*queue).name.clone();
        let planned = self.planned_for(forest, &name, &nominee.unit);
        let ahead = self.reserved_ahead(&name, &nominee.unit);
        if let Some((head, what)) = ahead {
            if self.may_pass(&planned, *queue, &nominee.unit, found, &what) {
                self.take_now(forest, nominee, &planned, evicted, actions);
                self.keep_what_is_left(forest, *queue, head);
            }
            return;
        }
        self.take_now(forest, nominee, &planned, evicted, actions);
    }

    fn take_now(
        &mut self,
        forest: &Forest,
        nominee: &Nominee,
        planned: &Book<'_>,
        evicted: &mut BTreeSet<Uid>,
        actions: &mut Vec<Action>,
    ) {
        let Nominee {
            queue, needs, found, ..
        } = nominee;
        match nominee.outcome {
            Claimed::Fits => {
                if !planned.fits(*queue, needs) {
                    return;
                }
                if self.held(forest).fits(*queue, needs) {
                    let queue = &forest.member(*queue).name;
                    actions.push(Action::Admit(self.admit(&nominee.unit, queue, &found.assignment)));
                    return;
                }
            }
            Claimed::Preempts => {
                let mut without = planned.clone();
                for victim in &found.victims {
                    without.take_out(victim.queue, &victim.holds);
                }
                let is_gone = found.victims.iter().any(|victim| evicted.contains(&victim.uid));
                if is_gone || !without.fits(*queue, needs) {
                    return;
                }
                for victim in &found.victims {
                    let by = nominee.unit.uid;
                    let queue = forest.member(*queue).name.clone();
                    let reason = victim.reason;
                    actions.push(self.evict(victim.uid, EvictionCause::Preempted { by, queue, reason }));
                    evicted.insert(victim.uid);
                    let epoch = self.epoch;
                    let priorities = (self.charged[&victim.uid].priority, nominee.unit.priority);
                    let evicted = Evicted { epoch, by, priorities };
                    self.evicted.insert(victim.uid, evicted);
                }
                let assignment = Some(nominee.found.assignment.clone());
                self.preemptors.insert(nominee.unit.uid, assignment);
            }
            Claimed::Reserves => {}
        }
        let claim = Claim {
            queue: forest.member(*queue).name.clone(),
            needs: needs.clone(),
            why: nominee.outcome,
            blocks: nominee.blocks.clone(),
            reserved: nominee.reserved.clone(),
        };
        self.claims.insert(nominee.unit.uid, claim);
    }

    fn admit(&mut self, unit: &UnitSpec, queue: &Name, assignment: &Assignment) -> Admission {
        let mut charges = Vec::new();
        let mut pod_sets = Vec::new();
        for (pod_set, (count, given)) in unit.pod_sets.iter().zip(assignment) {
            let mut flavors = Vec::new();
            let mut usage = Vec::new();
            for (resource, (flavor, amount)) in given {
                let amount = saturated(*amount);
                flavors.push((resource.clone(), flavor.clone()));
                usage.push((resource.clone(), amount));
                charges.push(Charge {
                    flavor: flavor.clone(),
                    resource: resource.clone(),
                    amount,
                });
            }
            pod_sets.push(PodSetAssignment {
                name: pod_set.name.clone(),
                count: *count,
                flavors,
                usage,
            });
        }
        let (uid, local_queue) = (unit.uid, unit.local_queue.clone());
        let charged = ChargedUnit {
            uid,
            queue: queue.clone(),
            local_queue: local_queue.clone(),
            priority: unit.priority,
            queued_at: unit.queued_at,
            reserved_at: Time(self.now),
            deadlines: vec![],
            ends_at: unit
                .runs_at_most_ms
                .map(|longest| Time(self.now.saturating_add(longest))),
            pods_ready: false,
            charges,
            phase: Phase::Assumed,
        };
        self.waiting.remove(&uid);
        self.preemptors.remove(&uid);
        self.note_entry(&charged);
        self.charged.insert(uid, charged);
        Admission {
            uid,
            queue: queue.clone(),
            local_queue,
            pod_sets,
        }
    }
}

/// Who wins below a node, by place among the nominees.
fn winner_below(forest: &Forest, n: At, nominees: &[Nominee], planned: &Book<'_>) -> Option<usize> {
    if forest.member(n).is_queue {
        return nominees.iter().position(|nominee| nominee.queue == n);
    }
    let members = forest.children(n).iter().filter_map(|child| {
        let place = winner_below(forest, *child, nominees, planned)?;
        Some((*child, place))
    });
    let rank = |(child, place): &(At, usize)| -> (bool, Share, (i64, i64, u128)) {
        let Nominee { queue, unit, needs, .. } = &nominees[*place];
        let borrows = needs.iter().any(|(cell, need)| {
            let left = planned.left_at(*child, *queue, cell, *need);
            planned.borrows(*child, cell, left)
        });
        (borrows, planned.with(*queue, needs).share(*child), turn(unit))
    };
    members.min_by_key(rank).map(|(_, place)| place)
}

/// What is left of the queue's own quota, at most what is needed.
pub(super) fn reserved(planned: &Book<'_>, queue: At, needs: &Needs) -> Needs {
    let left = needs.iter().map(|(cell, need)| {
        let left = planned.forest.nominal(queue, cell) - planned.usage(queue, cell);
        (cell.clone(), left.min(*need))
    });
    left.filter(|(_, left)| *left > 0).collect()
}
