//! From ClusterQueues and Cohorts to the engine's: quota, limits, weights and policies.

use sluice_api::QuantityText;
use sluice_api::conditions;
use sluice_api::v1beta2::{
    self as api, BorrowWithinCohortPolicy, ClusterQueue, Cohort, FlavorFungibilityPreference, FungibilityPolicy,
    QueueingStrategy, ReclaimWithinCohort, StopPolicy, WithinClusterQueue,
};
use sluice_engine::{
    Ageing, Amount, BorrowWithinCohort, CohortSpec, Extras, FlavorQuota, Fungibility, Inactive, Name, Preemption,
    Preference, QueueSpec, Quota, Reclaim, ResourceGroup, Search, Strategy, Weight, WithinQueue,
};

use crate::Index;
use crate::lower::amount_of;
use crate::objects::{Objects, is_deleted, not_acted_on};
use crate::settings::milliseconds;

/// The longest way from a ClusterQueue up its cohorts that is followed: they may form a cycle.
const MAX_DEPTH: usize = 1_000;

impl Objects {
    pub(crate) fn cluster_queue_spec(&self, name: &Name, queue: &ClusterQueue) -> QueueSpec {
        let spec = &queue.spec;
        QueueSpec {
            name: name.clone(),
            cohort: spec.cohort_name.as_deref().map(Name::from),
            strategy: match spec.queueing_strategy {
                QueueingStrategy::StrictFIFO => Strategy::StrictFifo,
                QueueingStrategy::BestEffortFIFO | QueueingStrategy::Unknown(_) => Strategy::BestEffortFifo,
            },
            groups: resource_groups(&spec.resource_groups),
            preemption: preemption(&spec.preemption),
            fungibility: fungibility(&spec.flavor_fungibility),
            weight: weight(spec.fair_sharing.as_ref()),
            by_past_usage: queue.goes_by_past_usage(),
            inactive: self.inactive(queue),
            drain: spec.stop_policy == StopPolicy::HoldAndDrain,
            extras: extras(queue.extras().unwrap_or_default()),
        }
    }

    fn inactive(&self, queue: &ClusterQueue) -> Option<Inactive> {
        let inactive = |reason: &str, message: String| {
            Some(Inactive {
                reason: reason.into(),
                message: message.into(),
            })
        };
        if is_deleted(&queue.metadata) {
            return inactive(
                conditions::cluster_queue::TERMINATING,
                "the ClusterQueue is being deleted; it admits nothing and goes with its last job".to_owned(),
            );
        }
        let unsupported = queue.unsupported_fields();
        if !unsupported.is_empty() {
            return inactive(
                conditions::cluster_queue::UNSUPPORTED_FIELD,
                not_acted_on("ClusterQueue", &unsupported),
            );
        }
        if let Some(violation) = queue.validate().first() {
            return inactive(conditions::cluster_queue::INVALID_SPEC, violation.to_string());
        }
        if let Some(message) = self.broken_cohort(queue) {
            return inactive(conditions::cluster_queue::INVALID_SPEC, message);
        }
        if queue.spec.stop_policy != StopPolicy::None {
            return inactive(
                conditions::cluster_queue::STOPPED,
                "the ClusterQueue is stopped by its stopPolicy".to_owned(),
            );
        }
        None
    }

    /// What is wrong with the first of a queue's cohorts that cannot be used as it is. Cycles are the engine's to find.
    fn broken_cohort(&self, queue: &ClusterQueue) -> Option<String> {
        self.chain(queue.spec.cohort_name.as_deref())
            .find_map(|(name, cohort)| {
                let violations = cohort.validate();
                let violation = violations.first()?;
                Some(format!("Cohort {name} cannot be used: {violation}"))
            })
    }

    /// The cohorts that a ClusterQueue is below, the nearest first, objects or not.
    pub(crate) fn cohorts_above(&self, queue: &Name) -> impl Iterator<Item = Name> + '_ {
        let queue = self.cluster_queues.get(queue);
        let nearest = queue.and_then(|queue| queue.spec.cohort_name.as_deref());
        self.names_up(nearest).take(MAX_DEPTH).map(Name::from)
    }

    /// A cohort and those above it, objects or not. Never ends in a cycle.
    fn names_up<'a>(&'a self, nearest: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        std::iter::successors(nearest, |name| self.cohorts.get(*name)?.spec.parent_name.as_deref())
    }

    /// A Cohort object and those above it.
    fn chain(&self, nearest: Option<&str>) -> impl Iterator<Item = (&Name, &Cohort)> {
        let find = |name: Option<&str>| self.cohorts.get_key_value(name?);
        let above = move |(_, cohort): &(&Name, &Cohort)| find(cohort.spec.parent_name.as_deref());
        std::iter::successors(find(nearest), above).take(MAX_DEPTH)
    }
}

impl Index {
    /// The cohort that a Cohort names as its parent.
    pub fn parent_of_cohort(&self, cohort: &str) -> Option<Name> {
        let cohort = self.objects.cohorts.get(cohort)?;
        cohort.spec.parent_name.as_deref().map(Name::from)
    }

