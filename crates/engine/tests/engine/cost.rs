//! The cost of a decision does not grow with the number that waits: held to by counting, not by time.

use sluice_engine::*;

use crate::build::*;

/// A full queue in front of which `waiting` units of `shapes` shapes wait, unit 0 holding all there is.
fn crowded(waiting: u128, shapes: u128) -> Engine {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    engine.apply(Event::SetQueue(queue(
        "q",
        vec![group(&["cpu", "memory"], &[("default", &[10, 1_000_000])])],
    )));
    engine.apply(Event::SetLocalQueue(local_queue("main", "q")));
    for uid in 0..10 {
        engine.apply(Event::SetWaiting(unit(uid, &[("cpu", 1)])));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 10);
    for uid in 10..10 + waiting {
        let memory = i64::try_from(uid % shapes).unwrap();
        engine.apply(Event::SetWaiting(unit(uid, &[("cpu", 1), ("memory", memory)])));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 0);
    engine
}

#[test]
fn one_freed_slot_before_a_hundred_thousand_of_ten_shapes_examines_tens_of_units() {
    let mut engine = crowded(100_000, 10);
    for round in 0..20 {
        let before = engine.counters();
        engine.apply(Event::RemoveUnit(Uid(round)));
        assert_eq!(engine.pass(Time(0)).actions.len(), 1);
        let after = engine.counters();
        assert!(
            after.units_examined - before.units_examined <= 20,
            "{before:?} {after:?}"
        );
        assert!(after.wakes - before.wakes <= 10, "{before:?} {after:?}");
    }
    engine.audit().unwrap();
}

#[test]
fn one_freed_slot_in_a_cohort_of_a_hundred_queues_examines_one_unit_a_queue_at_most() {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    for index in 0..100 {
        let spec = queue(&format!("q{index}"), vec![group(&["cpu"], &[("default", &[1])])]);
        engine.apply(Event::SetQueue(QueueSpec {
            cohort: Some("all".into()),
            ..spec
        }));
        engine.apply(Event::SetLocalQueue(local_queue(
            &format!("l{index}"),
            &format!("q{index}"),
        )));
    }
    for uid in 0..20_000_u128 {
        engine.apply(Event::SetWaiting(UnitSpec {
            local_queue: key(&format!("l{}", uid % 100)),
            ..unit(uid, &[("cpu", i64::try_from(uid % 7).unwrap().max(1))])
        }));
    }
    let running: Vec<Uid> = engine
        .pass(Time(0))
        .actions
        .into_iter()
        .map(|action| admission(action).uid)
        .collect();
    for uid in running.into_iter().take(20) {
        let before = engine.counters();
        engine.apply(Event::RemoveUnit(uid));
        let _ = engine.pass(Time(0));
        let after = engine.counters();
        assert!(
            after.units_examined - before.units_examined <= 200,
            "{before:?} {after:?}"
        );
    }
    engine.audit().unwrap();
}

#[test]
fn a_unit_that_joins_a_parked_shape_is_not_examined() {
    let mut engine = crowded(1000, 10);
    let before = engine.counters().units_examined;
    for uid in 5000..6000 {
        engine.apply(Event::SetWaiting(unit(
            uid,
            &[("cpu", 1), ("memory", i64::try_from(uid % 10).unwrap())],
        )));
        assert_eq!(engine.pass(Time(0)).actions.len(), 0);
        assert_eq!(
            engine.waiting(Uid(uid)).unwrap().reason.kind(),
            WaitKind::WaitingForQuota
        );
    }
    assert_eq!(engine.counters().units_examined, before);
}

#[test]
fn a_confirmed_admission_wakes_nobody() {
    let mut engine = crowded(1000, 10);
    engine.apply(Event::RemoveUnit(Uid(0)));
    let admission = admission(engine.pass(Time(0)).actions.remove(0));
    let before = engine.counters();
    for phase in [Phase::Admitted, Phase::Admitted, Phase::Leaving] {
        engine.apply(Event::SetCharged(charged(&admission, 0, phase)));
        assert_eq!(engine.pass(Time(0)).actions.len(), 0);
    }
    let after = engine.counters();
    assert_eq!(
        (after.units_examined, after.wakes),
        (before.units_examined, before.wakes)
    );
}

