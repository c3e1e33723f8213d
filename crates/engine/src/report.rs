//! What comes out: decisions, and states as data. Sentences are made from the data, never the other way round.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::amount::Amount;
use crate::flavors::Mismatch;
use crate::ids::{LocalQueueKey, Name, Time, Uid};
use crate::spec::{Blocked, Gate, Inactive};

/// What one pass decided.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The decisions, in the order in which they were made.
    pub actions: Vec<Action>,
    /// The next instant at which time alone changes something; none when only events can.
    pub next: Option<Time>,
}

/// One decision.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// A waiting unit gets quota: it is charged from now on ([`crate::Phase::Assumed`]) until an event says otherwise.
    Admit(Admission),
    /// A unit that holds quota is to be stopped: it counts as [`crate::Phase::Evicting`] from now on until an event says
    /// otherwise.
    Evict(Eviction),
}

/// Who is evicted and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// The unit.
    pub uid: Uid,
    /// The ClusterQueue that it is charged to.
    pub queue: Name,
    /// Why.
    pub cause: EvictionCause,
}

/// Why a unit is evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EvictionCause {
    /// To make room.
    Preempted {
        /// The unit that gets the room.
        by: Uid,
        /// The ClusterQueue that this one waits in.
        queue: Name,
        /// By which right.
        reason: PreemptionReason,
    },
    /// Its ClusterQueue is drained.
    ClusterQueueStopped,
    /// Its LocalQueue is drained.
    LocalQueueStopped,
    /// A deadline has passed.
    Overdue(crate::Overdue),
    /// Its ClusterQueue uses more than its quota, which was lowered.
    QuotaShrunk,
}

/// By which right a unit evicts another: the words of Kueue's `Preempted` condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PreemptionReason {
    /// Priority within the ClusterQueue.
    InClusterQueue,
    /// The quota was lent to the victim's ClusterQueue.
    InCohortReclamation,
    /// The victim's share is larger.
    InCohortFairSharing,
    /// Priority in the cohort, while the preemptor borrows too.
    InCohortReclaimWhileBorrowing,
}

impl PreemptionReason {
    /// The word for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortFairSharing => "InCohortFairSharing",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }
}

/// How a unit is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// The unit.
    pub uid: Uid,
    /// The ClusterQueue that is charged.
    pub queue: Name,
    /// The LocalQueue that it came through.
    pub local_queue: LocalQueueKey,
    /// What each pod set is given, in the order of the unit's pod sets.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// What one pod set is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSetAssignment {
    /// The pod set.
    pub name: Name,
    /// How many pods of it.
    pub count: i64,
    /// Which flavor serves each resource, by resource. Only resources asked for are listed.
    pub flavors: Vec<(Name, Name)>,
    /// What the whole pod set uses of each of these resources, by resource.
    pub usage: Vec<(Name, Amount)>,
}

/// A waiting unit: where it stands and why it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The unit.
    pub uid: Uid,
    /// The LocalQueue that it was submitted to.
    pub local_queue: LocalQueueKey,
    /// The ClusterQueue that it waits in, if its LocalQueue exists.
    pub queue: Option<Name>,
    /// How many units of that ClusterQueue are ahead of it in queue order, those set aside included.
    pub position: Option<usize>,
    /// The first units of that ClusterQueue that are ahead of it, in queue order, at most [`Waiting::AHEAD`].
    pub ahead: Vec<Uid>,
    /// Why it waits.
    pub reason: WaitReason,
    /// If it waits for quota: when there is enough for it at the earliest, as far as the ends of others are known. Those
    /// ahead of it may take it first; others may end sooner.
    pub earliest_start: Option<Time>,
}

impl Waiting {
    /// How many units ahead are named.
    pub const AHEAD: usize = 5;
}