    /// The outermost cohort on the way up from a cohort, which may be itself; none if the way goes round in a circle.
    pub fn root_of_cohort(&self, cohort: &str) -> Option<Name> {
        let mut way = self.objects.names_up(Some(cohort)).take(MAX_DEPTH + 1);
        let root = way.by_ref().take(MAX_DEPTH).last()?;
        way.next().is_none().then(|| root.into())
    }
}

pub(crate) fn cohort_spec(name: &Name, cohort: &Cohort) -> CohortSpec {
    let spec = &cohort.spec;
    CohortSpec {
        name: name.clone(),
        parent: spec.parent_name.as_deref().map(Name::from),
        groups: resource_groups(&spec.resource_groups),
        weight: weight(spec.fair_sharing.as_ref()),
    }
}

/// A broken quota counts as none, and so does a broken limit: nothing is borrowed or lent by it. What is wrong with it
/// keeps the queue inactive.
fn resource_groups(groups: &[api::ResourceGroup]) -> Vec<ResourceGroup> {
    let amount = |resource: &str, text: &QuantityText| {
        text.parse()
            .map_or(Amount::ZERO, |quantity| amount_of(resource, &quantity))
    };
    let quota = |resource: &String, flavor: &api::FlavorQuotas| {
        let Some(quota) = flavor.resources.iter().find(|quota| quota.name == *resource) else {
            return Quota::default();
        };
        let limit = |text: &Option<QuantityText>| text.as_ref().map(|text| amount(resource, text));
        Quota {
            nominal: amount(resource, &quota.nominal_quota),
            borrowing_limit: limit(&quota.borrowing_limit),
            lending_limit: limit(&quota.lending_limit),
        }
    };
    let group = |group: &api::ResourceGroup| {
        let covered = &group.covered_resources;
        ResourceGroup {
            resources: covered.iter().map(|name| Name::from(name.as_str())).collect(),
            flavors: group
                .flavors
                .iter()
                .map(|flavor| FlavorQuota {
                    flavor: flavor.name.as_str().into(),
                    quotas: covered.iter().map(|resource| quota(resource, flavor)).collect(),
                })
                .collect(),
        }
    };
    groups.iter().map(group).collect()
}

fn preemption(preemption: &api::ClusterQueuePreemption) -> Preemption {
    let borrowing = &preemption.borrow_within_cohort;
    Preemption {
        within_queue: match preemption.within_cluster_queue {
            WithinClusterQueue::LowerPriority => WithinQueue::LowerPriority,
            WithinClusterQueue::LowerOrNewerEqualPriority => WithinQueue::LowerOrNewerEqualPriority,
            WithinClusterQueue::Never | WithinClusterQueue::Unknown(_) => WithinQueue::Never,
        },
        reclaim: match preemption.reclaim_within_cohort {
            ReclaimWithinCohort::LowerPriority => Reclaim::LowerPriority,
            ReclaimWithinCohort::Any => Reclaim::Any,
            ReclaimWithinCohort::Never | ReclaimWithinCohort::Unknown(_) => Reclaim::Never,
        },
        borrow_within_cohort: (borrowing.policy == BorrowWithinCohortPolicy::LowerPriority).then_some(
            BorrowWithinCohort {
                max_priority: borrowing.max_priority_threshold,
            },
        ),
    }
}

fn fungibility(fungibility: &api::FlavorFungibility) -> Fungibility {
    let search = |policy: &FungibilityPolicy| match policy {
        FungibilityPolicy::TryNextFlavor => Search::TryNextFlavor,
        FungibilityPolicy::MayStopSearch | FungibilityPolicy::Unknown(_) => Search::Stop,
    };
    Fungibility {
        when_can_borrow: search(&fungibility.when_can_borrow),
        when_can_preempt: search(&fungibility.when_can_preempt),
        preference: match fungibility.preference {
            Some(FlavorFungibilityPreference::PreemptionOverBorrowing) => Preference::PreemptionOverBorrowing,
            Some(FlavorFungibilityPreference::BorrowingOverPreemption | FlavorFungibilityPreference::Unknown(_))
            | None => Preference::BorrowingOverPreemption,
        },
    }
}

fn extras(extras: api::Extras) -> Extras {
    Extras {
        fifo_per_pool: extras.fifo_per_pool,
        backfill: extras.backfill,
        ageing: extras.ageing.map(|ageing| Ageing {
            ms_per_step: milliseconds(ageing.interval).max(1),
            max_steps: ageing.max_steps,
        }),
        min_run_ms: milliseconds(extras.minimum_run_time),
        shrink_after_ms: extras.shrink_to_quota_after.map(milliseconds),
    }
}

