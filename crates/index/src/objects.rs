//! Queue objects: ClusterQueues, Cohorts, LocalQueues, ResourceFlavors and priority classes, as last seen, and their
//! lowering.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorTerm as K8sTerm, Taint as K8sTaint, Toleration as K8sToleration};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::{Selector, SelectorExt};
use sluice_api::conditions;
use sluice_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, StopPolicy, WorkloadPriorityClass};
use sluice_engine::{
    Admission, Blocked, Constraints, Effect, Event, FlavorSpec, LocalQueueKey, LocalQueueSpec, Name,
    NodeSelectorRequirement, NodeSelectorTerm, PastUsage, SelectorOperator, Taint, Time, Toleration,
    TolerationOperator, Uid,
};
use sluice_jobs::patch::AdmissionPlan;
use sluice_jobs::priority::PriorityClasses;
use sluice_jobs::record::{Record, ResourceVersions};
use sluice_jobs::view::JobView;

use crate::Index;
use crate::quota::{cohort_spec, weight};
use crate::raise::flavors_of;

/// Queue objects as last seen.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) cluster_queues: BTreeMap<Name, ClusterQueue>,
    pub(crate) cohorts: BTreeMap<Name, Cohort>,
    pub(crate) local_queues: BTreeMap<LocalQueueKey, LocalQueue>,
    /// What LocalQueues used in the past, as the engine was told.
    pub(crate) pasts: BTreeMap<LocalQueueKey, PastUsage>,
    flavors: BTreeMap<Name, ResourceFlavor>,
    workload_priorities: BTreeMap<Name, i32>,
    pod_priorities: BTreeMap<Name, PodPriority>,
}

/// What matters of a PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodPriority {
    pub(crate) value: i32,
    pub(crate) global_default: bool,
}

impl Objects {
    pub(crate) fn cluster_queue_of(&self, local_queue: &LocalQueueKey) -> Option<Name> {
        self.local_queues
            .get(local_queue)?
            .spec
            .cluster_queue
            .as_deref()
            .map(Name::from)
    }

    /// The resourceVersions of the objects that an admission was decided on.
    pub(crate) fn versions(&self, admission: &Admission) -> ResourceVersions {
        let version = |meta: Option<&kube::core::ObjectMeta>| {
            meta.and_then(|meta| meta.resource_version.clone()).unwrap_or_default()
        };
        ResourceVersions {
            cluster_queue: version(self.cluster_queues.get(&admission.queue).map(|queue| &queue.metadata)),
            local_queue: version(
                self.local_queues
                    .get(&admission.local_queue)
                    .map(|queue| &queue.metadata),
            ),
            flavors: flavors_of(admission)
                .into_iter()
                .map(|name| {
                    (
                        name.to_string(),
                        version(self.flavors.get(name).map(|flavor| &flavor.metadata)),
                    )
                })
                .collect(),
        }
    }

    /// Adds what a flavor wants of the pods to a plan.
    pub(crate) fn add_flavor_to(&self, plan: &mut AdmissionPlan, flavor: &Name) {
        let Some(flavor) = self.flavors.get(flavor) else { return };
        plan.node_selector.extend(flavor.spec.node_labels.clone());
        for toleration in &flavor.spec.tolerations {
            if let Ok(toleration) = serde_json::to_value(toleration)
                && !plan.tolerations.contains(&toleration)
            {
                plan.tolerations.push(toleration);
            }
        }
    }
}

impl PriorityClasses for Objects {
    fn workload_class(&self, name: &str) -> Option<i32> {
        self.workload_priorities.get(name).copied()
    }

    fn pod_class(&self, name: &str) -> Option<i32> {
        self.pod_priorities.get(name).map(|class| class.value)
    }

    fn global_default(&self) -> Option<(&str, i32)> {
        // Of several, Kubernetes' own admission takes the lowest.
        let defaults = self.pod_priorities.iter().filter(|(_, class)| class.global_default);
        defaults
            .min_by_key(|(_, class)| class.value)
            .map(|(name, class)| (&**name, class.value))
    }
}

impl Index {
    /// The cohort that a ClusterQueue names.
    pub fn cohort_of(&self, cluster_queue: &str) -> Option<Name> {
        let cohort = self
            .objects
            .cluster_queues
            .get(cluster_queue)?
            .spec
            .cohort_name
            .as_deref();
        cohort.map(Name::from)
    }

