//! What random worlds are made of: small numbers, so that cells are often nearly full.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::Strategy;
use sluice_engine::*;

use crate::build::{flavor, local_queue, strings};

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Tell(Event),
    /// A unit that nobody knows yet waits; its uid is the first free one from its own on, if one is. Those of odd uids were
    /// queued now, the others long ago.
    Submit(UnitSpec),
    /// A pass, this many milliseconds later.
    Pass(i64),
    /// Everything that was decided is done: admitted units run, evicted ones wait again.
    Settle,
    /// A unit that holds quota, chosen by number, moves to a phase.
    Move(usize, Phase),
    /// A unit that holds quota, chosen by number, waits again as it did before.
    Evict(usize),
    /// A unit that holds quota, chosen by number, is gone.
    Finish(usize),
    /// A unit, chosen by number, gets another priority.
    Reprioritize(usize, i32),
    /// A waiting unit, chosen by number, is held or let go.
    Hold(usize),
    /// A ClusterQueue, chosen by number, moves to another cohort.
    Join(usize, Option<Name>),
    /// A ClusterQueue, chosen by number, gets more or less quota in every cell.
    Resize(usize, i64),
    /// A ClusterQueue, chosen by number, is stopped and drained, or opened again.
    Drain(usize),
}

/// How large a world is, and which rules it uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) queues: usize,
    pub(crate) flavors: usize,
    pub(crate) local_queues: usize,
    pub(crate) units: u128,
    pub(crate) cohorts: usize,
    /// ClusterQueues share and preempt, and units are told to stop.
    pub(crate) shared: bool,
    /// A few ClusterQueues of few cells that nearly all units can use, so that most meet.
    pub(crate) tight: bool,
}

/// The world of which single events are drawn.
const USUAL: Scale = Scale {
    queues: 3,
    flavors: 4,
    local_queues: 4,
    units: 14,
    cohorts: 3,
    shared: true,
    tight: false,
};

pub(crate) fn a_scale(shared: bool) -> BoxedStrategy<Scale> {
    let loose = a_loose_scale(shared);
    if !shared {
        return loose;
    }
    let tight = (2_usize..6, 1_usize..3, 10_u128..20, 1_usize..5);
    let tight = tight.prop_map(|(queues, flavors, units, cohorts)| Scale {
        queues,
        flavors,
        local_queues: 2 * queues,
        units,
        cohorts,
        shared: true,
        tight: true,
    });
    prop_oneof![tight, loose].boxed()
}

fn a_loose_scale(shared: bool) -> BoxedStrategy<Scale> {
    let queues = if shared {
        prop_oneof![12 => 1_usize..7, 1 => 7_usize..41].boxed()
    } else {
        (1_usize..5).boxed()
    };
    let flavors = prop_oneof![3 => 1_usize..3, 1 => 3_usize..7];
    let cohorts = prop_oneof![2 => 1_usize..3, 1 => 3_usize..7];
    (queues, flavors, 8_u128..20, cohorts)
        .prop_map(move |(queues, flavors, units, cohorts)| Scale {
            queues,
            flavors,
            local_queues: queues + 1,
            units: units + queues as u128,
            cohorts,
            shared,
            tight: false,
        })
        .boxed()
}

fn name(prefix: &'static str, count: usize) -> BoxedStrategy<Name> {
    (0..count)
        .prop_map(move |index| Name::from(format!("{prefix}{index}")))
        .boxed()
}

/// Mostly small, sometimes at the edge of what fits into 64 bits.
fn amount() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        400 => 0i64..6,
        200 => 3i64..9,
        1 => Just(i64::MAX),
        1 => Just(i64::MAX / 2 + 1),
        1 => Just(i64::MAX - 1)
    ]
}

