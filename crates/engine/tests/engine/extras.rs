//! Named cases of the rules that Kueue does not have.

use sluice_engine::*;

use crate::build::*;

fn cpu(quota: i64) -> Vec<ResourceGroup> {
    vec![group(&["cpu"], &[("default", &[quota])])]
}

/// A queue that shrinks to its quota after this many milliseconds.
fn shrinking(quota: i64, after_ms: i64) -> QueueSpec {
    let extras = Extras {
        shrink_after_ms: Some(after_ms),
        ..Extras::default()
    };
    QueueSpec {
        extras,
        ..queue("q", cpu(quota))
    }
}

/// One unit that runs: its uid, priority, when it was admitted and what it holds.
fn running(uid: u128, priority: i32, reserved_at: i64, amount: i64) -> Event {
    let charge = Charge {
        flavor: "default".into(),
        resource: "cpu".into(),
        amount: Amount::new(amount),
    };
    Event::SetCharged(ChargedUnit {
        uid: Uid(uid),
        queue: "q".into(),
        local_queue: key("main"),
        priority,
        queued_at: Time(0),
        reserved_at: Time(reserved_at),
        deadlines: vec![],
        ends_at: None,
        pods_ready: true,
        charges: vec![charge],
        phase: Phase::Admitted,
    })
}

fn evicted(pass: Pass) -> Vec<u128> {
    let evicted = |action| match action {
        Action::Evict(Eviction {
            uid,
            cause: EvictionCause::QuotaShrunk,
            ..
        }) => uid.0,
        other => panic!("not an eviction to shrink: {other:?}"),
    };
    pass.actions.into_iter().map(evicted).collect()
}

#[test]
fn what_is_above_a_lowered_quota_is_evicted_after_the_grace_time_lowest_then_newest_and_no_more_than_needed() {
    let mut bench = Bench::new(vec![shrinking(9, 100)]);
    for event in [
        running(1, 1, 9, 2),
        running(2, 0, 5, 1),
        running(3, 0, 6, 4),
        running(4, -1, 0, 1),
    ] {
        bench.apply(event);
    }
    assert_eq!(bench.engine.pass(Time(10)), Pass::default());
    bench.apply(Event::SetQueue(shrinking(4, 100)));
    let pass = bench.engine.pass(Time(20));
    assert_eq!((pass.actions.len(), pass.next), (0, Some(Time(120))));
    assert_eq!(bench.engine.pass(Time(119)).actions, []);
    // 4 goes first and turns out not to be needed once 3 is gone.
    assert_eq!(evicted(bench.engine.pass(Time(120))), [3]);
    assert_eq!(bench.engine.pass(Time(500)), Pass::default());
}

#[test]
fn a_quota_that_is_back_in_time_evicts_nobody_and_the_grace_time_starts_anew() {
    let mut bench = Bench::new(vec![shrinking(1, 100)]);
    bench.apply(running(1, 0, 0, 2));
    assert_eq!(bench.engine.pass(Time(0)).next, Some(Time(100)));
    bench.apply(Event::SetQueue(shrinking(2, 100)));
    assert_eq!(bench.engine.pass(Time(50)), Pass::default());
    bench.apply(Event::SetQueue(shrinking(1, 100)));
    assert_eq!(bench.engine.pass(Time(60)).next, Some(Time(160)));
    assert_eq!(evicted(bench.engine.pass(Time(160))), [1]);
}

#[test]
fn a_stopped_queue_does_not_shrink() {
    let inactive = Some(Inactive {
        reason: "Stopped".into(),
        message: "stopped".into(),
    });
    let mut bench = Bench::new(vec![QueueSpec {
        inactive,
        ..shrinking(1, 0)
    }]);
    bench.apply(running(1, 0, 0, 2));
    assert_eq!(bench.engine.pass(Time(0)), Pass::default());
    bench.apply(Event::SetQueue(shrinking(1, 0)));
    assert_eq!(evicted(bench.engine.pass(Time(0))), [1]);
}

