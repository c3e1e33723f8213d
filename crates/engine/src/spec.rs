//! What goes in: queues, units and the events that carry them.
//!
//! Every value is a complete state ("this is the queue now"), never a change, so that applying one twice is the
//! same as applying it once and the order between kinds does not matter.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::amount::Amount;
use crate::flavors::{Constraints, FlavorSpec};
use crate::ids::{LocalQueueKey, Name, Time, Uid};

/// How a queue goes on when the unit at its head does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// The head blocks everyone behind it until it fits, even when it never can. Units that are set aside (gated,
    /// in back-off, in a blocked LocalQueue) are not heads and block nobody.
    StrictFifo,
    /// The head steps aside and the next unit is tried.
    #[default]
    BestEffortFifo,
}

/// A ClusterQueue as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSpec {
    /// Its name.
    pub name: Name,
    /// The cohort that it shares quota with, if any; the cohort need not exist as an object.
    pub cohort: Option<Name>,
    /// What happens when its head does not fit.
    pub strategy: Strategy,
    /// Its quota. A resource appears in at most one group.
    pub groups: Vec<ResourceGroup>,
    /// Whom its units may evict to get room.
    pub preemption: Preemption,
    /// How long the search for a flavor goes on, and which find is best.
    pub fungibility: Fungibility,
    /// Its weight in fair sharing.
    pub weight: Weight,
    /// Its units are ordered by the past usage of their LocalQueues first, where the [`Settings`] say how that is counted.
    pub by_past_usage: bool,
    /// Why the caller wants it inactive, if it does: stopped, being deleted, using a field not acted on.
    pub inactive: Option<Inactive>,
    /// Its running units are to be evicted.
    pub drain: bool,
    /// What it has beyond Kueue's rules, all off by default.
    pub extras: Extras,
}

/// A Cohort object as it is now. A cohort that ClusterQueues name and that is no object has no quota of its own and
/// no parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortSpec {
    /// Its name.
    pub name: Name,
    /// The cohort that it is a member of; must exist as an object.
    pub parent: Option<Name>,
    /// Quota of its own, for all its members.
    pub groups: Vec<ResourceGroup>,
    /// Its weight in fair sharing.
    pub weight: Weight,
}

/// A weight in fair sharing, in thousand-millionths; the default is one. Zero: whoever borrows has an infinite share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Weight(pub u64);

impl Weight {
    /// One.
    pub const ONE: Self = Self(1_000_000_000);
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

/// Whom the units of a ClusterQueue may evict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Preemption {
    /// Units of the same ClusterQueue.
    pub within_queue: WithinQueue,
    /// Units of other ClusterQueues of the cohort that borrow, for quota that is the queue's own.
    pub reclaim: Reclaim,
    /// Units of other ClusterQueues that borrow, also when the preemptor borrows itself.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

/// `withinClusterQueue`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WithinQueue {
    /// Nobody.
    #[default]
    Never,
    /// Units of lower priority.
    LowerPriority,
    /// Units of lower priority, and later queued ones of the same.
    LowerOrNewerEqualPriority,
}

/// `reclaimWithinCohort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reclaim {
    /// Nobody.
    #[default]
    Never,
    /// Units of lower priority.
    LowerPriority,
    /// Units of any priority.
    Any,
}

/// `borrowWithinCohort` with policy `LowerPriority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BorrowWithinCohort {
    /// Only units of at most this priority.
    pub max_priority: Option<i32>,
}

/// `flavorFungibility`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fungibility {
    /// When a flavor fits by borrowing.
    pub when_can_borrow: Search,
    /// When a flavor fits by preemption.
    pub when_can_preempt: Search,
    /// Which of the flavors looked at is best.
    pub preference: Preference,
}

impl Default for Fungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: Search::Stop,
            when_can_preempt: Search::TryNextFlavor,
            preference: Preference::BorrowingOverPreemption,
        }
    }
}

/// Whether the search for a flavor goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Search {
    /// This flavor is taken (`MayStopSearch`).
    Stop,
    /// The next flavor is looked at too.
    TryNextFlavor,
}

/// What is worse: to borrow or to preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Preference {
    /// To preempt is worse.
    BorrowingOverPreemption,
    /// To borrow is worse.
    PreemptionOverBorrowing,
}

