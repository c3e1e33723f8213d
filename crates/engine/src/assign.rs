//! Flavor assignment: whether a shape fits, and in which flavors.
//!
//! A shape is resolved once per queue into a [`Plan`] (which resource of which pod set may come from which cells)
//! and the plan is judged against the quota that is free, as often as that changes. Pod sets are served in their
//! order, resource groups in the queue's order, and each takes the first flavor that has room for all it asks of
//! the group. An earlier choice is never taken back to make room for a later one.

use crate::amount::Amount;
use crate::arena::Column;
use crate::flavors::{FlavorSpec, Mismatch};
use crate::ids::Name;
use crate::quota::{CellId, Cells, FlavorId, Node, ResourceId, Slot};
use crate::report::{PodSetAssignment, WaitKind};
use crate::shapes::Shape;
use crate::spec::PodSetSpec;

/// The reserved resource that counts pods: asked for by every pod set of a queue that has quota for it, and never
/// by a request of that name.
pub(crate) const PODS: &str = "pods";

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
    pub(crate) slots: Vec<Slot>,
}

/// What a shape means in one queue.
#[derive(Debug)]
pub(crate) struct Plan {
    asks: Vec<Ask>,
    /// Two pod sets ask of one group, so what the first takes can be missing for the second.
    entangled: bool,
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
    pub(crate) resources: Vec<ResourceId>,
    /// For the whole pod set, in the order of `resources`; never zero.
    pub(crate) needs: Vec<i128>,
    /// The group's flavors, in order of preference.
    pub(crate) choices: Vec<Choice>,
}

/// A flavor that could serve an ask.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) flavor: FlavorId,
    pub(crate) admitted: Result<(), Mismatch>,
    /// In the order of [`Ask::resources`].
    pub(crate) slots: Vec<Slot>,
}

/// What judging a plan found.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It fits: the index of the choice for each ask.
    Fits(Vec<usize>),
    /// It does not.
    Lacks(Lack),
}

/// Where a plan got stuck and what has to happen before judging it again can end differently.
#[derive(Debug, Default)]
pub(crate) struct Lack {
    /// The ask that no choice serves.
    pub(crate) ask: usize,
    /// Slots in which at least this much must be free.
    pub(crate) until_free: Vec<(Slot, i128)>,
    /// Slots whose use may not grow: were they fuller, an earlier pod set would go elsewhere and leave room.
    pub(crate) until_fuller: Vec<Slot>,
    /// What earlier asks of the same unit would take.
    pub(crate) taken: Taken,
}

/// What asks judged earlier would take of each slot.
#[derive(Debug, Default)]
pub(crate) struct Taken(Vec<(Slot, i128)>);

impl Taken {
    pub(crate) fn of(&self, slot: Slot) -> i128 {
        self.0
            .iter()
            .find(|(taken, _)| *taken == slot)
            .map_or(0, |(_, amount)| *amount)
    }

    fn add(&mut self, slot: Slot, amount: i128) {
        match self.0.iter_mut().find(|(taken, _)| *taken == slot) {
            Some((_, sum)) => *sum = sum.saturating_add(amount),
            None => self.0.push((slot, amount)),
        }
    }
}

