//! Cases in which a rule beyond Kueue's meets objects that come and go, or another rule.

use sluice_engine::*;

use crate::build::*;

fn cpu(quota: i64) -> Vec<ResourceGroup> {
    vec![group(&["cpu"], &[("default", &[quota])])]
}

fn with(spec: QueueSpec, change: impl FnOnce(&mut Extras)) -> QueueSpec {
    let mut spec = spec;
    change(&mut spec.extras);
    spec
}

fn running(uid: u128, queue: &str, amount: i64) -> Event {
    let charge = Charge {
        flavor: "default".into(),
        resource: "cpu".into(),
        amount: Amount::new(amount),
    };
    Event::SetCharged(ChargedUnit {
        uid: Uid(uid),
        queue: queue.into(),
        local_queue: key("main"),
        priority: 0,
        queued_at: Time(0),
        reserved_at: Time(0),
        deadlines: vec![],
        ends_at: None,
        pods_ready: true,
        charges: vec![charge],
        phase: Phase::Admitted,
    })
}

#[test]
fn a_queue_shrinks_after_its_flavor_was_away() {
    let mut bench = Bench::new(vec![with(queue("q", cpu(1)), |e| e.shrink_after_ms = Some(100))]);
    bench.apply(running(1, "q", 2));
    assert_eq!(bench.engine.pass(Time(0)).next, Some(Time(100)));
    bench.apply(Event::RemoveFlavor("default".into()));
    assert_eq!(bench.engine.pass(Time(10)).next, None);
    bench.apply(Event::SetFlavor(flavor("default", &[])));
    assert_eq!(bench.engine.pass(Time(20)).next, Some(Time(120)));
    assert_eq!(bench.engine.pass(Time(120)).actions.len(), 1);
}

#[test]
fn a_queue_shrinks_after_its_flavor_was_away_where_another_of_its_cohort_was_looked_at() {
    let member = |name: &str, quota| {
        with(
            QueueSpec {
                cohort: Some("all".into()),
                ..queue(name, cpu(quota))
            },
            |e| e.shrink_after_ms = Some(0),
        )
    };
    let mut a = member("a", 0);
    a.groups = vec![group(&["cpu"], &[("other", &[0])])];
    let mut q = member("q", 1);
    q.groups = vec![group(&["cpu"], &[("default", &[1])])];
    let mut bench = Bench::new(vec![q, a]);
    bench.apply(Event::RemoveFlavor("default".into()));
    bench.apply(running(1, "q", 2));
    assert_eq!(bench.engine.pass(Time(0)).actions.len(), 0);
    bench.apply(Event::SetFlavor(flavor("default", &[])));
    assert_eq!(bench.engine.pass(Time(1)).actions.len(), 1);
}

/// A queue by pool with 4 of its 10 cpu in use, and another one that has only what this lends.
fn by_pool_beside_a_borrower() -> Bench {
    let q = with(strict(queue("q", cpu(10))), |e| e.fifo_per_pool = true);
    let q = QueueSpec {
        cohort: Some("all".into()),
        ..q
    };
    let other = QueueSpec {
        cohort: Some("all".into()),
        ..queue("r", cpu(0))
    };
    let mut bench = Bench::new(vec![q, other]);
    bench.apply(Event::SetLocalQueue(local_queue("other", "r")));
    bench.apply(running(9, "q", 4));
    bench
}

#[test]
fn by_pool_a_unit_that_becomes_the_very_first_reserves() {
    let mut bench = by_pool_beside_a_borrower();
    bench.wait([unit(1, &[("cpu", 100)]), unit(2, &[("cpu", 10)])]);
    assert_eq!(bench.admitted(), []);
    assert_eq!(bench.kind(1), WaitKind::ExceedsMaxQuota);
    bench.finish(1);
    bench.wait([UnitSpec {
        local_queue: key("other"),
        ..unit(3, &[("cpu", 6)])
    }]);
    assert_eq!(bench.admitted(), []);
}

#[test]
fn by_pool_the_very_first_unit_reserves() {
    let mut bench = by_pool_beside_a_borrower();
    bench.wait([unit(2, &[("cpu", 10)])]);
    bench.wait([UnitSpec {
        local_queue: key("other"),
        ..unit(3, &[("cpu", 6)])
    }]);
    assert_eq!(bench.admitted(), []);
}
