//! ClusterQueues: order, quota and parking lot of each.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::arena::{Arena, Column, define_id};
use crate::assign::{Group, GroupFlavor};
use crate::backfill::Reservation;
use crate::flavors::FlavorSpec;
use crate::ids::{Name, Time, Uid};
use crate::local_queue::LocalQueueId;
use crate::order::{Order, Ranking};
use crate::parking::Parking;
use crate::quota::{Books, CellId, Cells, FlavorId};
use crate::ranked::Turn;
use crate::spec::{Fungibility, Inactive, QueueSpec, Quota, Reclaim, ResourceGroup, Strategy, WithinQueue};
use crate::tree::{NodeId, Slot, TreeId};
use crate::units::UnitId;
use crate::victims::{Needs, Rank};

define_id! {
    /// A ClusterQueue that exists or is spoken of.
    QueueId
}

/// A ClusterQueue: kept while it exists, a LocalQueue leads to it or a unit is charged to it.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Name,
    /// As last set; none while it does not exist.
    pub(crate) spec: Option<QueueSpec>,
    /// Its resource groups with names resolved.
    pub(crate) groups: Vec<Group>,
    /// Whether it admits units.
    pub(crate) state: Result<(), Inactive>,
    /// Its quota per cell, in the order of its spec.
    pub(crate) quotas: Vec<(CellId, Quota)>,
    /// Its place among the cohorts; none while it does not exist.
    pub(crate) place: Option<(TreeId, NodeId)>,
    /// What its units hold.
    pub(crate) books: Books,
    /// Its admitted units, in the order in which others evict them.
    pub(crate) running: BTreeSet<Rank>,
    /// Units that count as planned and whose end is known, by that end, rounded up.
    pub(crate) ends: BTreeSet<(Time, UnitId)>,
    /// Units of one shape are told apart by how long they may run: its tree has reservations that these can pass.
    pub(crate) keeps_ends: bool,
    /// The reservation that its parked units were judged by.
    pub(crate) judged_by: Option<Reservation>,
    /// Units that evicted others and still wait, and what they did it for.
    pub(crate) preemptors: BTreeMap<Turn, Option<Kept>>,
    /// Claims of its units at the end of the last pass.
    pub(crate) claims: BTreeMap<Turn, Claim>,
    /// Units that were last found to block cells, where units are asked by pool, and which.
    pub(crate) blockers: Vec<(Turn, Vec<Slot>)>,
    /// All units that wait in it, those set aside included.
    pub(crate) order: Order,
    /// Those of them that may be considered.
    pub(crate) parking: Parking,
    pub(crate) local_queues: BTreeSet<LocalQueueId>,
    /// Its units are ordered by what their LocalQueues used in the past.
    pub(crate) by_past_usage: bool,
    /// Its LocalQueues by that, if so.
    pub(crate) ranking: Ranking,
    /// It is already listed as changed.
    pub(crate) changed: bool,
    /// The reasons of all its units must be looked at again.
    pub(crate) resettle: bool,
    /// Whom the others were last said to be behind, in a StrictFIFO queue.
    pub(crate) reported_head: Option<Uid>,
    /// When another unit will be first by the passing of time alone, in a StrictFIFO queue.
    pub(crate) head_change: Option<Time>,
}

/// What a preemptor would be given: forgotten when its queue changes.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// The flavor for each ask of its plan.
    pub(crate) flavors: Vec<FlavorId>,
    /// How many pods, if fewer than it asks for.
    pub(crate) reduced: Option<i64>,
}

/// What a waiting unit keeps others from taking while it waits for what is going away.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) needs: Needs,
    /// It is not sure to get it: it only holds back what its queue could not take back.
    pub(crate) reserve: bool,
    /// The reservation that it is for, where others may pass the unit.
    pub(crate) reserved: Option<Box<Reservation>>,
}

