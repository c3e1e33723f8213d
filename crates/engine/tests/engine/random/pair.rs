//! The engine and its twin, told the same.

use std::collections::BTreeMap;

use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};
use sluice_engine::*;

use super::worlds::{Step, drained_or_opened, held, resized};
use crate::twin::{Cell, Stands, Twin, Why, holds, saturated};

/// How far a free uid is looked for.
const MOST_IN_A_ROW: u128 = 8;

/// What is decided by: the engine, compared with its twin at every step, or the twin alone.
pub(crate) struct Pair {
    engine: Option<Engine>,
    pub(crate) twin: Twin,
    /// What the engine last reported of each waiting unit.
    reported: BTreeMap<Uid, WaitKind>,
    /// What each unit looked like when it last waited.
    specs: BTreeMap<Uid, UnitSpec>,
}

impl Pair {
    pub(crate) fn of(engine: Engine) -> Self {
        Self {
            engine: Some(engine),
            ..Self::of_twin_alone()
        }
    }

    pub(crate) fn of_twin_alone() -> Self {
        Self {
            engine: None,
            twin: Twin::default(),
            reported: BTreeMap::new(),
            specs: BTreeMap::new(),
        }
    }

    pub(crate) fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        match &event {
            Event::SetCharged(unit) => {
                self.reported.remove(&unit.uid);
            }
            Event::RemoveUnit(uid) => {
                self.reported.remove(uid);
                self.specs.remove(uid);
            }
            Event::SetWaiting(unit) => {
                self.specs.insert(unit.uid, unit.clone());
            }
            _ => {}
        }
        self.twin.apply(&event);
        if let Some(engine) = &mut self.engine {
            engine.apply(event);
        }
        self.audit()
    }

    fn audit(&self) -> Result<(), TestCaseError> {
        let audit = self.engine.as_ref().map_or(Ok(()), Engine::audit);
        audit.map_err(|fault| TestCaseError::fail(format!("{fault} {}", describe(&self.twin))))
    }

    pub(crate) fn pass(&mut self, now: i64) -> Result<Pass, TestCaseError> {
        let before = self.twin.clone();
        let decided = self.twin.pass(now);
        super::invariants::hold(&before, &self.twin, &decided)?;
        if let Some(engine) = &mut self.engine {
            prop_assert_eq!(&engine.pass(Time(now)), &decided, "{}", describe(&before));
            for action in &decided.actions {
                if let Action::Admit(admission) = action {
                    self.reported.remove(&admission.uid);
                }
            }
            self.audit()?;
            self.compare_reasons()?;
            self.compare_queues()?;
            self.compare_local_queues()?;
        }
        Ok(decided)
    }

    fn compare_reasons(&mut self) -> Result<(), TestCaseError> {
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let forest = self.twin.forest();
        let told = engine.take_changed().units;
        let mut changed = Vec::new();
        for uid in self.twin.waiting.keys().copied() {
            let (ours, theirs) = (engine.waiting(uid), self.twin.stands(uid, &forest));
            let Some((ours, theirs)) = ours.zip(theirs) else {
                return Err(TestCaseError::fail(format!("{uid} waits for one of them only")));
            };
            let kind = ours.reason.kind();
            same_standing(ours, theirs)?;
            // Of those who are kept waiting for pods of others only the ones that were looked at are told.
            let is_told = told.contains(&uid) || !self.twin.is_held_back();
            if self.reported.get(&uid) != Some(&kind) && is_told {
                self.reported.insert(uid, kind);
                changed.push(uid);
            }
        }
        prop_assert_eq!(told, changed, "{}", describe(&self.twin));
        for uid in self.twin.charged.keys() {
            prop_assert_eq!(engine.waiting(*uid), None);
        }
        Ok(())
    }

    fn compare_queues(&self) -> Result<(), TestCaseError> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let forest = self.twin.forest();
        prop_assert!(engine.queues().eq(self.twin.queues.keys()));
        for (name, spec) in &self.twin.queues {
            let report = engine.queue(name).ok_or_else(|| TestCaseError::fail("no report"))?;
            let order = self.twin.order(name);
            prop_assert_eq!(report.active.is_ok(), self.twin.is_open(spec, &forest), "{}", name);
            prop_assert_eq!(report.pending_active + report.pending_inadmissible, order.len());
            prop_assert!(engine.pending(name).eq(order.iter().map(|unit| unit.uid)));
            same_places(engine, name, &order)?;
            let charged: Vec<_> = self.twin.charged.values().filter(|unit| unit.queue == *name).collect();
            same_holders(&report, &charged)?;
        }
        Ok(())
    }

    fn compare_local_queues(&self) -> Result<(), TestCaseError> {
        let Some(engine) = &self.engine else { return Ok(()) };
        prop_assert!(engine.local_queues().eq(self.twin.local_queues.keys()));
        for key in self.twin.local_queues.keys() {
            let report = engine
                .local_queue(key)
                .ok_or_else(|| TestCaseError::fail("no report"))?;
            let waiting = self.twin.waiting.values().filter(|unit| unit.local_queue == *key);
            prop_assert_eq!(report.pending_active + report.pending_inadmissible, waiting.count());
            prop_assert_eq!(engine.past_usage(key), self.twin.past_usage(key), "{}", key);
            let charged = self.twin.charged.values().filter(|unit| unit.local_queue == *key);
            prop_assert_eq!(report.reserving, charged.count());
        }
        Ok(())
    }

    fn nth_charged(&self, which: usize) -> Option<ChargedUnit> {
        nth(which, self.twin.charged.values())
    }

    pub(crate) fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let events = match step {
            Step::Tell(event) => vec![event],
            Step::Submit(mut unit) => {
                let twin = &self.twin;
                let is_free =
                    |uid: &u128| !twin.waiting.contains_key(&Uid(*uid)) && !twin.charged.contains_key(&Uid(*uid));
                let most = unit.uid.0 + MOST_IN_A_ROW;
                unit.uid = Uid((unit.uid.0..most).find(is_free).unwrap_or(unit.uid.0));
                if unit.uid.0 % 2 == 1 {
                    unit.queued_at.0 += twin.now;
                }
                vec![Event::SetWaiting(unit)]
            }
            Step::Pass(later) => return self.pass(self.twin.now + later).map(drop),
            Step::Settle => return self.settle(),
            Step::Move(which, phase) => {
                let moved = self.nth_charged(which).map(|unit| ChargedUnit { phase, ..unit });
                moved.map(Event::SetCharged).into_iter().collect()
            }
            Step::Evict(which) => {
                let unit = self.nth_charged(which);
                unit.map(|unit| self.waits_again(&unit)).into_iter().collect()
            }
            Step::Finish(which) => {
                let gone = self.nth_charged(which).map(|unit| Event::RemoveUnit(unit.uid));
                gone.into_iter().collect()
            }
            Step::Reprioritize(which, priority) => self.reprioritized(which, priority),
            Step::Hold(which) => {
                let unit = nth(which, self.twin.waiting.values());
                let gate = |unit: &UnitSpec| unit.gate.is_none().then(held);
                let unit = unit.map(|unit| UnitSpec {
                    gate: gate(&unit),
                    ..unit
                });
                unit.map(Event::SetWaiting).into_iter().collect()
            }
            Step::Join(which, cohort) => self.queue_as(which, |spec| QueueSpec { cohort, ..spec }),
            Step::Resize(which, more) => self.queue_as(which, |spec| resized(spec, more)),
            Step::Drain(which) => self.queue_as(which, drained_or_opened),
        };
        events.into_iter().try_for_each(|event| self.tell(event))
    }

    /// What was decided is done: every assumed unit runs, every evicting one waits again, all pods are ready.
    pub(crate) fn settle(&mut self) -> Result<(), TestCaseError> {
        let events: Vec<Event> = self
            .twin
            .charged
            .values()
            .filter_map(|unit| match unit.phase {
                Phase::Evicting => Some(self.waits_again(unit)),
                Phase::Admitted if unit.pods_ready => None,
                Phase::Assumed | Phase::Admitted => Some(Event::SetCharged(ChargedUnit {
                    phase: Phase::Admitted,
                    pods_ready: true,
                    ..unit.clone()
                })),
                Phase::Leaving => None,
            })
            .collect();
        events.into_iter().try_for_each(|event| self.tell(event))
    }

    /// A unit as it last waited, or as one that would get what it holds.
    fn waits_again(&self, unit: &ChargedUnit) -> Event {
        let asks = || {
            let mut per_pod: BTreeMap<Name, i128> = BTreeMap::new();
            for ((_, resource), amount) in holds(unit) {
                *per_pod.entry(resource).or_default() += amount;
            }
            let per_pod = per_pod
                .into_iter()
                .map(|(resource, amount)| (resource, saturated(amount)));
            UnitSpec {
                uid: unit.uid,
                local_queue: unit.local_queue.clone(),
                priority: unit.priority,
                queued_at: unit.queued_at,
                pod_sets: vec![PodSetSpec {
                    name: "p".into(),
                    count: 1,
                    min_count: None,
                    per_pod: per_pod.collect(),
                    constraints: std::sync::Arc::default(),
                }],
                gate: None,
                not_before: None,
                runs_at_most_ms: None,
            }
        };
        Event::SetWaiting(self.specs.get(&unit.uid).cloned().unwrap_or_else(asks))
    }

    fn reprioritized(&mut self, which: usize, priority: i32) -> Vec<Event> {
        let waiting = self.twin.waiting.values().cloned();
        let waiting = waiting.map(|unit| Event::SetWaiting(UnitSpec { priority, ..unit }));
        let charged = self.twin.charged.values().cloned();
        let charged = charged.map(|unit| Event::SetCharged(ChargedUnit { priority, ..unit }));
        let all: Vec<Event> = waiting.chain(charged).collect();
        let chosen = nth(which, all.iter());
        if let Some(Event::SetCharged(unit)) = &chosen
            && let Some(spec) = self.specs.get_mut(&unit.uid)
        {
            spec.priority = priority;
        }
        chosen.into_iter().collect()
    }

    fn queue_as(&self, which: usize, change: impl FnOnce(QueueSpec) -> QueueSpec) -> Vec<Event> {
        let spec = nth(which, self.twin.queues.values());
        spec.map(change).map(Event::SetQueue).into_iter().collect()
    }
}

