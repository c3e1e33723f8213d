//! The naive twin: the rules as written, by full scans over plain maps. It never parks, keeps no sums, and shares no
//! deciding code with the engine.

use std::collections::BTreeMap;

use sluice_engine::*;

/// The world as last told.
#[derive(Debug, Default, Clone)]
pub(crate) struct Twin {
    pub(crate) flavors: BTreeMap<Name, FlavorSpec>,
    pub(crate) queues: BTreeMap<Name, QueueSpec>,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueueSpec>,
    pub(crate) waiting: BTreeMap<Uid, UnitSpec>,
    pub(crate) charged: BTreeMap<Uid, ChargedUnit>,
    pub(crate) now: i64,
}

type Cell = (Name, Name);

/// What one unit would be given: per pod set, per resource asked for, flavor and amount.
type Assignment = Vec<BTreeMap<Name, (Name, i128)>>;

/// Where and why a unit does not fit.
#[derive(Debug)]
enum Refusal {
    NotCovered {
        pod_set: Name,
        resource: Name,
    },
    NoRoom {
        pod_set: Name,
        shortages: Vec<Shortage>,
        mismatches: Vec<Name>,
        usable: bool,
    },
}

impl Twin {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event.clone() {
            Event::SetFlavor(spec) => {
                self.flavors.insert(spec.name.clone(), spec);
            }
            Event::RemoveFlavor(name) => {
                self.flavors.remove(&name);
            }
            Event::SetQueue(spec) => {
                self.queues.insert(spec.name.clone(), spec);
            }
            Event::RemoveQueue(name) => {
                self.queues.remove(&name);
            }
            Event::SetCohort(_) | Event::RemoveCohort(_) | Event::SetSettings(_) => {}
            Event::SetLocalQueue(spec) => {
                self.local_queues.insert(spec.key.clone(), spec);
            }
            Event::RemoveLocalQueue(key) => {
                self.local_queues.remove(&key);
            }
            Event::SetWaiting(unit) => {
                self.charged.remove(&unit.uid);
                self.waiting.insert(unit.uid, unit);
            }
            Event::SetCharged(unit) => {
                self.waiting.remove(&unit.uid);
                self.charged.insert(unit.uid, unit);
            }
            Event::RemoveUnit(uid) => {
                self.waiting.remove(&uid);
                self.charged.remove(&uid);
            }
        }
    }

    /// Admits until nothing moves: in each cycle the first unit of each queue that fits, in one order over all.
    pub(crate) fn pass(&mut self, now: i64) -> Pass {
        self.now = now;
        let mut actions = Vec::new();
        loop {
            let mut picks: Vec<(UnitSpec, QueueSpec, Assignment)> = Vec::new();
            for queue in self.queues.values().filter(|queue| self.is_active(queue)) {
                for unit in self
                    .order(&queue.name)
                    .into_iter()
                    .filter(|unit| self.may_be_considered(unit))
                {
                    match self.fit(queue, &unit, &self.usage(&queue.name)) {
                        Ok(assignment) => {
                            picks.push((unit, queue.clone(), assignment));
                            break;
                        }
                        Err(_) if queue.strategy == Strategy::StrictFifo => break,
                        Err(_) => {}
                    }
                }
            }
            if picks.is_empty() {
                break;
            }
            picks.sort_by_key(|(unit, _, _)| sort_key(unit));
            for (unit, queue, assignment) in picks {
                actions.push(Action::Admit(self.admit(&unit, &queue, &assignment)));
            }
        }
        let next = self
            .waiting
            .values()
            .filter(|unit| unit.gate.is_none() && self.is_unblocked(unit));
        let next = next
            .filter_map(|unit| unit.not_before)
            .filter(|until| until.0 > now)
            .min();
        Pass { actions, next }
    }

    fn admit(&mut self, unit: &UnitSpec, queue: &QueueSpec, assignment: &Assignment) -> Admission {
        let mut charges = Vec::new();
        let mut pod_sets = Vec::new();
        for (pod_set, given) in unit.pod_sets.iter().zip(assignment) {
            let mut flavors = Vec::new();
            let mut usage = Vec::new();
            for (resource, (flavor, amount)) in given {
                let amount = saturated(*amount);
                flavors.push((resource.clone(), flavor.clone()));
                usage.push((resource.clone(), amount));
                charges.push(Charge {
                    flavor: flavor.clone(),
                    resource: resource.clone(),
                    amount,
                });
            }
            pod_sets.push(PodSetAssignment {
                name: pod_set.name.clone(),
                count: pod_set.count.max(0),
                flavors,
                usage,
            });
        }
        let (uid, local_queue) = (unit.uid, unit.local_queue.clone());
        let charged = ChargedUnit {
            uid,
            queue: queue.name.clone(),
            local_queue: local_queue.clone(),
            priority: unit.priority,
            queued_at: unit.queued_at,
            reserved_at: Time(self.now),
            deadlines: vec![],
            ends_at: None,
            pods_ready: true,
            charges,
            phase: Phase::Assumed,
        };
        self.apply(&Event::SetCharged(charged));
        Admission {
            uid,
            queue: queue.name.clone(),
            local_queue,
            pod_sets,
        }
    }

    /// All units that wait in a queue, in order.
    pub(crate) fn order(&self, queue: &str) -> Vec<UnitSpec> {
        let mut units: Vec<UnitSpec> = self
            .waiting
            .values()
            .filter(|unit| {
                self.local_queues
                    .get(&unit.local_queue)
                    .is_some_and(|spec| &*spec.queue == queue)
            })
            .cloned()
            .collect();
        units.sort_by_key(sort_key);
        units
    }

    fn is_unblocked(&self, unit: &UnitSpec) -> bool {
        self.local_queues
            .get(&unit.local_queue)
            .is_some_and(|spec| spec.blocked.is_none())
    }

    fn may_be_considered(&self, unit: &UnitSpec) -> bool {
        self.is_unblocked(unit) && unit.gate.is_none() && unit.not_before.is_none_or(|until| until.0 <= self.now)
    }

    pub(crate) fn is_active(&self, queue: &QueueSpec) -> bool {
        queue.inactive.is_none()
            && queue.groups.iter().all(|group| {
                group.flavors.iter().all(|offered| {
                    self.flavors.contains_key(&offered.flavor) && offered.quotas.len() == group.resources.len()
                })
            })
    }

    /// What all units charged to a queue hold.
    pub(crate) fn usage(&self, queue: &str) -> BTreeMap<Cell, i128> {
        let mut usage = BTreeMap::new();
        for unit in self.charged.values().filter(|unit| &*unit.queue == queue) {
            for charge in &unit.charges {
                *usage
                    .entry((charge.flavor.clone(), charge.resource.clone()))
                    .or_default() += i128::from(charge.amount.get());
            }
        }
        usage
    }

    fn fit(&self, queue: &QueueSpec, unit: &UnitSpec, usage: &BTreeMap<Cell, i128>) -> Result<Assignment, Refusal> {
        let all: Vec<BTreeMap<Name, i128>> = unit.pod_sets.iter().map(|pod_set| requests(queue, pod_set)).collect();
        for (pod_set, requests) in unit.pod_sets.iter().zip(&all) {
            let covered = |name: &Name| queue.groups.iter().any(|group| group.resources.contains(name));
            // The first in the pod set's own order.
            let asked = pod_set
                .per_pod
                .iter()
                .map(|(name, _)| name)
                .filter(|name| requests.contains_key(*name));
            if let Some(resource) = asked.into_iter().find(|name| !covered(name)) {
                return Err(Refusal::NotCovered {
                    pod_set: pod_set.name.clone(),
                    resource: resource.clone(),
                });
            }
        }
        let mut taken = usage.clone();
        let mut assignment = Vec::new();
        for (pod_set, requests) in unit.pod_sets.iter().zip(&all) {
            let mut given = BTreeMap::new();
            for group in &queue.groups {
                let asked: Vec<(usize, &Name, i128)> = group
                    .resources
                    .iter()
                    .enumerate()
                    .filter_map(|(at, name)| Some((at, name, *requests.get(name)?)))
                    .collect();
                if asked.is_empty() {
                    continue;
                }
                let mut refused = (Vec::new(), Vec::new(), false);
                let mut found = None;
                for offered in &group.flavors {
                    if !self.may_use(&offered.flavor, &pod_set.constraints) {
                        refused.1.push(offered.flavor.clone());
                        continue;
                    }
                    refused.2 = true;
                    let mut fits = true;
                    for (at, name, need) in &asked {
                        let cell = (offered.flavor.clone(), (*name).clone());
                        let nominal = i128::from(offered.quotas[*at].nominal.get());
                        let used = taken.get(&cell).copied().unwrap_or(0);
                        if used + need > nominal {
                            fits = false;
                            let in_use = usage.get(&cell).copied().unwrap_or(0);
                            refused.0.push(Shortage {
                                flavor: cell.0,
                                resource: cell.1,
                                need: saturated(need + used - in_use),
                                free: saturated(nominal - in_use),
                                nominal: saturated(nominal),
                            });
                        }
                    }
                    if fits {
                        found = Some(offered.flavor.clone());
                        break;
                    }
                }
                let Some(flavor) = found else {
                    let (shortages, mismatches, usable) = refused;
                    return Err(Refusal::NoRoom {
                        pod_set: pod_set.name.clone(),
                        shortages,
                        mismatches,
                        usable,
                    });
                };
                for (_, name, need) in asked {
                    *taken.entry((flavor.clone(), name.clone())).or_default() += need;
                    given.insert(name.clone(), (flavor.clone(), need));
                }
            }
            assignment.push(given);
        }
        Ok(assignment)
    }

    fn may_use(&self, flavor: &Name, pods: &Constraints) -> bool {
        let Some(flavor) = self.flavors.get(flavor) else {
            return false;
        };
        for taint in &flavor.taints {
            if taint.effect == Effect::PreferNoSchedule {
                continue;
            }
            let all: Vec<&Toleration> = pods.tolerations.iter().chain(flavor.tolerations.iter()).collect();
            let tolerated = all.iter().any(|toleration| {
                let effect = match toleration.effect {
                    Some(effect) => effect == taint.effect,
                    None => true,
                };
                let key = match &toleration.key {
                    Some(key) if !key.is_empty() => *key == taint.key,
                    _ => true,
                };
                let value = toleration.operator == TolerationOperator::Exists
                    || toleration.value.clone().unwrap_or_default() == taint.value;
                effect && key && value
            });
            if !tolerated {
                return false;
            }
        }
        for (label, found) in &flavor.node_labels {
            if pods.node_selector.get(label).is_some_and(|wanted| wanted != found) {
                return false;
            }
        }
        let mut terms = pods.affinity_terms.iter().map(|term| {
            let known = term
                .match_expressions
                .iter()
                .filter(|e| flavor.node_labels.contains_key(&e.key));
            known.into_iter().all(|e| {
                let found = &flavor.node_labels[&e.key];
                let number = |text: &String| text.parse::<i64>().ok();
                match e.operator {
                    SelectorOperator::In => e.values.contains(found),
                    SelectorOperator::NotIn => !e.values.contains(found),
                    SelectorOperator::Exists => true,
                    SelectorOperator::DoesNotExist => false,
                    SelectorOperator::Gt | SelectorOperator::Lt if e.values.len() != 1 => false,
                    SelectorOperator::Gt => number(found).zip(number(&e.values[0])).is_some_and(|(a, b)| a > b),
                    SelectorOperator::Lt => number(found).zip(number(&e.values[0])).is_some_and(|(a, b)| a < b),
                }
            })
        });
        pods.affinity_terms.is_empty() || terms.any(|matches| matches)
    }

    /// Position and reason of a waiting unit, after a pass.
    pub(crate) fn waiting(&self, uid: Uid) -> Option<Waiting> {
        let unit = self.waiting.get(&uid)?;
        let local_queue = unit.local_queue.clone();
        let Some(spec) = self.local_queues.get(&local_queue) else {
            let reason = WaitReason::NoLocalQueue(local_queue.clone());
            return Some(Waiting {
                uid,
                local_queue,
                queue: None,
                position: None,
                reason,
            });
        };
        let order = self.order(&spec.queue);
        let position = order.iter().position(|other| other.uid == uid);
        let reason = match self.queues.get(&spec.queue) {
            None => WaitReason::QueueMissing(spec.queue.clone()),
            Some(queue) if !self.is_active(queue) => {
                WaitReason::QueueInactive(queue.inactive.clone().unwrap_or(Inactive {
                    reason: "FlavorNotFound".into(),
                    message: "".into(),
                }))
            }
            Some(queue) => self.reason(unit, spec, queue, &order),
        };
        Some(Waiting {
            uid,
            local_queue,
            queue: Some(spec.queue.clone()),
            position,
            reason,
        })
    }

    fn reason(&self, unit: &UnitSpec, spec: &LocalQueueSpec, queue: &QueueSpec, order: &[UnitSpec]) -> WaitReason {
        if let Some(blocked) = &spec.blocked {
            return WaitReason::LocalQueueBlocked(blocked.clone());
        }
        if let Some(gate) = &unit.gate {
            return WaitReason::Gated(gate.clone());
        }
        if let Some(until) = unit.not_before.filter(|until| until.0 > self.now) {
            return WaitReason::BackOff(until);
        }
        let head = order
            .iter()
            .find(|other| self.may_be_considered(other))
            .map_or(unit.uid, |head| head.uid);
        if queue.strategy == Strategy::StrictFifo && head != unit.uid {
            return WaitReason::BehindHead(head);
        }
        let empty = self.fit(queue, unit, &BTreeMap::new());
        let now = self.fit(queue, unit, &self.usage(&queue.name));
        let mismatches_of = |names: Vec<Name>| names.into_iter().map(|name| (name, Mismatch::NodeAffinity)).collect();
        match (empty, now) {
            (Err(Refusal::NotCovered { pod_set, resource }), _) => WaitReason::ResourceNotCovered { pod_set, resource },
            (
                Err(Refusal::NoRoom {
                    pod_set,
                    mismatches,
                    usable: false,
                    ..
                }),
                _,
            ) => WaitReason::NoMatchingFlavor {
                pod_set,
                mismatches: mismatches_of(mismatches),
            },
            (
                Err(Refusal::NoRoom {
                    pod_set,
                    shortages,
                    mismatches,
                    ..
                }),
                _,
            ) => {
                let usage = self.usage(&queue.name);
                let shortages = shortages
                    .into_iter()
                    .map(|shortage| {
                        let cell = (shortage.flavor.clone(), shortage.resource.clone());
                        let used = usage.get(&cell).copied().unwrap_or(0);
                        let free = saturated(i128::from(shortage.nominal.get()) - used);
                        Shortage { free, ..shortage }
                    })
                    .collect();
                WaitReason::ExceedsMaxQuota {
                    pod_set,
                    shortages,
                    mismatches: mismatches_of(mismatches),
                }
            }
            (
                Ok(_),
                Err(Refusal::NoRoom {
                    pod_set,
                    shortages,
                    mismatches,
                    ..
                }),
            ) => WaitReason::WaitingForQuota {
                pod_set,
                shortages,
                mismatches: mismatches_of(mismatches),
            },
            (_, other) => panic!("{} waits for no reason: {other:?}", unit.uid),
        }
    }
}

fn sort_key(unit: &UnitSpec) -> (i64, i64, u128) {
    (-i64::from(unit.priority), unit.queued_at.0, unit.uid.0)
}

fn saturated(amount: i128) -> Amount {
    Amount::new(i64::try_from(amount.max(0)).unwrap_or(i64::MAX))
}

/// What a pod set asks of a queue, zero left out.
fn requests(queue: &QueueSpec, pod_set: &PodSetSpec) -> BTreeMap<Name, i128> {
    let mut requests = BTreeMap::new();
    let count = i128::from(pod_set.count.max(0));
    for (resource, amount) in &pod_set.per_pod {
        if &**resource != "pods" {
            *requests.entry(resource.clone()).or_default() += i128::from(amount.get()) * count;
        }
    }
    if queue
        .groups
        .iter()
        .any(|group| group.resources.iter().any(|resource| &**resource == "pods"))
    {
        requests.insert(Name::from("pods"), count);
    }
    requests.retain(|_, amount| *amount > 0);
    requests
}
