//! What an admission changes in the pod template: the old delta out, the new one in.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::builder::{add, remove};
use super::{AdmissionPlan, PatchError};
use crate::record::Delta;
use crate::view::TemplateView;

const TEMPLATE: [&str; 2] = ["spec", "template"];

/// The operations, and what the user had not put there: the new delta.
pub(super) fn change(
    template: &TemplateView,
    old: &Delta,
    plan: &AdmissionPlan,
) -> Result<(Vec<PatchOperation>, Delta), PatchError> {
    let selector = MapChange::plan(
        "spec.nodeSelector",
        template.spec.node_selector.as_ref(),
        &old.node_selector,
        &plan.node_selector,
    )?;
    let labels = MapChange::plan("metadata.labels", template.labels(), &old.labels, &plan.labels)?;
    let mut operations = selector.operations(&["spec", "nodeSelector"]);
    let tolerations = change_tolerations(template.spec.tolerations.as_deref(), old, plan, &mut operations);
    if template.metadata.is_none() && !labels.wanted.is_empty() {
        operations.push(add(&path(&["metadata"]), json!({ "labels": labels.wanted })));
    } else {
        operations.extend(labels.operations(&["metadata", "labels"]));
    }
    Ok((
        operations,
        Delta {
            node_selector: selector.delta,
            tolerations,
            labels: labels.delta,
            ..Delta::default()
        },
    ))
}

fn path<'a>(below: &[&'a str]) -> Vec<&'a str> {
    TEMPLATE.iter().chain(below).copied().collect()
}

struct MapChange<'a> {
    seen: Option<&'a BTreeMap<String, String>>,
    wanted: BTreeMap<String, String>,
    delta: BTreeMap<String, String>,
}

impl<'a> MapChange<'a> {
    fn plan(
        field: &str,
        seen: Option<&'a BTreeMap<String, String>>,
        old: &BTreeMap<String, String>,
        added: &BTreeMap<String, String>,
    ) -> Result<Self, PatchError> {
        let mut wanted = seen.cloned().unwrap_or_default();
        // A value that somebody changed since is the user's, no longer ours.
        wanted.retain(|key, value| old.get(key) != Some(value));
        let mut delta = BTreeMap::new();
        for (key, value) in added {
            match wanted.get(key) {
                Some(present) if present == value => {}
                Some(present) => {
                    return Err(PatchError::Conflict {
                        field: format!("spec.template.{field}[{key}]"),
                        present: present.clone(),
                        wanted: value.clone(),
                    });
                }
                None => {
                    wanted.insert(key.clone(), value.clone());
                    delta.insert(key.clone(), value.clone());
                }
            }
        }
        Ok(Self { seen, wanted, delta })
    }

    fn operations(&self, below: &[&str]) -> Vec<PatchOperation> {
        let whole = path(below);
        let Some(seen) = self.seen else {
            let is_needed = !self.wanted.is_empty();
            return is_needed.then(|| add(&whole, json!(self.wanted))).into_iter().collect();
        };
        if self.wanted.is_empty() && !seen.is_empty() {
            return vec![remove(&whole)];
        }
        let entry = |key: &'_ str| -> Vec<String> { whole.iter().copied().chain([key]).map(str::to_owned).collect() };
        let gone = seen
            .keys()
            .filter(|key| !self.wanted.contains_key(*key))
            .map(|key| remove(&borrowed(&entry(key))));
        let new = self.wanted.iter().filter(|(key, value)| seen.get(*key) != Some(value));
        gone.chain(new.map(|(key, value)| add(&borrowed(&entry(key)), json!(value))))
            .collect()
    }
}

fn borrowed(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// Returns the tolerations of the new delta.
fn change_tolerations(
    seen: Option<&[Value]>,
    old: &Delta,
    plan: &AdmissionPlan,
    operations: &mut Vec<PatchOperation>,
) -> Vec<Value> {
    let mut wanted = seen.unwrap_or_default().to_vec();
    for ours in &old.tolerations {
        // Ours stand behind the user's: of two equal ones the last is ours.
        if let Some(position) = wanted.iter().rposition(|present| same_toleration(present, ours)) {
            wanted.remove(position);
        }
    }
    let users = wanted.len();
    for toleration in &plan.tolerations {
        if !wanted.iter().any(|present| same_toleration(present, toleration)) {
            wanted.push(toleration.clone());
        }
    }
    let delta = wanted.get(users..).unwrap_or_default().to_vec();
    let whole = path(&["spec", "tolerations"]);
    match seen {
        Some(seen) if seen == wanted => {}
        None if wanted.is_empty() => {}
        Some(_) if wanted.is_empty() => operations.push(remove(&whole)),
        Some(seen) if wanted.starts_with(seen) => {
            let end = path(&["spec", "tolerations", "-"]);
            operations.extend(
                wanted
                    .iter()
                    .skip(seen.len())
                    .map(|toleration| add(&end, toleration.clone())),
            );
        }
        // The generation guard covers the whole list: replacing it loses nothing.
        _ => operations.push(add(&whole, json!(wanted))),
    }
    delta
}

/// Whether two tolerations mean the same: absent and empty are equal, and the operator is `Equal` where none is named.
fn same_toleration(a: &Value, b: &Value) -> bool {
    let text = |toleration: &Value, key: &str| {
        toleration
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let operator = |toleration: &Value| Some(text(toleration, "operator")).filter(|operator| !operator.is_empty());
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_i64);
    let equal = || "Equal".to_owned();
    ["key", "value", "effect"]
        .iter()
        .all(|key| text(a, key) == text(b, key))
        && operator(a).unwrap_or_else(equal) == operator(b).unwrap_or_else(equal)
        && seconds(a) == seconds(b)
}
