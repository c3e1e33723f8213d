//! Short ways to say what a test means.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_engine::*;

/// A flavor with these node labels.
pub(crate) fn flavor(name: &str, labels: &[(&str, &str)]) -> FlavorSpec {
    FlavorSpec {
        name: name.into(),
        node_labels: strings(labels),
        taints: vec![],
        tolerations: vec![],
    }
}

pub(crate) fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A resource group: its resources, and per flavor the quota of each.
pub(crate) fn group(resources: &[&str], flavors: &[(&str, &[i64])]) -> ResourceGroup {
    ResourceGroup {
        resources: resources.iter().map(|name| Name::from(*name)).collect(),
        flavors: flavors
            .iter()
            .map(|(flavor, nominal)| FlavorQuota {
                flavor: (*flavor).into(),
                quotas: nominal.iter().map(|amount| Amount::new(*amount).into()).collect(),
            })
            .collect(),
    }
}

/// A BestEffortFIFO queue.
pub(crate) fn queue(name: &str, groups: Vec<ResourceGroup>) -> QueueSpec {
    QueueSpec {
        name: name.into(),
        groups,
        ..QueueSpec::default()
    }
}

/// The same queue, in strict order.
pub(crate) fn strict(spec: QueueSpec) -> QueueSpec {
    QueueSpec {
        strategy: Strategy::StrictFifo,
        ..spec
    }
}

pub(crate) fn key(name: &str) -> LocalQueueKey {
    LocalQueueKey::new("team", name)
}

/// LocalQueue `name` in namespace `team`, leading to the ClusterQueue.
pub(crate) fn local_queue(name: &str, queue: &str) -> LocalQueueSpec {
    LocalQueueSpec {
        key: key(name),
        queue: queue.into(),
        blocked: None,
        drain: false,
        weight: Weight::ONE,
        past_usage: None,
    }
}

pub(crate) fn pod_set(name: &str, count: i64, per_pod: &[(&str, i64)]) -> PodSetSpec {
    let mut per_pod: Vec<_> = per_pod
        .iter()
        .map(|(resource, amount)| (Name::from(*resource), Amount::new(*amount)))
        .collect();
    per_pod.sort_unstable();
    PodSetSpec {
        name: name.into(),
        count,
        min_count: None,
        per_pod,
        constraints: Arc::default(),
    }
}

/// A unit of one pod that asks for this, in LocalQueue `main`, with its uid as queue time.
pub(crate) fn unit(uid: u128, per_pod: &[(&str, i64)]) -> UnitSpec {
    UnitSpec {
        uid: Uid(uid),
        local_queue: key("main"),
        priority: 0,
        queued_at: Time(i64::try_from(uid).unwrap_or(0)),
        pod_sets: vec![pod_set("main", 1, per_pod)],
        gate: None,
        not_before: None,
        runs_at_most_ms: None,
    }
}

/// The unit that an admission makes, in a phase.
pub(crate) fn charged(admission: &Admission, priority: i32, phase: Phase) -> ChargedUnit {
    let charges = admission.pod_sets.iter().flat_map(|pod_set| {
        pod_set
            .flavors
            .iter()
            .zip(&pod_set.usage)
            .map(|((resource, flavor), (_, amount))| Charge {
                flavor: flavor.clone(),
                resource: resource.clone(),
                amount: *amount,
            })
    });
    ChargedUnit {
        uid: admission.uid,
        queue: admission.queue.clone(),
        local_queue: admission.local_queue.clone(),
        priority,
        queued_at: Time(0),
        reserved_at: Time(0),
        deadlines: vec![],
        ends_at: None,
        pods_ready: true,
        charges: charges.collect(),
        phase,
    }
}

/// An engine under test: every step is audited.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
}

impl Bench {
    /// An engine with these queues, a flavor of no labels for each name they use, and a LocalQueue `main` that leads
    /// to the first of them.
    pub(crate) fn new(queues: Vec<QueueSpec>) -> Self {
        let mut bench = Self { engine: Engine::new() };
        for spec in &queues {
            for offered in spec.groups.iter().flat_map(|group| &group.flavors) {
                bench.apply(Event::SetFlavor(flavor(&offered.flavor, &[])));
            }
        }
        if let Some(first) = queues.first() {
            bench.apply(Event::SetLocalQueue(local_queue("main", &first.name)));
        }
        for spec in queues {
            bench.apply(Event::SetQueue(spec));
        }
        bench
    }

    pub(crate) fn apply(&mut self, event: Event) {
        let told = format!("{event:?}");
        self.engine.apply(event);
        self.engine
            .audit()
            .unwrap_or_else(|fault| panic!("after {told}: {fault}"));
    }

    pub(crate) fn wait(&mut self, units: impl IntoIterator<Item = UnitSpec>) {
        for unit in units {
            self.apply(Event::SetWaiting(unit));
        }
    }

    /// Runs a pass and returns what was admitted.
    pub(crate) fn admissions_at(&mut self, now: i64) -> Vec<Admission> {
        let pass = self.engine.pass(Time(now));
        self.engine
            .audit()
            .unwrap_or_else(|fault| panic!("after a pass: {fault}"));
        pass.actions.into_iter().map(admission).collect()
    }

    /// Runs a pass and returns who was admitted, in order.
    pub(crate) fn admitted(&mut self) -> Vec<u128> {
        self.admissions_at(0).iter().map(|admission| admission.uid.0).collect()
    }

    /// Runs a pass that must admit exactly one unit, with one pod set, and returns the flavor of its first resource.
    pub(crate) fn flavor_of_only_admission(&mut self) -> String {
        let admissions = self.admissions_at(0);
        assert_eq!(admissions.len(), 1, "{admissions:?}");
        admissions[0].pod_sets[0].flavors[0].1.to_string()
    }

    pub(crate) fn finish(&mut self, uid: u128) {
        self.apply(Event::RemoveUnit(Uid(uid)));
    }

    pub(crate) fn reason(&self, uid: u128) -> WaitReason {
        self.engine
            .waiting(Uid(uid))
            .unwrap_or_else(|| panic!("unit {uid} does not wait"))
            .reason
    }

    pub(crate) fn kind(&self, uid: u128) -> WaitKind {
        self.reason(uid).kind()
    }

    pub(crate) fn position(&self, uid: u128) -> Option<usize> {
        self.engine.waiting(Uid(uid)).and_then(|waiting| waiting.position)
    }

    /// What is reserved and admitted of a resource in a flavor of a queue.
    pub(crate) fn used(&self, queue: &str, flavor: &str, resource: &str) -> (i64, i64) {
        let report = self.engine.queue(queue).unwrap_or_else(|| panic!("no queue {queue}"));
        report
            .usage
            .iter()
            .find(|usage| &*usage.flavor == flavor && &*usage.resource == resource)
            .map_or((0, 0), |usage| (usage.reserved.get(), usage.admitted.get()))
    }
}

pub(crate) fn admission(action: Action) -> Admission {
    match action {
        Action::Admit(admission) => admission,
        other => panic!("not an admission: {other:?}"),
    }
}
