//! Named cases: what a queue does, one behaviour each.

use sluice_engine::*;

use crate::build::*;

fn cpu(quota: i64) -> Vec<ResourceGroup> {
    vec![group(&["cpu"], &[("default", &[quota])])]
}

fn constraints(node_selector: &[(&str, &str)]) -> Constraints {
    Constraints {
        node_selector: strings(node_selector),
        ..Constraints::default()
    }
}

fn selecting(mut unit: UnitSpec, node_selector: &[(&str, &str)]) -> UnitSpec {
    unit.pod_sets[0].constraints = constraints(node_selector).into();
    unit
}

#[test]
fn higher_priority_goes_first_then_earlier_then_smaller_uid() {
    let mut bench = Bench::new(vec![queue("q", cpu(10))]);
    let at = |uid, priority, queued_at| UnitSpec {
        priority,
        queued_at: Time(queued_at),
        ..unit(uid, &[("cpu", 1)])
    };
    bench.wait([at(4, 0, 7), at(3, 0, 7), at(2, 0, 5), at(1, -1, 0), at(5, 9, 99)]);
    assert_eq!(
        [5, 2, 3, 4, 1].map(|uid| bench.position(uid)),
        [0, 1, 2, 3, 4].map(Some)
    );
    assert_eq!(bench.admitted(), [5, 2, 3, 4, 1]);
}

/// Kueue issue 1875: with everything else equal the uid decides, so each run decides the same.
#[test]
fn units_created_in_one_second_are_admitted_in_the_same_order_whatever_order_they_arrive_in() {
    let units: Vec<_> = (0..50u128)
        .map(|n| UnitSpec {
            queued_at: Time(0),
            ..unit(n * 7919 % 101, &[("cpu", 1)])
        })
        .collect();
    let mut forwards = Bench::new(vec![queue("q", cpu(20))]);
    forwards.wait(units.clone());
    let mut backwards = Bench::new(vec![queue("q", cpu(20))]);
    backwards.wait(units.into_iter().rev());
    assert_eq!(forwards.admissions_at(0), backwards.admissions_at(0));
}

