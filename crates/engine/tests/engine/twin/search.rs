//! Section 3: the search for flavors.

use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::*;

use super::victims::Victim;
use super::{At, Book, Cell, Needs, Twin, saturated};

/// What one unit would be given: per pod set, how many pods, and per resource asked for, flavor and amount.
pub(crate) type Assignment = Vec<(i64, BTreeMap<Name, (Name, i128)>)>;

/// How a unit may start.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) assignment: Assignment,
    pub(crate) level: usize,
    /// Whom it has to evict first; nobody if it fits.
    pub(crate) victims: Vec<Victim>,
}

/// Where and why a unit has no outcome.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    NotCovered {
        pod_set: Name,
        resource: Name,
    },
    /// No flavor above `no candidates` for a pod set and a group.
    NoFlavor {
        pod_set: Name,
        shortages: Vec<Shortage>,
        mismatches: Vec<Name>,
        usable: bool,
    },
    /// Every pod set found a flavor, but there are no victims for all together.
    NoVictims,
}

/// What a flavor is good for, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Fits,
    Reclaims,
    Preempts,
    NoCandidates,
    Never,
}

impl Mode {
    fn has_outcome(self) -> bool {
        self < Self::NoCandidates
    }
}

/// A flavor that was looked at.
#[derive(Debug, Clone)]
struct Look {
    flavor: Name,
    mode: Mode,
    level: usize,
}

/// Who searches, where.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) queue: At,
    pub(crate) spec: &'a QueueSpec,
    pub(crate) unit: &'a UnitSpec,
    /// Cells that are left out: a flavor that would serve one of its needs from there does not count.
    pub(crate) without: &'a BTreeSet<Cell>,
}

/// No cells.
pub(crate) static NOTHING: BTreeSet<Cell> = BTreeSet::new();

impl<'a> Asking<'a> {
    /// The groups that a pod set asks, and what it asks of each.
    pub(crate) fn asks(&self, pod_set: &PodSetSpec) -> Vec<(&'a ResourceGroup, BTreeMap<Name, i128>)> {
        let requests = requests(self.spec, pod_set);
        let asks = self.spec.groups.iter().map(|group| (group, asked(group, &requests)));
        asks.filter(|(_, asked)| !asked.is_empty()).collect()
    }
}

/// The unit with the fewest pods that it may start with.
pub(crate) fn fewest(unit: &UnitSpec) -> UnitSpec {
    let mut unit = unit.clone();
    for pod_set in &mut unit.pod_sets {
        pod_set.count = pod_set
            .min_count
            .map_or(pod_set.count, |fewest| fewest.min(pod_set.count));
    }
    unit
}

impl Found {
    /// Nobody is given anything.
    pub(crate) fn nothing() -> Self {
        Self {
            assignment: vec![],
            level: 0,
            victims: vec![],
        }
    }
}

impl Twin {
    /// The outcome for a unit: fits or preempts, with all its pods or with as many as possible.
    pub(crate) fn outcome(&self, planned: &Book<'_>, asking: Asking<'_>) -> Option<Found> {
        most_pods(asking, |asking| self.search(planned, asking).ok())
    }

    pub(crate) fn search(&self, planned: &Book<'_>, asking: Asking<'_>) -> Result<Found, Refusal> {
        match self.search_among(planned, asking, Mode::Preempts) {
            Err(Refusal::NoVictims) => self
                .search_among(planned, asking, Mode::Fits)
                .map_err(|_| Refusal::NoVictims),
            found => found,
        }
    }