/// Why a unit waits. When several hold, the first in this order is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Its LocalQueue does not exist.
    NoLocalQueue(LocalQueueKey),
    /// The ClusterQueue of its LocalQueue does not exist.
    QueueMissing(Name),
    /// Its ClusterQueue admits nobody.
    QueueInactive(Inactive),
    /// Its LocalQueue is stopped, or its namespace is not selected.
    LocalQueueBlocked(Blocked),
    /// The unit itself must not be considered.
    Gated(Gate),
    /// It must not be considered before this instant.
    BackOff(Time),
    /// It has not been examined since something changed; the next pass does.
    Pending,
    /// Nobody is admitted before all pods of those that were admitted are ready.
    PodsNotReady,
    /// Its ClusterQueue is StrictFIFO and this unit, ahead of it, does not fit; with FIFO per pool it waits for a flavor
    /// that this one could use.
    BehindHead(Uid),
    /// It could start, but that would delay a unit ahead of it that quota is reserved for.
    BehindReservation {
        /// The unit ahead.
        head: Uid,
        /// When that one has enough by the ends that are known, if these are enough.
        until: Option<Time>,
    },
    /// It fits once units that were told to stop are gone; nobody behind it can take what it waits for.
    WaitingForPreempted,
    /// It asks for a resource that its ClusterQueue has no quota for.
    ResourceNotCovered {
        /// The pod set that asks.
        pod_set: Name,
        /// The resource.
        resource: Name,
    },
    /// No flavor of a resource group may be used by a pod set.
    NoMatchingFlavor {
        /// The pod set.
        pod_set: Name,
        /// Each flavor, in order of preference, and what keeps the pods out.
        mismatches: Vec<(Name, Mismatch)>,
    },
    /// It asks for more than its ClusterQueue could use even if nobody held anything: it never fits as things are.
    ExceedsMaxQuota {
        /// The pod set that finds no room.
        pod_set: Name,
        /// Each flavor it may use and each resource that is too small there, in order of preference.
        shortages: Vec<Shortage>,
        /// Each flavor that it may not use, and why.
        mismatches: Vec<(Name, Mismatch)>,
    },
    /// It fits in its ClusterQueue, but not while others hold so much.
    WaitingForQuota {
        /// The pod set that finds no room.
        pod_set: Name,
        /// Each flavor it may use and each resource that is short there, in order of preference.
        shortages: Vec<Shortage>,
        /// Each flavor that it may not use, and why.
        mismatches: Vec<(Name, Mismatch)>,
    },
}

/// A resource of which a flavor has not enough for a pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// What the whole pod set needs, with what earlier pod sets of the unit would take from the same quota.
    pub need: Amount,
    /// What the queue may still use now, of its own and of its cohort's.
    pub free: Amount,
    /// What of that would be borrowed.
    pub borrowable: Amount,
    /// The queue's own quota.
    pub nominal: Amount,
    /// The most that the queue could ever use, of its own and of its cohort's.
    pub limit: Amount,
    /// The limit that keeps the unit out.
    pub binding: Binding,
}

/// The limit that leaves too little for a unit: the first on the way up from its ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The quota of the ClusterQueue, which has no cohort to borrow from.
    Nominal,
    /// The borrowing limit of the ClusterQueue.
    BorrowingLimit,
    /// The borrowing limit of this cohort, which the ClusterQueue is in.
    CohortBorrowingLimit(Name),
    /// What there is, lent and of its own, in this cohort, the uppermost that the ClusterQueue is in.
    Cohort(Name),
}

impl WaitReason {
    /// Its kind.
    pub const fn kind(&self) -> WaitKind {
        match self {
            Self::NoLocalQueue(_) => WaitKind::NoLocalQueue,
            Self::QueueMissing(_) => WaitKind::QueueMissing,
            Self::QueueInactive(_) => WaitKind::QueueInactive,
            Self::LocalQueueBlocked(_) => WaitKind::LocalQueueBlocked,
            Self::Gated(_) => WaitKind::Gated,
            Self::BackOff(_) => WaitKind::BackOff,
            Self::Pending => WaitKind::Pending,
            Self::PodsNotReady => WaitKind::PodsNotReady,
            Self::BehindHead(_) => WaitKind::BehindHead,
            Self::BehindReservation { .. } => WaitKind::BehindReservation,
            Self::WaitingForPreempted => WaitKind::WaitingForPreempted,
            Self::ResourceNotCovered { .. } => WaitKind::ResourceNotCovered,
            Self::NoMatchingFlavor { .. } => WaitKind::NoMatchingFlavor,
            Self::ExceedsMaxQuota { .. } => WaitKind::ExceedsMaxQuota,
            Self::WaitingForQuota { .. } => WaitKind::WaitingForQuota,
        }
    }
}