    /// The ClusterQueue that a LocalQueue leads to.
    pub fn cluster_queue_of(&self, local_queue: &LocalQueueKey) -> Option<Name> {
        self.objects.cluster_queue_of(local_queue)
    }

    /// A ClusterQueue exists and looks like this.
    pub fn set_cluster_queue(&mut self, queue: ClusterQueue, now: Time) {
        let Some(name) = queue.metadata.name.as_deref().map(Name::from) else {
            return;
        };
        // What a queue has beyond Kueue's fields stands in its annotations.
        let status_only = self.objects.cluster_queues.get(&name).is_some_and(|old| {
            old.spec == queue.spec
                && old.metadata.annotations == queue.metadata.annotations
                && is_deleted(&old.metadata) == is_deleted(&queue.metadata)
        });
        let spec = self.objects.cluster_queue_spec(&name, &queue);
        self.objects.cluster_queues.insert(name.clone(), queue);
        if !status_only {
            self.quota_changed = true;
            self.tell(Event::SetQueue(spec));
            self.lower_local_queues_of_cluster_queue(&name);
            self.retry_adoptions(now);
        }
    }

    /// A ClusterQueue is gone.
    pub fn delete_cluster_queue(&mut self, name: &str) {
        let name = Name::from(name);
        self.quota_changed = true;
        self.objects.cluster_queues.remove(&name);
        self.tell(Event::RemoveQueue(name));
    }

    /// A Cohort exists and looks like this.
    pub fn set_cohort(&mut self, cohort: Cohort, now: Time) {
        let Some(name) = cohort.metadata.name.as_deref().map(Name::from) else {
            return;
        };
        let status_only = self
            .objects
            .cohorts
            .get(&name)
            .is_some_and(|old| old.spec == cohort.spec && old.metadata.annotations == cohort.metadata.annotations);
        let spec = cohort_spec(&name, &cohort);
        self.objects.cohorts.insert(name, cohort);
        if !status_only {
            self.tell(Event::SetCohort(spec));
            self.lower_cohort_members();
            self.retry_adoptions(now);
        }
    }

    /// A Cohort is gone: its members go on in a cohort of that name without quota of its own.
    pub fn delete_cohort(&mut self, name: &str, now: Time) {
        let name = Name::from(name);
        if self.objects.cohorts.remove(&name).is_some() {
            self.tell(Event::RemoveCohort(name));
            self.lower_cohort_members();
            self.retry_adoptions(now);
        }
    }

    /// A cohort that cannot be used as it is stops its members, however far below it they are.
    fn lower_cohort_members(&mut self) {
        self.quota_changed = true;
        let objects = &self.objects;
        let members = objects
            .cluster_queues
            .iter()
            .filter(|(_, queue)| queue.spec.cohort_name.is_some());
        let specs: Vec<_> = members
            .map(|(name, queue)| objects.cluster_queue_spec(name, queue))
            .collect();
        for spec in specs {
            self.tell(Event::SetQueue(spec));
        }
    }

    /// A LocalQueue exists and looks like this.
    pub fn set_local_queue(&mut self, queue: LocalQueue, now: Time) {
        let (Some(namespace), Some(name)) = (queue.metadata.namespace.as_deref(), queue.metadata.name.as_deref())
        else {
            return;
        };
        let key = LocalQueueKey::new(namespace, name);
        let status_only = self
            .objects
            .local_queues
            .get(&key)
            .is_some_and(|old| old.spec == queue.spec);
        let past_is_news = self.remember_past(&key, &queue);
        self.objects.local_queues.insert(key.clone(), queue);
        if past_is_news || !status_only {
            self.lower_local_queue(&key);
        }
        if !status_only {
            self.retry_adoptions(now);
        }
    }

    /// A LocalQueue is gone.
    pub fn delete_local_queue(&mut self, namespace: &str, name: &str) {
        let key = LocalQueueKey::new(namespace, name);
        self.objects.local_queues.remove(&key);
        self.objects.pasts.remove(&key);
        self.tell(Event::RemoveLocalQueue(key));
    }

    /// A ResourceFlavor exists and looks like this.
    pub fn set_flavor(&mut self, flavor: ResourceFlavor, now: Time) {
        let Some(name) = flavor.metadata.name.as_deref().map(Name::from) else {
            return;
        };
        let unchanged = self
            .objects
            .flavors
            .get(&name)
            .is_some_and(|old| old.spec == flavor.spec);
        let spec = flavor_spec(&name, &flavor);
        let unsupported = !flavor.unsupported_fields().is_empty();
        self.objects.flavors.insert(name.clone(), flavor);
        if unchanged {
            return;
        }
        // A flavor that uses a field not acted on yet must not be given out: its queues say that it is not found.
        self.tell(if unsupported {
            Event::RemoveFlavor(name)
        } else {
            Event::SetFlavor(spec)
        });
        self.retry_adoptions(now);
    }