    /// The search in which only modes up to `worst` count.
    fn search_among(&self, planned: &Book<'_>, asking: Asking<'_>, worst: Mode) -> Result<Found, Refusal> {
        let Asking { queue, spec, unit, .. } = asking;
        if let Some(refusal) = uncovered(spec, unit) {
            return Err(refusal);
        }
        let mut taken = Needs::new();
        let mut assignment = Assignment::new();
        let mut all_fit = true;
        for pod_set in &unit.pod_sets {
            let requests = requests(spec, pod_set);
            let mut given = BTreeMap::new();
            for group in &spec.groups {
                let asked = asked(group, &requests);
                if asked.is_empty() {
                    continue;
                }
                let look = self.look(planned, asking, pod_set, group, &asked, &taken, worst);
                let look = match look {
                    Some(look) if look.mode.has_outcome() => look,
                    _ => return Err(self.refusal(planned, asking, pod_set, group, &asked, &taken)),
                };
                all_fit &= look.mode == Mode::Fits;
                for (resource, need) in asked {
                    *taken.entry((look.flavor.clone(), resource.clone())).or_default() += need;
                    given.insert(resource, (look.flavor.clone(), need));
                }
            }
            assignment.push((pod_set.count.max(0), given));
        }
        let victims = if all_fit {
            vec![]
        } else {
            self.victims(planned, asking, &taken).ok_or(Refusal::NoVictims)?
        };
        Ok(Found {
            level: without(planned, &victims).greatest_level(queue, &taken),
            assignment,
            victims,
        })
    }

    /// The best flavor of those looked at.
    #[allow(clippy::too_many_arguments, reason = "the search as the rules tell it, in one place")]
    fn look(
        &self,
        planned: &Book<'_>,
        asking: Asking<'_>,
        pod_set: &PodSetSpec,
        group: &ResourceGroup,
        asked: &BTreeMap<Name, i128>,
        taken: &Needs,
        worst: Mode,
    ) -> Option<Look> {
        let rules = asking.spec.fungibility;
        let may_borrow = rules.when_can_borrow == Search::Stop;
        let mut best: Option<Look> = None;
        for offered in &group.flavors {
            if !self.may_use(&offered.flavor, &pod_set.constraints) {
                continue;
            }
            let needs = needs_in(&offered.flavor, asked, taken);
            if needs.keys().any(|cell| asking.without.contains(cell)) {
                continue;
            }
            let (mode, victims) = self.mode(planned, asking, &needs);
            let look = Look {
                flavor: offered.flavor.clone(),
                mode,
                level: without(planned, &victims).greatest_level(asking.queue, &needs),
            };
            if worst < look.mode && look.mode.has_outcome() {
                continue;
            }
            let ends = match look.mode {
                Mode::Fits => look.level == 0 || may_borrow,
                Mode::Reclaims | Mode::Preempts => {
                    rules.when_can_preempt == Search::Stop && (look.level == 0 || may_borrow)
                }
                Mode::NoCandidates | Mode::Never => false,
            };
            let rank = |look: &Look| match rules.preference {
                Preference::PreemptionOverBorrowing if look.mode.has_outcome() => (0, look.level, look.mode as usize),
                Preference::PreemptionOverBorrowing => (1, 0, look.mode as usize),
                Preference::BorrowingOverPreemption => (look.mode as usize, look.level, 0),
            };
            if best.as_ref().is_none_or(|best| rank(&look) < rank(best)) {
                best = Some(look);
            }
            if ends {
                break;
            }
        }
        best
    }

    /// The flavor that the search in which only those that fit count takes here.
    pub(crate) fn flavor_that_fits(
        &self,
        planned: &Book<'_>,
        asking: Asking<'_>,
        pod_set: &PodSetSpec,
        group: &ResourceGroup,
        asked: &BTreeMap<Name, i128>,
        taken: &Needs,
    ) -> Option<Name> {
        let look = self.look(planned, asking, pod_set, group, asked, taken, Mode::Fits);
        look.filter(|look| look.mode == Mode::Fits).map(|look| look.flavor)
    }

    fn mode(&self, planned: &Book<'_>, asking: Asking<'_>, needs: &Needs) -> (Mode, Vec<Victim>) {
        let largest = i128::from(i64::MAX);
        let exceeds = |(cell, need): (&Cell, &i128)| *need > planned.forest.potential(asking.queue, cell).min(largest);
        if needs.iter().any(exceeds) {
            return (Mode::Never, vec![]);
        }
        if planned.fits(asking.queue, needs) {
            return (Mode::Fits, vec![]);
        }
        match self.victims(planned, asking, needs) {
            None => (Mode::NoCandidates, vec![]),
            Some(victims) if victims.iter().any(|victim| victim.queue == asking.queue) => (Mode::Preempts, victims),
            Some(victims) => (Mode::Reclaims, victims),
        }
    }

