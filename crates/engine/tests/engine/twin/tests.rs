//! The twin's own numbers, worked by hand.

use std::collections::BTreeMap;

use sluice_engine::*;

use super::tree::Share;
use super::{Book, Cell, Forest, Needs, Twin};
use crate::build::{flavor, key, local_queue, pod_set, queue, unit};

fn cell(resource: &str) -> Cell {
    ("f".into(), resource.into())
}

fn quota(nominal: i64, borrow: Option<i64>, lend: Option<i64>) -> Quota {
    Quota {
        nominal: Amount::new(nominal),
        borrowing_limit: borrow.map(Amount::new),
        lending_limit: lend.map(Amount::new),
    }
}

fn cpu(quota: Quota) -> Vec<ResourceGroup> {
    vec![ResourceGroup {
        resources: vec!["cpu".into()],
        flavors: vec![FlavorQuota {
            flavor: "f".into(),
            quotas: vec![quota],
        }],
    }]
}

fn member(name: &str, cohort: &str, quota: Quota) -> QueueSpec {
    QueueSpec {
        cohort: Some(cohort.into()),
        ..queue(name, cpu(quota))
    }
}

fn cohort(name: &str, parent: Option<&str>, groups: Vec<ResourceGroup>) -> CohortSpec {
    CohortSpec {
        name: name.into(),
        parent: parent.map(Name::from),
        groups,
        weight: Weight::ONE,
    }
}

fn forest(queues: Vec<QueueSpec>, cohorts: Vec<CohortSpec>) -> Forest {
    let queues: BTreeMap<_, _> = queues.into_iter().map(|spec| (spec.name.clone(), spec)).collect();
    let cohorts: BTreeMap<_, _> = cohorts.into_iter().map(|spec| (spec.name.clone(), spec)).collect();
    Forest::of(&queues, &cohorts)
}

/// ```text
/// r 10 ─┬─ a 4 (borrows 3, lends 2) ─┬─ q 6 (borrows 2, lends 1)
///       └─ z 5                       └─ p 2
/// ```
fn two_levels() -> Forest {
    forest(
        vec![
            member("q", "a", quota(6, Some(2), Some(1))),
            member("p", "a", quota(2, None, None)),
            member("z", "r", quota(5, None, None)),
        ],
        vec![
            cohort("a", Some("r"), cpu(quota(4, Some(3), Some(2)))),
            cohort("r", None, cpu(quota(10, Some(0), Some(0)))),
        ],
    )
}

fn at(forest: &Forest, name: &str) -> usize {
    forest.all().find(|n| *forest.member(*n).name == *name).unwrap()
}

fn book<'f>(forest: &'f Forest, used: &[(&str, i128)]) -> Book<'f> {
    let mut book = Book::empty(forest);
    for (name, amount) in used {
        book.add(at(forest, name), &Needs::from([(cell("cpu"), *amount)]));
    }
    book
}

#[test]
fn what_a_node_brings_into_its_cohort_is_its_subtree_less_what_it_keeps() {
    let forest = two_levels();
    let numbers = |name| {
        let n = at(&forest, name);
        let cell = cell("cpu");
        (
            forest.subtree(n, &cell),
            forest.local(n, &cell),
            forest.potential(n, &cell),
        )
    };
    assert_eq!(numbers("q"), (6, 5, 8));
    assert_eq!(numbers("p"), (2, 0, 10));
    assert_eq!(numbers("a"), (7, 5, 10));
    assert_eq!(numbers("z"), (5, 0, 17));
    // Limits of a root do not count.
    assert_eq!(numbers("r"), (17, 0, 17));
}

#[test]
fn what_is_available_is_bounded_by_every_limit_on_the_way_up() {
    let forest = two_levels();
    let book = book(&forest, &[("q", 6), ("p", 3), ("z", 4)]);
    let numbers = |name| {
        let n = at(&forest, name);
        let cell = cell("cpu");
        (
            book.usage(n, &cell),
            book.free_local(n, &cell),
            book.available(n, &cell),
        )
    };
    assert_eq!(numbers("a"), (4, 1, 6));
    assert_eq!(numbers("r"), (4, 0, 13));
    assert_eq!(numbers("q"), (6, 0, 2));
    assert_eq!(numbers("p"), (3, 0, 6));
    assert_eq!(numbers("z"), (4, 0, 13));
}

#[test]
fn the_level_is_how_far_up_a_need_has_to_go() {
    let forest = two_levels();
    let book = book(&forest, &[("q", 6), ("p", 3), ("z", 4)]);
    let level = |name, need| book.level(at(&forest, name), &cell("cpu"), need);
    assert_eq!(level("q", 1), 1);
    assert_eq!(level("p", 3), 1);
    // At a 8 of 7 are used then.
    assert_eq!(level("p", 4), 2);
    assert_eq!(level("z", 1), 0);
    // r is the root.
    assert_eq!(level("z", 9), 1);
    assert_eq!(book.left_at(at(&forest, "r"), at(&forest, "p"), &cell("cpu"), 4), 3);
}