/// How many hold quota in a ClusterQueue, and how much of every cell.
fn same_holders(report: &QueueReport, charged: &[&ChargedUnit]) -> Result<(), TestCaseError> {
    let written = |unit: &&&ChargedUnit| unit.phase != Phase::Assumed;
    prop_assert_eq!(report.reserving, charged.len());
    prop_assert_eq!(report.admitted, charged.iter().filter(written).count());
    let mut used: BTreeMap<Cell, (i128, i128)> = BTreeMap::new();
    for unit in charged {
        for (cell, amount) in holds(unit) {
            let (reserved, admitted) = used.entry(cell).or_default();
            *reserved += amount;
            *admitted += if written(&unit) { amount } else { 0 };
        }
    }
    let used: BTreeMap<Cell, (Amount, Amount)> = used
        .into_iter()
        .map(|(cell, (reserved, admitted))| (cell, (saturated(reserved), saturated(admitted))))
        .collect();
    let reported = report.usage.iter().filter(|usage| !usage.reserved.is_zero());
    let reported: BTreeMap<Cell, (Amount, Amount)> = reported
        .map(|usage| {
            let cell = (usage.flavor.clone(), usage.resource.clone());
            (cell, (usage.reserved, usage.admitted))
        })
        .collect();
    prop_assert_eq!(reported, used);
    Ok(())
}