/// The kind of a [`WaitReason`], without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitKind {
    /// See [`WaitReason::NoLocalQueue`].
    NoLocalQueue,
    /// See [`WaitReason::QueueMissing`].
    QueueMissing,
    /// See [`WaitReason::QueueInactive`].
    QueueInactive,
    /// See [`WaitReason::LocalQueueBlocked`].
    LocalQueueBlocked,
    /// See [`WaitReason::Gated`].
    Gated,
    /// See [`WaitReason::BackOff`].
    BackOff,
    /// See [`WaitReason::Pending`].
    Pending,
    /// See [`WaitReason::PodsNotReady`].
    PodsNotReady,
    /// See [`WaitReason::BehindHead`].
    BehindHead,
    /// See [`WaitReason::BehindReservation`].
    BehindReservation,
    /// See [`WaitReason::WaitingForPreempted`].
    WaitingForPreempted,
    /// See [`WaitReason::ResourceNotCovered`].
    ResourceNotCovered,
    /// See [`WaitReason::NoMatchingFlavor`].
    NoMatchingFlavor,
    /// See [`WaitReason::ExceedsMaxQuota`].
    ExceedsMaxQuota,
    /// See [`WaitReason::WaitingForQuota`].
    WaitingForQuota,
}

impl WaitKind {
    /// The word for machines: a condition's or an event's reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLocalQueue => "NoLocalQueue",
            Self::QueueMissing => "ClusterQueueMissing",
            Self::QueueInactive => "ClusterQueueInactive",
            Self::LocalQueueBlocked => "LocalQueueBlocked",
            Self::Gated => "Gated",
            Self::BackOff => "BackOff",
            Self::Pending => "Pending",
            Self::PodsNotReady => "PodsNotReady",
            Self::BehindHead => "BehindHead",
            Self::BehindReservation => "BehindReservation",
            Self::WaitingForPreempted => "WaitingForPreemptedWorkloads",
            Self::ResourceNotCovered => "ResourceNotCovered",
            Self::NoMatchingFlavor => "NoMatchingFlavor",
            Self::ExceedsMaxQuota => "ExceedsMaxQuota",
            Self::WaitingForQuota => "WaitingForQuota",
        }
    }
}

impl fmt::Display for WaitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A queue (ClusterQueue or LocalQueue) as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueReport {
    /// Whether it admits units, and if not, why.
    pub active: Result<(), Inactive>,
    /// Units that the next pass may look at. In a StrictFIFO queue: all that are not set aside.
    pub pending_active: usize,
    /// Units that wait for something to change: parked, gated, in back-off, or in an inactive queue.
    pub pending_inadmissible: usize,
    /// Units that hold quota.
    pub reserving: usize,
    /// Units that hold quota by a written admission: not only assumed.
    pub admitted: usize,
    /// What is held, per flavor and resource: first those of the queue's spec in its order, then others by name.
    pub usage: Vec<Usage>,
}

/// What is held of one resource in one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// The quota; none when the queue has none for it (any more), and none in reports of LocalQueues.
    pub nominal: Option<Amount>,
    /// The most that may be used beyond the quota; none without a limit, and where there is no `nominal`.
    pub borrowing_limit: Option<Amount>,
    /// The most of the quota that others may use; none without a limit, and where there is no `nominal`.
    pub lending_limit: Option<Amount>,
    /// Held by all units.
    pub reserved: Amount,
    /// Held by units whose admission is written.
    pub admitted: Amount,
}

/// What changed since the last time this was asked, each list in order and without repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// ClusterQueues whose report may differ (removed ones included).
    pub queues: Vec<Name>,
    /// LocalQueues whose report may differ (removed ones included).
    pub local_queues: Vec<LocalQueueKey>,
    /// Waiting units whose reason changed in kind, as of the last pass.
    pub units: Vec<Uid>,
}

/// Work done since the engine was made. Tests hold decisions to their cost with these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events applied.
    pub events: u64,
    /// Passes run.
    pub passes: u64,
    /// Cycles run in them.
    pub cycles: u64,
    /// Units judged against quota.
    pub units_examined: u64,
    /// Units admitted.
    pub admissions: u64,
    /// Times that a shape was parked.
    pub parks: u64,
    /// Times that a parked shape was woken.
    pub wakes: u64,
    /// Units evicted.
    pub evictions: u64,
    /// Searches for victims.
    pub hunts: u64,
}
