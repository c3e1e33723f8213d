//! Stops: fewer pods and back, deactivation, run time, notes.

use serde_json::{Value, json};

use super::*;
use crate::record::{PodSetRecord, PodsReady, Requeue};

/// A Job of 5 pods that runs with 3, its completions lowered with them or not.
fn partly_admitted(follow: bool) -> (Value, Value) {
    let before = with(&fixture::waiting_job(), |job| {
        job["spec"]["parallelism"] = json!(5);
        job["spec"]["completions"] = json!(5);
        job["spec"]["completionMode"] = json!("Indexed");
        job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
        if follow {
            job["metadata"]["annotations"]["kueue.x-k8s.io/job-completions-equal-parallelism"] = json!("true");
        }
    });
    let plan = AdmissionPlan {
        parallelism: Some(3),
        ..plan()
    };
    let record = Record {
        pod_sets: vec![PodSetRecord {
            name: "main".into(),
            count: 3,
            ..Default::default()
        }],
        admitted_at: Some(time("2026-11-30T10:00:00Z")),
        ..record(State::Waiting)
    };
    let mut job = before.clone();
    let write = admit(&fixture::view(&job), &plan, &record).unwrap();
    send(&mut job, &write);
    (before, job)
}

#[test]
fn fewer_pods_are_admitted_in_the_same_write_and_the_owners_numbers_are_kept() {
    let (_, job) = partly_admitted(false);
    assert_eq!(job["spec"]["suspend"], false);
    assert_eq!(
        (&job["spec"]["parallelism"], &job["spec"]["completions"]),
        (&json!(3), &json!(5))
    );
    let delta = current(&job).delta;
    assert_eq!((delta.parallelism, delta.completions), (Some(5), None));

    let (_, job) = partly_admitted(true);
    assert_eq!(
        (&job["spec"]["parallelism"], &job["spec"]["completions"]),
        (&json!(3), &json!(3))
    );
    let delta = current(&job).delta;
    assert_eq!((delta.parallelism, delta.completions), (Some(5), Some(5)));
}

#[test]
fn every_stop_gives_the_owners_numbers_back_and_the_next_admission_may_take_fewer_again() {
    for follow in [false, true] {
        for stop_by in [evict, deactivate, hold] {
            let (before, mut job) = partly_admitted(follow);
            let write = stop_by(&fixture::view(&job), &current(&job), stop()).unwrap();
            send(&mut job, &write);
            assert_eq!(job["spec"]["parallelism"], before["spec"]["parallelism"]);
            assert_eq!(job["spec"]["completions"], before["spec"]["completions"]);
            let delta = current(&job).delta;
            assert_eq!((delta.parallelism, delta.completions), (None, None));
            assert_eq!(
                delta.node_selector,
                plan().node_selector,
                "the template is still as admitted"
            );
        }
    }
}

#[test]
fn numbers_that_the_owner_changed_while_it_ran_are_the_owners() {
    let (_, job) = partly_admitted(true);
    let mut lowered = with(&job, |job| {
        job["spec"]["parallelism"] = json!(2);
        job["spec"]["completions"] = json!(2);
    });
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    assert!(
        refused(&lowered, &write).contains("/spec/parallelism"),
        "seen before the change"
    );
    let write = evict(&fixture::view(&lowered), &current(&lowered), stop()).unwrap();
    send(&mut lowered, &write);
    assert_eq!(
        (&lowered["spec"]["parallelism"], &lowered["spec"]["completions"]),
        (&json!(2), &json!(2))
    );
}

#[test]
fn a_deactivation_marks_the_job_and_forgets_its_retries_and_nobody_admits_it_while_marked() {
    let mut job = running();
    let tried = Record {
        requeue: Some(Requeue { count: 3, at: None }),
        ..current(&job)
    };
    let cause = Stop {
        cause: "RequeuingLimitExceeded".into(),
        ..stop()
    };
    let write = deactivate(&fixture::view(&job), &tried, cause).unwrap();
    send(&mut job, &write);
    assert_eq!(job["spec"]["suspend"], true);
    assert_eq!(job["metadata"]["annotations"][DEACTIVATED], "RequeuingLimitExceeded");
    let record = current(&job);
    assert_eq!(
        (record.state, record.requeue, record.accumulated_seconds),
        (State::Deactivated, None, 0)
    );
    let mut job = acknowledged(&job);
    assert_eq!(
        status::quota_return(&current(&job), &fixture::view(&job).status),
        QuotaReturn::Returned
    );
    let admission = admit(&fixture::view(&job), &plan(), &current(&job));
    assert!(matches!(
        admission,
        Err(PatchError::Transition {
            from: State::Deactivated,
            ..
        })
    ));
    job["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(DEACTIVATED);
    let write = admit(&fixture::view(&job), &plan(), &current(&job)).unwrap();
    let marked_again = with(&job, |job| job["metadata"]["annotations"][DEACTIVATED] = json!("x"));
    assert!(refused(&marked_again, &write).contains("sluice.internal~1deactivated"));
    send(&mut job, &write);
    assert_eq!(current(&job).state, State::Admitted);
}

#[test]
fn each_stop_adds_the_run_time_rounded_up_and_each_eviction_counts() {
    let mut job = running();
    let write = note(
        &fixture::view(&job),
        &Record {
            admitted_at: Some(time("2026-11-30T10:00:00.1Z")),
            accumulated_seconds: 40,
            evictions: 1,
            ..current(&job)
        },
    );
    send(&mut job, &write.unwrap());
    let write = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    assert_eq!((write.record.accumulated_seconds, write.record.evictions), (640, 2));
    let write = hold(&fixture::view(&job), &current(&job), stop()).unwrap();
    assert_eq!((write.record.accumulated_seconds, write.record.evictions), (640, 1));
    send(&mut job, &write);
    let again = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    assert_eq!(again.record.accumulated_seconds, 640, "it did not run in between");
}

#[test]
fn a_note_changes_the_record_of_a_running_job_and_nothing_else() {
    let before = running();
    let ready = PodsReady {
        since: time("2026-11-30T10:00:05Z"),
        lost_at: None,
    };
    let noted = Record {
        pods_ready: Some(ready),
        ..current(&before)
    };
    let mut job = before.clone();
    let write = note(&fixture::view(&job), &noted).unwrap();
    send(&mut job, &write);
    let expected = with(&before, |job| {
        job["metadata"]["annotations"][RECORD] = json!(write.annotation);
    });
    assert_eq!(job, expected);
    let evicted = evict(&fixture::view(&job), &current(&job), stop()).unwrap();
    assert_eq!(evicted.record.pods_ready, None);
    send(&mut job, &evicted);
    assert!(note(&fixture::view(&job), &noted).is_err());
    assert!(note(&fixture::view(&fixture::waiting_job()), &noted).is_err());
}
