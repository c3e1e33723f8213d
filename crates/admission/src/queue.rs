//! The queue that a Job waits in, and what its owner is told about it.

use sluice_api::DEFAULT_LOCAL_QUEUE;
use sluice_api::labels::QUEUE_NAME;

use crate::shown::Shown;
use crate::world::{Queue, World};

/// Longest name of a Kubernetes object.
const LONGEST_SUBDOMAIN: usize = 253;
/// How many queues a warning names.
const SUGGESTIONS: usize = 3;

/// The queue of a Job that names none: the LocalQueue `default` of its namespace, if there is one.
pub(crate) fn default_queue(world: &World, namespace: &str) -> Option<&'static str> {
    (world.queue(namespace, DEFAULT_LOCAL_QUEUE) != Queue::Missing).then_some(DEFAULT_LOCAL_QUEUE)
}

/// What to tell the owner of a Job that has no queue to go to. `named` is the queue it will wait in.
pub(crate) fn trouble(world: &World, namespace: &str, named: Option<&str>) -> Option<String> {
    let Some(name) = named else {
        return Some(format!(
            "the Job is held: it names no queue, and namespace {} has no LocalQueue {}; create that, or set the label \
             {QUEUE_NAME} to a LocalQueue of this namespace{}",
            Shown(namespace),
            Shown(DEFAULT_LOCAL_QUEUE),
            existing(world, namespace),
        ));
    };
    if let Some(problem) = malformed(name) {
        return Some(format!("the Job is held: {problem}"));
    }
    match world.queue(namespace, name) {
        Queue::Whole => None,
        Queue::Missing => Some(format!(
            "the Job is held: LocalQueue {} does not exist in namespace {}; create it, or set the label {QUEUE_NAME} to \
             one that does{}",
            Shown(name),
            Shown(namespace),
            existing(world, namespace),
        )),
        Queue::Unpaid("") => Some(format!(
            "the Job is held: LocalQueue {} names no ClusterQueue; set its spec.clusterQueue, or set the label \
             {QUEUE_NAME} to another LocalQueue",
            Shown(name),
        )),
        Queue::Unpaid(cluster_queue) => Some(format!(
            "the Job is held: LocalQueue {} points to ClusterQueue {}, which does not exist; it waits until that is \
             created, or set the label {QUEUE_NAME} to another LocalQueue",
            Shown(name),
            Shown(cluster_queue),
        )),
    }
}

fn existing(world: &World, namespace: &str) -> String {
    let names: Vec<String> = world
        .local_queues(namespace)
        .take(SUGGESTIONS)
        .map(|name| Shown(name).to_string())
        .collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" (there is {})", names.join(", "))
    }
}

/// Why a name cannot be that of a LocalQueue: it is no DNS subdomain name (RFC 1123).
///
/// The API server itself limits label values to 63 characters of a wider alphabet.
pub(crate) fn malformed(name: &str) -> Option<String> {
    if name.len() > LONGEST_SUBDOMAIN {
        return Some(format!(
            "{} has {} characters; a queue name has at most {LONGEST_SUBDOMAIN}",
            Shown(name),
            name.len()
        ));
    }
    let fault = |what: &str| Some(format!("{} is not the name of a LocalQueue: {what}", Shown(name)));
    if let Some(odd) = name.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-' | '.')) {
        let hint = if odd.is_ascii_uppercase() {
            " (names are lower case)"
        } else {
            ""
        };
        return fault(&format!(
            "{} is not allowed{hint}; lower case letters, digits, '-' and '.' are",
            Shown(odd.encode_utf8(&mut [0; 4])),
        ));
    }
    for part in name.split('.') {
        if part.is_empty() {
            return fault("it must not begin or end with '.', nor hold two in a row");
        }
        if part.starts_with('-') || part.ends_with('-') {
            return fault("it must begin and end with a letter or digit, and so must each part between dots");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_objects_are_queue_names() {
        for name in ["a", "team-a", "0", "a.b-c.d", &"a".repeat(253)] {
            assert_eq!(malformed(name), None, "{name}");
        }
    }

    #[test]
    fn each_malformed_name_is_told_what_is_wrong_with_it() {
        let cases = [
            ("Team-A", "\"T\" is not allowed (names are lower case)"),
            ("team_a", "\"_\" is not allowed;"),
            ("team a", "\" \" is not allowed;"),
            ("warteschlange-ü", "\"\\u{fc}\" is not allowed;"),
            ("-team", "begin and end with a letter or digit"),
            ("team-", "begin and end with a letter or digit"),
            ("team.-a", "each part between dots"),
            (".team", "must not begin or end with '.'"),
            ("team..a", "nor hold two in a row"),
        ];
        for (name, expected) in cases {
            let message = malformed(name).unwrap();
            assert!(message.contains(expected), "{name}: {message}");
        }
        assert!(malformed(&"a".repeat(254)).unwrap().contains("has 254 characters"));
    }
}
