//! What a shape asks of a queue: which resource of which pod set may come from which cells.
//!
//! A shape is resolved once per queue into a [`Plan`], and the plan is judged (`search`) as often as what is free changes.
//! Pod sets are served in their order, resource groups in the queue's order. An earlier choice is never taken back
//! to make room for a later one.

use smallvec::SmallVec;

use crate::amount::Amount;
use crate::arena::Column;
use crate::flavors::{FlavorSpec, Mismatch};
use crate::ids::Name;
use crate::quota::{CellId, Cells, FlavorId, ResourceId};
use crate::report::{PodSetAssignment, WaitKind};
use crate::search::Found;
use crate::spec::{Fungibility, PodSetSpec, Search};
use crate::tree::{Book, NodeId, Slot, Tree};
use crate::units::Charges;
use crate::victims::Needs;

/// The reserved resource that counts pods: asked for by every pod set of a queue that has quota for it, and never
/// by a request of that name.
pub(crate) const PODS: &str = "pods";

/// The largest need that can be served: amounts outside the engine have 63 bits.
pub(crate) const LARGEST: i128 = i64::MAX as i128;

/// A resource group of a queue with its names resolved.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) resources: Vec<ResourceId>,
    pub(crate) flavors: Vec<GroupFlavor>,
}

/// One flavor of a resource group.
#[derive(Debug)]
pub(crate) struct GroupFlavor {
    pub(crate) flavor: FlavorId,
    /// In the order of [`Group::resources`].
    pub(crate) cells: Vec<CellId>,
}

/// The choice for each ask of a plan, in the order of these.
pub(crate) type Chosen = SmallVec<[usize; 4]>;

/// What a shape means in one queue.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) asks: Vec<Ask>,
    /// Two pod sets ask of one group, so what the first takes can be missing for the second.
    pub(crate) entangled: bool,
    /// Why it cannot fit even while nobody holds anything, if so.
    hopeless: Option<Hopeless>,
}

/// Why a shape cannot fit in an empty queue.
#[derive(Clone, Debug)]
pub(crate) enum Hopeless {
    /// This pod set asks for a resource without quota.
    NotCovered { pod_set: usize, resource: Name },
    /// No flavor may be used for what a pod set asks of a group.
    NoFlavor,
    /// The flavors that may be used are too small.
    TooLarge,
}

/// What one pod set asks of one resource group.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) pod_set: usize,
    /// The resource group, by its place in the queue.
    pub(crate) group: usize,
    pub(crate) resources: SmallVec<[ResourceId; 4]>,
    /// For the whole pod set, in the order of `resources`; never zero.
    pub(crate) needs: SmallVec<[i128; 2]>,
    /// The group's flavors, in order of preference.
    pub(crate) choices: Vec<Choice>,
}

/// A flavor that could serve an ask.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) flavor: FlavorId,
    pub(crate) admitted: Result<(), Mismatch>,
    /// In the order of [`Ask::resources`].
    pub(crate) slots: SmallVec<[Slot; 4]>,
}

/// What asks judged earlier would take of each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken(Needs);

impl Taken {
    /// All of it, each slot once.
    pub(crate) fn into_needs(self) -> Needs {
        self.0
    }

    pub(crate) fn of(&self, slot: Slot) -> i128 {
        self.0
            .iter()
            .find(|(taken, _)| *taken == slot)
            .map_or(0, |(_, amount)| *amount)
    }

    pub(crate) fn add(&mut self, slot: Slot, amount: i128) {
        match self.0.iter_mut().find(|(taken, _)| *taken == slot) {
            Some((_, sum)) => *sum = sum.saturating_add(amount),
            None => self.0.push((slot, amount)),
        }
    }
}

impl Plan {
    /// Resolves `shape` for the queue at `node`, with these groups. (The flavors of an active queue all exist; one
    /// that does not serves nobody.)
    pub(crate) fn new(
        shape: &[PodSetSpec],
        groups: &[Group],
        tree: &Tree,
        node: NodeId,
        fungibility: Fungibility,
        cells: &Cells,
        flavors: &Column<FlavorId, Option<FlavorSpec>>,
    ) -> Self {
        let mut asks = Vec::new();
        for (index, pod_set) in shape.iter().enumerate() {
            if let Err(resource) = resolve(index, pod_set, groups, tree, cells, flavors, &mut asks) {
                let hopeless = Some(Hopeless::NotCovered {
                    pod_set: index,
                    resource,
                });
                return Self {
                    asks: Vec::new(),
                    entangled: false,
                    hopeless,
                };
            }
        }
        let entangled = asks.iter().enumerate().any(|(index, ask)| {
            asks[..index]
                .iter()
                .any(|before| before.pod_set != ask.pod_set && overlap(before, ask))
        });
        let mut plan = Self {
            asks,
            entangled,
            hopeless: None,
        };
        let stuck = plan.stuck_when_empty(tree, node, fungibility);
        plan.hopeless = stuck.map(|(ask, _)| {
            let usable = plan.asks[ask].choices.iter().any(|choice| choice.admitted.is_ok());
            if usable { Hopeless::TooLarge } else { Hopeless::NoFlavor }
        });
        plan
    }