    /// A ResourceFlavor is gone.
    pub fn delete_flavor(&mut self, name: &str) {
        let name = Name::from(name);
        self.objects.flavors.remove(&name);
        self.tell(Event::RemoveFlavor(name));
    }

    /// A WorkloadPriorityClass exists and has this value. Jobs that name it follow, waiting or running.
    pub fn set_workload_priority_class(&mut self, class: &WorkloadPriorityClass, now: Time) {
        let Some(name) = class.metadata.name.as_deref().map(Name::from) else {
            return;
        };
        if self.objects.workload_priorities.insert(name, class.spec.value) != Some(class.spec.value) {
            self.relower_all(now);
        }
    }

    /// A WorkloadPriorityClass is gone.
    pub fn delete_workload_priority_class(&mut self, name: &str, now: Time) {
        if self.objects.workload_priorities.remove(name).is_some() {
            self.relower_all(now);
        }
    }

    /// A PriorityClass exists and looks like this.
    pub fn set_priority_class(&mut self, class: &PriorityClass, now: Time) {
        let Some(name) = class.metadata.name.as_deref().map(Name::from) else {
            return;
        };
        let new = PodPriority {
            value: class.value.unwrap_or(0),
            global_default: class.global_default == Some(true),
        };
        if self.objects.pod_priorities.insert(name, new.clone()) != Some(new) {
            self.relower_all(now);
        }
    }

    /// A PriorityClass is gone.
    pub fn delete_priority_class(&mut self, name: &str, now: Time) {
        if self.objects.pod_priorities.remove(name).is_some() {
            self.relower_all(now);
        }
    }

    pub(crate) fn lower_local_queues_of_namespace(&mut self, namespace: &Name) {
        let from = LocalQueueKey {
            namespace: namespace.clone(),
            name: Name::from(""),
        };
        let keys: Vec<LocalQueueKey> = self
            .objects
            .local_queues
            .range(from..)
            .map(|(key, _)| key.clone())
            .take_while(|key| key.namespace == *namespace)
            .collect();
        for key in keys {
            self.lower_local_queue(&key);
        }
    }

    fn lower_local_queues_of_cluster_queue(&mut self, queue: &Name) {
        let keys: Vec<LocalQueueKey> = self
            .objects
            .local_queues
            .iter()
            .filter(|(_, local)| local.spec.cluster_queue.as_deref() == Some(&**queue))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.lower_local_queue(&key);
        }
    }

    fn lower_local_queue(&mut self, key: &LocalQueueKey) {
        let Some(local) = self.objects.local_queues.get(key) else {
            return;
        };
        let queue = Name::from(local.spec.cluster_queue.as_deref().unwrap_or_default());
        let blocked = self.blocked(key, local, &queue);
        let drain = local.spec.stop_policy == StopPolicy::HoldAndDrain;
        self.tell(Event::SetLocalQueue(LocalQueueSpec {
            key: key.clone(),
            queue,
            blocked,
            drain,
            weight: weight(local.spec.fair_sharing.as_ref()),
            past_usage: self.objects.pasts.get(key).cloned(),
        }));
    }

    /// Why no unit of a LocalQueue may be admitted, if so.
    fn blocked(&self, key: &LocalQueueKey, local: &LocalQueue, queue: &Name) -> Option<Blocked> {
        let blocked = |reason: &str, message: String| {
            Some(Blocked {
                reason: reason.into(),
                message: message.into(),
            })
        };
        let unsupported = local.unsupported_fields();
        if !unsupported.is_empty() {
            return blocked(
                conditions::local_queue::UNSUPPORTED_FIELD,
                not_acted_on("LocalQueue", &unsupported),
            );
        }
        if local.spec.stop_policy != StopPolicy::None {
            return blocked(
                conditions::local_queue::STOPPED,
                format!("LocalQueue {} is stopped by its stopPolicy", key.name),
            );
        }
        let cluster_queue = self.objects.cluster_queues.get(queue)?;
        let Some(selector) = &cluster_queue.spec.namespace_selector else {
            return blocked(
                "NamespaceNotSelected",
                format!(
                    "ClusterQueue {queue} has no namespaceSelector, so no namespace may use it; set {{}} to allow all"
                ),
            );
        };
        let Some(labels) = self.namespaces.labels(&key.namespace) else {
            return blocked(
                "NamespaceUnknown",
                format!("namespace {} has not been seen yet", key.namespace),
            );
        };
        match Selector::try_from(selector.clone()) {
            Ok(selector) if selector.matches(labels) => None,
            Ok(_) => blocked(
                "NamespaceNotSelected",
                format!(
                    "namespace {} does not match the namespaceSelector of ClusterQueue {queue}",
                    key.namespace
                ),
            ),
            Err(error) => blocked(
                conditions::cluster_queue::INVALID_SPEC,
                format!("the namespaceSelector of ClusterQueue {queue} cannot be read: {error}"),
            ),
        }
    }

    /// Units that run without a record and could not be placed when they were seen: their queue or flavor may be there now.
    fn retry_adoptions(&mut self, now: Time) {
        let mut uids: Vec<Uid> = self
            .units
            .iter()
            .filter(|(_, unit)| !unit.charged && !unit.departed && !unit.job.is_suspended())
            .map(|(&uid, _)| uid)
            .collect();
        uids.sort_unstable();
        self.relower_each(uids, now);
    }
}

