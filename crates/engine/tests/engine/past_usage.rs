//! Units ordered by what their LocalQueues used in the past.

use sluice_engine::*;

use crate::build::*;

const STEP: i64 = 10;

/// Half is forgotten from one sample to the next.
fn rules() -> PastUsageRules {
    PastUsageRules {
        half_life_ms: STEP,
        sampling_ms: STEP,
        resource_weights: [].into(),
    }
}

fn settings(rules: PastUsageRules) -> Event {
    Event::SetSettings(Settings {
        past_usage: Some(rules),
        ..Settings::default()
    })
}

/// So many thousandths of a cpu and so much memory, in a queue that orders by past usage.
fn of(cpu: i64, memory: i64) -> QueueSpec {
    QueueSpec {
        by_past_usage: true,
        ..queue("q", vec![group(&["cpu", "memory"], &[("default", &[cpu, memory])])])
    }
}

/// LocalQueues `a`, `b` and `c` of one queue.
fn bench(spec: QueueSpec, rules: PastUsageRules) -> Bench {
    let mut bench = Bench::new(vec![spec]);
    bench.apply(settings(rules));
    for name in ["a", "b", "c"] {
        bench.apply(Event::SetLocalQueue(local_queue(name, "q")));
    }
    bench
}

fn asks(uid: u128, local_queue: &str, cpu: i64) -> UnitSpec {
    UnitSpec {
        local_queue: key(local_queue),
        ..unit(uid, &[("cpu", cpu)])
    }
}

fn runs(uid: u128, local_queue: &str, resource: &str, amount: i64) -> Event {
    Event::SetCharged(ChargedUnit {
        uid: Uid(uid),
        queue: "q".into(),
        local_queue: key(local_queue),
        priority: 0,
        queued_at: Time(0),
        reserved_at: Time(0),
        deadlines: vec![],
        ends_at: None,
        pods_ready: true,
        charges: vec![Charge {
            flavor: "default".into(),
            resource: resource.into(),
            amount: Amount::new(amount),
        }],
        phase: Phase::Admitted,
    })
}

fn weighing(name: &str, weight: u64) -> Event {
    Event::SetLocalQueue(LocalQueueSpec {
        weight: Weight(weight),
        ..local_queue(name, "q")
    })
}

fn told(name: &str, cpu: i64, at: i64) -> Event {
    let past_usage = PastUsage {
        consumed: [("cpu".into(), Amount::new(cpu))].into(),
        at: Time(at),
    };
    Event::SetLocalQueue(LocalQueueSpec {
        past_usage: Some(past_usage),
        ..local_queue(name, "q")
    })
}

