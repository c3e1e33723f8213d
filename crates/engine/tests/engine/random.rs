//! Random worlds: the engine and its twin are told the same and must agree on everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::Strategy;
use sluice_engine::*;

use crate::build::{charged, flavor, local_queue, strings};
use crate::twin::Twin;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Tell(Event),
    /// A pass, this many milliseconds later.
    Pass(i64),
    /// A unit that holds quota, chosen by number, moves to a phase.
    Move(usize, Phase),
    /// A unit that holds quota, chosen by number, waits again as it did before.
    Evict(usize),
    /// A unit that holds quota, chosen by number, is gone.
    Finish(usize),
}

fn name(prefix: &'static str, count: usize) -> BoxedStrategy<Name> {
    (0..count)
        .prop_map(move |index| Name::from(format!("{prefix}{index}")))
        .boxed()
}

/// Mostly small, sometimes at the edge of what fits into 64 bits.
fn amount() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![30 => 0i64..5, 1 => Just(i64::MAX), 1 => Just(i64::MAX / 2 + 1), 1 => Just(i64::MAX - 1)]
}

fn a_flavor() -> BoxedStrategy<FlavorSpec> {
    let labels = prop::collection::btree_map("[ab]", "[12]", 0..2);
    (name("f", 4), labels, 0usize..6)
        .prop_map(|(name, node_labels, taints)| {
            let taint = |effect| Taint {
                key: "t".into(),
                value: "v".into(),
                effect,
            };
            let own = Toleration {
                key: None,
                operator: TolerationOperator::Exists,
                value: None,
                effect: None,
            };
            let (taints, tolerations) = match taints {
                0 => (vec![taint(Effect::NoSchedule)], vec![]),
                1 => (vec![taint(Effect::NoExecute)], vec![own]),
                2 => (vec![taint(Effect::PreferNoSchedule)], vec![]),
                _ => (vec![], vec![]),
            };
            FlavorSpec {
                name,
                node_labels,
                taints,
                tolerations,
            }
        })
        .boxed()
}

fn a_queue() -> BoxedStrategy<QueueSpec> {
    let quotas = || prop::collection::vec((amount(), amount(), amount()), 1..4);
    let layout = prop_oneof![
        Just(vec![vec!["cpu", "memory", "pods"]]),
        Just(vec![vec!["cpu"], vec!["gpu"]]),
        Just(vec![vec!["memory", "cpu"], vec!["pods"]]),
        Just(vec![vec!["cpu"]]),
        Just(vec![]),
    ];
    (
        name("q", 3),
        any::<bool>(),
        layout,
        quotas(),
        0usize..4,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(name, strict, layout, quotas, first, inactive)| QueueSpec {
            name,
            strategy: if strict {
                sluice_engine::Strategy::StrictFifo
            } else {
                sluice_engine::Strategy::BestEffortFifo
            },
            groups: layout
                .iter()
                .map(|resources| ResourceGroup {
                    resources: resources.iter().map(|name| Name::from(*name)).collect(),
                    flavors: quotas
                        .iter()
                        .enumerate()
                        .map(|(index, (a, b, c))| FlavorQuota {
                            flavor: format!("f{}", (first + index) % 4).into(),
                            quotas: [*a, *b, *c]
                                .iter()
                                .take(resources.len())
                                .map(|n| Amount::new(n.saturating_add(n % 3)).into())
                                .collect(),
                        })
                        .collect(),
                })
                .collect(),
            inactive: inactive.then(|| Inactive {
                reason: "Stopped".into(),
                message: "stopped".into(),
            }),
            ..QueueSpec::default()
        })
        .boxed()
}

fn a_local_queue() -> BoxedStrategy<LocalQueueSpec> {
    (0usize..4, 0usize..3, prop::bool::weighted(0.2))
        .prop_map(|(index, queue, blocked)| LocalQueueSpec {
            blocked: blocked.then(|| Blocked {
                reason: "Stopped".into(),
                message: "stopped".into(),
            }),
            ..local_queue(&format!("l{index}"), &format!("q{queue}"))
        })
        .boxed()
}