#[test]
fn best_effort_lets_smaller_units_pass_a_head_that_does_not_fit() {
    let mut bench = Bench::new(vec![queue("q", cpu(3))]);
    bench.wait([unit(1, &[("cpu", 2)]), unit(2, &[("cpu", 2)]), unit(3, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [1, 3]);
    assert_eq!(bench.kind(2), WaitKind::WaitingForQuota);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
}

/// Kueue issue 8309: strict order is over the whole queue, also for units that want another flavor or resource.
#[test]
fn a_strict_head_that_does_not_fit_blocks_everyone_behind_it() {
    let groups = vec![
        group(&["cpu"], &[("default", &[3])]),
        group(&["gpu"], &[("a100", &[1])]),
    ];
    let mut bench = Bench::new(vec![strict(queue("q", groups))]);
    bench.wait([unit(1, &[("gpu", 1)]), unit(2, &[("gpu", 1)]), unit(3, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [1]);
    assert_eq!(bench.reason(3), WaitReason::BehindHead(Uid(2)));
    assert_eq!(bench.kind(2), WaitKind::WaitingForQuota);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2, 3]);
}

#[test]
fn a_strict_head_that_can_never_fit_blocks_until_it_is_gone() {
    let mut bench = Bench::new(vec![strict(queue("q", cpu(3)))]);
    bench.wait([unit(1, &[("cpu", 4)]), unit(2, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.kind(1), WaitKind::ExceedsMaxQuota);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
}

#[test]
fn units_that_are_set_aside_do_not_block_a_strict_queue() {
    let mut bench = Bench::new(vec![strict(queue("q", cpu(3)))]);
    bench.apply(Event::SetLocalQueue(LocalQueueSpec {
        blocked: Some(Blocked {
            reason: "NamespaceMismatch".into(),
            message: "the namespace is not selected".into(),
        }),
        ..local_queue("closed", "q")
    }));
    let big = |uid| unit(uid, &[("cpu", 9)]);
    bench.wait([
        UnitSpec {
            gate: Some(Gate {
                reason: "Held".into(),
                message: "held by its owner".into(),
            }),
            ..big(1)
        },
        UnitSpec {
            not_before: Some(Time(100)),
            ..big(2)
        },
        UnitSpec {
            local_queue: key("closed"),
            ..big(3)
        },
        unit(4, &[("cpu", 1)]),
    ]);
    assert_eq!(bench.admitted(), [4]);
    let kinds = [1, 2, 3].map(|uid| bench.kind(uid));
    assert_eq!(kinds, [WaitKind::Gated, WaitKind::BackOff, WaitKind::LocalQueueBlocked]);
    assert_eq!([1, 2, 3].map(|uid| bench.position(uid)), [Some(0), Some(1), Some(2)]);
    let report = bench.engine.queue("q").unwrap();
    assert_eq!((report.pending_active, report.pending_inadmissible), (0, 3));
}

#[test]
fn back_off_ends_by_time_alone_and_the_pass_says_when() {
    let mut bench = Bench::new(vec![queue("q", cpu(3))]);
    bench.wait([1, 2].map(|uid| UnitSpec {
        not_before: Some(Time(i64::try_from(uid).unwrap() * 100)),
        ..unit(uid, &[("cpu", 1)])
    }));
    let pass = bench.engine.pass(Time(99));
    assert_eq!((pass.actions.len(), pass.next), (0, Some(Time(100))));
    let pass = bench.engine.pass(Time(100));
    assert_eq!((pass.actions.len(), pass.next), (1, Some(Time(200))));
    let pass = bench.engine.pass(Time(5000));
    assert_eq!((pass.actions.len(), pass.next), (1, None));
}

/// Kueue pull request 8153: a unit that is being evicted keeps its quota until it waits again, and then it is first.
#[test]
fn an_evicted_unit_is_head_again_before_a_lower_one_can_slip_in() {
    for spec in [strict(queue("q", cpu(3))), queue("q", cpu(3))] {
        let mut bench = Bench::new(vec![spec]);
        let high = UnitSpec {
            priority: 10,
            ..unit(1, &[("cpu", 3)])
        };
        bench.wait([high.clone()]);
        let admission = bench.admissions_at(0).remove(0);
        bench.wait([unit(2, &[("cpu", 3)])]);
        for phase in [Phase::Admitted, Phase::Evicting] {
            bench.apply(Event::SetCharged(charged(&admission, 10, phase)));
            assert_eq!(bench.admitted(), []);
        }
        bench.wait([high]);
        assert_eq!(bench.position(1), Some(0));
        assert_eq!(bench.admitted(), [1]);
    }
}

/// Kueue issue 9843: 1E of cpu, in thousandths, is more than 64 bits hold; it means "no limit" and never "nothing".
#[test]
fn a_quota_beyond_64_bits_admits() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["cpu"], &[("default", &[i64::MAX])])])]);
    bench.wait([unit(1, &[("cpu", 3000)])]);
    assert_eq!(bench.admitted(), [1]);
}

/// Kueue pull request 11139.
#[test]
fn a_request_near_the_largest_number_never_fits() {
    let mut bench = Bench::new(vec![queue("q", cpu(10_000))]);
    bench.wait([unit(1, &[("cpu", i64::MAX)]), unit(2, &[("cpu", i64::MAX - 7)])]);
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.kind(1), WaitKind::ExceedsMaxQuota);
    assert_eq!(
        bench.reason(2).to_string(),
        "pod set main asks for more than the ClusterQueue can ever use: flavor default has at most 10 cpu and \
         9223372036854775800m is needed"
    );
}

/// Kueue pull requests 11137 and 11182.
#[test]
fn sums_over_pods_and_pod_sets_never_wrap() {
    for quota in [10, i64::MAX - 1] {
        let mut bench = Bench::new(vec![queue("q", cpu(quota))]);
        let half = i64::MAX / 2 + 1;
        let sets = |sets: Vec<PodSetSpec>, uid| UnitSpec {
            pod_sets: sets,
            ..unit(uid, &[])
        };
        bench.wait([
            sets(
                vec![pod_set("a", 1, &[("cpu", half)]), pod_set("b", 1, &[("cpu", half)])],
                1,
            ),
            sets(vec![pod_set("a", i64::MAX, &[("cpu", 2)])], 2),
            sets(
                vec![
                    pod_set("a", i64::MAX, &[("cpu", i64::MAX)]),
                    pod_set("b", i64::MAX, &[("cpu", i64::MAX)]),
                ],
                3,
            ),
            sets(vec![pod_set("a", 4, &[("cpu", half)])], 4),
        ]);
        assert_eq!(bench.admitted(), []);
        assert_eq!([1, 2, 3, 4].map(|uid| bench.kind(uid)), [WaitKind::ExceedsMaxQuota; 4]);
    }
}

