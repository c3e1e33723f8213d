//! Ageing: waiting raises a unit in the order of its ClusterQueue, and nowhere else.

use sluice_engine::*;

use crate::build::*;

fn ageing(ms_per_step: i64, max_steps: i32, spec: QueueSpec) -> QueueSpec {
    let ageing = Some(Ageing { ms_per_step, max_steps });
    QueueSpec {
        extras: Extras { ageing, ..spec.extras },
        ..spec
    }
}

/// A queue with so much cpu.
fn of(cpu: i64) -> QueueSpec {
    queue("q", vec![group(&["cpu"], &[("default", &[cpu])])])
}

fn asks(uid: u128, priority: i32, queued_at: i64, cpu: i64) -> UnitSpec {
    UnitSpec {
        priority,
        queued_at: Time(queued_at),
        ..unit(uid, &[("cpu", cpu)])
    }
}

/// Who waits in `q`, in order, `ahead` and `position` of each included.
fn order(bench: &Bench) -> Vec<u128> {
    let order: Vec<u128> = bench.engine.pending("q").map(|uid| uid.0).collect();
    for (place, uid) in order.iter().enumerate() {
        let waiting = bench.engine.waiting(Uid(*uid)).unwrap();
        assert_eq!(waiting.position, Some(place));
        let ahead: Vec<u128> = waiting.ahead.iter().map(|uid| uid.0).collect();
        assert_eq!(ahead, order[..place.min(Waiting::AHEAD)]);
    }
    order
}

#[test]
fn waiting_is_worth_steps_of_priority_up_to_the_cap() {
    let mut bench = Bench::new(vec![ageing(10, 3, of(0))]);
    bench.wait([asks(4, 1, 11, 1), asks(3, 1, 10, 1), asks(2, 1, 5, 1), asks(1, 0, 0, 1)]);
    let mut order_at = |now| {
        assert!(bench.admissions_at(now).is_empty());
        order(&bench)
    };
    // 2.5, 2.0, 2.0 and queued later, 1.9.
    assert_eq!(order_at(20), [2, 1, 3, 4]);
    // 3.5, 3.0, 3.0, 2.9: the oldest has risen as far as it can.
    assert_eq!(order_at(30), [2, 1, 3, 4]);
    // 3.6, 3.1, 3.0, 3.0.
    assert_eq!(order_at(31), [2, 3, 1, 4]);
    // 3.7, 3.2, 3.1, 3.0.
    assert_eq!(order_at(32), [2, 3, 4, 1]);
    // 4.0, 4.0, 4.0, 3.0.
    assert_eq!(order_at(1_000), [2, 3, 4, 1]);
}

#[test]
fn without_ageing_no_time_makes_up_for_priority_and_a_change_of_the_rule_counts_at_once() {
    let mut bench = Bench::new(vec![of(0)]);
    bench.wait([asks(1, 0, 0, 1), asks(2, 1, 20, 1)]);
    assert!(bench.admissions_at(25).is_empty());
    assert_eq!(order(&bench), [2, 1]);
    // 2.5 and 1.5.
    bench.apply(Event::SetQueue(ageing(10, 3, of(0))));
    assert_eq!(order(&bench), [1, 2]);
    // 1 and 1.5.
    bench.apply(Event::SetQueue(ageing(10, 1, of(0))));
    assert_eq!(order(&bench), [2, 1]);
    // 25 and 6: who rises no more does again.
    bench.apply(Event::SetQueue(ageing(1, 100, of(0))));
    assert_eq!(order(&bench), [1, 2]);
    bench.apply(Event::SetQueue(of(0)));
    assert_eq!(order(&bench), [2, 1]);
}

#[test]
fn in_best_effort_order_the_aged_are_asked_first() {
    let mut bench = Bench::new(vec![ageing(10, 100, of(1))]);
    bench.wait([asks(1, 0, 0, 1), asks(2, 4, 45, 1), asks(3, 5, 45, 1)]);
    // 4.6, 4.1 and 5.1.
    assert_eq!(bench.admissions_at(46)[0].uid, Uid(3));
    bench.finish(3);
    assert_eq!(bench.admissions_at(46)[0].uid, Uid(1));
}

#[test]
fn a_strict_head_is_passed_by_time_alone_and_the_pass_says_when() {
    let mut bench = Bench::new(vec![ageing(10, 2, strict(of(2)))]);
    bench.wait([asks(9, 9, 0, 1)]);
    assert_eq!(bench.admissions_at(0).len(), 1);
    // 2 and 1, and 25 rises one step until it is level with the first.
    bench.wait([asks(1, 0, 0, 2), asks(2, 1, 25, 1)]);
    for now in [25, 30, 35] {
        let pass = bench.engine.pass(Time(now));
        assert!(pass.actions.is_empty(), "{now}: {pass:?}");
        assert_eq!(pass.next, Some(Time(36)));
        assert_eq!(bench.reason(2), WaitReason::BehindHead(Uid(1)));
    }
    assert_eq!(bench.admissions_at(36)[0].uid, Uid(2));
    assert_eq!(bench.engine.pass(Time(36)).next, None);
}

