//! Each file under `tests/reviews` is a request body; the snapshots beside this file hold the answers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_admission::{Outcome, mutate_job, validate_job};

use crate::support::{operations, patched, response, warnings, world};

/// The fewest files that each folder holds: an empty folder must not pass for a tested one.
const AT_LEAST: [(&str, usize); 2] = [("pass", 35), ("fail", 60)];

fn bodies(folder: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reviews").join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let least = AT_LEAST.iter().find(|(name, _)| *name == folder).unwrap().1;
    assert!(files.len() >= least, "{folder} holds only {} reviews", files.len());
    files
        .into_iter()
        .map(|file| {
            (
                file.file_stem().unwrap().to_str().unwrap().to_owned(),
                std::fs::read(&file).unwrap(),
            )
        })
        .collect()
}

#[test]
fn each_review_gets_its_patch_and_its_warnings() {
    let world = world();
    let mut answers = String::new();
    for (name, body) in bodies("pass") {
        let reply = mutate_job(&body, &world);
        let response = response(&reply);
        assert_eq!(response["allowed"], true, "{name}");
        let request: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(response["uid"], request["request"]["uid"], "{name}");
        writeln!(
            answers,
            "{name}: {}: {}",
            reply.decision.outcome.as_str(),
            reply.decision.reason
        )
        .unwrap();
        for operation in operations(&response) {
            writeln!(answers, "    {operation}").unwrap();
        }
        for warning in warnings(&response) {
            assert!(
                warning.len() <= 256,
                "{name}: the API server cuts warnings of {} bytes",
                warning.len()
            );
            writeln!(answers, "    warning: {warning}").unwrap();
        }
    }
    insta::assert_snapshot!("pass", answers);
}

#[test]
fn a_review_that_was_answered_once_is_answered_without_a_patch_the_next_time() {
    let world = world();
    for (name, body) in bodies("pass") {
        let first = response(&mutate_job(&body, &world));
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        review["request"]["object"] = patched(&review["request"]["object"], &first);
        let again = response(&mutate_job(&serde_json::to_vec(&review).unwrap(), &world));
        assert_eq!(operations(&again), Vec::<Value>::new(), "{name}");
        assert_eq!(again["allowed"], true, "{name}");
    }
}

#[test]
fn a_patch_changes_only_what_the_rules_name() {
    const OURS: [&str; 9] = [
        "/spec/suspend",
        "/metadata/labels/kueue.x-k8s.io~1queue-name",
        "/metadata/annotations/sluice.internal~1",
        "/spec/template/spec/nodeSelector",
        "/spec/template/spec/tolerations",
        "/spec/template/metadata/labels/kueue.x-k8s.io~1",
        // Maps that a Job lacks are added empty.
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/template/metadata/labels",
    ];
    let world = world();
    for (name, body) in bodies("pass") {
        for operation in operations(&response(&mutate_job(&body, &world))) {
            let path = operation["path"].as_str().unwrap();
            let exact = OURS[6..].contains(&path) && operation["value"] == serde_json::json!({});
            assert!(
                exact || OURS[..6].iter().any(|ours| path.starts_with(ours)),
                "{name}: {operation}"
            );
        }
    }
}

#[test]
fn each_malformed_review_gets_its_own_answer_from_both_webhooks() {
    let world = world();
    let mut answers = String::new();
    for (name, body) in bodies("fail") {
        let reply = mutate_job(&body, &world);
        let message = match reply.http_status {
            200 => {
                let response = response(&reply);
                assert_eq!(response["allowed"], false, "{name}");
                assert_eq!(response["status"]["code"], 400, "{name}");
                assert_eq!(response["status"]["reason"], "BadRequest", "{name}");
                assert!(response.get("patch").is_none(), "{name}");
                response["status"]["message"].as_str().unwrap().to_owned()
            }
            400 => String::from_utf8(reply.body.clone()).unwrap().trim_end().to_owned(),
            other => panic!("{name}: {other}"),
        };
        assert!(
            matches!(reply.decision.outcome, Outcome::Denied | Outcome::Unreadable),
            "{name}"
        );
        assert!(
            message.is_ascii() && !message.chars().any(char::is_control),
            "{name}: {message:?}"
        );
        writeln!(
            answers,
            "{name}: {} {message}",
            if reply.http_status == 200 { "denied" } else { "HTTP 400" }
        )
        .unwrap();

        let validated = validate_job(&body, &world);
        assert_eq!(validated.http_status, reply.http_status, "{name}");
        assert_ne!(validated.decision.outcome, Outcome::Untouched, "{name}");
    }
    insta::assert_snapshot!("fail", answers);
}