    /// The ask that no flavor serves even while nobody in the tree holds anything, if there is one, and what those before
    /// it take then.
    pub(crate) fn stuck_when_empty(
        &self,
        tree: &Tree,
        node: NodeId,
        fungibility: Fungibility,
    ) -> Option<(usize, Taken)> {
        let mut taken = Taken::default();
        for (index, ask) in self.asks.iter().enumerate() {
            let mut best: Option<(u32, usize)> = None;
            for (at, choice) in ask.choices.iter().enumerate() {
                let mut wants = ask.wants(choice, &taken);
                if choice.admitted.is_err()
                    || wants.any(|(slot, need)| need > tree.state(node, slot).potential.min(LARGEST))
                {
                    continue;
                }
                let levels = ask.wants(choice, &taken);
                let level = levels.map(|(slot, need)| tree.level_when_empty(node, slot, need)).max();
                let level = level.unwrap_or(0);
                if best.is_none_or(|(least, _)| level < least) {
                    best = Some((level, at));
                }
                if level == 0 || fungibility.when_can_borrow == Search::Stop {
                    break;
                }
            }
            let Some((_, at)) = best else {
                return Some((index, taken));
            };
            ask.take(at, &mut taken);
        }
        None
    }

    /// The choices of these flavors, one for each ask, with what they take and its level, if that fits now.
    pub(crate) fn with_flavors(&self, flavors: &[FlavorId], tree: &Tree, node: NodeId) -> Option<Found> {
        if flavors.len() != self.asks.len() {
            return None;
        }
        let mut taken = Taken::default();
        let mut chosen = Chosen::new();
        for (ask, flavor) in self.asks.iter().zip(flavors) {
            let is_it = |choice: &Choice| choice.flavor == *flavor && choice.admitted.is_ok();
            let at = ask.choices.iter().position(is_it)?;
            ask.take(at, &mut taken);
            chosen.push(at);
        }
        let needs = taken.into_needs();
        let fits = needs.iter().all(|(_, need)| *need <= LARGEST) && tree.fits(node, &needs, Book::Planned);
        let level = needs.iter().map(|(slot, need)| tree.level(node, *slot, *need)).max();
        fits.then(|| Found {
            level: level.unwrap_or(0),
            chosen,
            needs,
            victims: Vec::new(),
        })
    }

    /// The first flavor that serves each ask when at most `bound` may be used of each slot, and what they take.
    pub(crate) fn first_choices(&self, bound: impl Fn(Slot) -> i128) -> Option<(Chosen, Taken)> {
        let mut taken = Taken::default();
        let mut chosen = Chosen::new();
        for ask in &self.asks {
            let serves = |choice: &Choice| {
                choice.admitted.is_ok()
                    && ask
                        .wants(choice, &taken)
                        .all(|(slot, need)| need <= bound(slot).min(LARGEST))
            };
            let at = ask.choices.iter().position(serves)?;
            ask.take(at, &mut taken);
            chosen.push(at);
        }
        Some((chosen, taken))
    }

    /// Why it waits when it does not fit.
    pub(crate) fn kind(&self) -> WaitKind {
        match self.hopeless {
            None => WaitKind::WaitingForQuota,
            Some(Hopeless::NotCovered { .. }) => WaitKind::ResourceNotCovered,
            Some(Hopeless::NoFlavor) => WaitKind::NoMatchingFlavor,
            Some(Hopeless::TooLarge) => WaitKind::ExceedsMaxQuota,
        }
    }

    /// Whether it asks for a resource without quota.
    pub(crate) fn is_uncovered(&self) -> bool {
        matches!(self.hopeless, Some(Hopeless::NotCovered { .. }))
    }

    pub(crate) fn hopeless(&self) -> Option<&Hopeless> {
        self.hopeless.as_ref()
    }

    pub(crate) fn ask(&self, index: usize) -> Option<&Ask> {
        self.asks.get(index)
    }