fn constraints() -> BoxedStrategy<Arc<Constraints>> {
    let operators = prop_oneof![
        Just(SelectorOperator::In),
        Just(SelectorOperator::NotIn),
        Just(SelectorOperator::Exists),
        Just(SelectorOperator::DoesNotExist),
        Just(SelectorOperator::Gt),
        Just(SelectorOperator::Lt),
    ];
    let expression = ("[abc]", operators, prop::collection::vec("[123]", 0..3))
        .prop_map(|(key, operator, values)| NodeSelectorRequirement { key, operator, values });
    let term =
        prop::collection::vec(expression, 0..3).prop_map(|match_expressions| NodeSelectorTerm { match_expressions });
    let some =
        (0usize..4, prop::collection::vec(term, 0..3), any::<bool>()).prop_map(|(selector, terms, tolerates)| {
            let node_selector = match selector {
                0 => strings(&[("a", "1")]),
                1 => strings(&[("b", "2"), ("c", "1")]),
                _ => BTreeMap::new(),
            };
            let toleration = Toleration {
                key: Some("t".into()),
                operator: TolerationOperator::Equal,
                value: Some("v".into()),
                effect: None,
            };
            let tolerations = if tolerates { vec![toleration] } else { vec![] };
            Arc::new(Constraints {
                node_selector,
                affinity_terms: terms,
                tolerations,
            })
        });
    prop_oneof![3 => Just(Arc::default()), 2 => some].boxed()
}

fn a_pod_set() -> BoxedStrategy<PodSetSpec> {
    let resources = prop::sample::subsequence(vec!["cpu", "gpu", "memory", "pods"], 0..3);
    let count = prop_oneof![20 => 0i64..3, 1 => Just(-1), 1 => Just(i64::MAX)];
    (resources, amount(), amount(), count, constraints())
        .prop_map(|(resources, a, b, count, constraints)| PodSetSpec {
            name: "p".into(),
            count,
            min_count: None,
            per_pod: resources
                .iter()
                .zip([a, b])
                .map(|(name, n)| (Name::from(*name), Amount::new(n)))
                .collect(),
            constraints,
        })
        .boxed()
}

fn a_unit() -> BoxedStrategy<UnitSpec> {
    let pod_sets = prop_oneof![
        3 => prop::collection::vec(a_pod_set(), 1..2),
        1 => prop::collection::vec(a_pod_set(), 0..4),
    ];
    (
        1u128..14,
        0usize..4,
        -1i32..2,
        0i64..4,
        pod_sets,
        prop::bool::weighted(0.1),
        prop::option::weighted(0.2, 0i64..60),
    )
        .prop_map(
            |(uid, local_queue, priority, queued_at, pod_sets, gated, not_before)| UnitSpec {
                uid: Uid(uid),
                local_queue: LocalQueueKey::new("team", format!("l{local_queue}")),
                priority,
                queued_at: Time(queued_at),
                pod_sets,
                gate: gated.then(|| Gate {
                    reason: "Held".into(),
                    message: "held".into(),
                }),
                not_before: not_before.map(Time),
                runs_at_most_ms: None,
            },
        )
        .boxed()
}

fn phase() -> BoxedStrategy<Phase> {
    prop_oneof![
        Just(Phase::Assumed),
        Just(Phase::Admitted),
        Just(Phase::Evicting),
        Just(Phase::Leaving)
    ]
    .boxed()
}

fn a_charged_unit() -> BoxedStrategy<ChargedUnit> {
    let resource = prop_oneof![Just("cpu"), Just("memory"), Just("gpu"), Just("pods")];
    let charge = (name("f", 4), resource, amount()).prop_map(|(flavor, resource, amount)| Charge {
        flavor,
        resource: resource.into(),
        amount: Amount::new(amount),
    });
    (
        1u128..14,
        name("q", 3),
        0usize..4,
        prop::collection::vec(charge, 0..3),
        phase(),
    )
        .prop_map(|(uid, queue, local_queue, charges, phase)| ChargedUnit {
            uid: Uid(uid),
            queue,
            local_queue: LocalQueueKey::new("team", format!("l{local_queue}")),
            priority: 0,
            queued_at: Time(0),
            reserved_at: Time(0),
            deadlines: vec![],
            ends_at: None,
            pods_ready: true,
            charges,
            phase,
        })
        .boxed()
}

