//! Who waits where: parts of the order, with the position in ClusterQueue and LocalQueue.

use sluice_engine::*;

use crate::build::*;

/// A queue without quota in which units of two LocalQueues wait: the even ones in `main`, the odd ones in `other`.
fn waiting(count: u128) -> Engine {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(flavor("default", &[])));
    engine.apply(Event::SetQueue(queue("q", vec![group(&["cpu"], &[("default", &[0])])])));
    engine.apply(Event::SetLocalQueue(local_queue("main", "q")));
    engine.apply(Event::SetLocalQueue(local_queue("other", "q")));
    for uid in 0..count {
        engine.apply(Event::SetWaiting(of_two(uid, 0)));
    }
    engine
}

fn of_two(uid: u128, priority: i32) -> UnitSpec {
    let name = if uid.is_multiple_of(2) { "main" } else { "other" };
    UnitSpec {
        local_queue: key(name),
        priority,
        ..unit(uid, &[("cpu", 1)])
    }
}

/// Uid, position in the ClusterQueue, position in the LocalQueue.
fn shown(places: Option<Vec<Place>>) -> Vec<(u128, usize, usize)> {
    let places = places.unwrap();
    places
        .iter()
        .map(|place| (place.uid.0, place.in_queue, place.in_local_queue))
        .collect()
}

#[test]
fn a_part_of_the_order_has_the_positions_of_the_whole() {
    let engine = waiting(1_000);
    assert_eq!(
        shown(engine.places("q", 500, 3)),
        [(500, 500, 250), (501, 501, 250), (502, 502, 251)]
    );
    assert_eq!(
        shown(engine.local_places(&key("other"), 250, 2)),
        [(501, 501, 250), (503, 503, 251)]
    );
    assert_eq!(shown(engine.places("q", 999, 5)), [(999, 999, 499)]);
    assert_eq!(shown(engine.places("q", 1_000, 5)), []);
    assert_eq!(shown(engine.local_places(&key("main"), usize::MAX, usize::MAX)), []);
}

#[test]
fn positions_follow_a_change_of_priority_at_once() {
    let mut engine = waiting(6);
    engine.apply(Event::SetWaiting(of_two(5, 10)));
    assert_eq!(shown(engine.places("q", 0, 3)), [(5, 0, 0), (0, 1, 0), (1, 2, 1)]);
    engine.apply(Event::RemoveUnit(Uid(0)));
    assert_eq!(shown(engine.local_places(&key("main"), 0, 9)), [(2, 2, 0), (4, 4, 1)]);
}

#[test]
fn a_queue_that_does_not_exist_has_no_order() {
    let mut engine = waiting(2);
    assert_eq!(engine.places("nobody", 0, 9), None);
    assert_eq!(engine.local_places(&key("nobody"), 0, 9), None);
    engine.apply(Event::RemoveQueue("q".into()));
    assert_eq!(engine.places("q", 0, 9), None);
    assert_eq!(
        shown(engine.local_places(&key("main"), 0, 9)),
        [(0, 0, 0)],
        "the units of a LocalQueue wait on"
    );
    engine.apply(Event::RemoveLocalQueue(key("main")));
    assert_eq!(engine.local_places(&key("main"), 0, 9), None);
}