fn a_flavor(scale: Scale) -> BoxedStrategy<FlavorSpec> {
    let labels = prop::collection::btree_map("[ab]", "[12]", 0..2);
    (name("f", scale.flavors), labels, 0usize..9)
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

fn a_quota(scale: Scale) -> BoxedStrategy<Quota> {
    let (limits, tight) = (scale.shared, scale.tight);
    let limit = || prop::option::weighted(0.3, amount().prop_map(Amount::new));
    (amount(), limit(), limit())
        .prop_map(move |(nominal, borrow, lend)| Quota {
            nominal: Amount::new(if tight { nominal % 5 } else { nominal }),
            borrowing_limit: borrow.filter(|_| limits),
            lending_limit: lend.filter(|_| limits),
        })
        .boxed()
}

/// Which resources are given out together.
fn a_layout(scale: Scale) -> BoxedStrategy<Vec<Vec<&'static str>>> {
    let wild = prop_oneof![
        Just(vec![vec!["cpu"]]),
        Just(vec![vec!["cpu", "memory", "pods"]]),
        Just(vec![vec!["memory", "cpu"], vec!["pods"]]),
        Just(vec![]),
    ];
    let usual = match (scale.tight, scale.shared) {
        (true, _) => 100,
        (_, true) => 10,
        _ => 1,
    };
    prop_oneof![
        2 * usual => Just(vec![vec!["cpu"], vec!["gpu"]]),
        usual => Just(vec![vec!["cpu", "gpu"]]),
        4 => wild,
    ]
    .boxed()
}

fn groups(scale: Scale) -> BoxedStrategy<Vec<ResourceGroup>> {
    let most = scale.flavors.min(3);
    let quotas = prop::collection::vec(prop::array::uniform3(a_quota(scale)), 1..=most);
    (a_layout(scale), quotas, 0..scale.flavors)
        .prop_map(move |(layout, quotas, first)| {
            let group = |resources: &Vec<&str>| ResourceGroup {
                resources: resources.iter().map(|name| Name::from(*name)).collect(),
                flavors: quotas
                    .iter()
                    .enumerate()
                    .map(|(index, quotas)| FlavorQuota {
                        flavor: format!("f{}", (first + index) % scale.flavors).into(),
                        quotas: quotas[..resources.len()].to_vec(),
                    })
                    .collect(),
            };
            layout.iter().map(group).collect()
        })
        .boxed()
}

fn a_weight() -> impl Strategy<Value = Weight> {
    prop_oneof![
        6 => Just(Weight::ONE),
        1 => Just(Weight(0)),
        1 => Just(Weight(Weight::ONE.0 / 2)),
        1 => Just(Weight(Weight::ONE.0 * 3)),
        1 => Just(Weight(1)),
    ]
}

fn preemption() -> BoxedStrategy<Preemption> {
    let within_queue = prop_oneof![
        2 => Just(WithinQueue::Never),
        1 => Just(WithinQueue::LowerPriority),
        1 => Just(WithinQueue::LowerOrNewerEqualPriority)
    ];
    let reclaim = prop_oneof![
        1 => Just(Reclaim::Never),
        2 => Just(Reclaim::LowerPriority),
        2 => Just(Reclaim::Any)
    ];
    let borrow_within_cohort =
        prop::option::of(prop::option::of(-2i32..3).prop_map(|max_priority| BorrowWithinCohort { max_priority }));
    (within_queue, reclaim, borrow_within_cohort)
        .prop_map(|(within_queue, reclaim, borrow_within_cohort)| Preemption {
            within_queue,
            reclaim,
            borrow_within_cohort,
        })
        .boxed()
}

fn fungibility() -> BoxedStrategy<Fungibility> {
    let search = || prop_oneof![Just(Search::Stop), Just(Search::TryNextFlavor)];
    let preference = prop_oneof![
        Just(Preference::BorrowingOverPreemption),
        Just(Preference::PreemptionOverBorrowing)
    ];
    (search(), search(), preference)
        .prop_map(|(when_can_borrow, when_can_preempt, preference)| Fungibility {
            when_can_borrow,
            when_can_preempt,
            preference,
        })
        .boxed()
}

fn stopped() -> Inactive {
    Inactive {
        reason: "Stopped".into(),
        message: "stopped".into(),
    }
}

fn a_cohort_name(scale: Scale) -> BoxedStrategy<Option<Name>> {
    let one = prop_oneof![100 => name("c", scale.cohorts), 1 => Just(Name::from("implicit"))];
    prop::option::weighted(0.9, one).boxed()
}

/// Mostly within what a world lives to see, sometimes at the edge of what fits into 64 bits.
fn ageing() -> BoxedStrategy<Option<Ageing>> {
    let some = |(ms_per_step, max_steps)| Ageing { ms_per_step, max_steps };
    prop_oneof![
        20 => Just(None),
        10 => (1_i64..30, 1_i32..5).prop_map(some).prop_map(Some),
        1 => (prop_oneof![Just(1), Just(i64::MAX)], prop_oneof![Just(1), Just(i32::MAX)]).prop_map(some).prop_map(Some),
    ]
    .boxed()
}