#[test]
fn whoever_will_never_pass_the_head_is_no_reason_to_look_again() {
    let mut bench = Bench::new(vec![ageing(10, 2, strict(of(0)))]);
    // All of one priority rise as far, and a lower one less.
    bench.wait([asks(1, 1, 0, 1), asks(2, 1, 7, 1), asks(3, 0, 3, 1)]);
    assert_eq!(bench.engine.pass(Time(10)).next, None);
    assert_eq!(bench.engine.pass(Time(1_000)).next, None);
}

#[test]
fn preemption_compares_priorities_without_age() {
    let mut spec = ageing(1, 1_000, of(1));
    spec.preemption.within_queue = WithinQueue::LowerPriority;
    let mut bench = Bench::new(vec![spec]);
    bench.wait([asks(1, 1, 0, 1)]);
    let admission = bench.admissions_at(0).remove(0);
    bench.apply(Event::SetCharged(charged(&admission, 1, Phase::Admitted)));
    // The first is 900 by its age, yet of no higher priority than what runs; the other is younger and higher.
    bench.wait([asks(2, 1, 0, 1), asks(3, 2, 899, 1)]);
    let pass = bench.engine.pass(Time(900));
    assert_eq!(order(&bench), [2, 3]);
    let evicted_for = |action: &Action| match action {
        Action::Evict(Eviction {
            uid,
            cause: EvictionCause::Preempted { by, .. },
            ..
        }) => (uid.0, by.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(pass.actions.iter().map(evicted_for).collect::<Vec<_>>(), [(1, 3)]);
}

#[test]
fn among_clusterqueues_priority_counts_without_age() {
    let member = |name: &str, cpu| QueueSpec {
        cohort: Some("all".into()),
        ..queue(name, vec![group(&["cpu"], &[("default", &[cpu])])])
    };
    let mut bench = Bench::new(vec![ageing(1, 100, member("q", 0)), member("p", 0), member("o", 1)]);
    bench.apply(Event::SetLocalQueue(local_queue("other", "p")));
    bench.wait([asks(1, 0, 0, 1)]);
    bench.wait([UnitSpec {
        local_queue: key("other"),
        ..asks(2, 1, 90, 1)
    }]);
    // 90 by its age, and second all the same.
    assert_eq!(bench.admissions_at(90)[0].uid, Uid(2));
}

#[test]
fn numbers_at_the_edge_neither_wrap_nor_saturate() {
    let mut bench = Bench::new(vec![ageing(i64::MAX, i32::MAX, of(0))]);
    bench.wait([
        asks(1, i32::MIN, i64::MIN, 1),
        asks(2, i32::MIN, i64::MIN + 1, 1),
        asks(3, i32::MAX, i64::MAX, 1),
        asks(4, i32::MAX, i64::MAX - 1, 1),
        // A step older than the one before, and of a priority one lower: level, and queued earlier.
        asks(5, i32::MAX - 1, -1, 1),
    ]);
    assert!(bench.admissions_at(i64::MAX - 1).is_empty());
    assert_eq!(order(&bench), [5, 4, 3, 1, 2]);
    assert!(bench.admissions_at(i64::MAX).is_empty());
    assert_eq!(order(&bench), [5, 4, 3, 1, 2]);
    bench.apply(Event::SetQueue(ageing(1, 1, of(0))));
    assert_eq!(order(&bench), [4, 5, 3, 1, 2]);
}

#[test]
fn who_waited_longer_than_the_clock_says_is_not_made_younger_when_it_goes_back() {
    let mut bench = Bench::new(vec![ageing(10, 2, of(0))]);
    bench.wait([asks(1, 0, 0, 1), asks(2, 1, 15, 1)]);
    assert!(bench.admissions_at(20).is_empty());
    assert_eq!(order(&bench), [1, 2]);
    assert!(bench.admissions_at(5).is_empty());
    assert_eq!(order(&bench), [1, 2]);
}

#[test]
fn one_freed_slot_before_twenty_thousand_that_age_examines_tens_of_units() {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    engine.apply(Event::SetLocalQueue(local_queue("main", "q")));
    let resources = vec![group(&["cpu", "memory"], &[("default", &[10, 1_000_000])])];
    engine.apply(Event::SetQueue(ageing(50, 100, queue("q", resources))));
    for uid in 0..20_000 {
        let memory = i64::try_from(uid % 10).unwrap();
        let priority = i32::try_from(uid % 3).unwrap();
        engine.apply(Event::SetWaiting(UnitSpec {
            priority,
            ..unit(uid, &[("cpu", 1), ("memory", memory)])
        }));
    }
    let mut running: Vec<Uid> = engine
        .pass(Time(20_000))
        .actions
        .into_iter()
        .map(|action| admission(action).uid)
        .collect();
    assert_eq!(running.len(), 10);
    for round in 0..20 {
        let before = engine.counters();
        engine.apply(Event::RemoveUnit(running.remove(0)));
        let pass = engine.pass(Time(20_000 + 100 * round));
        running.extend(pass.actions.into_iter().map(|action| admission(action).uid));
        assert_eq!(running.len(), 10);
        let after = engine.counters();
        assert!(
            after.units_examined - before.units_examined <= 40,
            "{before:?} {after:?}"
        );
    }
    engine.audit().unwrap();
}
