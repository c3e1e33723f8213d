//! What the schemas of queues, flavors and Workloads cannot say: whether annotations, limits and weights make sense, and
//! what may change while a Workload holds quota.
//!
//! The scheduler finds the same and leaves such an object inactive; here its author hears of it at once.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use sluice_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Violation, Workload};

use crate::reply::{Denial, Verdict};
use crate::review::{Operation, Request};
use crate::shown::one_line;

/// Problems that one answer names.
const MOST: usize = 16;
/// The longest description of one problem, in characters.
const LONGEST: usize = 400;
/// The longest warning that the API server passes on, in bytes.
const LONGEST_WARNING: usize = 256;

/// A kind whose objects are judged.
pub(crate) trait Judged: DeserializeOwned {
    /// Whether what is written through the subresource `status` is judged, too.
    const STATUS: bool = false;

    /// Everything that is wrong with the object.
    fn violations(&self) -> Vec<Violation>;

    /// Everything that is wrong with turning `old` into the object.
    fn change_violations(&self, _old: &Self) -> Vec<Violation> {
        Vec::new()
    }

    /// What the author should know: what is stored, and not acted on.
    fn ignored(&self) -> Vec<String>;
}

impl Judged for ClusterQueue {
    fn violations(&self) -> Vec<Violation> {
        let mut all = self.validate();
        all.extend(self.validate_references());
        all
    }

    fn change_violations(&self, old: &Self) -> Vec<Violation> {
        self.validate_change(old)
    }

    fn ignored(&self) -> Vec<String> {
        not_acted_on(self.unsupported_fields())
    }
}

impl Judged for Cohort {
    fn violations(&self) -> Vec<Violation> {
        self.validate()
    }

    fn ignored(&self) -> Vec<String> {
        not_acted_on(self.unsupported_fields())
    }
}

impl Judged for LocalQueue {
    fn violations(&self) -> Vec<Violation> {
        self.validate()
    }

    fn ignored(&self) -> Vec<String> {
        not_acted_on(self.unsupported_fields())
    }
}

impl Judged for ResourceFlavor {
    fn violations(&self) -> Vec<Violation> {
        self.validate()
    }

    fn ignored(&self) -> Vec<String> {
        not_acted_on(self.unsupported_fields())
    }
}

impl Judged for Workload {
    const STATUS: bool = true;

    fn violations(&self) -> Vec<Violation> {
        self.validate()
    }

    fn change_violations(&self, old: &Self) -> Vec<Violation> {
        self.validate_change(old)
    }

    fn ignored(&self) -> Vec<String> {
        vec!["Sluice does not act on Workloads yet: this one is stored, and not admitted".to_owned()]
    }
}

fn not_acted_on(fields: Vec<String>) -> Vec<String> {
    let said = |field| format!("{field} is not acted on yet: while it is set, nothing is admitted");
    fields.into_iter().map(said).collect()
}

/// Answers at the paths at which Kueue fills in what its users left out: the schemas do that here.
pub(crate) fn mutate() -> Verdict {
    Verdict::untouched("the schema has the defaults")
}

/// Refuses what makes no sense. An update is refused only for what it adds to it: an object that is bad already must not be
/// stuck with all that is bad in it.
pub(crate) fn validate<K: Judged>(request: &Request) -> Verdict {
    let judged = match request.sub_resource.as_str() {
        "" => true,
        "status" => K::STATUS,
        _ => false,
    };
    if !judged || matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Verdict::untouched("only objects that are created or updated are judged");
    }
    if request.object["metadata"]["deletionTimestamp"].is_string() {
        return Verdict::untouched("the object is being deleted");
    }
    let object = K::deserialize(&request.object);
    let (stored, changed) = match request.operation {
        Operation::Update => {
            let old = K::deserialize(&request.old_object);
            let changed = match (&object, &old) {
                (Ok(object), Ok(old)) => object.change_violations(old),
                _ => Vec::new(),
            };
            (problems(&old), changed)
        }
        _ => (Vec::new(), Vec::new()),
    };
    let found = problems(&object);
    let mut new = added(&stored, &found);
    new.extend(changed.into_iter().map(Problem::from));
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
    // What only the status subresource writes is no author's doing.
    let ignored = match object {
        Ok(object) if request.sub_resource.is_empty() => object.ignored(),
        _ => Vec::new(),
    };
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

impl From<Violation> for Problem {
    fn from(Violation { field, problem }: Violation) -> Self {
        Self {
            field,
            text: problem.to_string(),
        }
    }
}

fn problems<K: Judged>(object: &Result<K, serde_json::Error>) -> Vec<Problem> {
    match object {
        Ok(object) => object.violations().into_iter().map(Problem::from).collect(),
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