#[test]
fn a_full_queue_of_the_largest_quota_is_full() {
    let mut bench = Bench::new(vec![queue("q", cpu(i64::MAX))]);
    bench.wait([unit(1, &[("cpu", i64::MAX)]), unit(2, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [1]);
    assert_eq!(bench.kind(2), WaitKind::WaitingForQuota);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
}

/// Kueue issue 8079.
#[test]
fn zero_of_a_resource_without_quota_is_nothing() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["memory"], &[("default", &[36])])])]);
    let pods = pod_set("main", 3, &[("nvidia.com/gpu", 0), ("memory", 2)]);
    bench.wait([UnitSpec {
        pod_sets: vec![pods],
        ..unit(1, &[])
    }]);
    let admission = bench.admissions_at(0).remove(0);
    assert_eq!(admission.pod_sets[0].usage, [("memory".into(), Amount::new(6))]);
}

#[test]
fn a_resource_without_quota_keeps_a_unit_out_and_is_named() {
    let mut bench = Bench::new(vec![queue("q", cpu(3))]);
    bench.wait([unit(1, &[("cpu", 1), ("example.com/fpga", 1)]), unit(2, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [2]);
    let reason = WaitReason::ResourceNotCovered {
        pod_set: "main".into(),
        resource: "example.com/fpga".into(),
    };
    assert_eq!(bench.reason(1), reason);
    bench.apply(Event::SetQueue(queue(
        "q",
        vec![group(&["cpu", "example.com/fpga"], &[("default", &[3, 1])])],
    )));
    assert_eq!(bench.admitted(), [1]);
}

#[test]
fn a_unit_that_asks_for_nothing_is_admitted_without_a_flavor() {
    let mut bench = Bench::new(vec![queue("q", cpu(0))]);
    bench.wait([
        unit(1, &[]),
        UnitSpec {
            pod_sets: vec![pod_set("a", 0, &[("cpu", 9)])],
            ..unit(2, &[])
        },
    ]);
    for admission in bench.admissions_at(0) {
        assert_eq!(
            (&admission.pod_sets[0].flavors[..], &admission.pod_sets[0].usage[..]),
            (&[][..], &[][..])
        );
    }
    assert_eq!(bench.engine.queue("q").unwrap().reserving, 2);
}

#[test]
fn the_number_of_pods_is_a_resource_of_its_own_where_there_is_quota_for_it() {
    let mut bench = Bench::new(vec![queue(
        "q",
        vec![group(&["cpu", "pods"], &[("default", &[100, 5])])],
    )]);
    let pods = |uid, count, own: i64| UnitSpec {
        pod_sets: vec![pod_set("main", count, &[("cpu", 1), ("pods", own)])],
        ..unit(uid, &[])
    };
    bench.wait([pods(1, 3, 0), pods(2, 3, 0), pods(3, 2, 99)]);
    assert_eq!(bench.admitted(), [1, 3]);
    assert_eq!(bench.used("q", "default", "pods"), (5, 0));
    assert_eq!(bench.used("q", "default", "cpu"), (5, 0));
}

#[test]
fn flavors_are_taken_in_order_of_preference() {
    let mut bench = Bench::new(vec![queue(
        "q",
        vec![group(&["cpu"], &[("spot", &[2]), ("on-demand", &[2])])],
    )]);
    bench.wait((1..=5).map(|uid| unit(uid, &[("cpu", 1)])));
    let flavors: Vec<_> = bench
        .admissions_at(0)
        .iter()
        .map(|admission| admission.pod_sets[0].flavors[0].1.to_string())
        .collect();
    assert_eq!(flavors, ["spot", "spot", "on-demand", "on-demand"]);
    let WaitReason::WaitingForQuota { shortages, .. } = bench.reason(5) else {
        panic!("{:?}", bench.reason(5))
    };
    assert_eq!(shortages.len(), 2);
    bench.finish(1);
    assert_eq!(bench.flavor_of_only_admission(), "spot");
}

#[test]
fn one_flavor_serves_all_resources_of_a_group_and_groups_choose_apart() {
    let groups = vec![
        group(&["cpu", "memory"], &[("small", &[9, 1]), ("large", &[9, 9])]),
        group(&["gpu"], &[("t4", &[0]), ("a100", &[1])]),
    ];
    let mut bench = Bench::new(vec![queue("q", groups)]);
    bench.wait([unit(1, &[("cpu", 1), ("memory", 2), ("gpu", 1)])]);
    let admission = bench.admissions_at(0).remove(0);
    let flavors = [("cpu", "large"), ("gpu", "a100"), ("memory", "large")].map(|(r, f)| (r.into(), f.into()));
    assert_eq!(admission.pod_sets[0].flavors, flavors);
}

/// Kueue pull request 12446: each flavor is judged by its own labels, not by those of all flavors together.
#[test]
fn a_flavor_is_judged_by_the_labels_it_names_itself() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["cpu"], &[("f1", &[1]), ("f2", &[1])])])]);
    bench.apply(Event::SetFlavor(flavor("f1", &[("type", "x")])));
    bench.apply(Event::SetFlavor(flavor("f2", &[("zone", "y")])));
    bench.wait([selecting(unit(1, &[("cpu", 1)]), &[("type", "x"), ("zone", "y")])]);
    assert_eq!(bench.flavor_of_only_admission(), "f1");
    bench.wait([selecting(unit(2, &[("cpu", 1)]), &[("type", "z"), ("zone", "z")])]);
    assert_eq!(bench.admitted(), []);
    assert_eq!(
        bench.reason(2).to_string(),
        "pod set main may use no flavor: flavor f1: the node selector wants type=z, its nodes have type=x; \
         flavor f2: the node selector wants zone=z, its nodes have zone=y"
    );
    bench.apply(Event::SetFlavor(flavor("f2", &[("zone", "z")])));
    assert_eq!(bench.flavor_of_only_admission(), "f2");
}