/// A ClusterQueue of this name.
fn a_queue_named(name: Name, scale: Scale) -> BoxedStrategy<QueueSpec> {
    let sharing = (
        a_cohort_name(scale),
        preemption(),
        fungibility(),
        a_weight(),
        prop_oneof![5 => Just(0_i64), 1 => 1_i64..40],
        prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => (1_i64..40).prop_map(Some)],
        any::<bool>(),
        (prop::bool::weighted(0.4), prop::bool::weighted(0.25)),
    );
    let state = prop_oneof![if scale.shared { 80 } else { 10 } => Just(0), 1 => Just(1), 1 => Just(2)];
    let state = (prop::bool::weighted(0.3), state, ageing());
    (state, groups(scale), sharing)
        .prop_map(move |((strict, state, ageing), groups, sharing)| {
            let plain = QueueSpec {
                name: name.clone(),
                strategy: if strict {
                    sluice_engine::Strategy::StrictFifo
                } else {
                    sluice_engine::Strategy::BestEffortFifo
                },
                groups,
                inactive: (state > 0).then(stopped),
                extras: Extras {
                    ageing,
                    ..Extras::default()
                },
                ..QueueSpec::default()
            };
            if !scale.shared {
                return plain;
            }
            let (cohort, preemption, fungibility, weight, min_run_ms, shrink_after_ms, by_past_usage, beyond) = sharing;
            let (fifo_per_pool, backfill) = beyond;
            QueueSpec {
                cohort,
                preemption,
                fungibility,
                weight,
                by_past_usage,
                drain: state == 2,
                extras: Extras {
                    min_run_ms,
                    shrink_after_ms,
                    fifo_per_pool,
                    backfill,
                    ..plain.extras
                },
                ..plain
            }
        })
        .boxed()
}

fn a_queue(scale: Scale) -> BoxedStrategy<QueueSpec> {
    name("q", scale.queues)
        .prop_flat_map(move |name| a_queue_named(name, scale))
        .boxed()
}

/// A Cohort object of this number; its parent mostly has a higher one, so that most trees are sound.
fn a_cohort_numbered(number: usize, scale: Scale) -> BoxedStrategy<CohortSpec> {
    let above = (number + 1..=scale.cohorts).prop_map(move |parent| {
        let is_one = parent < scale.cohorts;
        is_one.then(|| Name::from(format!("c{parent}")))
    });
    let parent = prop_oneof![100 => above, 1 => a_cohort_name(scale)];
    let groups = prop_oneof![1 => Just(vec![]), 1 => groups(scale)];
    (parent, groups, a_weight())
        .prop_map(move |(parent, groups, weight)| CohortSpec {
            name: format!("c{number}").into(),
            parent,
            groups,
            weight,
        })
        .boxed()
}

fn a_cohort(scale: Scale) -> BoxedStrategy<CohortSpec> {
    (0..scale.cohorts)
        .prop_flat_map(move |number| a_cohort_numbered(number, scale))
        .boxed()
}

/// Mostly such that a world sees many samples.
fn past_usage_rules() -> BoxedStrategy<PastUsageRules> {
    let half_life = prop_oneof![1 => Just(0_i64), 10 => 1_i64..200, 1 => Just(i64::MAX)];
    let sampling = prop_oneof![10 => 1_i64..30, 1 => Just(i64::MAX)];
    let weight =
        || prop_oneof![1 => Just(0_u64), 1 => Just(1), 3 => 1_u64..5_000_000_000, 1 => Just(1_000_000_000_000_000_000)];
    let weights = prop::collection::btree_map(prop_oneof!["cpu", "gpu"].prop_map(Name::from), weight(), 0..3);
    (half_life, sampling, weights)
        .prop_map(|(half_life_ms, sampling_ms, resource_weights)| PastUsageRules {
            half_life_ms,
            sampling_ms,
            resource_weights,
        })
        .boxed()
}