/// Rules of a ClusterQueue beyond Kueue's, each off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extras {
    /// A head that does not fit blocks only units behind it that could use a flavor it waits for. For StrictFIFO.
    pub fifo_per_pool: bool,
    /// Units behind a head that does not fit may start only if that does not delay it.
    pub backfill: bool,
    /// How fast waiting raises a unit in the queue order.
    pub ageing: Option<Ageing>,
    /// A unit that has run for less than this many milliseconds is no candidate for preemption.
    pub min_run_ms: i64,
    /// Usage above the quota is evicted after this many milliseconds, if set.
    pub shrink_after_ms: Option<i64>,
}

/// How fast waiting raises a unit in the queue order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ageing {
    /// Milliseconds of waiting that are worth one step of priority; at least one.
    pub ms_per_step: i64,
    /// How many steps waiting can be worth at most; at least one.
    pub max_steps: i32,
}

/// Rules of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Shares decide on order and preemption within cohorts.
    pub fair_sharing: Option<FairSharing>,
    /// How past usage of LocalQueues is counted; not at all if none.
    pub past_usage: Option<PastUsageRules>,
    /// A unit is admitted only when all admitted ones have their pods ready.
    pub block_admission: bool,
}

/// How past usage of LocalQueues is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastUsageRules {
    /// Milliseconds after which past usage counts half; with zero or less it is forgotten at once.
    pub half_life_ms: i64,
    /// Milliseconds from one sample of what is held to the next; at least one.
    pub sampling_ms: i64,
    /// What one unit of a resource counts, in thousand-millionths; one for those not named. Of cpu the unit is a whole one,
    /// not a thousandth.
    pub resource_weights: BTreeMap<Name, u64>,
}

/// When a share allows a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FairSharing {
    /// The first rule tried: with every candidate.
    pub first: ShareRule,
    /// The rule tried when the first did not find enough.
    pub second: Option<ShareRule>,
}

/// A rule of fair sharing that allows a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ShareRule {
    /// The preemptor's share is at most what the victim's side has without the victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share is less than what the victim's side has with the victim.
    LessThanInitialShare,
}

/// Resources that are given out together: one flavor per pod set serves all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroup {
    /// The resources that this group covers.
    pub resources: Vec<Name>,
    /// The flavors, in order of preference.
    pub flavors: Vec<FlavorQuota>,
}

/// How much of each resource of a group a queue may use in one flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlavorQuota {
    /// The flavor.
    pub flavor: Name,
    /// The quota of each resource, in the order of [`ResourceGroup::resources`].
    pub quotas: Vec<Quota>,
}

/// How much of one resource in one flavor a ClusterQueue or Cohort has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quota {
    /// What it brings into its cohort, and has for itself without one.
    pub nominal: Amount,
    /// The most that it and its members may use beyond their own; no limit if none.
    pub borrowing_limit: Option<Amount>,
    /// The most of its own that others may use; everything if none.
    pub lending_limit: Option<Amount>,
}

impl From<Amount> for Quota {
    fn from(nominal: Amount) -> Self {
        Self {
            nominal,
            ..Self::default()
        }
    }
}

/// Why a queue admits nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inactive {
    /// One word for machines, as in a condition's reason.
    pub reason: Name,
    /// A sentence for people.
    pub message: Name,
}

/// A LocalQueue as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalQueueSpec {
    /// Which LocalQueue.
    pub key: LocalQueueKey,
    /// The ClusterQueue that it leads to.
    pub queue: Name,
    /// Why its units may not be considered, if so: stopped, or its namespace is not selected.
    pub blocked: Option<Blocked>,
    /// Its running units are to be evicted.
    pub drain: bool,
    /// Its weight where units are ordered by past usage; zero: last.
    pub weight: Weight,
    /// What it is known to have used in the past, with which counting begins: when it appears, and whenever this changes.
    pub past_usage: Option<PastUsage>,
}

/// What a LocalQueue used in the past, as far as it still counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastUsage {
    /// By resource.
    pub consumed: BTreeMap<Name, Amount>,
    /// When that was so.
    pub at: Time,
}

