//! What the schemas of ClusterQueues and Cohorts cannot say: whether their annotations, limits and weights make sense.
//!
//! The scheduler finds the same and leaves such a queue inactive; here its author hears of it at once.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::v1beta2::{ClusterQueue, Cohort, Violation};

use crate::reply::{Denial, Verdict};
use crate::review::{Operation, Request};
use crate::shown::one_line;

/// Problems that one answer names.
const MOST: usize = 16;
/// The longest description of one problem, in characters.
const LONGEST: usize = 400;
/// The longest warning that the API server passes on, in bytes.
const LONGEST_WARNING: usize = 256;

/// A kind that holds quota.
pub(crate) trait Quota: DeserializeOwned {
    /// Everything that is wrong with the object.
    fn violations(&self) -> Vec<Violation>;
    /// Fields in use that are not acted on.
    fn ignored(&self) -> Vec<String>;
}

impl Quota for ClusterQueue {
    fn violations(&self) -> Vec<Violation> {
        self.validate()
    }

    fn ignored(&self) -> Vec<String> {
        self.unsupported_fields()
    }
}

impl Quota for Cohort {
    fn violations(&self) -> Vec<Violation> {
        self.validate()
    }

    fn ignored(&self) -> Vec<String> {
        self.unsupported_fields()
    }
}

/// Refuses what makes no sense. An update is refused only for what it adds to it: an object that is bad already must not be
/// stuck with all that is bad in it.
pub(crate) fn validate<K: Quota>(request: &Request) -> Verdict {
    if !request.sub_resource.is_empty() || matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Verdict::untouched("only objects that are created or updated are judged");
    }
    if request.object["metadata"]["deletionTimestamp"].is_string() {
        return Verdict::untouched("the object is being deleted");
    }
    let stored = match request.operation {
        Operation::Update => problems::<K>(&request.old_object),
        _ => Vec::new(),
    };
    let found = problems::<K>(&request.object);
    let new = added(&stored, &found);
    if !new.is_empty() {
        let more = new.len().saturating_sub(MOST);
        let mut denial = Denial::invalid(new.into_iter().take(MOST).map(Problem::into_cause).collect());
        if more > 0 {
            denial.message = format!("{}; and {more} more", denial.message);
        }
        return Verdict::Deny(denial);
    }
    let stale = found
        .into_iter()
        .map(|problem| format!("{}: {}", problem.field, problem.text));
    let ignored = K::deserialize(&request.object)
        .map(|object| object.ignored())
        .unwrap_or_default();
    let ignored = ignored
        .into_iter()
        .map(|field| format!("{field} is not acted on yet: while it is set, nothing is admitted"));
    let warnings: Vec<String> = stale
        .chain(ignored)
        .take(MOST)
        .map(|warning| one_line(&warning, LONGEST_WARNING))
        .collect();
    let reason = if warnings.is_empty() {
        "it makes sense"
    } else {
        "it is no worse than it was"
    };
    Verdict::Allow {
        patch: None,
        warnings,
        reason: reason.to_owned(),
    }
}

/// One thing wrong with an object.
#[derive(Clone)]
struct Problem {
    field: String,
    text: String,
}

impl Problem {
    /// What tells it from other problems. Its place in a list does not: entries before it may come and go.
    fn key(&self) -> (String, String) {
        (without_indexes(&self.field), self.text.clone())
    }

    fn into_cause(self) -> (String, String) {
        (one_line(&self.field, LONGEST), one_line(&self.text, LONGEST))
    }
}

fn problems<K: Quota>(object: &Value) -> Vec<Problem> {
    match K::deserialize(object) {
        Ok(object) => object
            .violations()
            .into_iter()
            .map(|Violation { field, problem }| Problem {
                field,
                text: problem.to_string(),
            })
            .collect(),
        // The schema lets nothing through that cannot be decoded; what was stored before it may be so.
        Err(error) => vec![Problem {
            field: "the object".to_owned(),
            text: format!("cannot be read: {error}"),
        }],
    }
}

/// The problems in `found` that `stored` does not have, each as often as it is there.
fn added(stored: &[Problem], found: &[Problem]) -> Vec<Problem> {
    let mut known: BTreeMap<_, usize> = BTreeMap::new();
    for problem in stored {
        *known.entry(problem.key()).or_default() += 1;
    }
    let mut is_new = |problem: &Problem| match known.get_mut(&problem.key()) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    };
    found.iter().filter(|problem| is_new(problem)).cloned().collect()
}

/// A field's path with its list indexes taken out.
fn without_indexes(field: &str) -> String {
    let mut path = String::with_capacity(field.len());
    let mut rest = field;
    while let Some((before, behind)) = rest.split_once('[') {
        path.push_str(before);
        path.push('[');
        rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        if !rest.starts_with(']') {
            // A key, not an index: it stays whole.
            rest = behind;
        }
    }
    path.push_str(rest);
    path
}
