//! Random worlds: all rules together, with restarts in between, against what the objects themselves say.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_index::Answer;

use super::{annotate, cluster_queue, label, local_queue};
use crate::cluster::Cluster;

const QUEUES: [&str; 2] = ["left", "right"];

/// Knuth's generator: the same steps on every machine.
struct Dice(u64);

impl Dice {
    fn draw(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.draw(number) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.draw(from.len())])
    }
}

fn queue(name: &str, dice: &mut Dice) -> Value {
    let preemption = json!({
        "withinClusterQueue": (*dice.pick(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]).unwrap()),
        "reclaimWithinCohort": (*dice.pick(&["Never", "LowerPriority", "Any"]).unwrap()),
    });
    let stop = *dice.pick(&["None", "None", "None", "Hold", "HoldAndDrain"]).unwrap();
    let cores = i64::try_from(dice.draw(7)).unwrap();
    cluster_queue(
        name,
        cores,
        json!({"cohortName": "all", "preemption": preemption, "stopPolicy": stop}),
    )
}

fn world(seed: u64) -> (Cluster, Dice) {
    let mut dice = Dice(seed);
    let mut cluster = Cluster::with_quota(0);
    let strategy = "{backoffBaseSeconds: 20, backoffMaxSeconds: 60, backoffLimitCount: 2}";
    let fair = if dice.one_in(2) {
        "\nfairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}"
    } else {
        ""
    };
    cluster.configure(&format!(
        "waitForPodsReady: {{timeout: 60s, recoveryTimeout: 30s, requeuingStrategy: {strategy}}}{fair}"
    ));
    cluster.priority_class("urgent", 100);
    for name in QUEUES {
        let object = queue(name, &mut dice);
        cluster.apply(object);
        cluster.apply(local_queue(name));
    }
    (cluster, dice)
}

fn create(cluster: &mut Cluster, dice: &mut Dice, name: &str) {
    let pods = i64::try_from(dice.draw(5) + 1).unwrap();
    let (queue, urgent, limit, min) = (QUEUES[dice.draw(2)], dice.one_in(4), dice.one_in(3), dice.one_in(3));
    cluster.create_with(name, pods, |job| {
        label(job, "kueue.x-k8s.io/queue-name", queue);
        if urgent {
            label(job, "kueue.x-k8s.io/priority-class", "urgent");
        }
        if limit {
            label(job, "kueue.x-k8s.io/max-exec-time-seconds", "90");
        }
        if min {
            annotate(job, "kueue.x-k8s.io/job-min-parallelism", "1");
        }
        // Ours alone, to compare with what the spec says later.
        annotate(job, "asked", &pods.to_string());
    });
}

fn is(job: &Value, pointer: &str, value: &Value) -> bool {
    job.pointer(pointer) == Some(value)
}

fn finished(job: &Value) -> bool {
    is(job, "/status/conditions/0/type", &json!("Complete"))
}

/// The Job controller, the kubelets and the owners do something with one Job.
fn happen(cluster: &mut Cluster, dice: &mut Dice, name: &str) {
    let job = cluster.job(name).clone();
    if finished(&job) {
        cluster.delete(name);
        return;
    }
    let runs = is(&job, "/spec/suspend", &json!(false));
    let started = is(&job, "/status/conditions/0/status", &json!("False"));
    match (runs, started, dice.draw(6)) {
        (true, false, _) => cluster.start(name),
        (true, true, 0) => cluster.finish(name),
        (true, true, 1) => cluster.pods_ready(name, 0),
        (true, true, 2..=4) => cluster.pods_ready(name, job["spec"]["parallelism"].as_i64().unwrap()),
        (true, true, _) => {
            cluster.edit(name, |job| {
                job["spec"]["suspend"] = json!(true);
                annotate(job, "sluice.internal/hold", "true");
            });
            cluster.event(name);
        }
        (false, true, _) => cluster.stopped(name),
        (false, false, 0) => cluster.remove_annotation(name, "sluice.internal/deactivated"),
        (false, false, 1) => cluster.remove_annotation(name, "sluice.internal/hold"),
        (false, false, 2) => cluster.delete(name),
        (false, false, _) => {
            cluster.edit(name, |job| annotate(job, "note", "edited"));
            cluster.event(name);
        }
    }
}

/// Decides and writes until nothing moves; now and then the API server refuses, or nobody knows what came of a write.
fn settle(cluster: &mut Cluster, dice: &mut Dice) {
    for _ in 0..300 {
        while let Some(probe) = cluster.next_probe() {
            let now = cluster.now();
            cluster.index.probed(probe.unit, probe.epoch, Some(false), now);
        }
        let Some(write) = cluster.next_write() else { return };
        let message = "not today".to_owned();
        match dice.draw(12) {
            0 => cluster.answer(&write, Answer::Refused { message }),
            1 => cluster.answer(&write, Answer::Delayed),
            2 => cluster.answer(&write, Answer::Unknown(Some(Box::new(cluster.view(&write.name))))),
            3 => {
                cluster.store(&write);
                cluster.event(&write.name);
                cluster.answer(&write, Answer::Unknown(Some(Box::new(cluster.view(&write.name)))));
            }
            _ => cluster.carry_out(&write),
        }
    }
    panic!("it never ends");
}