    fn refusal(
        &self,
        planned: &Book<'_>,
        asking: Asking<'_>,
        pod_set: &PodSetSpec,
        group: &ResourceGroup,
        asked: &BTreeMap<Name, i128>,
        taken: &Needs,
    ) -> Refusal {
        let (mut shortages, mut mismatches, mut usable) = (vec![], vec![], false);
        for offered in &group.flavors {
            if !self.may_use(&offered.flavor, &pod_set.constraints) {
                mismatches.push(offered.flavor.clone());
                continue;
            }
            usable = true;
            let needs = needs_in(&offered.flavor, asked, taken);
            for resource in &group.resources {
                let cell = (offered.flavor.clone(), resource.clone());
                let free = planned.available(asking.queue, &cell);
                let Some(need) = needs.get(&cell).filter(|need| **need > free) else {
                    continue;
                };
                shortages.push(Shortage {
                    need: saturated(*need),
                    free: saturated(free),
                    borrowable: saturated(planned.borrowable(asking.queue, &cell)),
                    binding: planned.binding(asking.queue, &cell, *need),
                    nominal: saturated(planned.forest.nominal(asking.queue, &cell)),
                    limit: saturated(planned.forest.potential(asking.queue, &cell)),
                    flavor: cell.0,
                    resource: cell.1,
                });
            }
        }
        Refusal::NoFlavor {
            pod_set: pod_set.name.clone(),
            shortages,
            mismatches,
            usable,
        }
    }

    /// The flavors that the head of a StrictFIFO queue would reserve: the first that may be used and are not `never`.
    pub(crate) fn first_flavors(&self, planned: &Book<'_>, asking: Asking<'_>) -> Option<Assignment> {
        if uncovered(asking.spec, asking.unit).is_some() {
            return None;
        }
        let mut taken = Needs::new();
        let mut assignment = Assignment::new();
        for pod_set in &asking.unit.pod_sets {
            let requests = requests(asking.spec, pod_set);
            let mut given = BTreeMap::new();
            for group in &asking.spec.groups {
                let asked = asked(group, &requests);
                if asked.is_empty() {
                    continue;
                }
                let possible = |offered: &&FlavorQuota| {
                    let needs = needs_in(&offered.flavor, &asked, &taken);
                    let mut needs = needs.iter();
                    self.may_use(&offered.flavor, &pod_set.constraints)
                        && needs.all(|(cell, need)| {
                            *need <= planned.forest.potential(asking.queue, cell).min(i128::from(i64::MAX))
                        })
                };
                let flavor = group.flavors.iter().find(possible)?.flavor.clone();
                for (resource, need) in asked {
                    *taken.entry((flavor.clone(), resource.clone())).or_default() += need;
                    given.insert(resource, (flavor.clone(), need));
                }
            }
            assignment.push((pod_set.count.max(0), given));
        }
        Some(assignment)
    }

    pub(crate) fn may_use(&self, flavor: &Name, pods: &Constraints) -> bool {
        let Some(flavor) = self.flavors.get(flavor) else {
            return false;
        };
        tolerates(flavor, pods) && selects(flavor, pods) && prefers(flavor, pods)
    }
}

