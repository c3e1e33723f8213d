//! The pump against streams that break: every answer is scripted, by the order of requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::shutdown::{self, Trigger};

/// What the API server answers to one request.
enum Answer {
    /// A watch: these lines, and then its end, or silence.
    Watch { lines: Vec<String>, open: bool },
    /// A body.
    Body(StatusCode, Value),
}

struct Rig {
    changes: mpsc::Receiver<Change<ConfigMap>>,
    requests: Arc<Mutex<Vec<String>>>,
    watches: Watches,
    _trigger: Trigger,
}

impl Rig {
    fn new(answers: Vec<Answer>) -> Self {
        Self::with(PumpConfig::default(), answers, 64)
    }

    fn with(config: PumpConfig, answers: Vec<Answer>, capacity: usize) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let client = scripted(answers, requests.clone());
        let (trigger, shutdown) = shutdown::channel();
        let watches = Watches::new(client, &Registry::new(), shutdown).unwrap();
        let (sink, changes) = mpsc::channel(capacity);
        watches.spawn::<ConfigMap, _, _>(config, sink, |change| change);
        Self {
            changes,
            requests,
            watches,
            _trigger: trigger,
        }
    }

    async fn next(&mut self) -> Change<ConfigMap> {
        tokio::time::timeout(Duration::from_secs(3600), self.changes.recv())
            .await
            .unwrap()
            .unwrap()
    }

    async fn reset(&mut self) -> (Vec<String>, Vec<ObjectKey>, Vec<Broken>) {
        match self.next().await {
            Change::Reset { live, removed, broken } => (live.iter().map(name).collect(), removed, broken),
            other => panic!("{other:?} is no reset"),
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn errors(&self, event: &str) -> u64 {
        let kind = "ConfigMap";
        self.watches.metrics.errors.get(&WatchEventLabels { kind, event })
    }
}

/// A client that gives the answers in order, and then silence.
fn scripted(answers: Vec<Answer>, requests: Arc<Mutex<Vec<String>>>) -> Client {
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let service = tower::service_fn(move |request: Request<Body>| {
        requests.lock().unwrap().push(request.uri().to_string());
        let answer = answers.lock().unwrap().pop_front();
        async move {
            let Some(answer) = answer else {
                return std::future::pending().await;
            };
            Ok::<_, std::io::Error>(match answer {
                Answer::Watch { lines, open } => {
                    let text = lines.concat();
                    let lines = futures::stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from(text)))]);
                    let rest = futures::stream::pending().take(usize::from(open));
                    Response::new(StreamBody::new(lines.chain(rest)).boxed_unsync())
                }
                Answer::Body(code, value) => {
                    let text = Full::new(Bytes::from(value.to_string()));
                    let mut response = Response::new(text.map_err(std::io::Error::other).boxed_unsync());
                    *response.status_mut() = code;
                    response
                }
            })
        }
    });
    Client::new(service, "default")
}

fn name(object: &ConfigMap) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn object(name: &str, version: u64) -> Value {
    object_with_uid(name, version, &format!("uid-{name}"))
}

fn object_with_uid(name: &str, version: u64, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
           "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()}})
}

fn broken(name: &str, version: u64) -> Value {
    let mut object = object(name, version);
    object["data"] = json!("not a map");
    object
}

/// A line of a watch, the type first as API servers write it.
fn event(kind: &str, object: Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn end_of_list(version: u64) -> String {
    event(
        "BOOKMARK",
        json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}),
    )
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
           "message": reason, "reason": reason, "code": code})
}

fn refusal(code: u16, reason: &str) -> Answer {
    Answer::Body(StatusCode::from_u16(code).unwrap(), failure(code, reason))
}

fn list(items: Vec<Value>, version: u64) -> Answer {
    let body = json!({"kind": "ConfigMapList", "apiVersion": "v1",
                      "metadata": {"resourceVersion": version.to_string()}, "items": items});
    Answer::Body(StatusCode::OK, body)
}

fn watch(lines: Vec<String>) -> Answer {
    Answer::Watch { lines, open: true }
}

