//! What goes in: queues, units and the events that carry them.
//!
//! Every value is a complete state ("this is the queue now"), never a change, so that applying one twice is the
//! same as applying it once and the order between kinds does not matter.

use std::sync::Arc;

use crate::amount::Amount;
use crate::flavors::{Constraints, FlavorSpec};
use crate::ids::{LocalQueueKey, Name, Time, Uid};

/// How a queue goes on when the unit at its head does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// The head blocks everyone behind it until it fits, even when it never can. Units that are set aside (gated,
    /// in back-off, in a blocked LocalQueue) are not heads and block nobody.
    StrictFifo,
    /// The head steps aside and the next unit is tried.
    #[default]
    BestEffortFifo,
}

/// A ClusterQueue as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Its name.
    pub name: Name,
    /// What happens when its head does not fit.
    pub strategy: Strategy,
    /// Its quota. A resource appears in at most one group.
    pub groups: Vec<ResourceGroup>,
    /// Why the caller wants it inactive, if it does: stopped, being deleted, using a field not acted on.
    pub inactive: Option<Inactive>,
}

/// Resources that are given out together: one flavor per pod set serves all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup {
    /// The resources that this group covers.
    pub resources: Vec<Name>,
    /// The flavors, in order of preference.
    pub flavors: Vec<FlavorQuota>,
}

/// How much of each resource of a group a queue may use in one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuota {
    /// The flavor.
    pub flavor: Name,
    /// The nominal quota, in the order of [`ResourceGroup::resources`].
    pub nominal: Vec<Amount>,
}

/// Why a queue admits nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// One word for machines, as in a condition's reason.
    pub reason: Name,
    /// A sentence for people.
    pub message: Name,
}

/// A LocalQueue as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueueSpec {
    /// Which LocalQueue.
    pub key: LocalQueueKey,
    /// The ClusterQueue that it leads to.
    pub queue: Name,
    /// Why its units may not be considered, if so: stopped, or its namespace is not selected.
    pub blocked: Option<Blocked>,
}

/// Why the units of a LocalQueue are set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// One word for machines.
    pub reason: Name,
    /// A sentence for people.
    pub message: Name,
}

/// Pods of one template that start together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodSetSpec {
    /// Its name within the unit.
    pub name: Name,
    /// How many pods; a negative count is none.
    pub count: i64,
    /// What one pod asks for, sorted by resource, each resource once.
    pub per_pod: Vec<(Name, Amount)>,
    /// Where its pods may run.
    pub constraints: Arc<Constraints>,
}

/// A unit that waits to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// Why a single unit is set aside until it changes: an unsupported request, a missing priority class, a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// One word for machines.
    pub reason: Name,
    /// A sentence for people.
    pub message: Name,
}

/// A unit that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargedUnit {
    /// Its identity.
    pub uid: Uid,
    /// The ClusterQueue that it is charged to.
    pub queue: Name,
    /// The LocalQueue that it came through.
    pub local_queue: LocalQueueKey,
    /// Its priority.
    pub priority: i32,
    /// What it holds. Charges on the same flavor and resource add up.
    pub charges: Vec<Charge>,
    /// Where it is in its life.
    pub phase: Phase,
}

/// An amount of one resource held in one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The flavor.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// How much.
    pub amount: Amount,
}

/// Where a unit that holds quota is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A flavor exists and looks like this.
    SetFlavor(FlavorSpec),
    /// A flavor is gone.
    RemoveFlavor(Name),
    /// A ClusterQueue exists and looks like this.
    SetQueue(QueueSpec),
    /// A ClusterQueue is gone. What is charged to it is remembered.
    RemoveQueue(Name),
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