pub(crate) fn is_deleted(meta: &kube::core::ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

pub(crate) fn not_acted_on(kind: &str, fields: &[String]) -> String {
    format!(
        "this {kind} uses what Sluice does not act on yet: {}; remove it to activate the queue",
        fields.join(", ")
    )
}

fn flavor_spec(name: &Name, flavor: &ResourceFlavor) -> FlavorSpec {
    FlavorSpec {
        name: name.clone(),
        node_labels: flavor.spec.node_labels.clone(),
        taints: flavor.spec.node_taints.iter().filter_map(taint).collect(),
        tolerations: flavor.spec.tolerations.iter().map(toleration).collect(),
    }
}

fn effect(text: &str) -> Option<Effect> {
    match text {
        "NoSchedule" => Some(Effect::NoSchedule),
        "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => None,
    }
}

fn taint(taint: &K8sTaint) -> Option<Taint> {
    Some(Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: effect(&taint.effect)?,
    })
}

fn toleration(toleration: &K8sToleration) -> Toleration {
    Toleration {
        key: toleration.key.clone().filter(|key| !key.is_empty()),
        operator: match toleration.operator.as_deref() {
            Some("Exists") => TolerationOperator::Exists,
            _ => TolerationOperator::Equal,
        },
        value: toleration.value.clone(),
        effect: toleration.effect.as_deref().and_then(effect),
    }
}

/// Where a Job's pods may run, as its owner wrote it: the template minus what the last admission injected.
pub(crate) fn constraints(job: &JobView, record: Option<&Record>) -> Constraints {
    let pod = &job.spec.template.spec;
    let mut node_selector = pod.node_selector.clone().unwrap_or_default();
    let mut tolerations = pod.typed_tolerations();
    if let Some(record) = record {
        for key in record.delta.node_selector.keys() {
            node_selector.remove(key);
        }
        tolerations.retain(|toleration| {
            serde_json::to_value(toleration).is_ok_and(|value| !record.delta.tolerations.contains(&value))
        });
    }
    let terms = pod
        .required_node_affinity()
        .map(|affinity| affinity.node_selector_terms.as_slice())
        .unwrap_or_default();
    Constraints {
        node_selector,
        affinity_terms: terms.iter().map(term).collect(),
        tolerations: tolerations.iter().map(toleration).collect(),
    }
}

fn term(term: &K8sTerm) -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: term
            .match_expressions
            .iter()
            .flatten()
            .filter_map(|expression| {
                let operator = match expression.operator.as_str() {
                    "In" => SelectorOperator::In,
                    "NotIn" => SelectorOperator::NotIn,
                    "Exists" => SelectorOperator::Exists,
                    "DoesNotExist" => SelectorOperator::DoesNotExist,
                    "Gt" => SelectorOperator::Gt,
                    "Lt" => SelectorOperator::Lt,
                    _ => return None,
                };
                Some(NodeSelectorRequirement {
                    key: expression.key.clone(),
                    operator,
                    values: expression.values.clone().unwrap_or_default(),
                })
            })
            .collect(),
    }
}