/// In thousand-millionths, exactly; what is above the greatest weight counts as that.
pub(crate) fn weight(fair_sharing: Option<&api::FairSharing>) -> Weight {
    let weight = fair_sharing.and_then(|sharing| sharing.weight.as_ref()?.parse().ok());
    weight.map_or(Weight::ONE, |weight| {
        Weight(u64::try_from(weight.nanos().max(0)).unwrap_or(u64::MAX))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn annotated(annotations: Value, spec: Value) -> QueueSpec {
        let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
                            "metadata": {"name": "cq", "annotations": annotations}, "spec": spec});
        Objects::default().cluster_queue_spec(&"cq".into(), &serde_json::from_value(object).unwrap())
    }

    fn queue(spec: Value) -> QueueSpec {
        annotated(json!({}), spec)
    }

    fn quotas(quota: Value) -> Vec<Quota> {
        let spec = queue(json!({"resourceGroups": [{
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": "any", "resources": [quota, {"name": "memory", "nominalQuota": "1Ki"}]}],
        }]}));
        spec.groups[0].flavors[0].quotas.clone()
    }

    #[test]
    fn a_queue_that_says_nothing_has_the_documented_defaults() {
        let spec = queue(json!({}));
        assert_eq!(
            spec,
            QueueSpec {
                name: "cq".into(),
                ..QueueSpec::default()
            }
        );
    }

    #[test]
    fn quotas_and_limits_are_lowered_each_in_its_resources_unit() {
        let [cpu, memory] =
            quotas(json!({"name": "cpu", "nominalQuota": "1500m", "borrowingLimit": 2, "lendingLimit": "0"}))
                .try_into()
                .unwrap();
        assert_eq!(
            cpu,
            Quota {
                nominal: Amount::new(1500),
                borrowing_limit: Some(Amount::new(2000)),
                lending_limit: Some(Amount::ZERO),
            }
        );
        assert_eq!(memory, Amount::new(1024).into());
    }

    #[test]
    fn a_broken_limit_lends_and_borrows_nothing_and_keeps_the_queue_inactive() {
        let quota = json!({"name": "cpu", "nominalQuota": 4, "borrowingLimit": "much", "lendingLimit": "all"});
        let cpu = quotas(quota)[0];
        assert_eq!(
            (cpu.borrowing_limit, cpu.lending_limit),
            (Some(Amount::ZERO), Some(Amount::ZERO))
        );
    }

    #[test]
    fn policies_are_lowered_word_for_word() {
        let spec = queue(json!({
            "cohortName": "all",
            "queueingStrategy": "StrictFIFO",
            "stopPolicy": "HoldAndDrain",
            "preemption": {
                "withinClusterQueue": "LowerOrNewerEqualPriority",
                "reclaimWithinCohort": "Any",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5},
            },
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor",
                "whenCanPreempt": "TryNextFlavor",
                "preference": "PreemptionOverBorrowing",
            },
        }));
        assert_eq!(spec.cohort.as_deref(), Some("all"));
        assert_eq!(spec.strategy, Strategy::StrictFifo);
        assert!(spec.drain);
        assert_eq!(
            spec.preemption,
            Preemption {
                within_queue: WithinQueue::LowerOrNewerEqualPriority,
                reclaim: Reclaim::Any,
                borrow_within_cohort: Some(BorrowWithinCohort { max_priority: Some(-5) }),
            }
        );
        assert_eq!(
            spec.fungibility,
            Fungibility {
                when_can_borrow: Search::TryNextFlavor,
                when_can_preempt: Search::TryNextFlavor,
                preference: Preference::PreemptionOverBorrowing,
            }
        );
    }

    #[test]
    fn a_weight_is_exact_to_a_thousand_millionth_and_saturates() {
        let weight = |weight: Value| queue(json!({"fairSharing": {"weight": weight}})).weight.0;
        assert_eq!(weight(json!("0.000000003")), 3);
        assert_eq!(weight(json!(2)), 2_000_000_000);
        assert_eq!(weight(json!("500m")), 500_000_000);
        assert_eq!(weight(json!(0)), 0);
        assert_eq!(
            weight(json!("8Ei")),
            9_223_372_036_854_775_808_u64.saturating_mul(1_000_000_000)
        );
        assert_eq!(weight(json!("-1")), 0);
        assert_eq!(weight(json!("heavy")), Weight::ONE.0);
        assert_eq!(queue(json!({"fairSharing": {}})).weight, Weight::ONE);
    }

    #[test]
    fn what_a_queue_has_beyond_kueue_is_lowered_and_a_broken_annotation_keeps_it_inactive() {
        let spec = annotated(
            json!({
                "sluice.internal/ageing-interval": "90s",
                "sluice.internal/minimum-run-time": "10m",
                "sluice.internal/shrink-to-quota-after": "0s",
            }),
            json!({}),
        );
        assert_eq!(
            spec.extras,
            Extras {
                fifo_per_pool: false,
                backfill: false,
                ageing: Some(Ageing {
                    ms_per_step: 90_000,
                    max_steps: 100
                }),
                min_run_ms: 600_000,
                shrink_after_ms: Some(0),
            }
        );
        let broken = annotated(json!({"sluice.internal/backfill": "perhaps"}), json!({}));
        assert_eq!(broken.extras, Extras::default());
        let inactive = broken.inactive.unwrap();
        assert_eq!(&*inactive.reason, "InvalidSpec");
        assert!(inactive.message.contains("backfill"), "{}", inactive.message);
    }
}