#[test]
fn a_share_is_what_is_borrowed_of_what_the_parent_could_have() {
    let forest = two_levels();
    let (a, p, r) = (at(&forest, "a"), at(&forest, "p"), at(&forest, "r"));
    let one = Weight::ONE;
    let now = book(&forest, &[("q", 6), ("p", 3), ("z", 4)]);
    assert_eq!(now.share(p), Share::new(1, 10, one));
    assert_eq!(now.share(a), Share::NOTHING);
    let more = now.with(p, &Needs::from([(cell("cpu"), 4)]));
    assert_eq!(more.share(p), Share::new(1, 2, one));
    assert_eq!(more.share(a), Share::new(1, 17, one));
    assert_eq!(more.share(r), Share::NOTHING);
    // Of gpu the parent has nothing.
    assert!(now.with(p, &Needs::from([(cell("gpu"), 1)])).share(p).is_infinite());
}

#[test]
fn shares_compare_exactly() {
    let big = i128::from(i64::MAX) * 40;
    let share = |over, of, weight| Share::new(over, of, Weight(weight));
    assert!(share(big - 1, big, u64::MAX) < share(big, big + 1, u64::MAX));
    assert!(share(1, 3, Weight::ONE.0) > share(333_333, 1_000_000, Weight::ONE.0));
    assert_eq!(share(2, 6, 3), share(1, 9, 1));
    assert!(share(1, 1, 0) > share(big, 1, 1));
    assert_eq!(share(1, 1, 0), share(1, 0, 5));
    assert_eq!(share(0, 0, 0), Share::NOTHING);
}

#[test]
fn trees_with_a_cycle_or_a_missing_parent_are_not_sound_and_others_are() {
    let forest = forest(
        vec![
            member("in-cycle", "x", quota(1, None, None)),
            member("below", "w", quota(1, None, None)),
            member("orphan", "o", quota(1, None, None)),
            member("fine", "implicit", quota(1, None, None)),
            queue("alone", cpu(quota(1, None, None))),
        ],
        vec![
            cohort("x", Some("y"), vec![]),
            cohort("y", Some("x"), vec![]),
            cohort("w", Some("x"), vec![]),
            cohort("o", Some("implicit"), vec![]),
        ],
    );
    let sound = |name| forest.is_sound(at(&forest, name));
    assert!(!sound("in-cycle") && !sound("below") && !sound("orphan"));
    assert!(sound("fine") && sound("alone"));
    assert_eq!(forest.root(at(&forest, "below")), at(&forest, "x"));
    assert_eq!(forest.root(at(&forest, "in-cycle")), at(&forest, "x"));
    assert_eq!(forest.root(at(&forest, "orphan")), at(&forest, "o"));
}

/// A twin with these queues in cohort `c`, a LocalQueue of the same name for each, and flavor `f`.
fn twin(queues: Vec<QueueSpec>) -> Twin {
    let mut twin = Twin::default();
    twin.apply(&Event::SetFlavor(flavor("f", &[])));
    for spec in queues {
        twin.apply(&Event::SetLocalQueue(local_queue(&spec.name, &spec.name)));
        twin.apply(&Event::SetQueue(spec));
    }
    twin
}

fn asks(uid: u128, queue: &str, priority: i32, amount: i64) -> Event {
    Event::SetWaiting(UnitSpec {
        local_queue: key(queue),
        priority,
        queued_at: Time(0),
        ..unit(uid, &[("cpu", amount)])
    })
}

fn runs(uid: u128, queue: &str, priority: i32, amount: i64) -> Event {
    Event::SetCharged(ChargedUnit {
        uid: Uid(uid),
        queue: queue.into(),
        local_queue: key(queue),
        priority,
        queued_at: Time(0),
        reserved_at: Time(0),
        deadlines: vec![],
        ends_at: None,
        pods_ready: true,
        charges: vec![Charge {
            flavor: "f".into(),
            resource: "cpu".into(),
            amount: Amount::new(amount),
        }],
        phase: Phase::Admitted,
    })
}

fn happened(pass: &Pass) -> Vec<String> {
    let say = |action: &Action| match action {
        Action::Admit(admission) => format!("admit {}", admission.uid.0),
        Action::Evict(eviction) => match &eviction.cause {
            EvictionCause::Preempted { by, reason, .. } => {
                format!("evict {} for {}: {}", eviction.uid.0, by.0, reason.as_str())
            }
            other => format!("evict {}: {other:?}", eviction.uid.0),
        },
        other => format!("{other:?}"),
    };
    pass.actions.iter().map(say).collect()
}