pub(crate) fn an_event() -> BoxedStrategy<Event> {
    prop_oneof![
        4 => a_flavor().prop_map(Event::SetFlavor),
        1 => name("f", 4).prop_map(Event::RemoveFlavor),
        5 => a_queue().prop_map(Event::SetQueue),
        1 => name("q", 3).prop_map(Event::RemoveQueue),
        4 => a_local_queue().prop_map(Event::SetLocalQueue),
        1 => (0usize..4).prop_map(|l| Event::RemoveLocalQueue(LocalQueueKey::new("team", format!("l{l}")))),
        14 => a_unit().prop_map(Event::SetWaiting),
        2 => a_charged_unit().prop_map(Event::SetCharged),
        2 => (1u128..14).prop_map(|uid| Event::RemoveUnit(Uid(uid))),
    ]
    .boxed()
}

fn a_step() -> BoxedStrategy<Step> {
    prop_oneof![
        20 => an_event().prop_map(Step::Tell),
        8 => (0i64..20).prop_map(Step::Pass),
        3 => (any::<usize>(), phase()).prop_map(|(which, phase)| Step::Move(which, phase)),
        3 => any::<usize>().prop_map(Step::Evict),
        4 => any::<usize>().prop_map(Step::Finish),
    ]
    .boxed()
}

/// A world in which most things exist, so that the steps meet something.
pub(crate) fn furnished() -> Vec<Event> {
    let mut events: Vec<Event> = (0..4)
        .map(|index| Event::SetFlavor(flavor(&format!("f{index}"), &[])))
        .collect();
    events.extend(
        (0..4).map(|index| Event::SetLocalQueue(local_queue(&format!("l{index}"), &format!("q{}", index % 3)))),
    );
    events
}

/// The engine, its twin, and what was last reported of each waiting unit.
struct Pair {
    engine: Engine,
    twin: Twin,
    reported: BTreeMap<Uid, WaitKind>,
    /// What each unit looked like when it last waited.
    specs: BTreeMap<Uid, UnitSpec>,
}