fn settings() -> BoxedStrategy<Settings> {
    let rule = || {
        prop_oneof![
            Just(ShareRule::LessThanOrEqualToFinalShare),
            Just(ShareRule::LessThanInitialShare)
        ]
    };
    let fair_sharing = (rule(), prop::option::of(rule())).prop_map(|(first, second)| FairSharing { first, second });
    (
        prop::option::of(fair_sharing),
        prop::bool::weighted(0.1),
        prop::option::of(past_usage_rules()),
    )
        .prop_map(|(fair_sharing, block_admission, past_usage)| Settings {
            fair_sharing,
            block_admission,
            past_usage,
        })
        .boxed()
}

fn a_local_queue(scale: Scale) -> BoxedStrategy<LocalQueueSpec> {
    let state = prop_oneof![20 => Just(0), 2 => Just(1), 1 => Just(2)];
    let past_usage = (
        prop::option::weighted(0.5, amount()),
        prop::option::of(amount()),
        0_i64..40,
    );
    let past_usage = past_usage.prop_map(|(cpu, gpu, at)| {
        let amounts = [("cpu", cpu), ("gpu", gpu)].into_iter();
        let amounts = amounts.filter_map(|(name, amount)| Some((Name::from(name), Amount::new(amount?))));
        PastUsage {
            consumed: amounts.collect(),
            at: Time(at),
        }
    });
    let past_usage = prop::option::weighted(0.3, past_usage);
    (0..scale.local_queues, 0..scale.queues, state, a_weight(), past_usage)
        .prop_map(move |(index, queue, state, weight, past_usage)| LocalQueueSpec {
            weight,
            past_usage,
            blocked: (state > 0).then(|| Blocked {
                reason: "Stopped".into(),
                message: "stopped".into(),
            }),
            drain: scale.shared && state == 2,
            ..local_queue(
                &format!("l{index}"),
                &format!("q{}", if scale.tight { index % scale.queues } else { queue }),
            )
        })
        .boxed()
}

fn constraints(scale: Scale) -> BoxedStrategy<Arc<Constraints>> {
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
    let free = if scale.tight { 50 } else { 5 };
    prop_oneof![free => Just(Arc::default()), 1 => some].boxed()
}

/// How long something may last, if that is known.
fn a_length() -> BoxedStrategy<Option<i64>> {
    prop::option::weighted(0.6, prop_oneof![8 => 0_i64..50, 1 => 50_i64..300]).boxed()
}

/// What one pod asks for: mostly cpu, a little of it.
fn per_pod(scale: Scale) -> BoxedStrategy<Vec<(Name, Amount)>> {
    let wild = (
        prop::sample::subsequence(vec!["cpu", "gpu", "memory", "pods"], 0..3),
        prop::array::uniform4(amount()),
    );
    let wild = wild.prop_map(|(resources, amounts)| resources.into_iter().zip(amounts).collect::<Vec<_>>());
    let some = || prop_oneof![3 => Just(1i64), 2 => Just(2), 1 => Just(3)];
    prop_oneof![
        if scale.shared { 20 } else { 3 } => some().prop_map(|cpu| vec![("cpu", cpu)]),
        if scale.shared { 10 } else { 3 } => (some(), some()).prop_map(|(cpu, gpu)| vec![("cpu", cpu), ("gpu", gpu)]),
        3 => some().prop_map(|gpu| vec![("gpu", gpu)]),
        1 => wild,
    ]
    .prop_map(|asked| {
        let asked = asked.into_iter();
        asked.map(|(name, n)| (Name::from(name), Amount::new(n))).collect()
    })
    .boxed()
}

fn a_pod_set(scale: Scale) -> BoxedStrategy<PodSetSpec> {
    let one = if scale.tight { 200 } else { 60 };
    let count = prop_oneof![one => Just(1i64), 60 => 2i64..4, 3 => Just(0), 1 => Just(-1), 1 => Just(i64::MAX)];
    let min_count = prop::option::weighted(0.2, 1i64..3);
    (per_pod(scale), count, min_count, constraints(scale))
        .prop_map(move |(per_pod, count, min_count, constraints)| PodSetSpec {
            name: "p".into(),
            count,
            min_count: min_count.filter(|_| scale.shared),
            per_pod,
            constraints,
        })
        .boxed()
}

