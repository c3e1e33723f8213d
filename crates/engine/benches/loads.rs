//! Kueue's two published loads, run to completion in simulated time.
//!
//! `cargo bench -p sluice-engine --bench loads [-- engine-baseline]`
//!
//! A unit ends its run time after its admission, a write takes no time, an evicted unit waits again at once and starts
//! anew. A decision is one admission or eviction returned by a pass; its cost is CPU time in `apply` and `pass`, all
//! events included.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(missing_docs, clippy::expect_used, reason = "a broken benchmark should stop")]

mod results;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::{
    Action, Admission, Amount, BorrowWithinCohort, Charge, ChargedUnit, Constraints, Counters, Engine, Event,
    FlavorQuota, FlavorSpec, LocalQueueKey, LocalQueueSpec, Phase, PodSetSpec, Preemption, QueueSpec, Quota, Reclaim,
    ResourceGroup, Time, Uid, UnitSpec, Weight, WithinQueue,
};

/// Units of one kind, created in every queue.
#[derive(Clone, Copy)]
struct Class {
    name: &'static str,
    count: u32,
    size: i64,
    run_ms: i64,
    priority: i32,
    every_ms: i64,
}

struct Load {
    name: &'static str,
    cohorts: usize,
    queues: usize,
    classes: [Class; 3],
}

const NOMINAL: i64 = 20;
const BORROWING_LIMIT: i64 = 100;

fn main() {
    let class = |name, count, size, run_ms, priority, every_ms| Class {
        name,
        count,
        size,
        run_ms,
        priority,
        every_ms,
    };
    let loads = [
        Load {
            name: "engine-baseline",
            cohorts: 5,
            queues: 6,
            classes: [
                class("small", 350, 1, 200, 50, 100),
                class("medium", 100, 5, 500, 100, 500),
                class("large", 50, 20, 1000, 200, 1200),
            ],
        },
        Load {
            name: "engine-large",
            cohorts: 10,
            queues: 100,
            classes: [
                class("small", 35, 1, 150, 50, 60),
                class("medium", 11, 5, 350, 100, 300),
                class("large", 4, 20, 700, 200, 700),
            ],
        },
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    for load in loads
        .iter()
        .filter(|load| wanted.is_empty() || wanted.iter().any(|name| name == load.name))
    {
        for preemption in [false, true] {
            report(load, preemption, &run(load, preemption));
        }
    }
}

/// A unit of the load.
struct Job {
    class: usize,
    spec: UnitSpec,
    created_ms: i64,
    admitted_ms: Option<i64>,
    first_admitted_ms: Option<i64>,
    /// Counts its starts, so that the end of an earlier one is known for what it is.
    start: u32,
}

#[derive(Default)]
struct Outcome {
    decisions: u64,
    evictions: u64,
    counters: Counters,
    cpu: Duration,
    makespan_ms: i64,
    /// Work done by units that were evicted, in resource units times milliseconds, per cohort.
    lost: BTreeMap<usize, i64>,
    waits_ms: [i64; 3],
    waited: [i64; 3],
}

struct World<'a> {
    load: &'a Load,
    engine: Engine,
    jobs: BTreeMap<Uid, Job>,
    /// What ends when: uid and start.
    ends: BTreeMap<i64, Vec<(Uid, u32)>>,
    outcome: Outcome,
    /// What it costs to read the CPU time.
    reading: Duration,
}

fn run(load: &Load, preemption: bool) -> Outcome {
    let mut world = World {
        load,
        engine: furnished(load, preemption),
        jobs: BTreeMap::new(),
        ends: BTreeMap::new(),
        outcome: Outcome::default(),
        reading: results::cost_of_reading(),
    };
    let mut creations: BTreeMap<i64, Vec<Job>> = BTreeMap::new();
    for job in jobs(load) {
        creations.entry(job.created_ms).or_default().push(job);
    }
    loop {
        let next = [creations.keys().next(), world.ends.keys().next()];
        let Some(now) = next.into_iter().flatten().min().copied() else {
            break;
        };
        let created = creations.remove(&now).unwrap_or_default();
        world.step(now, created);
        world.outcome.makespan_ms = now;
    }
    assert!(world.jobs.is_empty(), "every unit ran to its end");
    world.outcome.counters = world.engine.counters();
    world.engine.audit().expect("the books are right");
    world.outcome
}

