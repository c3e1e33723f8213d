//! What the referee reads out of the objects: records, quotas, conditions.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde_json::Value;
use sluice_quantity::{Format, Quantity};

/// Flavor and resource.
pub(super) type Key = (String, String);
/// An amount in thousandths of a unit.
pub(super) type Milli = i128;

/// A record that says "this Job may run".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) cluster_queue: String,
    /// Pods of all pod sets.
    pub(super) count: i64,
    /// Amounts for all of them.
    pub(super) usage: BTreeMap<Key, Milli>,
    /// Term and time: an admission's name.
    pub(super) name: String,
}

/// The record annotation of a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    None,
    Admitted(Admission),
    /// Any other state.
    Stopped,
    Unreadable(String),
}

pub(super) fn record(job: &DynamicObject) -> Record {
    let annotations = job.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get("sluice.internal/admission")) else {
        return Record::None;
    };
    match serde_json::from_str::<Value>(text) {
        Err(error) => Record::Unreadable(error.to_string()),
        Ok(record) if record["uid"].as_str() != job.metadata.uid.as_deref() => Record::None,
        Ok(record) if record["state"] != "Admitted" => Record::Stopped,
        Ok(record) => admission(&record).map_or_else(Record::Unreadable, Record::Admitted),
    }
}

fn admission(record: &Value) -> Result<Admission, String> {
    let cluster_queue = record["clusterQueue"].as_str().ok_or("no clusterQueue")?.to_owned();
    let mut admission = Admission {
        cluster_queue,
        count: 0,
        usage: BTreeMap::new(),
        name: format!("{}/{}", record["term"], record["admittedAt"]),
    };
    for set in record["podSets"].as_array().ok_or("no podSets")? {
        admission.count += set["count"].as_i64().ok_or("no count")?;
        for (resource, amount) in set["usage"].as_object().into_iter().flatten() {
            let flavor = set["flavors"][resource]
                .as_str()
                .ok_or_else(|| format!("no flavor for {resource}"))?;
            let amount = amount.as_str().ok_or_else(|| format!("{resource} is not a quantity"))?;
            let amount = Quantity::parse(amount).map_err(|error| format!("{resource}: {error}"))?;
            *admission
                .usage
                .entry((flavor.to_owned(), resource.clone()))
                .or_default() += Milli::from(amount.milli_value());
        }
    }
    Ok(admission)
}

/// A quota, and the notation it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) amount: Milli,
    pub(super) format: Format,
}

/// Nominal quota of each flavor and resource, and what may be borrowed on top.
pub(super) fn quotas(cluster_queue: &DynamicObject) -> BTreeMap<Key, Quota> {
    let mut quotas = BTreeMap::new();
    let spec = &cluster_queue.data["spec"];
    let in_cohort = spec["cohortName"].is_string() || spec["cohort"].is_string();
    for flavor in spec["resourceGroups"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|group| array(&group["flavors"]))
    {
        let Some(name) = flavor["name"].as_str() else { continue };
        for resource in array(&flavor["resources"]) {
            let Some(resource_name) = resource["name"].as_str() else {
                continue;
            };
            let mut quota = quantity(&resource["nominalQuota"]).unwrap_or_default();
            if in_cohort {
                match quantity(&resource["borrowingLimit"]) {
                    Some(limit) => quota = quota.saturating_add(&limit),
                    // Bounded by the cohort alone, which this referee does not judge.
                    None => continue,
                }
            }
            let quota = Quota {
                amount: Milli::from(quota.milli_value()),
                format: quota.format(),
            };
            quotas.insert((name.to_owned(), resource_name.to_owned()), quota);
        }
    }
    quotas
}

/// Whether the Job has the label that puts it in a queue.
pub(super) fn is_queued(job: &DynamicObject) -> bool {
    job.metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key("kueue.x-k8s.io/queue-name"))
}

pub(super) fn is_suspended(job: &DynamicObject) -> bool {
    job.data["spec"]["suspend"] == true
}

pub(super) fn is_finished(job: &DynamicObject) -> bool {
    array(&job.data["status"]["conditions"]).iter().any(|condition| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    })
}

/// Pods that the Job still needs of `admitted`: those that succeeded early give their quota back.
pub(super) fn pods_needed(job: &DynamicObject, admitted: i64) -> i64 {
    let completions = job.data["spec"]["completions"].as_i64();
    let succeeded = job.data["status"]["succeeded"].as_i64().unwrap_or_default();
    completions.map_or(admitted, |completions| admitted.min((completions - succeeded).max(0)))
}

/// uid of the Job that made the pod; an orphaned pod loses its owner reference and keeps this label.
pub(super) fn controller(pod: &DynamicObject) -> Option<String> {
    pod.metadata
        .labels
        .as_ref()?
        .get("batch.kubernetes.io/controller-uid")
        .cloned()
}

/// Whether the pod holds resources: it is not over.
pub(super) fn is_live(pod: &DynamicObject) -> bool {
    let phase = pod.data["status"]["phase"].as_str().unwrap_or_default();
    phase != "Succeeded" && phase != "Failed"
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