fn a_unit(scale: Scale) -> BoxedStrategy<UnitSpec> {
    let pod_sets = prop_oneof![
        4 => prop::collection::vec(a_pod_set(scale), 1..2),
        1 => prop::collection::vec(a_pod_set(scale), 0..4),
    ];
    (
        1..scale.units,
        0..scale.local_queues,
        -1i32..3,
        0i64..4,
        pod_sets,
        prop::bool::weighted(0.02),
        (prop::option::weighted(0.06, 0i64..60), a_length()),
    )
        .prop_map(
            |(uid, local_queue, priority, queued_at, mut pod_sets, gated, (not_before, runs_at_most_ms))| {
                // At most one pod set of a unit may be admitted with fewer pods.
                for pod_set in pod_sets.iter_mut().skip(1) {
                    pod_set.min_count = None;
                }
                UnitSpec {
                    uid: Uid(uid),
                    local_queue: LocalQueueKey::new("team", format!("l{local_queue}")),
                    priority,
                    queued_at: Time(queued_at),
                    pod_sets,
                    gate: gated.then(held),
                    not_before: not_before.map(Time),
                    runs_at_most_ms,
                }
            },
        )
        .boxed()
}

pub(crate) fn held() -> Gate {
    Gate {
        reason: "Held".into(),
        message: "held".into(),
    }
}

fn phase(scale: Scale) -> BoxedStrategy<Phase> {
    let last = if scale.shared { Phase::Evicting } else { Phase::Leaving };
    prop_oneof![
        2 => Just(Phase::Assumed),
        6 => Just(Phase::Admitted),
        1 => Just(Phase::Leaving),
        1 => Just(last),
    ]
    .boxed()
}

fn deadlines(scale: Scale) -> BoxedStrategy<Vec<Deadline>> {
    let cause = prop_oneof![
        Just(Overdue::PodsReady),
        Just(Overdue::Recovery),
        Just(Overdue::ExecutionTime)
    ];
    let deadline = (0i64..60, cause).prop_map(|(at, cause)| Deadline { at: Time(at), cause });
    let most = if scale.shared { 2 } else { 0 };
    prop_oneof![
        4 => Just(vec![]),
        1 => prop::collection::vec(deadline, 0..=most)
    ]
    .boxed()
}

fn a_charged_unit(scale: Scale) -> BoxedStrategy<ChargedUnit> {
    let resource = prop_oneof![4 => Just("cpu"), 2 => Just("gpu"), 1 => Just("memory"), 1 => Just("pods")];
    let charge = (name("f", scale.flavors), resource, amount()).prop_map(|(flavor, resource, amount)| Charge {
        flavor,
        resource: resource.into(),
        amount: Amount::new(amount),
    });
    (
        1..scale.units,
        name("q", scale.queues),
        0..scale.local_queues,
        prop::collection::vec(charge, 0..3),
        phase(scale),
        deadlines(scale),
        (-1i32..3, 0i64..4, 0i64..30, prop::bool::weighted(0.9), a_length()),
    )
        .prop_map(|(uid, queue, local_queue, charges, phase, deadlines, told)| {
            let (priority, queued_at, reserved_at, pods_ready, length) = told;
            ChargedUnit {
                uid: Uid(uid),
                queue,
                local_queue: LocalQueueKey::new("team", format!("l{local_queue}")),
                priority,
                queued_at: Time(queued_at),
                reserved_at: Time(reserved_at),
                deadlines,
                ends_at: length.map(|length| Time(reserved_at + length)),
                pods_ready,
                charges,
                phase,
            }
        })
        .boxed()
}

pub(crate) fn an_event() -> BoxedStrategy<Event> {
    an_event_in(USUAL)
}

fn an_event_in(scale: Scale) -> BoxedStrategy<Event> {
    let local = prop_oneof![
        6 => a_flavor(scale).prop_map(Event::SetFlavor),
        1 => name("f", scale.flavors).prop_map(Event::RemoveFlavor),
        8 => a_queue(scale).prop_map(Event::SetQueue),
        1 => name("q", scale.queues).prop_map(Event::RemoveQueue),
        6 => a_local_queue(scale).prop_map(Event::SetLocalQueue),
        1 => (0..scale.local_queues).prop_map(|l| Event::RemoveLocalQueue(LocalQueueKey::new("team", format!("l{l}")))),
        30 => a_unit(scale).prop_map(Event::SetWaiting),
        9 => a_charged_unit(scale).prop_map(Event::SetCharged),
        4 => (1..scale.units).prop_map(|uid| Event::RemoveUnit(Uid(uid))),
    ];
    if !scale.shared {
        return local.boxed();
    }
    prop_oneof![
        70 => local,
        6 => a_cohort(scale).prop_map(Event::SetCohort),
        1 => name("c", scale.cohorts).prop_map(Event::RemoveCohort),
        2 => settings().prop_map(Event::SetSettings),
    ]
    .boxed()
}