    /// What each pod set is given and what is charged, with these choices, one for each ask.
    pub(crate) fn assignment(
        &self,
        shape: &[PodSetSpec],
        chosen: &[usize],
        tree: &Tree,
        cells: &Cells,
    ) -> (Vec<PodSetAssignment>, Charges) {
        let given = |(index, pod_set): (usize, &PodSetSpec)| {
            let asks = self.asks.iter().filter(|ask| ask.pod_set == index);
            let resources = asks.map(|ask| ask.resources.len()).sum();
            PodSetAssignment {
                name: pod_set.name.clone(),
                count: pod_set.count.max(0),
                flavors: Vec::with_capacity(resources),
                usage: Vec::with_capacity(resources),
            }
        };
        let mut pod_sets: Vec<_> = shape.iter().enumerate().map(given).collect();
        let mut charges = Charges::new();
        for (ask, choice) in self.asks.iter().zip(chosen).map(|(ask, at)| (ask, &ask.choices[*at])) {
            let given = &mut pod_sets[ask.pod_set];
            for ((resource, need), slot) in ask.resources.iter().zip(&ask.needs).zip(&choice.slots) {
                let (resource, amount) = (cells.resources.name(*resource), Amount::from_wide(*need));
                given
                    .flavors
                    .push((resource.clone(), cells.flavors.name(choice.flavor).clone()));
                given.usage.push((resource.clone(), amount));
                charges.push((tree.cell_of(*slot), amount));
            }
        }
        for given in &mut pod_sets {
            given.flavors.sort_unstable();
            given.usage.sort_unstable();
        }
        charges.sort_unstable();
        (pod_sets, charges)
    }
}

fn overlap(one: &Ask, other: &Ask) -> bool {
    one.choices.iter().any(|choice| {
        other
            .choices
            .iter()
            .any(|their| choice.slots.iter().any(|slot| their.slots.contains(slot)))
    })
}

impl Ask {
    /// Adds what the choice takes to what earlier asks take.
    pub(crate) fn take(&self, at: usize, taken: &mut Taken) {
        for (slot, need) in self.choices[at].slots.iter().zip(&self.needs) {
            taken.add(*slot, *need);
        }
    }

    /// What has to be free in each slot of `choice`, in the order of [`Ask::resources`].
    pub(crate) fn wants(&self, choice: &Choice, taken: &Taken) -> impl Iterator<Item = (Slot, i128)> {
        choice
            .slots
            .iter()
            .zip(&self.needs)
            .map(|(slot, need)| (*slot, need.saturating_add(taken.of(*slot))))
    }
}

/// Appends what `pod_set` asks of each group, or names a resource that it asks for and no group covers.
fn resolve(
    index: usize,
    pod_set: &PodSetSpec,
    groups: &[Group],
    tree: &Tree,
    cells: &Cells,
    flavors: &Column<FlavorId, Option<FlavorSpec>>,
    asks: &mut Vec<Ask>,
) -> Result<(), Name> {
    let count = i128::from(pod_set.count.max(0));
    let mut needs: Vec<Vec<i128>> = groups.iter().map(|group| vec![0; group.resources.len()]).collect();
    let place = |name: &str| {
        let id = cells.resources.find(name)?;
        groups
            .iter()
            .enumerate()
            .find_map(|(at, group)| Some((at, group.resources.iter().position(|resource| *resource == id)?)))
    };
    for (resource, amount) in pod_set.per_pod.iter().filter(|(resource, _)| &**resource != PODS) {
        let need = amount.wide().saturating_mul(count);
        if need > 0 {
            let (group, at) = place(resource).ok_or_else(|| resource.clone())?;
            needs[group][at] = needs[group][at].saturating_add(need);
        }
    }
    if let Some((group, at)) = place(PODS) {
        needs[group][at] = count;
    }
    for (index_of_group, (group, needs)) in groups.iter().zip(needs).enumerate() {
        let asked: Vec<usize> = (0..needs.len()).filter(|at| needs[*at] > 0).collect();
        if asked.is_empty() {
            continue;
        }
        let choice = |offered: &GroupFlavor| Choice {
            flavor: offered.flavor,
            admitted: flavors
                .get(offered.flavor)
                .and_then(Option::as_ref)
                .map_or(Ok(()), |flavor| flavor.admits(&pod_set.constraints)),
            slots: asked.iter().filter_map(|at| tree.find(offered.cells[*at])).collect(),
        };
        asks.push(Ask {
            pod_set: index,
            group: index_of_group,
            resources: asked.iter().map(|at| group.resources[*at]).collect(),
            choices: group.flavors.iter().map(choice).collect(),
            needs: asked.iter().map(|at| needs[*at]).collect(),
        });
    }
    Ok(())
}