impl Plan {
    /// Resolves `shape` for a queue with these groups and quotas. (The flavors of an active queue all exist; one
    /// that does not serves nobody.)
    pub(crate) fn new(
        shape: &Shape,
        groups: &[Group],
        node: &Node,
        cells: &Cells,
        flavors: &Column<FlavorId, Option<FlavorSpec>>,
    ) -> Self {
        let mut asks = Vec::new();
        for (index, pod_set) in shape.iter().enumerate() {
            if let Err(resource) = resolve(index, pod_set, groups, cells, flavors, &mut asks) {
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
        plan.hopeless = plan.find_hopeless(node);
        plan
    }

    fn find_hopeless(&self, node: &Node) -> Option<Hopeless> {
        let Verdict::Lacks(lack) = self.judge_empty(node) else {
            return None;
        };
        let usable = self.asks[lack.ask].choices.iter().any(|choice| choice.admitted.is_ok());
        Some(if usable { Hopeless::TooLarge } else { Hopeless::NoFlavor })
    }

    /// Whether it fits into what is free in `node` now.
    pub(crate) fn judge(&self, node: &Node) -> Verdict {
        self.judge_against(node, |slot| node.free(slot))
    }

    /// Whether it would fit into `node` if nobody held anything.
    pub(crate) fn judge_empty(&self, node: &Node) -> Verdict {
        self.judge_against(node, |slot| node.limit(slot))
    }

    /// Which choices it would get if nothing were ever full.
    pub(crate) fn judge_unlimited(&self, node: &Node) -> Verdict {
        self.judge_against(node, |_| i128::MAX)
    }

    fn judge_against(&self, node: &Node, free: impl Fn(Slot) -> i128) -> Verdict {
        if matches!(self.hopeless, Some(Hopeless::NotCovered { .. })) {
            return Verdict::Lacks(Lack::default());
        }
        let mut chosen = Vec::with_capacity(self.asks.len());
        let mut lack = Lack::default();
        for (index, ask) in self.asks.iter().enumerate() {
            if !self.entangled {
                // Nothing that happens to an ask before this one can make room for it.
                lack.until_free.clear();
            }
            let usable = ask
                .choices
                .iter()
                .enumerate()
                .filter(|(_, choice)| choice.admitted.is_ok());
            let fitting = usable
                .map(|(at, choice)| (at, choice, ask.first_short(choice, &lack.taken, &free)))
                .find(|(_, choice, short)| {
                    if let Some(short) = short
                        && !ask.exceeds(choice, &lack.taken, node)
                    {
                        lack.until_free.push(*short);
                    }
                    short.is_none()
                });
            let Some((at, choice, _)) = fitting else {
                lack.ask = index;
                if self.entangled {
                    lack.until_fuller = lack.taken.0.iter().map(|(slot, _)| *slot).collect();
                }
                return Verdict::Lacks(lack);
            };
            chosen.push(at);
            for (slot, need) in choice.slots.iter().zip(&ask.needs) {
                lack.taken.add(*slot, *need);
            }
        }
        Verdict::Fits(chosen)
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

    pub(crate) fn hopeless(&self) -> Option<&Hopeless> {
        self.hopeless.as_ref()
    }

    pub(crate) fn ask(&self, index: usize) -> Option<&Ask> {
        self.asks.get(index)
    }

    /// What each pod set is given and what is charged, for the choices of [`Verdict::Fits`].
    pub(crate) fn assignment(
        &self,
        shape: &Shape,
        chosen: &[usize],
        node: &Node,
        cells: &Cells,
    ) -> (Vec<PodSetAssignment>, Vec<(CellId, Amount)>) {
        let mut pod_sets: Vec<_> = shape
            .iter()
            .map(|pod_set| PodSetAssignment {
                name: pod_set.name.clone(),
                count: pod_set.count.max(0),
                flavors: Vec::new(),
                usage: Vec::new(),
            })
            .collect();
        let mut charges = Vec::new();
        for (ask, choice) in self.asks.iter().zip(chosen).map(|(ask, at)| (ask, &ask.choices[*at])) {
            let given = &mut pod_sets[ask.pod_set];
            for ((resource, need), slot) in ask.resources.iter().zip(&ask.needs).zip(&choice.slots) {
                let (resource, amount) = (cells.resources.name(*resource), Amount::from_wide(*need));
                given
                    .flavors
                    .push((resource.clone(), cells.flavors.name(choice.flavor).clone()));
                given.usage.push((resource.clone(), amount));
                charges.push((node.cells()[slot_index(*slot)], amount));
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

fn slot_index(slot: Slot) -> usize {
    crate::arena::Id::index(slot)
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
    /// The first slot of `choice` without room, and how much would have to be free there.
    fn first_short(&self, choice: &Choice, taken: &Taken, free: &impl Fn(Slot) -> i128) -> Option<(Slot, i128)> {
        self.wants(choice, taken).find(|(slot, wanted)| *wanted > free(*slot))
    }

    /// Whether `choice` has no room even when nobody else holds anything.
    fn exceeds(&self, choice: &Choice, taken: &Taken, node: &Node) -> bool {
        self.wants(choice, taken)
            .any(|(slot, wanted)| wanted > node.limit(slot))
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
    for (group, needs) in groups.iter().zip(needs) {
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
            slots: asked.iter().map(|at| offered.slots[*at]).collect(),
        };
        asks.push(Ask {
            pod_set: index,
            resources: asked.iter().map(|at| group.resources[*at]).collect(),
            choices: group.flavors.iter().map(choice).collect(),
            needs: asked.iter().map(|at| needs[*at]).collect(),
        });
    }
    Ok(())
}