impl World<'_> {
    /// Everything that happens at one instant.
    fn step(&mut self, now: i64, created: Vec<Job>) {
        let mut events = Vec::new();
        for (uid, start) in self.ends.remove(&now).unwrap_or_default() {
            if self
                .jobs
                .get(&uid)
                .is_some_and(|job| job.start == start && job.admitted_ms.is_some())
            {
                self.jobs.remove(&uid);
                events.push(Event::RemoveUnit(uid));
            }
        }
        for job in created {
            events.push(Event::SetWaiting(job.spec.clone()));
            self.jobs.insert(job.spec.uid, job);
        }
        loop {
            let before = results::cpu_time();
            for event in events.drain(..) {
                self.engine.apply(event);
            }
            let pass = self.engine.pass(Time(now));
            self.outcome.cpu += results::cpu_time().saturating_sub(before).saturating_sub(self.reading);
            let _ = self.engine.take_changed();
            if pass.actions.is_empty() {
                break;
            }
            for action in pass.actions {
                self.outcome.decisions += 1;
                match action {
                    Action::Admit(admission) => events.push(self.admitted(&admission, now)),
                    Action::Evict(eviction) => events.push(self.evicted(eviction.uid, now)),
                    _ => {}
                }
            }
        }
    }

    fn admitted(&mut self, admission: &Admission, now: i64) -> Event {
        let job = self.jobs.get_mut(&admission.uid).expect("a unit of the load");
        job.admitted_ms = Some(now);
        job.start += 1;
        if job.first_admitted_ms.is_none() {
            job.first_admitted_ms = Some(now);
            self.outcome.waits_ms[job.class] += now - job.created_ms;
            self.outcome.waited[job.class] += 1;
        }
        let run_ms = self.load.classes[job.class].run_ms;
        self.ends
            .entry(now + run_ms)
            .or_default()
            .push((admission.uid, job.start));
        Event::SetCharged(ChargedUnit {
            uid: admission.uid,
            queue: admission.queue.clone(),
            local_queue: admission.local_queue.clone(),
            priority: job.spec.priority,
            queued_at: job.spec.queued_at,
            reserved_at: Time(now),
            deadlines: vec![],
            ends_at: None,
            pods_ready: true,
            charges: vec![Charge {
                flavor: "default".into(),
                resource: "cpu".into(),
                amount: Amount::new(self.load.classes[job.class].size),
            }],
            phase: Phase::Admitted,
        })
    }

    fn evicted(&mut self, uid: Uid, now: i64) -> Event {
        self.outcome.evictions += 1;
        let job = self.jobs.get_mut(&uid).expect("a unit of the load");
        let ran = now - job.admitted_ms.take().expect("an admitted unit");
        let cohort = usize::try_from(uid.0 >> 96).expect("a small number");
        *self.outcome.lost.entry(cohort).or_default() += ran * self.load.classes[job.class].size;
        Event::SetWaiting(job.spec.clone())
    }
}

fn furnished(load: &Load, preemption: bool) -> Engine {
    let mut engine = Engine::new();
    engine.apply(Event::SetFlavor(FlavorSpec {
        name: "default".into(),
        node_labels: BTreeMap::new(),
        taints: vec![],
        tolerations: vec![],
    }));
    let policy = Preemption {
        within_queue: WithinQueue::LowerPriority,
        reclaim: Reclaim::Any,
        borrow_within_cohort: None::<BorrowWithinCohort>,
    };
    for (cohort, queue) in places(load) {
        let name: Arc<str> = format!("queue-{cohort}-{queue}").into();
        engine.apply(Event::SetQueue(QueueSpec {
            name: name.clone(),
            cohort: Some(format!("cohort-{cohort}").into()),
            groups: vec![ResourceGroup {
                resources: vec!["cpu".into()],
                flavors: vec![FlavorQuota {
                    flavor: "default".into(),
                    quotas: vec![Quota {
                        nominal: Amount::new(NOMINAL),
                        borrowing_limit: Some(Amount::new(BORROWING_LIMIT)),
                        lending_limit: None,
                    }],
                }],
            }],
            preemption: if preemption { policy } else { Preemption::default() },
            ..QueueSpec::default()
        }));
        engine.apply(Event::SetLocalQueue(LocalQueueSpec {
            key: key(cohort, queue),
            queue: name,
            blocked: None,
            drain: false,
            weight: Weight::ONE,
            past_usage: None,
        }));
    }
    engine
}