fn nth<'a, T: Clone + 'a>(which: usize, all: impl Iterator<Item = &'a T> + Clone) -> Option<T> {
    let count = all.clone().count();
    (count > 0).then(|| all.clone().nth(which % count).cloned()).flatten()
}

/// Position and reason of a waiting unit. The one place that says how far reasons must agree.
fn same_standing(ours: Waiting, theirs: Stands) -> Result<(), TestCaseError> {
    prop_assert_eq!(&ours.local_queue, &theirs.local_queue);
    prop_assert_eq!(&ours.queue, &theirs.queue);
    prop_assert_eq!(ours.position, theirs.position, "{}", ours.uid);
    let expected = match theirs.why {
        Why::HeldBack(_) if ours.reason == WaitReason::PodsNotReady => return Ok(()),
        Why::Is(expected) | Why::HeldBack(Some(expected)) => expected,
        // The twin has no reason of its own for it.
        Why::Claims(_) | Why::NotSaid => return Ok(()),
        Why::HeldBack(None) => {
            return Err(TestCaseError::fail(format!(
                "{} could start: {}",
                ours.uid, ours.reason
            )));
        }
    };
    let (given, expected) = (blurred(ours.reason), blurred(expected));
    match &expected {
        // Everyone found a flavor alone, but not all together: no pod set to name.
        WaitReason::WaitingForQuota { pod_set, .. } if pod_set.is_empty() => {
            prop_assert_eq!(given.kind(), expected.kind(), "{}", ours.uid);
        }
        _ => prop_assert_eq!(given, expected, "{}", ours.uid),
    }
    Ok(())
}