fn reclaiming(mut spec: QueueSpec) -> QueueSpec {
    spec.preemption.reclaim = Reclaim::Any;
    spec
}

#[test]
fn lent_quota_is_taken_back_from_as_few_as_will_do_and_given_when_it_is_free() {
    let mut twin = twin(vec![
        reclaiming(member("owner", "c", quota(4, None, None))),
        member("borrower", "c", quota(2, None, None)),
    ]);
    for (uid, priority, amount) in [(1, 5, 1), (2, 0, 1), (3, 1, 3), (4, 2, 1)] {
        twin.apply(&runs(uid, "borrower", priority, amount));
    }
    twin.apply(&asks(9, "owner", 0, 3));
    // 2 goes first, being least, but with 3 gone there is room for 2 as well.
    assert_eq!(happened(&twin.pass(0)), ["evict 3 for 9: InCohortReclamation"]);
    assert!(happened(&twin.pass(0)).is_empty());
    twin.apply(&asks(3, "borrower", 1, 3));
    assert_eq!(happened(&twin.pass(0)), ["admit 9"]);
}

#[test]
fn the_greater_share_gives_until_shares_are_as_the_rule_says() {
    let mut twin = twin(vec![
        reclaiming(member("one", "c", quota(2, None, None))),
        member("two", "c", quota(2, None, None)),
        member("idle", "c", quota(2, None, None)),
    ]);
    let rules = FairSharing {
        first: ShareRule::LessThanOrEqualToFinalShare,
        second: None,
    };
    twin.apply(&Event::SetSettings(Settings {
        fair_sharing: Some(rules),
        ..Settings::default()
    }));
    for uid in 1..=6 {
        twin.apply(&runs(uid, "two", 0, 1));
    }
    for uid in 11..=16 {
        twin.apply(&asks(uid, "one", 0, 1));
    }
    // Two are of one's own quota, and with a third both borrow one.
    assert_eq!(
        happened(&twin.pass(0)),
        [
            "evict 1 for 11: InCohortReclamation",
            "evict 2 for 12: InCohortReclamation",
            "evict 3 for 13: InCohortFairSharing"
        ]
    );
}

#[test]
fn the_head_of_a_strict_queue_keeps_what_it_may_not_take_back() {
    let mut strict = member("strict", "c", quota(3, None, None));
    strict.strategy = Strategy::StrictFifo;
    let mut twin = twin(vec![strict, member("other", "c", quota(1, None, None))]);
    twin.apply(&runs(1, "other", 0, 2));
    twin.apply(&asks(2, "strict", 0, 3));
    twin.apply(&asks(3, "other", 0, 1));
    assert!(happened(&twin.pass(0)).is_empty());
    twin.apply(&Event::RemoveUnit(Uid(1)));
    assert_eq!(happened(&twin.pass(0)), ["admit 2", "admit 3"]);
}

#[test]
fn as_many_pods_start_as_have_room() {
    let mut twin = twin(vec![queue("q", cpu(quota(5, None, None)))]);
    let mut pods = pod_set("main", 9, &[("cpu", 1)]);
    pods.min_count = Some(2);
    let mut asks = unit(1, &[]);
    asks.local_queue = key("q");
    asks.pod_sets = vec![pods];
    twin.apply(&Event::SetWaiting(asks));
    let pass = twin.pass(0);
    assert!(matches!(&pass.actions[..], [Action::Admit(admission)] if admission.pod_sets[0].count == 5));
}

#[test]
fn whoever_was_evicted_is_spared_until_something_happens_outside() {
    let mut spec = queue("q", cpu(quota(1, None, None)));
    spec.preemption.within_queue = WithinQueue::LowerPriority;
    let mut twin = twin(vec![spec]);
    twin.apply(&runs(1, "q", 0, 1));
    twin.apply(&asks(2, "q", 1, 1));
    let epoch = twin.epoch;
    assert_eq!(happened(&twin.pass(0)), ["evict 1 for 2: InClusterQueue"]);
    // Told out of turn that the evicted unit runs on, the twin does not evict it again.
    twin.apply(&runs(1, "q", 0, 1));
    assert!(happened(&twin.pass(0)).is_empty());
    twin.apply(&asks(1, "q", 0, 1));
    assert_eq!(twin.epoch, epoch);
    assert_eq!(happened(&twin.pass(0)), ["admit 2"]);
    // 1 may evict 2 only once a priority is another.
    twin.apply(&asks(1, "q", 7, 1));
    twin.apply(&runs(2, "q", 1, 1));
    assert_eq!(twin.epoch, epoch + 1);
    assert_eq!(happened(&twin.pass(0)), ["evict 2 for 1: InClusterQueue"]);
}