/// A StrictFIFO queue with FIFO per pool.
fn by_pool(groups: Vec<ResourceGroup>) -> QueueSpec {
    let extras = Extras {
        fifo_per_pool: true,
        ..Extras::default()
    };
    QueueSpec {
        extras,
        ..strict(queue("q", groups))
    }
}

#[test]
fn a_head_blocks_only_those_that_want_what_it_waits_for_and_says_whom() {
    let groups = vec![
        group(&["gpu"], &[("a100", &[1])]),
        group(&["cpu"], &[("default", &[4])]),
    ];
    let mut bench = Bench::new(vec![by_pool(groups)]);
    bench.wait([
        unit(1, &[("gpu", 1)]),
        unit(2, &[("gpu", 1), ("cpu", 3)]),
        unit(3, &[("gpu", 1)]),
        unit(4, &[("cpu", 1)]),
        unit(5, &[("cpu", 1)]),
        unit(6, &[("cpu", 1)]),
        unit(7, &[("cpu", 9)]),
    ]);
    // What is left of cpu is kept for 2.
    assert_eq!(bench.admitted(), [1, 4]);
    assert_eq!(
        [2, 5, 7].map(|uid| bench.kind(uid)),
        [
            WaitKind::WaitingForQuota,
            WaitKind::WaitingForQuota,
            WaitKind::ExceedsMaxQuota
        ]
    );
    assert_eq!(bench.reason(3), WaitReason::BehindHead(Uid(2)));
    assert_eq!(bench.reason(6), WaitReason::BehindHead(Uid(5)));
    bench.finish(1);
    assert_eq!(bench.admitted(), [2]);
    bench.finish(2);
    assert_eq!(bench.admitted(), [3, 5, 6]);
}

#[test]
fn a_pass_asks_no_more_units_in_vain_than_there_are_flavors() {
    let groups = vec![
        group(&["gpu"], &[("a100", &[1]), ("h100", &[1])]),
        group(&["cpu"], &[("default", &[10])]),
    ];
    let mut bench = Bench::new(vec![by_pool(groups)]);
    let node_pools = ["a100", "h100"];
    for name in node_pools {
        bench.apply(Event::SetFlavor(flavor(name, &[("gpu", name)])));
    }
    bench.wait([unit(1, &[("cpu", 1)]), unit(2, &[("cpu", 9)])]);
    assert_eq!(bench.admitted(), [1, 2]);
    let mut engine = bench.engine;
    for uid in 10..10_000_u128 {
        let shape = i64::try_from(uid % 10).unwrap();
        let mut waiting = match uid % 3 {
            0 => unit(uid, &[("cpu", 2 + shape % 3)]),
            _ => unit(uid, &[("gpu", 1), ("cpu", 2 + shape % 5)]),
        };
        if uid % 3 == 2 {
            waiting.pod_sets[0].constraints = Constraints {
                node_selector: strings(&[("gpu", node_pools[usize::try_from(uid % 2).unwrap()])]),
                ..Constraints::default()
            }
            .into();
        }
        engine.apply(Event::SetWaiting(waiting));
    }
    let _ = engine.pass(Time(0));
    let before = engine.counters().units_examined;
    engine.apply(Event::RemoveUnit(Uid(1)));
    assert_eq!(engine.pass(Time(0)).actions, []);
    let after = engine.counters().units_examined;
    assert!(after - before <= 6, "{}", after - before);
    engine.apply(Event::RemoveUnit(Uid(2)));
    let admitted = engine.pass(Time(0)).actions.len() as u64;
    let examined = engine.counters().units_examined - after;
    assert!(examined <= (admitted + 2) * 4, "{examined} for {admitted}");
    engine.audit().unwrap();
}

/// A queue of so much cpu in which others pass a head that does not fit.
fn backfilled(quota: i64) -> QueueSpec {
    let extras = Extras {
        backfill: true,
        ..Extras::default()
    };
    QueueSpec {
        extras,
        ..queue("q", cpu(quota))
    }
}