/// Kueue issue 3721.
#[test]
fn a_flavor_that_tolerates_its_own_taint_admits_pods_that_do_not() {
    let mut bench = Bench::new(vec![queue("q", cpu(1))]);
    let taint = Taint {
        key: "k".into(),
        value: "v".into(),
        effect: Effect::NoExecute,
    };
    let tainted = FlavorSpec {
        taints: vec![taint],
        ..flavor("default", &[])
    };
    bench.apply(Event::SetFlavor(tainted.clone()));
    bench.wait([unit(1, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.kind(1), WaitKind::NoMatchingFlavor);
    let toleration = Toleration {
        key: Some("k".into()),
        operator: TolerationOperator::Equal,
        value: Some("v".into()),
        effect: Some(Effect::NoExecute),
    };
    bench.apply(Event::SetFlavor(FlavorSpec {
        tolerations: vec![toleration],
        ..tainted
    }));
    assert_eq!(bench.admitted(), [1]);
}

/// Kueue issue 2678: quota that is taken away while it is in use still counts when it comes back.
#[test]
fn what_runs_on_removed_quota_goes_on_and_still_counts() {
    let both = || vec![group(&["cpu", "memory"], &[("default", &[2, 2])])];
    let mut bench = Bench::new(vec![queue("q", both())]);
    bench.wait([unit(1, &[("cpu", 1), ("memory", 2)])]);
    assert_eq!(bench.admitted(), [1]);
    bench.apply(Event::SetQueue(queue("q", cpu(2))));
    assert_eq!(bench.used("q", "default", "memory"), (2, 0));
    assert_eq!(bench.engine.queue("q").unwrap().usage[1].nominal, None);
    bench.apply(Event::SetQueue(queue("q", both())));
    bench.wait([unit(2, &[("cpu", 1), ("memory", 1)])]);
    assert_eq!(bench.admitted(), []);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
}

/// Kueue issue 746: use above a lowered quota counts, blocks new admissions and evicts nobody.
#[test]
fn lowered_quota_evicts_nobody_and_admits_nobody() {
    let mut bench = Bench::new(vec![queue("q", cpu(3))]);
    bench.wait((1..=4).map(|uid| unit(uid, &[("cpu", 1)])));
    assert_eq!(bench.admitted(), [1, 2, 3]);
    bench.apply(Event::SetQueue(queue("q", cpu(1))));
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.used("q", "default", "cpu"), (3, 0));
    for uid in [1, 2] {
        bench.finish(uid);
        assert_eq!(bench.admitted(), []);
    }
    bench.finish(3);
    assert_eq!(bench.admitted(), [4]);
}

/// Volcano issue 1210.
#[test]
fn a_queue_whose_head_does_not_fit_holds_up_no_other_queue() {
    for first in [strict(queue("q1", cpu(2))), queue("q1", cpu(2))] {
        let mut bench = Bench::new(vec![first, queue("q2", cpu(2))]);
        bench.apply(Event::SetLocalQueue(local_queue("other", "q2")));
        bench.wait([
            UnitSpec {
                priority: 100,
                ..unit(1, &[("cpu", 3)])
            },
            UnitSpec {
                local_queue: key("other"),
                ..unit(2, &[("cpu", 1)])
            },
        ]);
        assert_eq!(bench.admitted(), [2]);
    }
}

#[test]
fn every_queue_gets_a_turn_before_any_gets_its_second() {
    let mut bench = Bench::new(vec![queue("q1", cpu(3)), queue("q2", cpu(3))]);
    bench.apply(Event::SetLocalQueue(local_queue("other", "q2")));
    bench.wait((1..=3).map(|uid| UnitSpec {
        priority: 9,
        ..unit(uid, &[("cpu", 1)])
    }));
    bench.wait((4..=5).map(|uid| UnitSpec {
        local_queue: key("other"),
        ..unit(uid, &[("cpu", 1)])
    }));
    assert_eq!(bench.admitted(), [1, 4, 2, 5, 3]);
}

/// Kueue pull request 9894: a change to a waiting unit is looked at in the next pass.
#[test]
fn a_parked_unit_that_is_edited_to_fit_is_admitted_at_once() {
    let mut bench = Bench::new(vec![queue("q", cpu(3))]);
    bench.wait([unit(1, &[("cpu", 4)])]);
    assert_eq!(bench.admitted(), []);
    bench.wait([unit(1, &[("cpu", 3)])]);
    assert_eq!(bench.admitted(), [1]);
}

#[test]
fn a_queue_without_one_of_its_flavors_is_inactive_until_it_appears() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["cpu"], &[("a", &[1]), ("b", &[1])])])]);
    bench.wait([unit(1, &[("cpu", 1)])]);
    bench.apply(Event::RemoveFlavor("b".into()));
    assert_eq!(bench.admitted(), []);
    let inactive = bench.engine.queue("q").unwrap().active.unwrap_err();
    assert_eq!(
        (&*inactive.reason, &*inactive.message),
        ("FlavorNotFound", "ResourceFlavor b does not exist")
    );
    assert_eq!(bench.reason(1), WaitReason::QueueInactive(inactive));
    let inactive = bench.engine.local_queue(&key("main")).unwrap().active.unwrap_err();
    assert_eq!(&*inactive.reason, "ClusterQueueIsInactive");
    bench.apply(Event::SetFlavor(flavor("b", &[])));
    assert_eq!(bench.admitted(), [1]);
}