/// What the twin does not say word by word is left out: why a flavor does not match, why a ClusterQueue is not active.
fn blurred(mut reason: WaitReason) -> WaitReason {
    match &mut reason {
        WaitReason::NoMatchingFlavor { mismatches, .. }
        | WaitReason::ExceedsMaxQuota { mismatches, .. }
        | WaitReason::WaitingForQuota { mismatches, .. } => {
            for (_, mismatch) in mismatches {
                *mismatch = Mismatch::NodeAffinity;
            }
        }
        WaitReason::QueueInactive(inactive) => {
            *inactive = Inactive {
                reason: "".into(),
                message: "".into(),
            }
        }
        _ => {}
    }
    reason
}

/// A world in few words, for whoever looks into a difference.
fn describe(twin: &Twin) -> String {
    let mut lines = vec![format!("now {} {:?}", twin.now, twin.settings)];
    lines.extend(twin.local_queues.values().map(|spec| format!("{spec:?}")));
    lines.extend(twin.cohorts.values().map(|spec| format!("{spec:?}")));
    lines.extend(twin.queues.values().map(|spec| format!("{spec:?}")));
    lines.extend(twin.charged.values().map(|unit| {
        let ChargedUnit {
            uid,
            queue,
            phase,
            priority,
            queued_at,
            reserved_at,
            ..
        } = unit;
        format!(
            "{} holds in {queue} {phase:?} priority {priority} queued {} reserved {} {:?} {:?}",
            uid.0,
            queued_at.0,
            reserved_at.0,
            holds(unit),
            twin.evicted.get(uid)
        )
    }));
    lines.extend(twin.waiting.values().map(|unit| {
        let leads = twin.local_queues.get(&unit.local_queue);
        let asks = |pod_set: &PodSetSpec| (pod_set.count, pod_set.min_count, pod_set.per_pod.clone());
        format!(
            "{} waits in {:?} priority {} queued {} considered {} preemptor {} {:?} {:?} {:?}",
            unit.uid.0,
            leads.map(|spec| &spec.queue),
            unit.priority,
            unit.queued_at.0,
            twin.may_be_considered(unit),
            twin.preemptors.contains_key(&unit.uid),
            unit.pod_sets.iter().map(asks).collect::<Vec<_>>(),
            twin.claims.get(&unit.uid).map(|claim| claim.why),
            twin.evicted.get(&unit.uid)
        )
    }));
    lines.insert(0, String::new());
    lines.join("\n")
}

/// Every part of a queue's order is that of the whole, and says where each unit stands in its LocalQueue.
fn same_places(engine: &Engine, queue: &str, order: &[UnitSpec]) -> Result<(), TestCaseError> {
    let mut whole: Vec<Place> = Vec::new();
    for (in_queue, unit) in order.iter().enumerate() {
        let ahead = whole.iter().filter(|place| place.local_queue == unit.local_queue);
        let in_local_queue = ahead.count();
        whole.push(Place {
            uid: unit.uid,
            priority: unit.priority,
            local_queue: unit.local_queue.clone(),
            in_queue,
            in_local_queue,
        });
    }
    for offset in [0, 1, whole.len() / 2, whole.len() + 1] {
        let part: Vec<Place> = whole.iter().skip(offset).take(3).cloned().collect();
        prop_assert_eq!(engine.places(queue, offset, 3), Some(part), "{} from {}", queue, offset);
    }
    for key in engine.local_queues() {
        if let Some(first) = whole.iter().find(|place| place.local_queue == *key) {
            let own = whole
                .iter()
                .filter(|place| place.local_queue == first.local_queue)
                .cloned();
            prop_assert_eq!(engine.local_places(key, 0, usize::MAX), Some(own.collect()), "{}", key);
        }
    }
    Ok(())
}