/// What is found with all pods of a unit, or with as many as possible.
pub(crate) fn most_pods(asking: Asking<'_>, search: impl Fn(Asking<'_>) -> Option<Found>) -> Option<Found> {
    if let Some(found) = search(asking) {
        return Some(found);
    }
    let pod_sets = &asking.unit.pod_sets;
    let partial = pod_sets
        .iter()
        .position(|pod_set| pod_set.min_count.is_some_and(|fewest| fewest < pod_set.count))?;
    let (mut low, mut high) = (pod_sets[partial].min_count?, pod_sets[partial].count - 1);
    let mut best = None;
    while low <= high {
        let middle = low + (high - low) / 2;
        let mut fewer = asking.unit.clone();
        fewer.pod_sets[partial].count = middle;
        match search(Asking { unit: &fewer, ..asking }) {
            Some(found) => {
                best = Some(found);
                low = middle + 1;
            }
            None => high = middle - 1,
        }
    }
    best
}

/// The book once the victims are gone.
fn without<'a>(planned: &Book<'a>, victims: &[Victim]) -> Book<'a> {
    let mut book = planned.clone();
    for victim in victims {
        book.take_out(victim.queue, &victim.holds);
    }
    book
}

/// All that an assignment takes of each cell.
pub(crate) fn needs_of(assignment: &Assignment) -> Needs {
    let mut needs = Needs::new();
    for (resource, (flavor, need)) in assignment.iter().flat_map(|(_, given)| given) {
        *needs.entry((flavor.clone(), resource.clone())).or_default() += need;
    }
    needs
}

/// What is needed of the cells of one flavor, with what earlier pod sets took of them.
fn needs_in(flavor: &Name, asked: &BTreeMap<Name, i128>, taken: &Needs) -> Needs {
    let needs = asked.iter().map(|(resource, need)| {
        let cell = (flavor.clone(), resource.clone());
        let before = taken.get(&cell).copied().unwrap_or(0);
        (cell, need + before)
    });
    needs.collect()
}

fn uncovered(spec: &QueueSpec, unit: &UnitSpec) -> Option<Refusal> {
    let covered = |name: &Name| spec.groups.iter().any(|group| group.resources.contains(name));
    unit.pod_sets.iter().find_map(|pod_set| {
        let requests = requests(spec, pod_set);
        // The first in the pod set's own order.
        let mut asked = pod_set.per_pod.iter().map(|(resource, _)| resource);
        let resource = asked.find(|resource| requests.contains_key(*resource) && !covered(resource))?;
        Some(Refusal::NotCovered {
            pod_set: pod_set.name.clone(),
            resource: resource.clone(),
        })
    })
}

/// What a pod set asks of a queue, zero left out.
fn requests(spec: &QueueSpec, pod_set: &PodSetSpec) -> BTreeMap<Name, i128> {
    let mut requests = BTreeMap::new();
    let count = i128::from(pod_set.count.max(0));
    for (resource, amount) in pod_set.per_pod.iter().filter(|(resource, _)| &**resource != "pods") {
        *requests.entry(resource.clone()).or_default() += i128::from(amount.get()) * count;
    }
    let mut covered = spec.groups.iter().flat_map(|group| &group.resources);
    if covered.any(|resource| &**resource == "pods") {
        requests.insert(Name::from("pods"), count);
    }
    requests.retain(|_, amount| *amount > 0);
    requests
}

/// What of it a group covers.
fn asked(group: &ResourceGroup, requests: &BTreeMap<Name, i128>) -> BTreeMap<Name, i128> {
    let covered = requests.iter().filter(|(name, _)| group.resources.contains(*name));
    covered.map(|(name, need)| (name.clone(), *need)).collect()
}

fn tolerates(flavor: &FlavorSpec, pods: &Constraints) -> bool {
    let all: Vec<&Toleration> = pods.tolerations.iter().chain(flavor.tolerations.iter()).collect();
    let mut taints = flavor.taints.iter();
    taints.all(|taint| {
        taint.effect == Effect::PreferNoSchedule
            || all.iter().any(|toleration| {
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
            })
    })
}

fn selects(flavor: &FlavorSpec, pods: &Constraints) -> bool {
    let mut labels = flavor.node_labels.iter();
    labels.all(|(label, found)| pods.node_selector.get(label).is_none_or(|wanted| wanted == found))
}

fn prefers(flavor: &FlavorSpec, pods: &Constraints) -> bool {
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