/// Why the units of a LocalQueue are set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// One word for machines.
    pub reason: Name,
    /// A sentence for people.
    pub message: Name,
}

/// Pods of one template that start together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodSetSpec {
    /// Its name within the unit.
    pub name: Name,
    /// How many pods; a negative count is none.
    pub count: i64,
    /// The fewest pods that it may be admitted with instead, if it may; at most one pod set of a unit has this.
    pub min_count: Option<i64>,
    /// What one pod asks for, sorted by resource, each resource once.
    pub per_pod: Vec<(Name, Amount)>,
    /// Where its pods may run.
    pub constraints: Arc<Constraints>,
}

/// A unit that waits to be admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSpec {
    /// Its identity.
    pub uid: Uid,
    /// The LocalQueue that it was submitted to.
    pub local_queue: LocalQueueKey,
    /// Higher goes first.
    pub priority: i32,
    /// Among equal priorities, earlier goes first.
    pub queued_at: Time,
    /// What it asks for.
    pub pod_sets: Vec<PodSetSpec>,
    /// Why it must not be considered at all, if so.
    pub gate: Option<Gate>,
    /// The instant before which it must not be considered, if there is one.
    pub not_before: Option<Time>,
    /// The most milliseconds that it can hold quota once admitted, its grace period included, if that is known.
    pub runs_at_most_ms: Option<i64>,
}

/// Why a single unit is set aside until it changes: an unsupported request, a missing priority class, a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// One word for machines.
    pub reason: Name,
    /// A sentence for people.
    pub message: Name,
}

/// A unit that holds quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargedUnit {
    /// Its identity.
    pub uid: Uid,
    /// The ClusterQueue that it is charged to.
    pub queue: Name,
    /// The LocalQueue that it came through.
    pub local_queue: LocalQueueKey,
    /// Its priority.
    pub priority: i32,
    /// Its queue time.
    pub queued_at: Time,
    /// When it was given its quota.
    pub reserved_at: Time,
    /// When it must be evicted, and why, if nothing else happens before; the earliest counts.
    pub deadlines: Vec<Deadline>,
    /// The latest instant at which its quota is free again, if that is known.
    pub ends_at: Option<Time>,
    /// Its pods are all ready, or were.
    pub pods_ready: bool,
    /// What it holds. Charges on the same flavor and resource add up.
    pub charges: Vec<Charge>,
    /// Where it is in its life.
    pub phase: Phase,
}

/// An amount of one resource held in one flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// How much.
    pub amount: Amount,
}

/// An instant at which a unit that holds quota is to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Deadline {
    /// When.
    pub at: Time,
    /// Why.
    pub cause: Overdue,
}

/// What a unit was too slow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Overdue {
    /// Its pods were not ready in time.
    PodsReady,
    /// A pod of it stopped being ready and was not replaced in time.
    Recovery,
    /// It was to be done by then.
    ExecutionTime,
}

/// Where a unit that holds quota is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Decided here, not yet known to be written.
    Assumed,
    /// Written and running.
    Admitted,
    /// Told to stop; its pods may still run.
    Evicting,
    /// Its object is gone or done; its pods may still run.
    Leaving,
}

/// A change of the world outside. Each carries the complete new state of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A flavor exists and looks like this.
    SetFlavor(FlavorSpec),
    /// A flavor is gone.
    RemoveFlavor(Name),
    /// A ClusterQueue exists and looks like this.
    SetQueue(QueueSpec),
    /// A ClusterQueue is gone. What is charged to it is remembered.
    RemoveQueue(Name),
    /// A Cohort object exists and looks like this.
    SetCohort(CohortSpec),
    /// A Cohort object is gone.
    RemoveCohort(Name),
    /// These rules hold for the whole cluster.
    SetSettings(Settings),
    /// A LocalQueue exists and looks like this.
    SetLocalQueue(LocalQueueSpec),
    /// A LocalQueue is gone. Its units wait until it is back.
    RemoveLocalQueue(LocalQueueKey),
    /// A unit waits. If it held quota, that is free again.
    SetWaiting(UnitSpec),
    /// A unit holds quota, fitting or not. If it waited, it no longer does.
    SetCharged(ChargedUnit),
    /// A unit is gone, with whatever it held.
    RemoveUnit(Uid),
}