impl Queue {
    fn new(name: Name) -> Self {
        Self {
            name,
            spec: None,
            groups: Vec::new(),
            state: Ok(()),
            quotas: Vec::new(),
            place: None,
            books: Books::default(),
            running: BTreeSet::new(),
            ends: BTreeSet::new(),
            keeps_ends: false,
            judged_by: None,
            preemptors: BTreeMap::new(),
            claims: BTreeMap::new(),
            blockers: Vec::new(),
            order: Order::default(),
            parking: Parking::default(),
            local_queues: BTreeSet::new(),
            by_past_usage: false,
            ranking: Ranking::default(),
            changed: false,
            resettle: false,
            reported_head: None,
            head_change: None,
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.spec
            .as_ref()
            .is_some_and(|spec| spec.strategy == Strategy::StrictFifo)
    }

    /// Whether its first unit blocks only those behind that want a flavor which it waits for.
    pub(crate) fn is_by_pool(&self) -> bool {
        let by_pool = self.spec.as_ref().is_some_and(|spec| spec.extras.fifo_per_pool);
        self.is_strict() && by_pool && !self.is_backfilled()
    }

    /// Whether its first unit blocks everyone behind it.
    pub(crate) fn has_blocking_head(&self) -> bool {
        self.is_strict() && !self.is_by_pool() && !self.is_backfilled()
    }

    /// Whether its units may be admitted at all.
    pub(crate) fn is_open(&self) -> bool {
        self.spec.is_some() && self.state.is_ok()
    }

    /// The flavors that it names.
    pub(crate) fn flavors(&self) -> impl Iterator<Item = FlavorId> {
        self.groups
            .iter()
            .flat_map(|group| group.flavors.iter().map(|offered| offered.flavor))
    }

    pub(crate) fn fungibility(&self) -> Fungibility {
        self.spec
            .as_ref()
            .map_or_else(Fungibility::default, |spec| spec.fungibility)
    }

    /// Whether its units may evict anybody.
    pub(crate) fn may_preempt(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| {
            spec.preemption.within_queue != WithinQueue::Never || spec.preemption.reclaim != Reclaim::Never
        })
    }

    /// How long a unit must have run before it may be evicted for others, in milliseconds.
    pub(crate) fn min_run_ms(&self) -> i64 {
        self.spec.as_ref().map_or(0, |spec| spec.extras.min_run_ms.max(0))
    }

    /// Replaces the spec; what is in use stays.
    pub(crate) fn set_spec(&mut self, spec: Option<QueueSpec>, cells: &mut Cells) {
        self.preemptors.values_mut().for_each(|kept| *kept = None);
        let groups = spec.as_ref().map_or(&[][..], |spec| &spec.groups);
        self.quotas = quotas(groups, cells);
        self.groups = groups
            .iter()
            .map(|group| {
                let resources: Vec<_> = group
                    .resources
                    .iter()
                    .map(|name| cells.resources.intern(name))
                    .collect();
                let flavors = group.flavors.iter().map(|offered| {
                    let flavor = cells.flavors.intern(&offered.flavor);
                    let cells = resources
                        .iter()
                        .map(|resource| cells.intern(flavor, *resource))
                        .collect();
                    GroupFlavor { flavor, cells }
                });
                let flavors = flavors.collect();
                Group { resources, flavors }
            })
            .collect();
        self.spec = spec;
    }

