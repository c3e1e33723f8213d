//! The slim decode of a Job that the watch uses: only what scheduling reads.
//!
//! Absent and empty are kept apart where a patch must test the one or the other. A quantity that cannot be read does
//! not fail the decode (one broken Job must not stop the watch of all the others); it comes back as an error of
//! [`crate::requests`], which names the field.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use sluice_quantity::Quantity;

/// The copy of the manifest that client-side apply keeps: often the largest part of a Job, and never read here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Resource name to amount, as read from the wire.
pub type ResourceList = BTreeMap<String, LenientQuantity>;

/// A Job as scheduling sees it. Read only: it is never written back.
///
/// `metadata` is decoded without managed fields and without the copy of the manifest that `kubectl apply` keeps.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::batch::v1::Job")]
pub struct JobView {
    /// Name, uid, generation, labels, annotations, owners and times.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What the user asks for.
    #[serde(default)]
    pub spec: SpecView,
    /// What the Job controller reports.
    #[serde(default)]
    pub status: StatusView,
}

impl JobView {
    /// The namespace; empty only for a Job that no API server has seen.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The name; empty only for a Job that no API server has seen.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The uid; empty only for a Job that no API server has seen.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The value of a label of the Job itself.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of an annotation of the Job itself.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether `spec.suspend` is true.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// The owner that controls the Job, if one does.
    pub fn controlling_owner(&self) -> Option<&OwnerReference> {
        self.metadata
            .owner_references
            .as_ref()?
            .iter()
            .find(|owner| owner.controller == Some(true))
    }

    /// The record annotation as it was last seen.
    pub fn record_text(&self) -> Option<&str> {
        self.annotation(sluice_api::annotations::ADMISSION)
    }
}

/// The part of a Job's spec that scheduling reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpecView {
    /// Whether the Job controller may run pods.
    pub suspend: Option<bool>,
    /// Pods that run at a time.
    pub parallelism: Option<i64>,
    /// Pods that must succeed; unset for a work queue.
    pub completions: Option<i64>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: Option<String>,
    /// The controller that runs the Job.
    pub managed_by: Option<String>,
    /// Seconds that the Job may run.
    pub active_deadline_seconds: Option<i64>,
    /// Seconds after which a finished Job is deleted.
    pub ttl_seconds_after_finished: Option<i64>,
    /// What its pods look like.
    pub template: TemplateView,
}

/// The part of a pod template that scheduling reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateView {
    /// Labels and annotations of the pods; absent and empty are different to a patch.
    pub metadata: Option<TemplateMetadata>,
    /// The pods' spec.
    pub spec: PodSpecView,
}

impl TemplateView {
    /// The labels of the pods, if there are any.
    pub fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.metadata.as_ref()?.labels.as_ref()
    }

    /// The value of an annotation of the pods.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .as_ref()?
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }
}

/// Labels and annotations of a pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMetadata {
    /// Labels of the pods.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the pods.
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The part of a pod spec that scheduling reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    /// Labels that a node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations as they were written; [`Self::typed_tolerations`] reads them.
    pub tolerations: Option<Vec<Value>>,
    /// Only the node affinity that is required at scheduling.
    affinity: Option<AffinityView>,
    /// PriorityClass of the pods.
    pub priority_class_name: Option<String>,
    /// RuntimeClass of the pods.
    pub runtime_class_name: Option<String>,
    /// Seconds that a pod that is told to stop may take; 30 where unset.
    pub termination_grace_period_seconds: Option<i64>,
    /// What running a pod costs beyond its containers.
    pub overhead: Option<ResourceList>,
    /// The containers.
    pub containers: Vec<ContainerView>,
    /// The init containers, sidecars among them.
    pub init_containers: Option<Vec<ContainerView>>,
    /// Requests and limits of the pod as a whole.
    pub resources: Option<ResourcesView>,
    /// Whether the pods claim devices.
    #[serde(rename = "resourceClaims", deserialize_with = "holds_elements")]
    pub has_resource_claims: bool,
    /// Whether the pods are created with scheduling gates.
    #[serde(rename = "schedulingGates", deserialize_with = "holds_elements")]
    pub has_scheduling_gates: bool,
}