/// Units come and go, and now and then something else happens.
pub(crate) fn a_step(scale: Scale) -> BoxedStrategy<Step> {
    let local = prop_oneof![
        if scale.tight { 2 } else { 5 } => an_event_in(scale).prop_map(Step::Tell),
        25 => a_unit(scale).prop_map(Step::Submit),
        12 => (0i64..20).prop_map(Step::Pass),
        10 => Just(Step::Settle),
        3 => (any::<usize>(), phase(scale)).prop_map(|(which, phase)| Step::Move(which, phase)),
        2 => any::<usize>().prop_map(Step::Evict),
        4 => any::<usize>().prop_map(Step::Finish),
        2 => (any::<usize>(), -1i32..4).prop_map(|(which, priority)| Step::Reprioritize(which, priority)),
        1 => any::<usize>().prop_map(Step::Hold),
        1 => (any::<usize>(), -2i64..3).prop_map(|(which, more)| Step::Resize(which, more)),
    ];
    if !scale.shared {
        return local.boxed();
    }
    prop_oneof![
        90 => local,
        1 => (any::<usize>(), a_cohort_name(scale)).prop_map(|(which, cohort)| Step::Join(which, cohort)),
        1 => any::<usize>().prop_map(Step::Drain),
    ]
    .boxed()
}

/// A ClusterQueue with other quota, or in another state.
pub(crate) fn resized(mut spec: QueueSpec, more: i64) -> QueueSpec {
    for quota in spec
        .groups
        .iter_mut()
        .flat_map(|group| &mut group.flavors)
        .flat_map(|offered| &mut offered.quotas)
    {
        quota.nominal = Amount::new(quota.nominal.get().saturating_add(more));
    }
    spec
}

pub(crate) fn drained_or_opened(mut spec: QueueSpec) -> QueueSpec {
    spec.drain = !spec.drain;
    spec.inactive = spec.drain.then(stopped);
    spec
}

/// A world in which most things exist, so that the steps meet something.
pub(crate) fn furnished() -> Vec<Event> {
    bare(USUAL)
}

fn bare(scale: Scale) -> Vec<Event> {
    let flavors = (0..scale.flavors).map(|index| Event::SetFlavor(flavor(&format!("f{index}"), &[])));
    let local_queues = (0..scale.local_queues)
        .map(|index| local_queue(&format!("l{index}"), &format!("q{}", index % scale.queues)))
        .map(Event::SetLocalQueue);
    flavors.chain(local_queues).collect()
}

/// What a world of this size is like before anything happens: its flavors, queues and cohorts.
pub(crate) fn a_beginning(scale: Scale) -> BoxedStrategy<Vec<Event>> {
    let queues: Vec<_> = (0..scale.queues)
        .map(|index| a_queue_named(format!("q{index}").into(), scale).prop_map(Event::SetQueue))
        .collect();
    if !scale.shared {
        return queues
            .prop_map(move |queues| bare(scale).into_iter().chain(queues).collect())
            .boxed();
    }
    let cohorts: Vec<_> = (0..scale.cohorts)
        .map(|number| a_cohort_numbered(number, scale).prop_map(Event::SetCohort))
        .collect();
    let exist = prop::collection::vec(prop::bool::weighted(0.98), scale.cohorts);
    let cohorts = (cohorts, exist).prop_map(|(cohorts, exist)| {
        let cohorts = cohorts.into_iter().zip(exist);
        cohorts
            .filter(|(_, exists)| *exists)
            .map(|(cohort, _)| cohort)
            .collect::<Vec<_>>()
    });
    (queues, cohorts, settings())
        .prop_map(move |(queues, cohorts, settings)| {
            let events = bare(scale).into_iter().chain(cohorts).chain(queues);
            events.chain([Event::SetSettings(settings)]).collect()
        })
        .boxed()
}

/// A beginning and what happens then.
pub(crate) fn a_history(shared: bool) -> impl Strategy<Value = (Vec<Event>, Vec<Step>)> {
    a_scale(shared).prop_flat_map(|scale| (a_beginning(scale), prop::collection::vec(a_step(scale), 1..80)))
}