impl Pair {
    fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        match &event {
            Event::SetCharged(unit) => {
                self.reported.remove(&unit.uid);
            }
            Event::RemoveUnit(uid) => {
                self.reported.remove(uid);
            }
            Event::SetWaiting(unit) => {
                self.specs.insert(unit.uid, unit.clone());
            }
            _ => {}
        }
        self.twin.apply(&event);
        self.engine.apply(event);
        self.engine
            .audit()
            .map_err(|fault| TestCaseError::fail(fault.to_string()))
    }

    fn pass(&mut self, now: i64) -> Result<(), TestCaseError> {
        let decided = self.engine.pass(Time(now));
        prop_assert_eq!(&decided, &self.twin.pass(now));
        for action in decided.actions {
            let admission = &crate::build::admission(action);
            self.reported.remove(&admission.uid);
            let kept = &self.twin.charged[&admission.uid];
            let made = ChargedUnit {
                queued_at: kept.queued_at,
                reserved_at: Time(now),
                ..charged(admission, kept.priority, Phase::Assumed)
            };
            prop_assert_eq!(&made, kept);
        }
        self.engine
            .audit()
            .map_err(|fault| TestCaseError::fail(fault.to_string()))?;
        self.compare_reasons()?;
        self.compare_queues()?;
        self.compare_local_queues()
    }

    fn compare_reasons(&mut self) -> Result<(), TestCaseError> {
        let mut changed = Vec::new();
        for uid in self.twin.waiting.keys().copied() {
            let (ours, theirs) = (
                self.engine.waiting(uid).map(blurred),
                self.twin.waiting(uid).map(blurred),
            );
            prop_assert_eq!(&ours, &theirs);
            if let Some(kind) = theirs.map(|waiting| waiting.reason.kind())
                && self.reported.insert(uid, kind) != Some(kind)
            {
                changed.push(uid);
            }
        }
        prop_assert_eq!(self.engine.take_changed().units, changed);
        for uid in self.twin.charged.keys() {
            prop_assert_eq!(self.engine.waiting(*uid), None);
        }
        Ok(())
    }

    fn compare_queues(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.engine.queues().eq(self.twin.queues.keys()));
        for (name, spec) in &self.twin.queues {
            let report = self
                .engine
                .queue(name)
                .ok_or_else(|| TestCaseError::fail("no report"))?;
            let order = self.twin.order(name);
            prop_assert_eq!(report.active.is_ok(), self.twin.is_active(spec));
            prop_assert_eq!(report.pending_active + report.pending_inadmissible, order.len());
            prop_assert!(self.engine.pending(name).eq(order.iter().map(|unit| unit.uid)));
            let charged: Vec<_> = self.twin.charged.values().filter(|unit| unit.queue == *name).collect();
            prop_assert_eq!(report.reserving, charged.len());
            prop_assert_eq!(
                report.admitted,
                charged.iter().filter(|unit| unit.phase != Phase::Assumed).count()
            );
            let usage: i128 = self
                .twin
                .usage(name)
                .values()
                .map(|used| (*used).min(i128::from(i64::MAX)))
                .sum();
            prop_assert_eq!(
                report
                    .usage
                    .iter()
                    .map(|usage| i128::from(usage.reserved.get()))
                    .sum::<i128>(),
                usage
            );
        }
        Ok(())
    }

    fn compare_local_queues(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.engine.local_queues().eq(self.twin.local_queues.keys()));
        for key in self.twin.local_queues.keys() {
            let report = self
                .engine
                .local_queue(key)
                .ok_or_else(|| TestCaseError::fail("no report"))?;
            let waiting = self
                .twin
                .waiting
                .values()
                .filter(|unit| unit.local_queue == *key)
                .count();
            let charged = self.twin.charged.values().filter(|unit| unit.local_queue == *key);
            prop_assert_eq!(report.pending_active + report.pending_inadmissible, waiting);
            prop_assert_eq!(report.reserving, charged.count());
        }
        Ok(())
    }

    fn nth_charged(&self, which: usize) -> Option<ChargedUnit> {
        let count = self.twin.charged.len();
        (count > 0)
            .then(|| self.twin.charged.values().nth(which % count).cloned())
            .flatten()
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Tell(event) => self.tell(event),
            Step::Pass(later) => self.pass(self.twin.now + later),
            Step::Move(which, phase) => match self.nth_charged(which) {
                Some(unit) => self.tell(Event::SetCharged(ChargedUnit { phase, ..unit })),
                None => Ok(()),
            },
            Step::Evict(which) => {
                let before = self
                    .nth_charged(which)
                    .and_then(|unit| self.specs.get(&unit.uid).cloned());
                before.map_or(Ok(()), |spec| self.tell(Event::SetWaiting(spec)))
            }
            Step::Finish(which) => {
                let gone = self.nth_charged(which).map(|unit| Event::RemoveUnit(unit.uid));
                gone.map_or(Ok(()), |event| self.tell(event))
            }
        }
    }
}

/// What the twin does not say word by word is left out: why a flavor does not match, which flavor is missing.
fn blurred(mut waiting: Waiting) -> Waiting {
    match &mut waiting.reason {
        WaitReason::NoMatchingFlavor { mismatches, .. }
        | WaitReason::ExceedsMaxQuota { mismatches, .. }
        | WaitReason::WaitingForQuota { mismatches, .. } => {
            for (_, mismatch) in mismatches {
                *mismatch = Mismatch::NodeAffinity;
            }
        }
        WaitReason::QueueInactive(inactive) if &*inactive.reason == "FlavorNotFound" => inactive.message = "".into(),
        _ => {}
    }
    waiting
}

/// About a thousand; the environment variable PROPTEST_CASES, 256 if unset, makes them more.
fn cases() -> u32 {
    ProptestConfig::default().cases * 4
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn the_engine_agrees_with_its_naive_twin(steps in prop::collection::vec(a_step(), 1..60)) {
        let (engine, twin) = (Engine::new(), Twin::default());
        let mut pair = Pair { engine, twin, reported: BTreeMap::new(), specs: BTreeMap::new() };
        for event in furnished() {
            pair.tell(event)?;
        }
        for step in steps {
            pair.step(step)?;
        }
        pair.pass(pair.twin.now)?;
    }
}