fn used(bench: &Bench, name: &str) -> Option<i64> {
    let past = bench.engine.past_usage(&key(name))?;
    Some(past.consumed.get("cpu").map_or(0, |amount| amount.get()))
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

fn pass(bench: &mut Bench, now: i64) -> Vec<u128> {
    bench
        .admissions_at(now)
        .iter()
        .map(|admission| admission.uid.0)
        .collect()
}

#[test]
fn whoever_used_less_goes_first_whatever_the_priority() {
    let mut bench = bench(of(1_000, 0), rules());
    bench.apply(runs(1, "a", "cpu", 1_000));
    assert!(pass(&mut bench, 0).is_empty());
    bench.wait([
        UnitSpec {
            priority: 9,
            ..asks(2, "a", 1_000)
        },
        asks(3, "b", 1_000),
        asks(4, "c", 1_000),
    ]);
    // Counting begins here: nobody used anything yet.
    assert!(pass(&mut bench, 0).is_empty());
    assert_eq!(order(&bench), [2, 3, 4]);
    assert!(pass(&mut bench, 10).is_empty());
    assert_eq!(order(&bench), [3, 4, 2]);
    bench.finish(1);
    assert_eq!(pass(&mut bench, 11), [3]);
    bench.finish(3);
    assert_eq!(pass(&mut bench, 12), [4]);
    bench.finish(4);
    assert_eq!(pass(&mut bench, 13), [2]);
}

#[test]
fn an_admission_counts_before_the_next_sample() {
    let mut bench = bench(of(2_000, 0), rules());
    assert!(pass(&mut bench, 0).is_empty());
    bench.wait([asks(1, "a", 1_000), asks(2, "a", 1_000), asks(3, "b", 1_000)]);
    // The first is half a cpu, as much as it will be at the next sample.
    assert_eq!(pass(&mut bench, 1), [1, 3]);
    assert_eq!(used(&bench, "a"), Some(0));
    assert!(pass(&mut bench, 10).is_empty());
    assert_eq!((used(&bench, "a"), used(&bench, "b")), (Some(500), Some(500)));
}

#[test]
fn usage_halves_with_each_half_life_and_what_is_held_is_added() {
    let mut bench = bench(of(1_000, 0), rules());
    assert!(pass(&mut bench, 0).is_empty());
    bench.wait([asks(1, "a", 1_000)]);
    assert_eq!(pass(&mut bench, 3), [1]);
    let used_at = |bench: &mut Bench, now| {
        pass(bench, now);
        used(bench, "a").unwrap()
    };
    // 0 + 1/2, 1/4 + 1/2, 3/8 + 1/2 of 1000.
    assert_eq!(used_at(&mut bench, 9), 0);
    assert_eq!(used_at(&mut bench, 10), 500);
    assert_eq!(used_at(&mut bench, 20), 750);
    assert_eq!(used_at(&mut bench, 30), 875);
    // It ended after the last pass: the sample at 40 found it held at the end of that.
    bench.finish(1);
    assert_eq!(used_at(&mut bench, 40), 938);
    assert_eq!(used_at(&mut bench, 50), 469);
    assert_eq!(used_at(&mut bench, 69), 234);
    assert_eq!(used_at(&mut bench, 1_000_000), 0);
}

#[test]
fn samples_that_were_missed_are_made_up_for() {
    let few = |instants: &[i64]| {
        let rules = PastUsageRules {
            half_life_ms: 1_234_567,
            sampling_ms: 7,
            ..rules()
        };
        let mut bench = bench(of(5_000, 0), rules);
        bench.apply(told("b", 4_321, 0));
        assert!(pass(&mut bench, 0).is_empty());
        bench.wait([asks(1, "a", 1_234)]);
        assert_eq!(pass(&mut bench, 1), [1]);
        for now in instants {
            pass(&mut bench, *now);
        }
        bench.finish(1);
        pass(&mut bench, 900_001);
        pass(&mut bench, 2_000_000);
        ["a", "b"].map(|name| bench.engine.past_usage(&key(name)))
    };
    let all: Vec<i64> = (2..900_000).step_by(501).chain([900_000]).collect();
    assert_eq!(few(&[900_000]), few(&all));
}

#[test]
fn resources_and_local_queues_weigh_what_they_are_told_to() {
    let weights = |memory: u64| PastUsageRules {
        resource_weights: [("memory".into(), memory)].into(),
        ..rules()
    };
    let asking = [asks(11, "a", 1_000), asks(12, "b", 1_000), asks(13, "c", 1_000)];
    let mut bench = bench(of(2_000, 10), weights(Weight::ONE.0));
    bench.apply(runs(1, "a", "cpu", 2_000));
    bench.apply(runs(2, "b", "memory", 4));
    bench.wait(asking);
    let mut now = 0;
    let mut order_with = |bench: &mut Bench, event: Option<Event>| {
        if let Some(event) = event {
            bench.apply(event);
        }
        for _ in 0..2 {
            pass(bench, now);
            now += STEP;
        }
        order(bench)
    };
    // 2 cpus and 4 bytes, each as much as one of the other.
    assert_eq!(order_with(&mut bench, None), [13, 11, 12]);
    // 2 and 1.
    assert_eq!(
        order_with(&mut bench, Some(settings(weights(Weight::ONE.0 / 4)))),
        [13, 12, 11]
    );
    // 2 and 2: by queue time.
    assert_eq!(
        order_with(&mut bench, Some(settings(weights(Weight::ONE.0 / 2)))),
        [13, 11, 12]
    );
    // 2 and two thirds.
    assert_eq!(
        order_with(&mut bench, Some(weighing("b", Weight::ONE.0 * 3))),
        [13, 12, 11]
    );
    // 2 and 0.
    assert_eq!(order_with(&mut bench, Some(settings(weights(0)))), [12, 13, 11]);
    // Of weight zero is last, whatever it used.
    assert_eq!(order_with(&mut bench, Some(weighing("b", 0))), [13, 11, 12]);
}

#[test]
fn shares_that_differ_by_the_least_part_differ() {
    let mut bench = bench(of(1_000, 0), rules());
    bench.apply(told("a", i64::MAX, 0));
    bench.apply(told("b", i64::MAX - 1, 0));
    bench.wait([asks(1, "a", 9_000), asks(2, "b", 9_000)]);
    assert!(pass(&mut bench, 0).is_empty());
    assert_eq!(order(&bench), [2, 1]);
    // Still, when all but a few parts of one over 2^32 is forgotten.
    assert!(pass(&mut bench, 32 * STEP).is_empty());
    assert_eq!(order(&bench), [2, 1]);
}

/// Kueue issue 15383: past usage of a LocalQueue on hold fell as if nothing of it ran.
#[test]
fn what_runs_counts_while_its_local_queue_is_on_hold() {
    let mut bench = bench(of(2_000, 0), rules());
    assert!(pass(&mut bench, 0).is_empty());
    bench.wait([asks(1, "a", 1_000), asks(2, "b", 1_000)]);
    assert_eq!(pass(&mut bench, 0), [1, 2]);
    bench.apply(Event::SetLocalQueue(LocalQueueSpec {
        blocked: Some(Blocked {
            reason: "Stopped".into(),
            message: "stopped".into(),
        }),
        ..local_queue("a", "q")
    }));
    pass(&mut bench, 50);
    assert_eq!((used(&bench, "a"), used(&bench, "b")), (Some(969), Some(969)));
}

#[test]
fn another_head_of_a_strict_queue_is_looked_at_when_a_sample_is_due() {
    let mut bench = bench(strict(of(2_000, 0)), rules());
    bench.apply(told("a", 4_000, 0));
    assert!(pass(&mut bench, 0).is_empty());
    bench.apply(runs(9, "b", "cpu", 1_000));
    bench.wait([asks(1, "a", 1_000), asks(2, "b", 2_000)]);
    for (now, next) in [(0, 10), (10, 20), (25, 30)] {
        let pass = bench.engine.pass(Time(now));
        // 4 and 0, 2 and 0.5, 1 and 0.75.
        assert!(pass.actions.is_empty(), "{now}: {pass:?}");
        assert_eq!(pass.next, Some(Time(next)));
        assert_eq!(bench.reason(1), WaitReason::BehindHead(Uid(2)));
    }
    // 0.5 and 0.875.
    assert_eq!(pass(&mut bench, 30), [1]);
    // Only one LocalQueue has somebody who waits.
    assert_eq!(bench.engine.pass(Time(30)).next, None);
}

#[test]
fn where_the_first_alone_is_not_asked_no_sample_is_waited_for() {
    let mut bench = bench(of(0, 0), rules());
    bench.wait([asks(1, "a", 1_000), asks(2, "b", 1_000)]);
    assert_eq!(bench.engine.pass(Time(5)).next, None);
}

#[test]
fn counting_goes_on_where_another_engine_stopped() {
    let mut first = bench(of(2_000, 0), rules());
    assert!(pass(&mut first, 0).is_empty());
    first.wait([asks(1, "a", 1_000)]);
    assert_eq!(pass(&mut first, 0), [1]);
    pass(&mut first, 20);
    let mut second = bench(of(2_000, 0), rules());
    second.apply(Event::SetLocalQueue(LocalQueueSpec {
        past_usage: first.engine.past_usage(&key("a")),
        ..local_queue("a", "q")
    }));
    second.apply(runs(1, "a", "cpu", 1_000));
    for bench in [&mut first, &mut second] {
        pass(bench, 47);
        assert_eq!(used(bench, "a"), Some(938));
    }
    assert_eq!(first.engine.past_usage(&key("a")), second.engine.past_usage(&key("a")));
}

#[test]
fn with_no_half_life_what_is_held_counts_alone() {
    let mut bench = bench(
        of(1_000, 0),
        PastUsageRules {
            half_life_ms: 0,
            ..rules()
        },
    );
    assert!(pass(&mut bench, 0).is_empty());
    bench.wait([asks(1, "a", 1_000), asks(2, "a", 1_000), asks(3, "b", 1_000)]);
    assert_eq!(pass(&mut bench, 0), [1]);
    assert_eq!(order(&bench), [3, 2]);
    pass(&mut bench, 10);
    assert_eq!(used(&bench, "a"), Some(1_000));
    assert_eq!(order(&bench), [3, 2]);
    bench.finish(1);
    assert_eq!(pass(&mut bench, 11), [3]);
    bench.finish(3);
    assert_eq!(pass(&mut bench, 12), [2]);
    bench.finish(2);
    pass(&mut bench, 13);
    pass(&mut bench, 20);
    assert_eq!(used(&bench, "a"), Some(0));
}

#[test]
fn without_the_rule_in_queue_or_settings_priority_and_time_decide() {
    let asking = || [asks(1, "a", 1_000), asks(2, "b", 1_000)];
    let mut by_time = bench(
        QueueSpec {
            by_past_usage: false,
            ..of(0, 0)
        },
        rules(),
    );
    by_time.apply(told("a", 4_000, 0));
    by_time.wait(asking());
    pass(&mut by_time, 0);
    assert_eq!(order(&by_time), [1, 2]);
    assert_eq!(used(&by_time, "a"), None);
    by_time.apply(Event::SetQueue(of(0, 0)));
    assert_eq!(order(&by_time), [2, 1]);
    by_time.apply(Event::SetSettings(Settings::default()));
    assert_eq!(order(&by_time), [1, 2]);
    assert_eq!(used(&by_time, "a"), None);
}
