//! Queues, cohorts and worker clusters in both versions.

use serde_json::{Value, json};

use super::carried::Carried;
use super::{Object, Version, object_at, rename};
use crate::v1beta2::ConcurrentAdmissionPolicy;

/// Words for a policy that `v1beta2` has one word for.
const OLD_POLICIES: &[&str] = &["Borrow", "Preempt"];
const NEW_POLICY: &str = "MayStopSearch";
const CONCURRENT: &str = "spec.concurrentAdmissionPolicy";
const CHECKS: &str = "spec.admissionChecks";
const STRATEGY: &str = "spec.admissionChecksStrategy";

pub(super) fn cluster_queue(object: &mut Object, carried: &mut Carried, to: Version) {
    if let Some(spec) = object_at(object, "spec") {
        match to {
            Version::V1beta1 => {
                rename(spec, "cohortName", "cohort");
                if let Some(policy) = spec.remove("concurrentAdmissionPolicy") {
                    carried.leave(CONCURRENT, policy);
                }
                checks_to_list(spec, carried);
            }
            Version::V1beta2 => {
                rename(spec, "cohort", "cohortName");
                let known = |policy: &ConcurrentAdmissionPolicy| policy.migration.mode.unknown().is_none();
                if let Some(policy) = carried.found_as(CONCURRENT, known) {
                    spec.entry("concurrentAdmissionPolicy").or_insert(policy);
                }
                checks_to_strategy(spec, carried);
            }
        }
        if let Some(fungibility) = object_at(spec, "flavorFungibility") {
            for policy in ["whenCanBorrow", "whenCanPreempt"] {
                fungibility_policy(fungibility, policy, carried, to);
            }
        }
    }
    if let Some(status) = object_at(object, "status") {
        if to == Version::V1beta2 {
            status.remove("pendingWorkloadsStatus");
        }
        fair_sharing(status, to);
    }
}

pub(super) fn cohort(object: &mut Object, _: &mut Carried, to: Version) {
    if let Some(status) = object_at(object, "status") {
        fair_sharing(status, to);
    }
}

pub(super) fn local_queue(object: &mut Object, _: &mut Carried, to: Version) {
    let Some(status) = object_at(object, "status") else {
        return;
    };
    match to {
        Version::V1beta1 => rename(status, "flavorsUsage", "flavorUsage"),
        Version::V1beta2 => {
            rename(status, "flavorUsage", "flavorsUsage");
            status.remove("flavors");
        }
    }
}

pub(super) fn multikueue_cluster(object: &mut Object, _: &mut Carried, to: Version) {
    const SOURCES: [&str; 2] = ["kubeConfig", "clusterProfileRef"];
    let Some(spec) = object_at(object, "spec") else { return };
    match to {
        Version::V1beta1 => {
            let Some(source) = object_at(spec, "clusterSource") else {
                return;
            };
            let moved = SOURCES.map(|way| source.remove(way));
            if source.is_empty() {
                spec.remove("clusterSource");
            }
            for (way, value) in SOURCES.into_iter().zip(moved) {
                if let Some(value) = value {
                    spec.insert(way.to_owned(), value);
                }
            }
        }
        Version::V1beta2 => {
            for way in SOURCES {
                let Some(value) = spec.remove(way) else { continue };
                let source = spec.entry("clusterSource").or_insert_with(|| json!({}));
                if let Some(source) = source.as_object_mut() {
                    source.insert(way.to_owned(), value);
                }
            }
        }
    }
}

/// Past usage stood in the status of all that has a share, though only LocalQueues have any.
fn fair_sharing(status: &mut Object, to: Version) {
    if to == Version::V1beta2
        && let Some(sharing) = object_at(status, "fairSharing")
    {
        sharing.remove("admissionFairSharingStatus");
    }
}

fn fungibility_policy(fungibility: &mut Object, policy: &str, carried: &mut Carried, to: Version) {
    let field = format!("spec.flavorFungibility.{policy}");
    let Some(value) = fungibility.get_mut(policy) else {
        return;
    };
    match to {
        Version::V1beta2 => {
            if value.as_str().is_some_and(|word| OLD_POLICIES.contains(&word)) {
                carried.leave(&field, std::mem::replace(value, NEW_POLICY.into()));
            }
        }
        Version::V1beta1 => {
            let said = carried.found(&field);
            let old = said.filter(|said| said.as_str().is_some_and(|word| OLD_POLICIES.contains(&word)));
            if let Some(old) = old.filter(|_| *value == NEW_POLICY) {
                *value = old;
            }
        }
    }
}

/// `v1beta1` also has checks as a plain list of names.
fn checks_to_strategy(spec: &mut Object, carried: &mut Carried) {
    let Some(list) = spec.get("admissionChecks") else {
        return;
    };
    let before = spec.get("admissionChecksStrategy").cloned();
    let Some(merged) = merged(list, before.as_ref()) else {
        return;
    };
    if let Some(list) = spec.remove("admissionChecks") {
        carried.leave(CHECKS, list);
    }
    if let Some(before) = before {
        carried.leave(STRATEGY, before);
    }
    if let Some(merged) = merged {
        spec.insert("admissionChecksStrategy".to_owned(), merged);
    }
}

/// The list that the author wrote comes back while the checks are still those that it gave.
fn checks_to_list(spec: &mut Object, carried: &mut Carried) {
    let (list, before) = (carried.found(CHECKS), carried.found(STRATEGY));
    let Some(list) = list else { return };
    if merged(&list, before.as_ref()).is_none_or(|merged| merged.as_ref() != spec.get("admissionChecksStrategy")) {
        return;
    }
    spec.remove("admissionChecksStrategy");
    spec.insert("admissionChecks".to_owned(), list);
    if let Some(before) = before {
        spec.insert("admissionChecksStrategy".to_owned(), before);
    }
}

/// The strategy that a list of names and another strategy give together: the other's checks, then those of the list that
/// are not among them. None at all if both are empty; `None` outside if they are not what they should be.
#[expect(clippy::option_option, reason = "no strategy is an answer, too")]
fn merged(list: &Value, before: Option<&Value>) -> Option<Option<Value>> {
    let names: Vec<&str> = list.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let Some(before) = before else {
        let checks: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
        return Some((!checks.is_empty()).then(|| json!({ "admissionChecks": checks })));
    };
    let mut strategy = before.clone();
    let checks = strategy
        .as_object_mut()?
        .entry("admissionChecks")
        .or_insert_with(|| json!([]));
    let checks = checks.as_array_mut()?;
    for name in names {
        if !checks.iter().any(|check| check["name"] == name) {
            checks.push(json!({ "name": name }));
        }
    }
    Some(Some(strategy))
}