/// A unit that runs for so many milliseconds at most.
fn limited(uid: u128, amount: i64, runs_at_most_ms: i64) -> UnitSpec {
    UnitSpec {
        runs_at_most_ms: Some(runs_at_most_ms),
        ..unit(uid, &[("cpu", amount)])
    }
}

#[test]
fn who_ends_before_a_reservation_passes_it_and_the_others_say_behind_whom_they_wait() {
    let mut bench = Bench::new(vec![backfilled(4)]);
    bench.wait([limited(1, 2, 1024), unit(2, &[("cpu", 4)])]);
    assert_eq!(bench.admitted(), [1]);
    let reserved = bench.engine.waiting(Uid(2)).unwrap();
    assert_eq!(reserved.reason.kind(), WaitKind::WaitingForQuota);
    assert_eq!(reserved.earliest_start, Some(Time(1024)));
    bench.wait([
        unit(3, &[("cpu", 1)]),
        limited(4, 1, 1025),
        limited(5, 1, 1024),
        limited(6, 3, 1025),
    ]);
    assert_eq!(bench.admitted(), [5]);
    let behind = WaitReason::BehindReservation {
        head: Uid(2),
        until: Some(Time(1024)),
    };
    assert_eq!([bench.reason(3), bench.reason(4)], [behind.clone(), behind]);
    assert_eq!(bench.kind(6), WaitKind::WaitingForQuota);
    bench.finish(1);
    assert_eq!(bench.admitted(), []);
    bench.finish(5);
    assert_eq!(bench.admitted(), [2]);
}

#[test]
fn what_a_reservation_does_not_need_at_its_time_may_be_taken_for_good() {
    let mut bench = Bench::new(vec![backfilled(6)]);
    bench.wait([
        limited(1, 4, 1024),
        unit(2, &[("cpu", 5)]),
        unit(3, &[("cpu", 1)]),
        unit(4, &[("cpu", 1)]),
    ]);
    assert_eq!(bench.admitted(), [1, 3]);
    assert_eq!(bench.kind(4), WaitKind::BehindReservation);
}

#[test]
fn a_unit_ahead_of_it_moves_a_reservation() {
    let mut bench = Bench::new(vec![backfilled(4)]);
    bench.wait([limited(1, 2, 1024), unit(2, &[("cpu", 4)]), limited(3, 1, 2048)]);
    assert_eq!(bench.admitted(), [1]);
    assert_eq!(bench.kind(3), WaitKind::BehindReservation);
    let urgent = UnitSpec {
        priority: 1,
        ..unit(9, &[("cpu", 3)])
    };
    bench.wait([urgent]);
    // 9 leaves one at its time, which 2 has to wait for and 3 may have.
    assert_eq!(bench.admitted(), [3]);
    assert_eq!(bench.engine.waiting(Uid(9)).unwrap().earliest_start, Some(Time(1024)));
    assert_eq!(bench.kind(2), WaitKind::WaitingForQuota);
}

/// It once was counted twice in the parking lot then.
#[test]
fn a_parked_unit_is_asked_again_when_another_blocks_what_is_ahead_of_it() {
    let groups = vec![
        group(&["gpu"], &[("a100", &[1])]),
        group(&["cpu"], &[("default", &[1])]),
    ];
    let mut bench = Bench::new(vec![by_pool(groups)]);
    bench.wait([unit(1, &[("gpu", 1)]), unit(2, &[("cpu", 1)]), unit(3, &[("cpu", 1)])]);
    assert_eq!(bench.admitted(), [1, 2]);
    let urgent = UnitSpec {
        priority: 1,
        ..unit(4, &[("gpu", 1)])
    };
    bench.wait([urgent]);
    assert_eq!(bench.admitted(), []);
    assert_eq!([3, 4].map(|uid| bench.kind(uid)), [WaitKind::WaitingForQuota; 2]);
    bench.finish(2);
    assert_eq!(bench.admitted(), [3]);
}