/// Milli-cpu that the Jobs of each ClusterQueue hold at least and at most, by their records and statuses alone: of a Job
/// stopped before its start was acknowledged, only a list of its pods could tell.
fn held(cluster: &Cluster) -> BTreeMap<&'static str, (i64, i64)> {
    let mut held = BTreeMap::from(QUEUES.map(|queue| (queue, (0, 0))));
    for name in cluster.names() {
        let job = cluster.job(&name);
        if cluster.annotation(&name, "sluice.internal/admission").is_none() || finished(job) {
            continue;
        }
        let record = cluster.record(&name);
        let suspended = is(job, "/spec/suspend", &json!(true));
        let started = record["eviction"]["started"] == true;
        if record["state"] == "Waiting"
            || suspended && started && is(job, "/status/conditions/0/status", &json!("True"))
        {
            continue;
        }
        let cores = record["podSets"][0]["count"].as_i64().unwrap() * 1_000;
        let (least, most) = held.get_mut(record["clusterQueue"].as_str().unwrap()).unwrap();
        *most += cores;
        *least += if suspended && !started { 0 } else { cores };
    }
    held
}

fn compare(cluster: &Cluster, objects: &Cluster, when: &str) {
    for (queue, (least, most)) in held(objects) {
        let reserved = cluster.reserved_in(queue);
        assert!(
            (least..=most).contains(&reserved),
            "{when}: {queue} has {reserved}, not {least} to {most}"
        );
    }
}

fn check(cluster: &Cluster, seen: &mut BTreeMap<String, usize>) {
    cluster.index.engine().audit().unwrap();
    for name in cluster.names() {
        let job = cluster.job(&name);
        let Some(asked) = cluster
            .annotation(&name, "asked")
            .map(|pods| pods.parse::<i64>().unwrap())
        else {
            continue;
        };
        let parallelism = job["spec"]["parallelism"].as_i64().unwrap();
        if job["spec"]["suspend"] == true && cluster.annotation(&name, "sluice.internal/hold").is_none() {
            assert_eq!(parallelism, asked, "{name} has its owner's numbers while it waits");
        }
        if job["spec"]["suspend"] == false && !finished(job) {
            let record = cluster.record(&name);
            assert_eq!(record["state"], "Admitted", "{name} runs");
            assert_eq!(
                record["podSets"][0]["count"], parallelism,
                "{name} pays for what it runs"
            );
            *seen
                .entry(if parallelism < asked { "fewer" } else { "all" }.to_owned())
                .or_default() += 1;
        }
        if cluster.annotation(&name, "sluice.internal/admission").is_some() {
            let eviction = &cluster.record(&name)["eviction"];
            for word in [&eviction["reason"], &eviction["cause"]] {
                *seen.entry(word.as_str().unwrap_or_default().to_owned()).or_default() += 1;
            }
        }
    }
}

#[test]
fn whatever_happens_the_books_say_what_the_objects_say_and_a_restart_finds_the_same() {
    let mut seen = BTreeMap::new();
    for seed in 0..12 {
        let (mut cluster, mut dice) = world(seed);
        for step in 0..90 {
            match dice.draw(10) {
                0..=2 => create(&mut cluster, &mut dice, &format!("job-{step}")),
                3 => {
                    let object = queue(QUEUES[dice.draw(2)], &mut dice);
                    cluster.apply(object);
                }
                4 => cluster = cluster.restart(8 + step),
                _ => {
                    let names = cluster.names();
                    if let Some(name) = dice.pick(&names).cloned() {
                        happen(&mut cluster, &mut dice, &name);
                    }
                }
            }
            let pause = i64::try_from(dice.draw(15_000)).unwrap();
            cluster.pass_time(pause);
            settle(&mut cluster, &mut dice);
            check(&cluster, &mut seen);
            if dice.one_in(6) {
                // All doubts end, all pauses pass.
                cluster.pass_time(10_000);
                while let Some(write) = cluster.next_write() {
                    cluster.carry_out(&write);
                }
                compare(&cluster, &cluster, &format!("seed {seed} step {step}"));
                let restarted = cluster.restart(100 + step);
                compare(&restarted, &cluster, &format!("seed {seed} step {step}, restarted"));
            }
        }
        cluster.replay();
    }
    let words = [
        "fewer",
        "all",
        "Preempted",
        "ClusterQueueStopped",
        "PodsReadyTimeout",
        "WaitForRecovery",
        "Deactivated",
    ];
    for word in words
        .iter()
        .chain(&["MaximumExecutionTimeExceeded", "RequeuingLimitExceeded"])
    {
        assert!(
            seen.get(*word).is_some_and(|times| *times > 0),
            "{word} never happened: {seen:?}"
        );
    }
}