impl PodSpecView {
    /// The node affinity that a node must meet for a pod to be scheduled on it.
    pub fn required_node_affinity(&self) -> Option<&NodeSelector> {
        self.affinity
            .as_ref()?
            .node_affinity
            .as_ref()?
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    }

    /// The tolerations that can be read; one that cannot tolerates nothing.
    pub fn typed_tolerations(&self) -> Vec<Toleration> {
        let raw = self.tolerations.iter().flatten();
        raw.filter_map(|toleration| Toleration::deserialize(toleration).ok())
            .collect()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AffinityView {
    node_affinity: Option<NodeAffinityView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinityView {
    required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
}

/// The part of a container that scheduling reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerView {
    /// Requests and limits.
    pub resources: ResourcesView,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

impl ContainerView {
    /// Whether, as an init container, it keeps running beside the containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcesView {
    /// What is set aside.
    pub requests: Option<ResourceList>,
    /// What may be used at most.
    pub limits: Option<ResourceList>,
}

/// The part of a Job's status that scheduling reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusView {
    /// The conditions.
    pub conditions: Option<Vec<ConditionView>>,
    /// Pods that are neither finished nor terminating.
    pub active: Option<i64>,
    /// Active pods that are ready.
    pub ready: Option<i64>,
    /// Pods that are being deleted and not finished yet.
    pub terminating: Option<i64>,
    /// Pods that succeeded.
    pub succeeded: Option<i64>,
    /// Pods that failed.
    pub failed: Option<i64>,
    /// When the Job controller first handled the Job unsuspended.
    pub start_time: Option<Time>,
    /// Indexes that succeeded, such as `1,3-5`.
    pub completed_indexes: Option<String>,
    /// Indexes that failed for good, such as `1,3-5`.
    pub failed_indexes: Option<String>,
    /// Pods that have ended and are not in the counts above yet.
    pub uncounted_terminated_pods: Option<UncountedView>,
}

/// Pods that have ended and are not counted yet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UncountedView {
    /// How many of them succeeded.
    #[serde(deserialize_with = "count_elements")]
    pub succeeded: i64,
}

/// A condition of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConditionView {
    /// Such as `Complete`, `Failed`, `Suspended`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A word for machines.
    pub reason: Option<String>,
    /// A sentence for people.
    pub message: Option<String>,
    /// When the status last changed, in whole seconds.
    pub last_transition_time: Option<Time>,
}

/// A quantity, or why it is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LenientQuantity(Result<Quantity, String>);

impl LenientQuantity {
    /// The quantity.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn get(&self) -> Result<&Quantity, &str> {
        self.0.as_ref().map_err(String::as_str)
    }
}

impl From<Quantity> for LenientQuantity {
    fn from(quantity: Quantity) -> Self {
        Self(Ok(quantity))
    }
}

impl<'de> Deserialize<'de> for LenientQuantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LenientQuantityVisitor)
    }
}

struct LenientQuantityVisitor;

impl LenientQuantityVisitor {
    fn read(text: &str) -> LenientQuantity {
        LenientQuantity(Quantity::parse(text.trim()).map_err(|error| format!("{text:?}: {error}")))
    }

    fn wrong_type(kind: &str) -> LenientQuantity {
        LenientQuantity(Err(format!("{kind} is not a quantity")))
    }
}

impl<'de> Visitor<'de> for LenientQuantityVisitor {
    type Value = LenientQuantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E>(self, text: &str) -> Result<LenientQuantity, E> {
        Ok(Self::read(text))
    }

    fn visit_i64<E>(self, number: i64) -> Result<LenientQuantity, E> {
        Ok(Quantity::from(number).into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<LenientQuantity, E> {
        Ok(Self::read(&number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<LenientQuantity, E> {
        Ok(Self::read(&number.to_string()))
    }

    fn visit_unit<E>(self) -> Result<LenientQuantity, E> {
        Ok(Quantity::ZERO.into())
    }

    fn visit_bool<E>(self, _: bool) -> Result<LenientQuantity, E> {
        Ok(Self::wrong_type("a boolean"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LenientQuantity, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::wrong_type("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LenientQuantity, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::wrong_type("an object"))
    }
}

fn holds_elements<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(count_elements(deserializer)? > 0)
}

fn count_elements<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let elements = Option::<Vec<IgnoredAny>>::deserialize(deserializer)?;
    Ok(elements.map_or(0, |elements| i64::try_from(elements.len()).unwrap_or(i64::MAX)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "slim_annotations")]
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
}

fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        finalizers: slim.finalizers,
        ..ObjectMeta::default()
    })
}

fn slim_annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    struct Annotations;

    impl<'de> Visitor<'de> for Annotations {
        type Value = Option<BTreeMap<String, String>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut kept = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if key == LAST_APPLIED {
                    map.next_value::<IgnoredAny>()?;
                } else {
                    kept.insert(key, map.next_value()?);
                }
            }
            Ok(Some(kept))
        }
    }

