//! Policies of the queues: stopping, ordering, flavor choice, preemption, fairness.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::QuantityText;
use crate::open_enum::open_enum;
use crate::quantity_text::NonNegativeQuantity;
use crate::schema::{ObjectName, rule};

open_enum! {
    /// Whether a queue admits, and what happens to the jobs it has admitted.
    #[derive(Default)]
    pub enum StopPolicy {
        /// The queue works.
        #[default]
        None,
        /// Nothing more is admitted; admitted jobs run to their end.
        Hold,
        /// Nothing more is admitted, and admitted jobs are evicted.
        HoldAndDrain,
    }
}

open_enum! {
    /// What a job that does not fit means for those behind it.
    #[derive(Default)]
    pub enum QueueingStrategy {
        /// The first job that does not fit blocks those behind it.
        StrictFIFO,
        /// Jobs that do not fit are passed by those that do.
        #[default]
        BestEffortFIFO,
    }
}

open_enum! {
    /// What to do with a flavor in which a job fits only by borrowing or by preempting.
    pub enum FungibilityPolicy {
        /// Take it.
        MayStopSearch,
        /// Look at the flavors after it first.
        TryNextFlavor,
    }
}

open_enum! {
    /// Which of two flavors is better when one needs borrowing and the other preemption.
    pub enum FlavorFungibilityPreference {
        /// Rather borrow than preempt.
        BorrowingOverPreemption,
        /// Rather preempt than borrow.
        PreemptionOverBorrowing,
    }
}

open_enum! {
    /// Whom a job that fits into its queue's nominal quota may preempt in other queues of the cohort.
    #[derive(Default)]
    pub enum ReclaimWithinCohort {
        /// Nobody.
        #[default]
        Never,
        /// Jobs of lower priority that use borrowed quota.
        LowerPriority,
        /// All jobs that use borrowed quota.
        Any,
    }
}

open_enum! {
    /// Whom a job that must borrow may preempt in other queues of the cohort.
    #[derive(Default)]
    pub enum BorrowWithinCohortPolicy {
        /// Nobody.
        #[default]
        Never,
        /// Jobs of lower priority.
        LowerPriority,
    }
}

open_enum! {
    /// Whom a job may preempt in its own queue.
    #[derive(Default)]
    pub enum WithinClusterQueue {
        /// Nobody.
        #[default]
        Never,
        /// Jobs of lower priority.
        LowerPriority,
        /// Jobs of lower priority, and newer jobs of the same priority.
        LowerOrNewerEqualPriority,
    }
}

open_enum! {
    /// Whether past usage counts in the order of admission.
    pub enum AdmissionMode {
        /// LocalQueues that used less lately go first.
        UsageBasedAdmissionFairSharing,
        /// Past usage does not count.
        NoAdmissionFairSharing,
    }
}

open_enum! {
    /// What happens when a job that runs in one flavor could run in a better one.
    pub enum ConcurrentAdmissionMode {
        /// It moves to the flavor it prefers.
        TryPreferredFlavors,
        /// It stays where it was admitted first.
        RetainFirstAdmission,
    }
}

/// In which order flavors are taken when a job fits without further ado in none of them.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
        "!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' \
     && has(self.whenCanPreempt) && self.whenCanPreempt == 'TryNextFlavor')",
        "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
    )]))]
pub struct FlavorFungibility {
    /// What to do with a flavor in which the job fits only by borrowing.
    pub when_can_borrow: FungibilityPolicy,
    /// What to do with a flavor in which the job fits only by preempting.
    pub when_can_preempt: FungibilityPolicy,
    /// Which flavor is taken when one needs borrowing and another preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<FlavorFungibilityPreference>,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FungibilityPolicy::MayStopSearch,
            when_can_preempt: FungibilityPolicy::TryNextFlavor,
            preference: None,
        }
    }
}

/// Which admitted jobs may be evicted to make room for a pending one.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [rule(
        "!(has(self.borrowWithinCohort) && has(self.borrowWithinCohort.policy) \
     && self.borrowWithinCohort.policy != 'Never' && (!has(self.reclaimWithinCohort) || self.reclaimWithinCohort == 'Never'))",
        "borrowWithinCohort needs reclaimWithinCohort to be other than Never",
    )]))]
pub struct ClusterQueuePreemption {
    /// Whom a job that fits into the nominal quota may preempt in other queues of the cohort.
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Whom a job that must borrow may preempt in other queues of the cohort.
    #[schemars(extend("default" = {}))]
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Whom a job may preempt in its own queue.
    pub within_cluster_queue: WithinClusterQueue,
}

/// Preemption in other queues of the cohort by a job that must borrow.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct BorrowWithinCohort {
    /// Whom such a job may preempt.
    pub policy: BorrowWithinCohortPolicy,
    /// Only jobs of this priority or lower may be preempted. Absent means no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// The weight of a queue among those it shares quota with.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// Relative weight: a queue of weight 2 may use twice as much of the unused quota as one of weight 1. With 0 the
    /// queue comes after all others.
    #[schemars(with = "Option<NonNegativeQuantity>", extend("default" = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<QuantityText>,
}

/// How much of the unused quota a queue takes, in relation to its weight.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// The largest share over all resources, in thousandths, divided by the weight. The greatest 64-bit integer when
    /// the weight is 0 and the queue borrows.
    pub weighted_share: i64,
}

/// What the order of admission takes into account.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// Whether the past usage of LocalQueues counts.
    pub admission_mode: AdmissionMode,
}

/// Trying several flavors for the same job at once. Cannot change after creation.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// How a job moves between flavors.
    pub migration: ConcurrentAdmissionMigration,
}

/// How a job moves between flavors.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// Whether an admitted job moves.
    pub mode: ConcurrentAdmissionMode,
    /// Limits of the movement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Limits of the movement between flavors.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// The last flavor, in the order of the queue, in which the job accepts to run.
    #[schemars(with = "Option<ObjectName>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_acceptable_flavor_name: Option<String>,
}