    /// Whether it can admit units, with these flavors: what the caller says, else what is wrong with its spec,
    /// else a flavor that does not exist, else what is wrong with its cohorts.
    pub(crate) fn find_state(
        &self,
        flavors: &Column<FlavorId, Option<FlavorSpec>>,
        cells: &Cells,
        cohort_fault: Option<Name>,
    ) -> Result<(), Inactive> {
        let Some(spec) = &self.spec else { return Ok(()) };
        if let Some(inactive) = &spec.inactive {
            return Err(inactive.clone());
        }
        if let Some(fault) = find_fault(spec) {
            return Err(Inactive {
                reason: "InvalidSpec".into(),
                message: fault.into(),
            });
        }
        let missing: Vec<&str> = self
            .flavors()
            .filter(|flavor| flavors.get(*flavor).is_none_or(Option::is_none))
            .map(|flavor| &**cells.flavors.name(flavor))
            .collect();
        if missing.is_empty() {
            return cohort_fault.map_or(Ok(()), |message| {
                Err(Inactive {
                    reason: "CohortInvalid".into(),
                    message,
                })
            });
        }
        let (noun, verb) = if missing.len() == 1 {
            ("ResourceFlavor", "does")
        } else {
            ("ResourceFlavors", "do")
        };
        let message = format!("{noun} {} {verb} not exist", missing.join(", "));
        Err(Inactive {
            reason: "FlavorNotFound".into(),
            message: message.into(),
        })
    }
}

/// The quota of each cell, in the order given. A resource without a quota has none of it.
pub(crate) fn quotas(groups: &[ResourceGroup], cells: &mut Cells) -> Vec<(CellId, Quota)> {
    let mut quotas = Vec::new();
    for group in groups {
        for offered in &group.flavors {
            let given = offered
                .quotas
                .iter()
                .copied()
                .chain(std::iter::repeat(Quota::default()));
            for (resource, quota) in group.resources.iter().zip(given) {
                quotas.push((cells.intern_names(&offered.flavor, resource), quota));
            }
        }
    }
    quotas
}

/// What makes a spec meaningless. The API refuses such objects; one that slipped through must not stop others.
fn find_fault(spec: &QueueSpec) -> Option<String> {
    if (spec.extras.fifo_per_pool || spec.extras.backfill) && (spec.extras.ageing.is_some() || spec.by_past_usage) {
        return Some("backfill and FIFO per pool cannot be combined with ageing or past usage".to_owned());
    }
    let mut covered = BTreeSet::new();
    for group in &spec.groups {
        if let Some(twice) = group
            .resources
            .iter()
            .find(|resource| !covered.insert((*resource).clone()))
        {
            return Some(format!("resource {twice} is covered twice"));
        }
        let mut offered = BTreeSet::new();
        for quota in &group.flavors {
            let flavor = &quota.flavor;
            if !offered.insert(flavor.clone()) {
                return Some(format!("flavor {flavor} is listed twice in one resource group"));
            }
            if quota.quotas.len() != group.resources.len() {
                return Some(format!(
                    "flavor {flavor} does not give a quota for each covered resource"
                ));
            }
        }
    }
    None
}

/// All ClusterQueues by name.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    arena: Arena<QueueId, Queue>,
    ids: FxHashMap<Name, QueueId>,
}

impl Queues {
    pub(crate) fn find(&self, name: &str) -> Option<QueueId> {
        self.ids.get(name).copied()
    }

    /// The id of `name`, from now on spoken of.
    pub(crate) fn ensure(&mut self, name: &Name) -> QueueId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let id = self.arena.insert(Queue::new(name.clone()));
        self.ids.insert(name.clone(), id);
        id
    }

    /// Forgets a queue that neither exists nor is spoken of; true if it is gone.
    pub(crate) fn collect(&mut self, id: QueueId) -> bool {
        if let Some(idle) = self.get(id)
            && idle.spec.is_none()
            && idle.local_queues.is_empty()
            && idle.books.reserving == 0
            && let Some(gone) = self.arena.remove(id)
        {
            self.ids.remove(&gone.name);
            return true;
        }
        false
    }

    pub(crate) fn get(&self, id: QueueId) -> Option<&Queue> {
        self.arena.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: QueueId) -> Option<&mut Queue> {
        self.arena.get_mut(id)
    }

    /// In the order of their names, which costs sorting them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (QueueId, &Queue)> {
        let mut all: Vec<(&Name, QueueId)> = self.ids.iter().map(|(name, id)| (name, *id)).collect();
        all.sort_unstable();
        all.into_iter().filter_map(|(_, id)| Some((id, self.arena.get(id)?)))
    }
}
