//! Bounds and repeats, in virtual time, against a scripted API server that hangs or refuses.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::*;
use crate::shutdown::{self, Trigger};

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<(Method, String, Value)>>>);

impl Written {
    fn all(&self) -> Vec<(Method, String, Value)> {
        self.0.lock().unwrap().clone()
    }

    fn client(&self, code: StatusCode) -> Client {
        let written = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let written = written.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let entry = (
                    parts.method,
                    parts.uri.path().to_owned(),
                    serde_json::from_slice(&body).unwrap(),
                );
                written.0.lock().unwrap().push(entry);
                let mut response = Response::new(Body::from(body.to_vec()));
                *response.status_mut() = code;
                Ok::<_, std::io::Error>(response)
            }
        });
        Client::new(service, "default")
    }
}

struct Rig {
    publisher: Publisher,
    written: Written,
    metrics: EventMetrics,
    task: JoinHandle<()>,
    _trigger: Trigger,
}

fn rig(limits: EventLimits, code: StatusCode) -> Rig {
    let written = Written::default();
    let metrics = EventMetrics::register(&Registry::new()).unwrap();
    let reporter = Reporter {
        controller: "batch/job-kueue-controller".into(),
        instance: "sluice-0".into(),
    };
    let (trigger, shutdown) = shutdown::channel();
    let (publisher, task) = start(written.client(code), reporter, limits, metrics.clone(), shutdown);
    Rig {
        publisher,
        written,
        metrics,
        task,
        _trigger: trigger,
    }
}

impl Rig {
    fn count(&self, result: &str) -> u64 {
        self.metrics.notices.get(&EventLabels { result })
    }
}

fn notice(name: &str, note: &str) -> Notice {
    Notice {
        regarding: ObjectReference {
            api_version: Some("batch/v1".into()),
            kind: Some("Job".into()),
            name: Some(name.into()),
            namespace: Some("team-a".into()),
            uid: Some(format!("uid-{name}")),
            ..ObjectReference::default()
        },
        severity: Severity::Normal,
        reason: "Pending".into(),
        action: "Queue".into(),
        note: note.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_happened_to_which_object_and_who_says_so() {
    let rig = rig(EventLimits::default(), StatusCode::CREATED);
    rig.publisher.publish(notice("train", "waits for 2 cpu in team-a"));
    drop(rig.publisher);
    rig.task.await.unwrap();
    let written = rig.written.all();
    let (method, path, event) = &written[0];
    assert_eq!(
        (method, path.as_str()),
        (&Method::POST, "/apis/events.k8s.io/v1/namespaces/team-a/events")
    );
    assert_eq!(event["regarding"]["uid"], "uid-train");
    assert_eq!(event["reportingController"], "batch/job-kueue-controller");
    assert_eq!(event["reportingInstance"], "sluice-0");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["note"], "waits for 2 cpu in team-a");
    assert!(event["metadata"]["name"].as_str().unwrap().starts_with("train."));
    assert!(event["eventTime"].is_string());
}

#[tokio::test(start_paused = true)]
async fn writes_keep_to_the_rate_after_the_burst() {
    let limits = EventLimits {
        per_second: 10.0,
        burst: 5,
        ..EventLimits::default()
    };
    let rig = rig(limits, StatusCode::CREATED);
    let before = tokio::time::Instant::now();
    for index in 0..105 {
        rig.publisher.publish(notice(&format!("job-{index}"), "waits"));
    }
    drop(rig.publisher);
    rig.task.await.unwrap();
    assert_eq!(rig.written.all().len(), 105);
    let took = before.elapsed();
    assert!(
        took > Duration::from_millis(9_900) && took < Duration::from_secs(11),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts_and_never_makes_the_caller_wait() {
    let limits = EventLimits {
        queue: 10,
        ..EventLimits::default()
    };
    let rig = rig(limits, StatusCode::CREATED);
    for index in 0..25 {
        rig.publisher.publish(notice(&format!("job-{index}"), "waits"));
    }
    assert_eq!(rig.metrics.notices.get(&EventLabels { result: "dropped" }), 15);
}

#[tokio::test(start_paused = true)]
async fn repeats_become_a_series_and_a_new_note_a_new_event() {
    let rig = rig(EventLimits::default(), StatusCode::OK);
    for _ in 0..100 {
        rig.publisher.publish(notice("train", "waits for cpu"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    rig.publisher.publish(notice("train", "waits for memory"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let written = rig.written.all();
    let methods: Vec<_> = written.iter().map(|(method, ..)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "PATCH", "PATCH", "POST"]);
    let (_, path, series) = &written[3];
    let name = written[0].2["metadata"]["name"].as_str().unwrap();
    assert!(path.ends_with(name), "{path}");
    assert_eq!(series["series"]["count"], 91);
    assert_eq!(rig.count("gathered"), 96);
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_is_counted_and_the_next_one_is_written() {
    let rig = rig(EventLimits::default(), StatusCode::FORBIDDEN);
    rig.publisher.publish(notice("a", "x"));
    rig.publisher.publish(notice("a", "x"));
    drop(rig.publisher);
    rig.task.await.unwrap();
    assert_eq!(rig.written.all().len(), 2, "what was not written has no series");
    assert_eq!(rig.metrics.notices.get(&EventLabels { result: "failed" }), 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_would_refuse_for_its_length_is_cut_between_characters() {
    let rig = rig(EventLimits::default(), StatusCode::CREATED);
    let mut long = notice(&"n".repeat(253), &"ü".repeat(2000));
    long.regarding.namespace = None;
    long.reason = "R".repeat(500);
    rig.publisher.publish(long);
    drop(rig.publisher);
    rig.task.await.unwrap();
    let (_, path, event) = rig.written.all().remove(0);
    assert!(path.contains("/namespaces/default/"), "{path}");
    assert_eq!(event["note"].as_str().unwrap().len(), 1024);
    assert_eq!(event["reason"].as_str().unwrap().len(), 128);
    assert!(event["metadata"]["name"].as_str().unwrap().len() <= 253);
}

#[test]
fn the_memory_of_repeats_is_bounded_and_fades() {
    let start = Instant::now();
    let mut memory = Memory::new(Duration::from_secs(60), Duration::from_secs(10), 2);
    let keys: Vec<_> = ["a", "b", "c"].iter().map(|name| Key::of(&notice(name, "x"))).collect();
    for key in &keys {
        assert_eq!(memory.notice(key, start), Step::Create);
        memory.created(key.clone(), "event".into(), start);
    }
    assert_eq!(memory.notice(&keys[0], start), Step::Create, "the oldest was forgotten");
    assert_eq!(memory.notice(&keys[2], start), Step::Gather);
    assert_eq!(
        memory.notice(&keys[2], start + Duration::from_secs(61)),
        Step::Create,
        "too long ago"
    );
    assert_eq!(memory.order.len(), 1);
}