#[test]
fn a_spec_that_makes_no_sense_makes_its_queue_inactive_and_stops_no_other() {
    let short = group(&["cpu", "memory"], &[("default", &[1])]);
    let twice = vec![
        group(&["cpu"], &[("default", &[1])]),
        group(&["cpu"], &[("default", &[1])]),
    ];
    let repeated = group(&["cpu"], &[("default", &[1]), ("default", &[1])]);
    for broken in [vec![short], twice, vec![repeated]] {
        let mut bench = Bench::new(vec![queue("broken", broken), queue("sound", cpu(1))]);
        bench.apply(Event::SetLocalQueue(local_queue("other", "sound")));
        bench.wait([
            unit(1, &[("cpu", 1)]),
            UnitSpec {
                local_queue: key("other"),
                ..unit(2, &[("cpu", 1)])
            },
        ]);
        assert_eq!(bench.admitted(), [2]);
        assert_eq!(
            &*bench.engine.queue("broken").unwrap().active.unwrap_err().reason,
            "InvalidSpec"
        );
    }
}

#[test]
fn what_a_removed_queue_holds_is_remembered_when_it_comes_back() {
    let mut bench = Bench::new(vec![queue("q", cpu(2))]);
    bench.wait([unit(1, &[("cpu", 2)]), unit(2, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [1]);
    bench.apply(Event::RemoveQueue("q".into()));
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.reason(2), WaitReason::QueueMissing("q".into()));
    assert_eq!(bench.engine.queue("q"), None);
    bench.apply(Event::SetQueue(queue("q", cpu(2))));
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.used("q", "default", "cpu"), (2, 0));
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
}

