//! Rules beyond Kueue's, in annotations of a ClusterQueue.

use std::time::Duration;

use serde_json::json;
use sluice_api::v1beta2::{AdmissionMode, AdmissionScope, Ageing, ClusterQueue, Cohort, Extras};

fn queue(strategy: &str, annotations: &[(&str, &str)]) -> ClusterQueue {
    let annotations: serde_json::Map<_, _> = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect();
    serde_json::from_value(json!({
        "metadata": { "name": "q", "annotations": annotations },
        "spec": { "queueingStrategy": strategy },
    }))
    .unwrap()
}

fn said(annotations: &[(&str, &str)]) -> Vec<String> {
    let queue = queue("StrictFIFO", annotations);
    let said: Vec<String> = queue.extras().unwrap_err().iter().map(ToString::to_string).collect();
    let reported: Vec<String> = queue.validate().iter().map(ToString::to_string).collect();
    assert_eq!(reported, said, "what is wrong with them is wrong with the queue");
    said
}

#[test]
fn a_queue_without_annotations_has_nothing_extra() {
    assert_eq!(ClusterQueue::default().extras(), Ok(Extras::default()));
    let others = [
        ("example.com/backfill", "maybe"),
        ("kueue.x-k8s.io/backfill", "maybe"),
        ("backfill", "true"),
    ];
    assert_eq!(queue("StrictFIFO", &others).extras(), Ok(Extras::default()));
}

#[test]
fn every_annotation_is_read() {
    let others = [
        ("sluice.internal/minimum-run-time", "1h30m"),
        ("sluice.internal/shrink-to-quota-after", "0s"),
    ];
    let reserving = [
        ("sluice.internal/backfill", "true"),
        ("sluice.internal/fifo-per-pool", "true"),
    ];
    let ageing = [
        ("sluice.internal/ageing-interval", "10m"),
        ("sluice.internal/ageing-max-steps", "7"),
    ];
    let wanted = Extras {
        minimum_run_time: Duration::from_secs(5400),
        shrink_to_quota_after: Some(Duration::ZERO),
        ..Extras::default()
    };
    let with_reserving = Extras {
        backfill: true,
        fifo_per_pool: true,
        ..wanted
    };
    let with_ageing = Extras {
        ageing: Some(Ageing {
            interval: Duration::from_secs(600),
            max_steps: 7,
        }),
        ..wanted
    };
    for (more, wanted) in [(reserving, with_reserving), (ageing, with_ageing)] {
        let queue = queue("StrictFIFO", &[others, more].concat());
        assert_eq!(queue.extras(), Ok(wanted));
        assert!(queue.validate().is_empty());
    }
}

#[test]
fn ageing_has_a_cap_without_being_asked_and_off_is_off() {
    let steps = |annotations: &[(&str, &str)]| queue("BestEffortFIFO", annotations).extras().unwrap().ageing;
    let ageing = steps(&[("sluice.internal/ageing-interval", "1ms")]).unwrap();
    assert_eq!((ageing.interval, ageing.max_steps), (Duration::from_millis(1), 100));
    let off = [
        ("sluice.internal/backfill", "false"),
        ("sluice.internal/fifo-per-pool", "false"),
        ("sluice.internal/minimum-run-time", "0"),
    ];
    assert_eq!(queue("BestEffortFIFO", &off).extras(), Ok(Extras::default()));
}

