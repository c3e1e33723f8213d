//! Workloads in both versions.

use serde_json::{Value, json};

use super::carried::Carried;
use super::{Object, Version, object_at, objects_at, rename};
use crate::v1beta2::{DEFAULT_POD_SET, PodSetSliceConstraint, PreemptionGate, TopologyAssignment, TopologyDomain};

/// Where a priority comes from: as `v1beta1` says it, and group and kind as `v1beta2` does.
const SOURCES: &[(&str, &str, &str)] = &[
    (
        "kueue.x-k8s.io/workloadpriorityclass",
        "kueue.x-k8s.io",
        "WorkloadPriorityClass",
    ),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];
const CLASS_NAME: &str = "spec.priorityClassName";
const CLASS_SOURCE: &str = "spec.priorityClassSource";
const GATES: &str = "spec.preemptionGates";
const MAX_GATES: usize = 8;
const CONSTRAINTS: &str = "podsetSliceRequiredTopologyConstraints";
const MAX_CONSTRAINTS: usize = 3;
/// The longest label or name, in characters.
const LONGEST: usize = 63;
/// What the older version misspells.
const PAST_TIME: (&str, &str) = (
    "accumulatedPastExexcutionTimeSeconds",
    "accumulatedPastExecutionTimeSeconds",
);

pub(super) fn workload(object: &mut Object, carried: &mut Carried, to: Version) {
    if let Some(spec) = object_at(object, "spec") {
        match to {
            Version::V1beta1 => spec_to_v1beta1(spec, carried),
            Version::V1beta2 => spec_to_v1beta2(spec, carried),
        }
    }
    let Some(status) = object_at(object, "status") else {
        return;
    };
    match to {
        Version::V1beta1 => rename(status, PAST_TIME.1, PAST_TIME.0),
        Version::V1beta2 => rename(status, PAST_TIME.0, PAST_TIME.1),
    }
    let Some(admission) = object_at(status, "admission") else {
        return;
    };
    for assignment in objects_at(admission, "podSetAssignments") {
        let Some(placement) = assignment.get_mut("topologyAssignment") else {
            continue;
        };
        let written = match to {
            Version::V1beta1 => in_rows(placement),
            Version::V1beta2 => in_columns(placement),
        };
        // A placement that cannot be read stays as it is: no schema lets one in, and none must stop a list.
        if let Some(written) = written {
            *placement = written;
        }
    }
}

fn spec_to_v1beta2(spec: &mut Object, carried: &mut Carried) {
    let source = spec.get("priorityClassSource").and_then(Value::as_str);
    let source = SOURCES.iter().find(|(known, _, _)| source == Some(*known));
    match (source, spec.get("priorityClassName")) {
        (Some((_, group, kind)), Some(Value::String(name))) => {
            let class = json!({ "group": group, "kind": kind, "name": name });
            spec.insert("priorityClassRef".to_owned(), class);
            spec.remove("priorityClassName");
            spec.remove("priorityClassSource");
        }
        // A name without a source, or the other way round.
        _ => {
            for (name, field) in [("priorityClassName", CLASS_NAME), ("priorityClassSource", CLASS_SOURCE)] {
                if let Some(value) = spec.remove(name) {
                    carried.leave(field, value);
                }
            }
        }
    }
    let sound = |gates: &Vec<PreemptionGate>| {
        gates.len() <= MAX_GATES
            && gates
                .iter()
                .all(|gate| (1..=LONGEST).contains(&gate.name.chars().count()))
    };
    if let Some(gates) = carried.found_as(GATES, sound) {
        spec.entry("preemptionGates").or_insert(gates);
    }
    for pod_set in objects_at(spec, "podSets") {
        let field = constraints_of(pod_set);
        if let Some(request) = object_at(pod_set, "topologyRequest") {
            let sound = |constraints: &Vec<PodSetSliceConstraint>| {
                constraints.len() <= MAX_CONSTRAINTS
                    && constraints.iter().all(|constraint| {
                        constraint.size >= 1 && (1..=LONGEST).contains(&constraint.topology.chars().count())
                    })
            };
            if let Some(constraints) = carried.found_as(&field, sound) {
                request.entry(CONSTRAINTS).or_insert(constraints);
            }
        }
    }
}

fn spec_to_v1beta1(spec: &mut Object, carried: &mut Carried) {
    if let Some(class) = spec.get("priorityClassRef") {
        let source = SOURCES
            .iter()
            .find(|(_, group, kind)| class["group"] == *group && class["kind"] == *kind);
        // Rules of the schema see to it that there is no other pair.
        if let (Some((source, _, _)), Value::String(name)) = (source, class["name"].clone()) {
            spec.remove("priorityClassRef");
            spec.insert("priorityClassName".to_owned(), name.into());
            spec.insert("priorityClassSource".to_owned(), (*source).into());
        }
    } else {
        for (name, field) in [("priorityClassName", CLASS_NAME), ("priorityClassSource", CLASS_SOURCE)] {
            if let Some(said) = carried.found(field).filter(Value::is_string) {
                spec.insert(name.to_owned(), said);
            }
        }
    }
    if let Some(gates) = spec.remove("preemptionGates") {
        carried.leave(GATES, gates);
    }
    for pod_set in objects_at(spec, "podSets") {
        let field = constraints_of(pod_set);
        let constraints = object_at(pod_set, "topologyRequest").and_then(|request| request.remove(CONSTRAINTS));
        if let Some(constraints) = constraints {
            carried.leave(&field, constraints);
        }
    }
}

fn constraints_of(pod_set: &Object) -> String {
    let name = pod_set.get("name").and_then(Value::as_str).unwrap_or(DEFAULT_POD_SET);
    format!("spec.podSets[{name}].topologyRequest.{CONSTRAINTS}")
}

/// A placement as `v1beta1` has it: a row for each domain.
///
/// One that says more than is known here stays as it is.
fn in_rows(placement: &Value) -> Option<Value> {
    let typed: TopologyAssignment = serde_json::from_value(placement.clone()).ok()?;
    if serde_json::to_value(&typed).ok()? != *placement {
        return None;
    }
    let domains = typed.domains().ok()?;
    Some(json!({ "levels": typed.levels, "domains": domains }))
}

/// A placement as `v1beta2` has it: in columns.
fn in_columns(placement: &Value) -> Option<Value> {
    let domains: Vec<TopologyDomain> = serde_json::from_value(placement.get("domains")?.clone()).ok()?;
    if placement.as_object()?.len() > 2 {
        return None;
    }
    let levels: Vec<String> = serde_json::from_value(placement.get("levels")?.clone()).ok()?;
    serde_json::to_value(TopologyAssignment::of(levels, &domains).ok()?).ok()
}
