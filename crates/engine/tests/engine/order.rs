//! The order in which states are told never shows.

use proptest::prelude::*;
use proptest::strategy::Strategy;
use sluice_engine::*;

use crate::random::{an_event, furnished};

/// What an event is about: of two events about the same thing the later one counts.
fn subject(event: &Event) -> String {
    match event {
        Event::SetFlavor(FlavorSpec { name, .. }) | Event::RemoveFlavor(name) => format!("flavor {name}"),
        Event::SetQueue(QueueSpec { name, .. }) | Event::RemoveQueue(name) => format!("queue {name}"),
        Event::SetCohort(CohortSpec { name, .. }) | Event::RemoveCohort(name) => format!("cohort {name}"),
        Event::SetSettings(_) => "settings".to_owned(),
        Event::SetLocalQueue(LocalQueueSpec { key, .. }) | Event::RemoveLocalQueue(key) => format!("local queue {key}"),
        Event::SetWaiting(UnitSpec { uid, .. })
        | Event::SetCharged(ChargedUnit { uid, .. })
        | Event::RemoveUnit(uid) => {
            format!("unit {uid}")
        }
    }
}

/// The same event in a world in which nobody waits for what is going away: claims end with a pass, so with them it matters
/// where a pass ends.
fn without_claims(event: Event) -> Event {
    match event {
        Event::SetQueue(spec) => Event::SetQueue(QueueSpec {
            strategy: sluice_engine::Strategy::BestEffortFifo,
            preemption: Preemption::default(),
            drain: false,
            ..spec
        }),
        Event::SetLocalQueue(spec) => Event::SetLocalQueue(LocalQueueSpec { drain: false, ..spec }),
        Event::SetCharged(unit) => Event::SetCharged(ChargedUnit {
            phase: Phase::Assumed,
            deadlines: vec![],
            ..unit
        }),
        other => other,
    }
}

/// Everything that can be asked, after a pass.
fn told(events: &[Event]) -> String {
    let mut engine = Engine::new();
    for event in events {
        engine.apply(event.clone());
    }
    engine.audit().unwrap();
    let pass = engine.pass(Time(30));
    engine.audit().unwrap();
    let changed = engine.take_changed();
    let queues: Vec<_> = engine.queues().map(|name| (name.clone(), engine.queue(name))).collect();
    let local_queues: Vec<_> = engine
        .local_queues()
        .map(|key| (key.clone(), engine.local_queue(key)))
        .collect();
    let units: Vec<_> = (0..20).map(|uid| engine.waiting(Uid(uid))).collect();
    format!("{pass:?} {:?} {queues:?} {local_queues:?} {units:?}", changed.units)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_order_of_arrival_changes_nothing(
        (events, shuffled) in prop::collection::vec(an_event(), 1..40).prop_flat_map(|events| {
            let mut last = furnished();
            for event in events {
                last.retain(|known| subject(known) != subject(&event));
                last.push(event);
            }
            (Just(last.clone()), Just(last).prop_shuffle())
        })
    ) {
        prop_assert_eq!(told(&events), told(&shuffled));
    }

    #[test]
    fn what_is_told_twice_or_overtaken_leaves_no_trace(events in prop::collection::vec(an_event(), 1..40)) {
        let mut last: Vec<Event> = Vec::new();
        for event in &events {
            last.retain(|known| subject(known) != subject(event));
            last.push(event.clone());
        }
        let history: Vec<Event> = events.iter().flat_map(|event| [event.clone(), event.clone()]).collect();
        prop_assert_eq!(told(&history), told(&last));
    }

    #[test]
    fn a_pass_in_small_steps_decides_what_one_pass_decides_where_nobody_makes_a_claim(
        events in prop::collection::vec(an_event(), 1..40),
        limit in 1_usize..4,
    ) {
        let (mut whole, mut stepped) = (Engine::new(), Engine::new());
        for event in furnished().into_iter().chain(events).map(without_claims) {
            whole.apply(event.clone());
            stepped.apply(event);
        }
        let mut steps = Vec::new();
        loop {
            let step = stepped.pass_at_most(Time(30), limit);
            if step.actions.is_empty() {
                break;
            }
            steps.extend(step.actions);
            stepped.audit().unwrap();
        }
        prop_assert_eq!(whole.pass(Time(30)).actions, steps);
    }
}