#[test]
fn charges_count_before_their_queue_and_flavor_are_known() {
    let mut bench = Bench { engine: Engine::new() };
    let charge = Charge {
        flavor: "late".into(),
        resource: "cpu".into(),
        amount: Amount::new(2),
    };
    bench.apply(Event::SetCharged(ChargedUnit {
        uid: Uid(1),
        queue: "q".into(),
        local_queue: key("main"),
        priority: 0,
        queued_at: Time(0),
        reserved_at: Time(0),
        deadlines: vec![],
        ends_at: None,
        pods_ready: true,
        charges: vec![charge],
        phase: Phase::Admitted,
    }));
    bench.wait([unit(2, &[("cpu", 1)]), unit(3, &[("cpu", 2)])]);
    bench.apply(Event::SetLocalQueue(local_queue("main", "q")));
    bench.apply(Event::SetQueue(queue("q", vec![group(&["cpu"], &[("late", &[3])])])));
    assert_eq!(bench.admitted(), []);
    bench.apply(Event::SetFlavor(flavor("late", &[])));
    assert_eq!(bench.admitted(), [2]);
    assert_eq!(bench.used("q", "late", "cpu"), (3, 2));
    let report = bench.engine.local_queue(&key("main")).unwrap();
    assert_eq!(
        (report.reserving, report.admitted, report.usage[0].reserved.get()),
        (2, 1, 3)
    );
}

#[test]
fn a_local_queue_created_again_elsewhere_takes_its_waiting_units_along() {
    let mut bench = Bench::new(vec![queue("q1", cpu(0)), queue("q2", cpu(1))]);
    bench.wait([unit(1, &[("cpu", 1)]), unit(2, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), []);
    bench.apply(Event::RemoveLocalQueue(key("main")));
    assert_eq!(bench.reason(1), WaitReason::NoLocalQueue(key("main")));
    assert_eq!(bench.position(1), None);
    bench.apply(Event::SetLocalQueue(local_queue("main", "q2")));
    assert_eq!(bench.admitted(), [1]);
    assert_eq!(bench.position(2), Some(0));
    assert_eq!(bench.engine.queue("q1").unwrap().pending_inadmissible, 0);
}

#[test]
fn pod_sets_of_one_unit_share_what_is_free() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["cpu"], &[("a", &[3]), ("b", &[3])])])]);
    let pod_sets = vec![
        pod_set("driver", 1, &[("cpu", 2)]),
        pod_set("workers", 2, &[("cpu", 1)]),
    ];
    bench.wait([UnitSpec {
        pod_sets: pod_sets.clone(),
        ..unit(1, &[])
    }]);
    let admission = bench.admissions_at(0).remove(0);
    let flavors = admission
        .pod_sets
        .iter()
        .map(|pod_set| pod_set.flavors[0].1.to_string());
    assert_eq!(flavors.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((bench.used("q", "a", "cpu").0, bench.used("q", "b", "cpu").0), (2, 2));
    bench.wait([UnitSpec {
        pod_sets,
        ..unit(2, &[])
    }]);
    assert_eq!(bench.admitted(), []);
    let WaitReason::WaitingForQuota { pod_set, shortages, .. } = bench.reason(2) else {
        panic!()
    };
    assert_eq!((&*pod_set, shortages.len(), shortages[0].free.get()), ("driver", 2, 1));
}

/// An earlier pod set takes its first choice even if a later one then has none left; once that is full it goes elsewhere.
#[test]
fn a_parked_unit_is_looked_at_again_when_a_fuller_flavor_sends_its_first_pod_set_elsewhere() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["cpu"], &[("a", &[4]), ("b", &[3])])])]);
    bench.apply(Event::SetFlavor(flavor("b", &[("kind", "b")])));
    let mut workers = pod_set("workers", 1, &[("cpu", 2)]);
    workers.constraints = constraints(&[("kind", "a")]).into();
    let first = UnitSpec {
        pod_sets: vec![pod_set("driver", 1, &[("cpu", 3)]), workers],
        ..unit(1, &[])
    };
    bench.wait([first]);
    assert_eq!(bench.admitted(), []);
    bench.wait([selecting(unit(2, &[("cpu", 2)]), &[("kind", "a")])]);
    assert_eq!(bench.admitted(), [2, 1]);
}