#[test]
fn each_broken_annotation_is_named_with_its_value_and_what_is_wanted() {
    for (key, value, wanted) in [
        ("backfill", "yes", "must be \"true\" or \"false\", not \"yes\""),
        ("backfill", "", "must be \"true\" or \"false\", not \"\""),
        ("fifo-per-pool", "True", "must be \"true\" or \"false\", not \"True\""),
        (
            "ageing-interval",
            "0s",
            "must be a duration of at least 1ms, such as 90s or 10m, not \"0s\"",
        ),
        (
            "ageing-interval",
            "10",
            "must be a duration of at least 1ms, such as 90s or 10m, not \"10\"",
        ),
        (
            "minimum-run-time",
            "-5m",
            "must be a duration such as 90s or 10m, not \"-5m\"",
        ),
        (
            "minimum-run-time",
            "soon",
            "must be a duration such as 90s or 10m, not \"soon\"",
        ),
        (
            "shrink-to-quota-after",
            "1 h",
            "must be a duration such as 90s or 10m, not \"1 h\"",
        ),
        (
            "ageing-max-steps",
            "9",
            "needs the annotation sluice.internal/ageing-interval",
        ),
    ] {
        let key = format!("sluice.internal/{key}");
        assert_eq!(
            said(&[(&key, value)]),
            [format!("metadata.annotations[{key}]: {wanted}")]
        );
    }
    for steps in ["0", "-1", "+1", "1.5", "", "many", "2147483648"] {
        let ageing = [
            ("sluice.internal/ageing-interval", "1m"),
            ("sluice.internal/ageing-max-steps", steps),
        ];
        let wanted = format!("must be a whole number from 1 to 2147483647, not {steps:?}");
        assert_eq!(
            said(&ageing),
            [format!(
                "metadata.annotations[sluice.internal/ageing-max-steps]: {wanted}"
            )]
        );
    }
}

#[test]
fn all_that_is_wrong_is_said_together_and_long_values_are_cut() {
    let long = "x".repeat(1000);
    let said = said(&[
        ("sluice.internal/minimum-run-time", &long),
        ("sluice.internal/backfill", "on"),
    ]);
    assert_eq!(said.len(), 2);
    assert!(
        said[0].starts_with("metadata.annotations[sluice.internal/backfill]"),
        "{said:?}"
    );
    assert!(said[1].len() < 200 && said[1].ends_with("xxx...\""), "{said:?}");
}

#[test]
fn a_misspelt_annotation_is_not_ignored() {
    assert_eq!(
        said(&[("sluice.internal/backfil", "true")]),
        [
            "metadata.annotations[sluice.internal/backfil]: is not known: use one of sluice.internal/ageing-interval, \
          sluice.internal/ageing-max-steps, sluice.internal/backfill, sluice.internal/fifo-per-pool, \
          sluice.internal/minimum-run-time, sluice.internal/shrink-to-quota-after"
        ]
    );
    let cohort: Cohort = serde_json::from_value(json!({
        "metadata": { "name": "c", "annotations": { "sluice.internal/backfill": "true", "example.com/a": "b" } },
    }))
    .unwrap();
    let said: Vec<String> = cohort.validate().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["metadata.annotations[sluice.internal/backfill]: is not known on this kind"]
    );
}

#[test]
fn fifo_per_pool_has_no_meaning_where_nobody_blocks() {
    let queue = queue("BestEffortFIFO", &[("sluice.internal/fifo-per-pool", "true")]);
    let said: Vec<String> = queue.extras().unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["metadata.annotations[sluice.internal/fifo-per-pool]: needs spec.queueingStrategy StrictFIFO"]
    );
}

#[test]
fn backfill_and_fifo_per_pool_are_not_combined_with_what_moves_the_order() {
    for annotation in ["backfill", "fifo-per-pool"] {
        let key = format!("sluice.internal/{annotation}");
        let refused = |other: &str| [format!("metadata.annotations[{key}]: cannot be combined with {other}")];
        let aged = [(&*key, "true"), ("sluice.internal/ageing-interval", "1m")];
        assert_eq!(said(&aged), refused("the annotation sluice.internal/ageing-interval"));
        let mut by_past_usage = queue("StrictFIFO", &[(&key, "true")]);
        assert!(by_past_usage.extras().is_ok());
        by_past_usage.spec.admission_scope = Some(AdmissionScope {
            admission_mode: AdmissionMode::UsageBasedAdmissionFairSharing,
        });
        let found = by_past_usage.extras().unwrap_err();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let other = "spec.admissionScope.admissionMode UsageBasedAdmissionFairSharing";
        assert_eq!(found, refused(other));
    }
}