fn places(load: &Load) -> impl Iterator<Item = (usize, usize)> + use<> {
    let queues = load.queues;
    (0..load.cohorts).flat_map(move |cohort| (0..queues).map(move |queue| (cohort, queue)))
}

fn key(cohort: usize, queue: usize) -> LocalQueueKey {
    LocalQueueKey::new(format!("team-{cohort}-{queue}"), "main")
}

fn jobs(load: &Load) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (cohort, queue) in places(load) {
        let local_queue = key(cohort, queue);
        for (index, class) in load.classes.iter().enumerate() {
            for number in 0..class.count {
                let created_ms = i64::from(number) * class.every_ms;
                let uid =
                    ((cohort as u128) << 96) | ((queue as u128) << 64) | ((index as u128) << 32) | u128::from(number);
                let spec = UnitSpec {
                    uid: Uid(uid),
                    local_queue: local_queue.clone(),
                    priority: class.priority,
                    queued_at: Time(created_ms),
                    pod_sets: vec![PodSetSpec {
                        name: "main".into(),
                        count: 1,
                        min_count: None,
                        per_pod: vec![("cpu".into(), Amount::new(class.size))],
                        constraints: Arc::new(Constraints::default()),
                    }],
                    gate: None,
                    not_before: None,
                    runs_at_most_ms: None,
                };
                jobs.push(Job {
                    class: index,
                    spec,
                    created_ms,
                    admitted_ms: None,
                    first_admitted_ms: None,
                    start: 0,
                });
            }
        }
    }
    jobs
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn report(load: &Load, preemption: bool, outcome: &Outcome) {
    let work: i64 = load
        .classes
        .iter()
        .map(|class| i64::from(class.count) * class.size * class.run_ms)
        .sum();
    let bound_ms = work / NOMINAL;
    let capacity = NOMINAL * i64::try_from(load.queues).expect("a small number");
    // The cohort that lost most is the last to be done.
    let lost_ms = outcome.lost.values().max().copied().unwrap_or(0) / capacity;
    let per_second = outcome.decisions as f64 / outcome.cpu.as_secs_f64();
    println!(
        "{} with preemption {}: {} decisions ({} evictions) in {:.1} ms of CPU, {per_second:.0} a second; makespan {} ms, \
         {:.3} times the bound of {bound_ms} ms and {:.3} times bound plus {lost_ms} ms of lost work",
        load.name,
        if preemption { "on" } else { "off" },
        outcome.decisions,
        outcome.evictions,
        outcome.cpu.as_secs_f64() * 1000.0,
        outcome.makespan_ms,
        outcome.makespan_ms as f64 / bound_ms as f64,
        outcome.makespan_ms as f64 / (bound_ms + lost_ms) as f64,
    );
    println!("    {:?}", outcome.counters);
    for (index, class) in load.classes.iter().enumerate() {
        let mean = outcome.waits_ms[index] / outcome.waited[index].max(1);
        println!("    {}: first admitted after {mean} ms in the mean", class.name);
    }
    results::append(
        load.name,
        &[
            ("preemption", preemption.to_string()),
            ("decisions_per_s", format!("{per_second:.0}")),
            ("makespan_ms", outcome.makespan_ms.to_string()),
            ("bound_ms", bound_ms.to_string()),
            ("lost_ms", lost_ms.to_string()),
        ],
    );
}