/// The same the other way: a flavor that an earlier pod set would have to borrow in becomes one in which it need not.
#[test]
fn a_parked_unit_is_looked_at_again_when_its_first_pod_set_need_not_borrow_elsewhere_any_more() {
    let spec = QueueSpec {
        cohort: Some("all".into()),
        fungibility: Fungibility {
            when_can_borrow: Search::TryNextFlavor,
            ..Fungibility::default()
        },
        ..queue("q", vec![group(&["cpu"], &[("a", &[2]), ("b", &[4])])])
    };
    let mut bench = Bench::new(vec![spec]);
    bench.apply(Event::SetFlavor(flavor("a", &[("kind", "a")])));
    bench.apply(Event::SetFlavor(flavor("b", &[("kind", "b")])));
    bench.apply(Event::SetCohort(CohortSpec {
        name: "all".into(),
        groups: vec![group(&["cpu"], &[("a", &[2])])],
        ..CohortSpec::default()
    }));
    bench.wait([unit(1, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [1]);
    let mut workers = pod_set("workers", 1, &[("cpu", 4)]);
    workers.constraints = constraints(&[("kind", "b")]).into();
    bench.wait([UnitSpec {
        pod_sets: vec![pod_set("driver", 1, &[("cpu", 2)]), workers],
        ..unit(2, &[])
    }]);
    // With one of two used in a the driver goes to b, and the workers have too little left there.
    assert_eq!(bench.admitted(), []);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
}

#[test]
fn reports_follow_a_unit_from_waiting_to_gone() {
    let mut bench = Bench::new(vec![queue("q", cpu(1))]);
    bench.wait([unit(1, &[("cpu", 1)]), unit(2, &[("cpu", 1)])]);
    let counts = |bench: &Bench| {
        let [queue, local] = [bench.engine.queue("q"), bench.engine.local_queue(&key("main"))].map(Option::unwrap);
        let counts = |r: &QueueReport| (r.pending_active, r.pending_inadmissible, r.reserving, r.admitted);
        assert_eq!(counts(&queue), counts(&local));
        (
            counts(&queue),
            local.usage[0].reserved.get(),
            local.usage[0].admitted.get(),
        )
    };
    assert_eq!(counts(&bench), ((2, 0, 0, 0), 0, 0));
    let admission = bench.admissions_at(0).remove(0);
    assert_eq!(counts(&bench), ((0, 1, 1, 0), 1, 0));
    for phase in [Phase::Admitted, Phase::Leaving] {
        bench.apply(Event::SetCharged(charged(&admission, 0, phase)));
        assert_eq!(counts(&bench), ((0, 1, 1, 1), 1, 1));
    }
    // What is going away is as good as gone: the other may be considered.
    bench.apply(Event::SetCharged(charged(&admission, 0, Phase::Evicting)));
    assert_eq!(counts(&bench), ((1, 0, 1, 1), 1, 1));
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.kind(2), WaitKind::WaitingForPreempted);
    bench.finish(1);
    bench.finish(2);
    assert_eq!(counts(&bench), ((0, 0, 0, 0), 0, 0));
}

#[test]
fn only_changes_are_reported_as_changed() {
    let mut bench = Bench::new(vec![queue("q", cpu(1)), queue("idle", cpu(1))]);
    bench.wait([unit(1, &[("cpu", 1)]), unit(2, &[("cpu", 1)]), unit(3, &[("cpu", 2)])]);
    assert_eq!(bench.admitted(), [1]);
    let changed = bench.engine.take_changed();
    assert_eq!(changed.queues, [Name::from("idle"), Name::from("q")]);
    assert_eq!(
        (changed.local_queues, changed.units),
        (vec![key("main")], vec![Uid(2), Uid(3)])
    );
    // Told again, nothing has changed.
    bench.wait([unit(2, &[("cpu", 1)]), unit(3, &[("cpu", 2)])]);
    bench.apply(Event::SetQueue(queue("q", cpu(1))));
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.engine.take_changed(), Changed::default());
    // A finish admits the next; who still waits does so for the same kind of reason.
    bench.wait([unit(4, &[("cpu", 1)])]);
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
    assert_eq!(bench.engine.take_changed().units, [Uid(4)]);
    bench.finish(2);
    bench.wait([unit(5, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [4]);
    assert_eq!(bench.engine.take_changed().units, [Uid(5)]);
    bench.apply(Event::SetQueue(queue("q", cpu(2))));
    assert_eq!(bench.admitted(), [5]);
    assert_eq!(bench.engine.take_changed().units, [Uid(3)]);
}

#[test]
fn a_change_of_strategy_takes_effect_in_the_next_pass() {
    let mut bench = Bench::new(vec![strict(queue("q", cpu(1)))]);
    bench.wait([unit(1, &[("cpu", 2)]), unit(2, &[("cpu", 1)]), unit(3, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), []);
    bench.apply(Event::SetQueue(queue("q", cpu(1))));
    assert_eq!(bench.admitted(), [2]);
    bench.apply(Event::SetQueue(strict(queue("q", cpu(1)))));
    bench.finish(2);
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.kind(3), WaitKind::BehindHead);
}

#[test]
fn a_gate_that_opens_lets_the_unit_in_at_its_old_place() {
    let mut bench = Bench::new(vec![queue("q", cpu(0))]);
    let gate = Some(Gate {
        reason: "NoPriorityClass".into(),
        message: "priority class gold does not exist".into(),
    });
    bench.wait([
        UnitSpec {
            gate,
            ..unit(1, &[("cpu", 1)])
        },
        unit(2, &[("cpu", 1)]),
    ]);
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.reason(1).to_string(), "priority class gold does not exist");
    bench.wait([unit(1, &[("cpu", 1)])]);
    bench.apply(Event::SetQueue(queue("q", cpu(1))));
    assert_eq!(bench.admitted(), [1]);
}

#[test]
fn a_unit_that_runs_already_is_placed_in_its_first_flavor_however_full_that_is() {
    let groups = vec![
        group(&["cpu"], &[("labelled", &[1]), ("plain", &[1])]),
        group(&["gpu"], &[("a100", &[0])]),
    ];
    let mut bench = Bench::new(vec![queue("q", groups)]);
    bench.apply(Event::SetFlavor(flavor("labelled", &[("zone", "a")])));
    let running = selecting(unit(1, &[("cpu", 50), ("gpu", 3)]), &[("zone", "b")]);
    let placed = bench.engine.place_over_quota(&running).unwrap();
    assert_eq!(
        placed.pod_sets[0].flavors,
        [("cpu".into(), "plain".into()), ("gpu".into(), "a100".into())]
    );
    assert_eq!(bench.used("q", "plain", "cpu"), (0, 0));
    bench.apply(Event::SetCharged(charged(&placed, 0, Phase::Admitted)));
    assert_eq!(
        (bench.used("q", "plain", "cpu"), bench.used("q", "a100", "gpu")),
        ((50, 50), (3, 3))
    );
    assert_eq!(bench.engine.place_over_quota(&unit(2, &[("memory", 1)])), None);
    let nowhere = UnitSpec {
        local_queue: key("missing"),
        ..unit(3, &[("cpu", 1)])
    };
    assert_eq!(bench.engine.place_over_quota(&nowhere), None);
}

#[test]
fn known_ends_tell_when_there_is_enough_at_the_earliest() {
    let mut bench = Bench::new(vec![queue("q", vec![group(&["cpu"], &[("default", &[4])])])]);
    let runs = |uid, cpu, ends_at: Option<i64>| {
        Event::SetCharged(ChargedUnit {
            uid: Uid(uid),
            queue: "q".into(),
            local_queue: key("main"),
            priority: 0,
            queued_at: Time(0),
            reserved_at: Time(0),
            deadlines: vec![],
            ends_at: ends_at.map(Time),
            pods_ready: true,
            charges: vec![Charge {
                flavor: "default".into(),
                resource: "cpu".into(),
                amount: Amount::new(cpu),
            }],
            phase: Phase::Admitted,
        })
    };
    bench.apply(runs(1, 1, Some(900)));
    bench.apply(runs(2, 1, Some(500)));
    bench.apply(runs(3, 2, None));
    bench.wait([
        unit(4, &[("cpu", 1)]),
        unit(5, &[("cpu", 2)]),
        unit(6, &[("cpu", 3)]),
        unit(7, &[("cpu", 9)]),
    ]);
    assert_eq!(bench.admitted(), []);
    let start = |uid| bench.engine.waiting(Uid(uid)).unwrap().earliest_start;
    assert_eq!([4, 5, 6, 7].map(start), [Some(Time(500)), Some(Time(900)), None, None]);
    assert_eq!(bench.engine.waiting(Uid(6)).unwrap().ahead, [Uid(4), Uid(5)]);
}
