//! What an admission put into a pod template, kept there or taken out of it.

use serde_json::{Map, Value};
use sluice_api::labels;
use sluice_jobs::record::Delta;

use crate::patch::{Edits, look_up};

const PARALLELISM: &[&str] = &["spec", "parallelism"];
const COMPLETIONS: &[&str] = &["spec", "completions"];
const NODE_SELECTOR: &[&str] = &["spec", "template", "spec", "nodeSelector"];
const TOLERATIONS: &[&str] = &["spec", "template", "spec", "tolerations"];
const LABELS: &[&str] = &["spec", "template", "metadata", "labels"];

/// Pod labels that an admission may set; what is pinned when the record cannot be read.
const POD_LABELS: [&str; 3] = [labels::PODSET, labels::LOCAL_QUEUE_NAME, labels::CLUSTER_QUEUE_NAME];

/// Keeps node selector, tolerations and our pod labels of a running Job as stored.
///
/// The API server refuses any change to the template of a running Job, also the loss of what the admission added:
/// a manifest applied again would fail. Returns the names of the fields that were kept.
pub(crate) fn keep_running(
    edits: &mut Edits<'_>,
    new: &Value,
    old: &Value,
    delta: Option<&Delta>,
) -> Vec<&'static str> {
    let mut kept = Vec::new();
    for (path, name) in [(NODE_SELECTOR, "nodeSelector"), (TOLERATIONS, "tolerations")] {
        if filled(new, path) != filled(old, path) {
            edits.restore(path, look_up(old, path));
            kept.push(name);
        }
    }
    let recorded = delta
        .into_iter()
        .flat_map(|delta| delta.labels.keys().map(String::as_str));
    let keys: Vec<&str> = if delta.is_some() {
        recorded.collect()
    } else {
        POD_LABELS.to_vec()
    };
    if keep_keys(edits, new, old, LABELS, keys.into_iter()) {
        kept.push("labels");
    }
    kept
}

/// Keeps the numbers of pods of a Job that runs with fewer than its owner asks for, where a write sets just what the owner
/// asks for: a manifest applied again. Any other number is as written. Returns the pods asked for if anything was kept.
pub(crate) fn keep_fewer_pods(edits: &mut Edits<'_>, new: &Value, old: &Value, delta: Option<&Delta>) -> Option<i64> {
    let delta = delta?;
    let mut kept = false;
    for (path, asked) in [(PARALLELISM, delta.parallelism), (COMPLETIONS, delta.completions)] {
        let number = |job| look_up(job, path).and_then(Value::as_i64);
        if asked.is_some() && number(new) == asked && number(old) != asked {
            edits.restore(path, look_up(old, path));
            kept = true;
        }
    }
    delta.parallelism.filter(|_| kept)
}

/// Keeps in the template of a suspended Job exactly what its last admission put there; the rest is its owner's to edit.
///
/// The next admission takes the delta out again, and can only take out what is there. Returns the names of the fields
/// that were kept.
pub(crate) fn keep_delta(edits: &mut Edits<'_>, new: &Value, old: &Value, delta: &Delta) -> Vec<&'static str> {
    let mut kept = Vec::new();
    if keep_keys(
        edits,
        new,
        old,
        NODE_SELECTOR,
        delta.node_selector.keys().map(String::as_str),
    ) {
        kept.push("nodeSelector");
    }
    let stored = list(old, TOLERATIONS);
    let mut wanted = list(new, TOLERATIONS).to_vec();
    let lost: Vec<Value> = delta
        .tolerations
        .iter()
        .filter(|t| stored.contains(t) && !wanted.contains(t))
        .cloned()
        .collect();
    if !lost.is_empty() {
        wanted.extend(lost);
        edits.set(TOLERATIONS, Value::Array(wanted));
        kept.push("tolerations");
    }
    if keep_keys(edits, new, old, LABELS, delta.labels.keys().map(String::as_str)) {
        kept.push("labels");
    }
    kept
}

/// Takes out of a new Job what an admission of the Job that it was copied from had put there.
pub(crate) fn strip_delta(edits: &mut Edits<'_>, job: &Value, delta: &Delta) {
    for (path, injected) in [(NODE_SELECTOR, &delta.node_selector), (LABELS, &delta.labels)] {
        for (key, value) in injected {
            if map(job, path).and_then(|map| map.get(key)).and_then(Value::as_str) == Some(value) {
                edits.remove(&join(path, key));
            }
        }
    }
    let mut left = list(job, TOLERATIONS).to_vec();
    let before = left.len();
    for injected in &delta.tolerations {
        if let Some(position) = left.iter().position(|toleration| toleration == injected) {
            left.remove(position);
        }
    }
    if left.is_empty() && before > 0 {
        edits.remove(TOLERATIONS);
    } else if left.len() < before {
        edits.set(TOLERATIONS, Value::Array(left));
    }
}

fn keep_keys<'k>(
    edits: &mut Edits<'_>,
    new: &Value,
    old: &Value,
    path: &[&str],
    keys: impl Iterator<Item = &'k str>,
) -> bool {
    let mut kept = false;
    for key in keys {
        let stored = map(old, path).and_then(|map| map.get(key));
        if stored.is_some() && map(new, path).and_then(|map| map.get(key)) != stored {
            edits.restore(&join(path, key), stored);
            kept = true;
        }
    }
    kept
}

fn join<'p>(path: &[&'p str], key: &'p str) -> Vec<&'p str> {
    path.iter().copied().chain([key]).collect()
}

fn map<'v>(job: &'v Value, path: &[&str]) -> Option<&'v Map<String, Value>> {
    look_up(job, path).and_then(Value::as_object)
}

fn list<'v>(job: &'v Value, path: &[&str]) -> &'v [Value] {
    look_up(job, path)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The value, with absent, null and empty as one: the API server stores none of the three.
fn filled<'v>(job: &'v Value, path: &[&str]) -> Option<&'v Value> {
    look_up(job, path).filter(|value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    })
}