fn ended(lines: Vec<String>) -> Answer {
    Answer::Watch { lines, open: false }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_one_reset_and_changes_follow() {
    let mut rig = Rig::new(vec![watch(vec![
        event("ADDED", object("a", 1)),
        event("ADDED", object("b", 2)),
        end_of_list(5),
        event("MODIFIED", object("a", 6)),
        event("DELETED", object("b", 7)),
    ])]);
    assert!(!rig.watches.synced().is_synced());
    assert_eq!(rig.reset().await, (vec!["a".into(), "b".into()], vec![], vec![]));
    assert!(matches!(rig.next().await, Change::Apply(object) if name(&object) == "a"));
    match rig.next().await {
        Change::Delete { key, last } => {
            assert_eq!(key.to_string(), "ns/b");
            assert_eq!(key.uid, "uid-b");
            assert_eq!(last.unwrap().metadata.resource_version.as_deref(), Some("7"));
        }
        other => panic!("{other:?}"),
    }
    assert!(rig.watches.synced().is_synced());
    let requests = rig.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("sendInitialEvents=true"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_cut_off_is_resumed_where_it_was() {
    let mut rig = Rig::new(vec![
        ended(vec![end_of_list(5), event("ADDED", object("a", 6))]),
        ended(vec![event(
            "BOOKMARK",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "9"}}),
        )]),
        watch(vec![event("ADDED", object("b", 10))]),
    ]);
    rig.reset().await;
    rig.next().await;
    assert!(matches!(rig.next().await, Change::Apply(object) if name(&object) == "b"));
    let requests = rig.requests();
    assert!(requests[1].contains("resourceVersion=6"), "{requests:?}");
    assert!(
        requests[2].contains("resourceVersion=9"),
        "bookmarks move the version on: {requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn after_410_gone_the_relist_names_what_was_deleted_or_created_anew() {
    let mut rig = Rig::new(vec![
        watch(vec![
            event("ADDED", object("deleted", 1)),
            event("ADDED", object("anew", 2)),
            event("ADDED", object("stays", 3)),
            end_of_list(5),
            event("ERROR", failure(410, "Expired")),
        ]),
        watch(vec![
            event("ADDED", object_with_uid("anew", 8, "another-uid")),
            event("ADDED", object("new", 9)),
            event("ADDED", object("stays", 3)),
            end_of_list(10),
        ]),
    ]);
    rig.reset().await;
    let (live, removed, _) = rig.reset().await;
    assert_eq!(live, ["anew", "new", "stays"]);
    let removed: Vec<_> = removed
        .iter()
        .map(|key| (key.name.as_str(), key.uid.as_str()))
        .collect();
    assert_eq!(removed, [("anew", "uid-anew"), ("deleted", "uid-deleted")]);
    assert_eq!(rig.errors("gone"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_is_refused_as_gone_is_relisted() {
    let mut rig = Rig::new(vec![
        ended(vec![event("ADDED", object("a", 1)), end_of_list(5)]),
        refusal(410, "Expired"),
        watch(vec![end_of_list(10)]),
    ]);
    rig.reset().await;
    let (live, removed, _) = rig.reset().await;
    assert!(live.is_empty());
    assert_eq!(removed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broken_object_is_reported_and_the_others_go_on() {
    let mut rig = Rig::new(vec![
        watch(vec![
            event("ADDED", object("a", 1)),
            event("ADDED", broken("odd", 2)),
            end_of_list(5),
            event("MODIFIED", broken("a", 6)),
            event("ADDED", object("b", 7)),
            event("DELETED", broken("a", 8)),
            event("ERROR", failure(410, "Expired")),
        ]),
        watch(vec![
            event("ADDED", broken("b", 9)),
            event("ADDED", broken("odd", 2)),
            end_of_list(10),
        ]),
    ]);
    let (live, removed, odd) = rig.reset().await;
    assert_eq!((live, removed), (vec!["a".to_owned()], vec![]));
    assert_eq!(
        (odd[0].key.name.as_str(), odd[0].resource_version.as_str()),
        ("odd", "2")
    );
    assert!(odd[0].error.contains("expected a map"), "{}", odd[0].error);
    assert!(matches!(rig.next().await, Change::Broken(broken) if broken.key.name == "a"));
    assert!(matches!(rig.next().await, Change::Apply(object) if name(&object) == "b"));
    assert!(matches!(rig.next().await, Change::Delete { key, last: None } if key.name == "a"));
    let (live, removed, odd) = rig.reset().await;
    assert!(live.is_empty());
    assert!(removed.is_empty(), "a broken object exists all the same: {removed:?}");
    assert_eq!(odd.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_broken_metadata_is_still_named() {
    let mut odd = object("odd", 2);
    odd["metadata"]["creationTimestamp"] = json!("yesterday");
    let mut rig = Rig::new(vec![watch(vec![event("ADDED", odd), end_of_list(5)])]);
    let (_, _, broken) = rig.reset().await;
    assert_eq!(broken[0].key.to_string(), "ns/odd");
    assert_eq!(broken[0].key.uid, "uid-odd");
}

#[tokio::test(start_paused = true)]
async fn a_line_that_cannot_be_read_at_all_leads_to_a_plain_list_and_never_to_a_removal() {
    let unreadable = || "{\"type\":\"ADDED\",\"object\":{\"data\":{}}}\n".to_owned();
    let mut rig = Rig::new(vec![
        watch(vec![unreadable(), event("ADDED", object("a", 1)), end_of_list(5)]),
        list(vec![object("a", 1), object("b", 2)], 6),
        watch(vec![unreadable()]),
        list(vec![object("a", 1), object("b", 2), object("c", 3)], 7),
        watch(vec![]),
    ]);
    assert_eq!(rig.reset().await.0, ["a", "b"]);
    let (live, removed, _) = rig.reset().await;
    assert_eq!((live.len(), removed.len()), (3, 0));
    assert_eq!(rig.errors("undecodable"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed() {
    let mut rig = Rig::new(vec![
        refusal(422, "Invalid"),
        list(vec![object("a", 1), broken("odd", 2)], 5),
        watch(vec![event("ADDED", object("b", 6))]),
    ]);
    let (live, _, odd) = rig.reset().await;
    assert_eq!(live, ["a"]);
    assert_eq!(odd.len(), 1);
    assert!(matches!(rig.next().await, Change::Apply(object) if name(&object) == "b"));
    let requests = rig.requests();
    assert!(!requests[1].contains("watch=true"), "{requests:?}");
    assert!(
        requests[2].contains("resourceVersion=5") && !requests[2].contains("sendInitialEvents"),
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_never_ends_is_replaced_by_a_list() {
    let mut rig = Rig::new(vec![
        watch(vec![event("ADDED", object("a", 1))]),
        list(vec![object("a", 1)], 5),
        watch(vec![]),
    ]);
    assert_eq!(rig.reset().await.0, ["a"]);
    assert_eq!(rig.errors("list_stalled"), 1);
}

#[tokio::test(start_paused = true)]
async fn lists_that_end_early_are_not_asked_for_in_a_hot_loop() {
    let short = || ended(vec![event("ADDED", object("a", 1))]);
    let mut rig = Rig::new((0..10).map(|_| short()).chain([watch(vec![end_of_list(5)])]).collect());
    let before = tokio::time::Instant::now();
    assert!(rig.reset().await.0.is_empty(), "an unfinished list counts for nothing");
    assert!(before.elapsed() > Duration::from_secs(10), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_missing_crd_is_asked_for_until_it_appears_and_readiness_names_it() {
    let answers = (0..6).map(|_| refusal(404, "NotFound"));
    let mut rig = Rig::new(
        answers
            .chain([watch(vec![event("ADDED", object("a", 1)), end_of_list(5)])])
            .collect(),
    );
    let synced = rig.watches.synced();
    while rig.requests().len() < 3 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let why = synced.check().unwrap_err();
    assert!(why.contains("ConfigMap: not served by the API server"), "{why}");
    assert_eq!(rig.reset().await.0, ["a"]);
    synced.wait().await;
    assert_eq!(rig.errors("not_served"), 6);
}

#[tokio::test(start_paused = true)]
async fn errors_are_retried_with_growing_pauses_and_shown_by_readiness() {
    let answers = (0..8).map(|_| refusal(403, "Forbidden"));
    let mut rig = Rig::new(answers.chain([watch(vec![end_of_list(5)])]).collect());
    let before = tokio::time::Instant::now();
    while rig.requests().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(rig.watches.synced().check().unwrap_err().contains("Forbidden"));
    rig.reset().await;
    // 0.1 + 0.2 + ... + 12.8 s, each between half and all of it.
    let waited = before.elapsed();
    assert!(
        waited > Duration::from_secs(12) && waited < Duration::from_secs(26),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_patience_gets_it() {
    let mut throttled = failure(429, "TooManyRequests");
    throttled["details"] = json!({"retryAfterSeconds": 7});
    let code = StatusCode::TOO_MANY_REQUESTS;
    let mut rig = Rig::new(vec![Answer::Body(code, throttled), watch(vec![end_of_list(5)])]);
    let before = tokio::time::Instant::now();
    rig.reset().await;
    assert!(before.elapsed() >= Duration::from_secs(7), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up_five_seconds_after_the_watch_timeout() {
    let mut rig = Rig::new(vec![
        watch(vec![end_of_list(5)]),
        watch(vec![event("ADDED", object("a", 6))]),
    ]);
    rig.reset().await;
    let before = tokio::time::Instant::now();
    assert!(matches!(rig.next().await, Change::Apply(_)));
    let waited = before.elapsed();
    assert!(
        waited >= Duration::from_secs(295) && waited < Duration::from_secs(296),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_the_watch_up_and_loses_nothing() {
    let mut lines = vec![end_of_list(1)];
    lines.extend((2..200).map(|version| event("ADDED", object(&format!("o{version}"), version))));
    let mut rig = Rig::with(PumpConfig::default(), vec![watch(lines)], 1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.reset().await;
    for version in 2..200 {
        assert!(matches!(rig.next().await, Change::Apply(object) if name(&object) == format!("o{version}")));
    }
    assert!(rig.watches.metrics.waits.get(&WatchLabels { kind: "ConfigMap" }) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watch_asks_for_metadata_only() {
    let accepts: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = accepts.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let accept = request.headers().get(http::header::ACCEPT);
        let accept = accept
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default();
        seen.lock().unwrap().push(accept);
        async move {
            let object = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                                "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}});
            let text = format!("{}{}", event("ADDED", object), end_of_list(5));
            Ok::<_, std::io::Error>(Response::new(Body::from(text.into_bytes())))
        }
    });
    let (_trigger, shutdown) = shutdown::channel();
    let watches = Watches::new(Client::new(service, "default"), &Registry::new(), shutdown).unwrap();
    let (sink, mut changes) = mpsc::channel(8);
    watches.spawn::<PartialObjectMeta<ConfigMap>, _, _>(PumpConfig::default(), sink, |change| change);
    match changes.recv().await.unwrap() {
        Change::Reset { live, .. } => assert_eq!(live[0].metadata.name.as_deref(), Some("a")),
        other => panic!("{other:?}"),
    }
    assert!(
        accepts.lock().unwrap()[0].contains("as=PartialObjectMetadata"),
        "{accepts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_pump_ends_with_its_consumer_and_at_shutdown() {
    let (trigger, shutdown) = shutdown::channel();
    let client = scripted(
        vec![watch(vec![end_of_list(1)]), watch(vec![end_of_list(1)])],
        Arc::default(),
    );
    let watches = Watches::new(client, &Registry::new(), shutdown).unwrap();
    let spawn = || {
        let (sink, changes) = mpsc::channel(8);
        let task = watches.spawn::<ConfigMap, _, _>(PumpConfig::default(), sink, |change| change);
        (task, changes)
    };
    let (task, changes) = spawn();
    drop(changes);
    task.await.unwrap();
    let (task, mut changes) = spawn();
    changes.recv().await.unwrap();
    trigger.pull();
    task.await.unwrap();
}
