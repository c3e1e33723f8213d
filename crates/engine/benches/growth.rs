//! What one finish and the admission that it causes cost, and what a waiting unit weighs, as ever more wait.
//!
//! `cargo bench -p sluice-engine --bench growth`

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, clippy::expect_used, reason = "a broken benchmark should stop")]

use std::time::Duration;

use sluice_engine::{
    Amount, Constraints, Engine, Event, FlavorQuota, FlavorSpec, LocalQueueKey, LocalQueueSpec, PodSetSpec, QueueSpec,
    ResourceGroup, Time, Uid, UnitSpec, Weight,
};

mod results;

const SHAPES: u128 = 10;
const ROUNDS: u32 = 10_000;
/// Units that run at any time.
const SLOTS: u128 = 100;

fn main() {
    let figures: Vec<(u128, Duration)> = [1_000, 10_000, 100_000, 1_000_000].map(|n| (n, measure(n))).to_vec();
    for (waiting, cost) in &figures {
        println!(
            "{waiting:>9} waiting: {:>6} ns a finish and the admission it causes",
            cost.as_nanos()
        );
    }
    let (few, many) = (figures.first().expect("a figure"), figures.last().expect("a figure"));
    println!(
        "at {} it costs {:.2} times what it costs at {}",
        many.0,
        many.1.as_secs_f64() / few.1.as_secs_f64(),
        few.0
    );
    let ratio = many.1.as_secs_f64() / few.1.as_secs_f64();
    results::append("engine-growth", &[("ratio_1e6_1e3", format!("{ratio:.2}"))]);
    if let Some(bytes) = weigh(1_000_000) {
        println!("a waiting unit weighs {bytes} bytes, of 1000000");
        results::append("engine-memory", &[("bytes_per_unit", bytes.to_string())]);
    }
}

/// The mean cost of one finish and the admission that it causes, `waiting` units being there each time.
fn measure(waiting: u128) -> Duration {
    let mut engine = furnished();
    let mut next = 0;
    let mut submit = |engine: &mut Engine| {
        engine.apply(Event::SetWaiting(unit(next)));
        next += 1;
    };
    for _ in 0..waiting + SLOTS {
        submit(&mut engine);
    }
    let mut running: std::collections::VecDeque<Uid> = admitted(&mut engine).collect();
    let mut spent = Duration::ZERO;
    let reading = results::cost_of_reading();
    for _ in 0..ROUNDS {
        let done = running.pop_front().expect("units run");
        let start = results::cpu_time();
        engine.apply(Event::RemoveUnit(done));
        running.extend(admitted(&mut engine));
        spent += results::cpu_time().saturating_sub(start).saturating_sub(reading);
        submit(&mut engine);
        assert!(admitted(&mut engine).next().is_none(), "the queue is full");
        let _ = engine.take_changed();
    }
    spent / ROUNDS
}

/// What each of `waiting` units adds to the memory of this process; none where the system does not say.
fn weigh(waiting: u128) -> Option<usize> {
    let mut engine = furnished();
    engine.apply(Event::SetWaiting(unit(0)));
    let _ = engine.pass(Time(0));
    let before = resident()?;
    for uid in 1..=waiting {
        engine.apply(Event::SetWaiting(unit(uid)));
        if uid % 1000 == 0 {
            let _ = (engine.pass(Time(0)), engine.take_changed());
        }
    }
    Some((resident()? - before) / usize::try_from(waiting).ok()?)
}

fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<usize>()
        .ok()
        .map(|kib| kib * 1024)
}

fn admitted(engine: &mut Engine) -> impl Iterator<Item = Uid> + use<> {
    engine
        .pass(Time(0))
        .actions
        .into_iter()
        .filter_map(|action| match action {
            sluice_engine::Action::Admit(admission) => Some(admission.uid),
            _ => None,
        })
}

fn key() -> LocalQueueKey {
    LocalQueueKey::new("team", "main")
}

fn furnished() -> Engine {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(FlavorSpec {
        name: "default".into(),
        node_labels: std::collections::BTreeMap::new(),
        taints: vec![],
        tolerations: vec![],
    }));
    let slots = Amount::new(i64::try_from(SLOTS).unwrap_or(i64::MAX));
    engine.apply(Event::SetQueue(QueueSpec {
        name: "q".into(),
        groups: vec![ResourceGroup {
            resources: vec!["cpu".into(), "memory".into()],
            flavors: vec![FlavorQuota {
                flavor: "default".into(),
                quotas: vec![slots.into(), Amount::MAX.into()],
            }],
        }],
        ..QueueSpec::default()
    }));
    engine.apply(Event::SetLocalQueue(LocalQueueSpec {
        key: key(),
        queue: "q".into(),
        blocked: None,
        drain: false,
        weight: Weight::ONE,
        past_usage: None,
    }));
    engine
}

/// Unit `n` asks for one slot; its shape, priority and place in the order are mixed.
fn unit(n: u128) -> UnitSpec {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let memory = i64::try_from(mixed % SHAPES).unwrap_or(0);
    UnitSpec {
        uid: Uid(mixed),
        local_queue: key(),
        priority: i32::try_from(mixed % 3).unwrap_or(0),
        queued_at: Time(i64::try_from(n / 10).unwrap_or(0)),
        pod_sets: vec![PodSetSpec {
            name: "main".into(),
            count: 1,
            min_count: None,
            per_pod: vec![("cpu".into(), Amount::new(1)), ("memory".into(), Amount::new(memory))],
            constraints: std::sync::Arc::new(Constraints::default()),
        }],
        gate: None,
        not_before: None,
        runs_at_most_ms: None,
    }
}