    deserializer.deserialize_any(Annotations)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    fn view(job: Value) -> JobView {
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn managed_fields_and_the_applied_manifest_are_left_out_and_the_rest_of_the_metadata_is_kept() {
        let mut job = fixture::waiting_job();
        job["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
        job["metadata"]["annotations"] = json!({LAST_APPLIED: "{}", "note": "kept"});
        let view = view(job);
        assert_eq!(view.metadata.managed_fields, None);
        assert_eq!(view.annotation(LAST_APPLIED), None);
        assert_eq!(view.annotation("note"), Some("kept"));
        assert_eq!(view.uid(), "1f0c8a5e-0001");
        assert_eq!(view.metadata.generation, Some(1));
    }

    #[test]
    fn annotations_that_held_only_the_applied_manifest_are_empty_and_not_absent() {
        let mut job = fixture::waiting_job();
        job["metadata"]["annotations"] = json!({LAST_APPLIED: "{}"});
        assert_eq!(view(job).metadata.annotations, Some(BTreeMap::new()));
    }

    #[test]
    fn a_broken_quantity_does_not_fail_the_decode() {
        for broken in [json!("1gb"), json!(true), json!([1]), json!({"a": 1})] {
            let mut job = fixture::waiting_job();
            job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = broken.clone();
            let view = view(job);
            let requests = view.spec.template.spec.containers[0]
                .resources
                .requests
                .as_ref()
                .unwrap();
            assert!(requests["memory"].get().is_err(), "{broken}");
            assert_eq!(requests["cpu"].get().unwrap(), &Quantity::from(1));
        }
    }

    #[test]
    fn a_job_without_spec_and_status_decodes() {
        let view = view(json!({"metadata": {"name": "bare"}}));
        assert_eq!(view.name(), "bare");
        assert!(!view.is_suspended());
    }

    #[test]
    fn tolerations_are_kept_as_written_and_readable_as_types() {
        let mut job = fixture::waiting_job();
        let written = json!([{"key": "gpu", "operator": "Exists", "unknown": 1}, 7]);
        job["spec"]["template"]["spec"]["tolerations"] = written.clone();
        let view = view(job);
        let pod = &view.spec.template.spec;
        assert_eq!(pod.tolerations.as_ref().unwrap(), written.as_array().unwrap());
        let typed = pod.typed_tolerations();
        assert_eq!(typed.len(), 1);
        assert_eq!(typed[0].key.as_deref(), Some("gpu"));
    }

    #[test]
    fn only_required_node_affinity_is_read() {
        let mut job = fixture::waiting_job();
        job["spec"]["template"]["spec"]["affinity"] = json!({
            "podAffinity": {"unknown": "shape"},
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [],
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
                }
            }
        });
        let view = view(job);
        let terms = &view
            .spec
            .template
            .spec
            .required_node_affinity()
            .unwrap()
            .node_selector_terms;
        assert_eq!(terms[0].match_expressions.as_ref().unwrap()[0].key, "zone");
    }

    #[test]
    fn claims_and_gates_are_seen_only_when_there_are_any() {
        let mut job = fixture::waiting_job();
        job["spec"]["template"]["spec"]["resourceClaims"] = json!([]);
        job["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
        let pod = view(job).spec.template.spec;
        assert!(!pod.has_resource_claims);
        assert!(pod.has_scheduling_gates);
    }

    #[test]
    fn the_controlling_owner_is_found_among_the_others() {
        let mut job = fixture::waiting_job();
        job["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "1"},
            {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "2", "controller": true}
        ]);
        assert_eq!(view(job).controlling_owner().unwrap().name, "parent");
    }
}