/// Kueue issue 9715: units that wait for one flavor are left alone by what happens in another.
#[test]
fn ten_thousand_units_for_a_full_flavor_cost_nothing_to_those_for_a_free_one() {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    engine.apply(Event::SetFlavor(flavor("a100", &[])));
    let groups = vec![
        group(&["cpu"], &[("default", &[10_000])]),
        group(&["gpu"], &[("a100", &[0])]),
    ];
    engine.apply(Event::SetQueue(queue("q", groups)));
    engine.apply(Event::SetLocalQueue(local_queue("main", "q")));
    // As many shapes as units, so that nothing but the wake conditions spares them.
    let gpu = |uid| UnitSpec {
        priority: 9,
        ..unit(uid, &[("cpu", i64::try_from(uid).unwrap()), ("gpu", 1)])
    };
    for uid in 1..=10_000 {
        engine.apply(Event::SetWaiting(gpu(uid)));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 0);
    assert_eq!(engine.take_changed().units.len(), 10_000);
    for uid in 20_000..20_050 {
        let before = engine.counters().units_examined;
        engine.apply(Event::SetWaiting(unit(uid, &[("cpu", 10_000)])));
        assert_eq!(engine.pass(Time(0)).actions.len(), 1);
        engine.apply(Event::RemoveUnit(Uid(uid)));
        assert_eq!(engine.pass(Time(0)).actions.len(), 0);
        assert_eq!(engine.counters().units_examined - before, 1);
        assert_eq!(engine.take_changed().units, []);
    }
}

#[test]
fn freed_capacity_wakes_only_those_for_whom_it_is_enough() {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    engine.apply(Event::SetQueue(queue(
        "q",
        vec![group(&["cpu"], &[("default", &[5000])])],
    )));
    engine.apply(Event::SetLocalQueue(local_queue("main", "q")));
    for uid in 1..=50 {
        engine.apply(Event::SetWaiting(unit(uid, &[("cpu", 100)])));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 50);
    for uid in 101..=5000 {
        engine.apply(Event::SetWaiting(unit(uid, &[("cpu", i64::try_from(uid).unwrap())])));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 0);
    let before = engine.counters().units_examined;
    engine.apply(Event::RemoveUnit(Uid(1)));
    engine.apply(Event::RemoveUnit(Uid(2)));
    // 200 are free: 101 to 200 stir, the first is admitted, and for the others the room is gone again.
    assert_eq!(engine.pass(Time(0)).actions.len(), 1);
    assert_eq!(engine.counters().units_examined - before, 1);
    assert_eq!(engine.waiting(Uid(5000)).unwrap().position, Some(4898));
}

#[test]
fn a_strict_queue_examines_only_its_head() {
    let mut engine = crowded(1000, 10);
    let spec = queue("q", vec![group(&["cpu", "memory"], &[("default", &[10, 1_000_000])])]);
    engine.apply(Event::SetQueue(strict(spec)));
    assert_eq!(engine.pass(Time(0)).actions.len(), 0);
    let before = engine.counters().units_examined;
    engine.apply(Event::RemoveUnit(Uid(0)));
    assert_eq!(engine.pass(Time(0)).actions.len(), 1);
    assert_eq!(engine.counters().units_examined - before, 2);
    engine.audit().unwrap();
}

/// As many durations as there are, in a queue with a reservation.
#[test]
fn one_freed_slot_behind_a_reservation_examines_tens_of_a_hundred_thousand_units() {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    let spec = queue("q", vec![group(&["cpu", "memory"], &[("default", &[20, 1_000_000])])]);
    engine.apply(Event::SetQueue(QueueSpec {
        extras: Extras {
            backfill: true,
            ..Extras::default()
        },
        ..spec
    }));
    engine.apply(Event::SetLocalQueue(local_queue("main", "q")));
    let limited = |uid: u128, seconds: i64, per_pod: &[(&str, i64)]| UnitSpec {
        runs_at_most_ms: Some(seconds * 1000),
        ..unit(uid, per_pod)
    };
    for uid in 0..20 {
        engine.apply(Event::SetWaiting(limited(uid, 5000, &[("cpu", 1)])));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 20);
    engine.apply(Event::SetWaiting(unit(20, &[("cpu", 15)])));
    for uid in 21..100_021 {
        let memory = i64::try_from(uid % 10).unwrap();
        let seconds = 4000 + i64::try_from(uid % 9973).unwrap();
        engine.apply(Event::SetWaiting(limited(
            uid,
            seconds,
            &[("cpu", 1), ("memory", memory)],
        )));
    }
    assert_eq!(engine.pass(Time(0)).actions.len(), 0);
    for round in 0..20 {
        let before = engine.counters();
        engine.apply(Event::RemoveUnit(Uid(round)));
        let pass = engine.pass(Time(1));
        // One passes each time: the reservation is moved to the end of those who did.
        assert_eq!(pass.actions.len(), 1, "{pass:?}");
        let examined = engine.counters().units_examined - before.units_examined;
        assert!(examined <= 60, "{examined}");
    }
    engine.audit().unwrap();
}
