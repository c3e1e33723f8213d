//! The loop against an API server that hangs, refuses or lacks a namespace: scripted answers, virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::client::Body;
use serde_json::json;

use super::super::holder;
use super::*;

/// Leases by `namespace/name`, with a version each, behind the few rules that the loop relies on.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    leases: BTreeMap<String, Lease>,
    version: u64,
    hangs: bool,
    missing_namespace: Option<String>,
    requests: Vec<String>,
}

impl Scripted {
    fn client(&self) -> Client {
        let script = self.clone();
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let script = script.clone();
                async move { Ok::<_, std::io::Error>(script.answer(request).await) }
            }),
            "default",
        )
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let hangs = {
            let mut shared = self.0.lock().unwrap();
            shared
                .requests
                .push(format!("{} {}", request.method(), request.uri().path()));
            shared.hangs
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let segments: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        let namespace = segments[4].to_owned();
        let mut shared = self.0.lock().unwrap();
        if shared.missing_namespace.as_ref() == Some(&namespace) {
            return refuse(StatusCode::NOT_FOUND, "NotFound");
        }
        if parts.method == Method::GET {
            let key = format!("{namespace}/{}", segments[6]);
            return match shared.leases.get(&key) {
                Some(lease) => ok(lease),
                None => refuse(StatusCode::NOT_FOUND, "NotFound"),
            };
        }
        let mut lease: Lease = serde_json::from_slice(&body).unwrap();
        let key = format!("{namespace}/{}", lease.metadata.name.as_deref().unwrap());
        let stored = shared.leases.get(&key);
        let refused = match (&parts.method, stored) {
            (&Method::POST, Some(_)) => Some((StatusCode::CONFLICT, "AlreadyExists")),
            (&Method::PUT, None) => Some((StatusCode::NOT_FOUND, "NotFound")),
            (&Method::PUT, Some(stored)) if stored.metadata.resource_version != lease.metadata.resource_version => {
                Some((StatusCode::CONFLICT, "Conflict"))
            }
            _ => None,
        };
        if let Some((code, reason)) = refused {
            return refuse(code, reason);
        }
        shared.version += 1;
        lease.metadata.resource_version = Some(shared.version.to_string());
        shared.leases.insert(key, lease.clone());
        ok(&lease)
    }

    fn put(&self, name: &LeaseName, spec: LeaseSpec) {
        let mut shared = self.0.lock().unwrap();
        shared.version += 1;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name.name.clone()),
                namespace: Some(name.namespace.clone()),
                resource_version: Some(shared.version.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        };
        shared.leases.insert(name.to_string(), lease);
    }

    fn holder(&self, name: &LeaseName) -> Option<String> {
        let shared = self.0.lock().unwrap();
        let spec = shared.leases.get(&name.to_string())?.spec.clone()?;
        holder(&spec).map(str::to_owned)
    }

    fn hang(&self, hangs: bool) {
        self.0.lock().unwrap().hangs = hangs;
    }
}

fn ok(lease: &Lease) -> Response<Body> {
    Response::new(Body::from(serde_json::to_vec(lease).unwrap()))
}

fn refuse(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
                        "reason": reason, "message": reason, "metadata": {}});
    let mut response = Response::new(Body::from(serde_json::to_vec(&status).unwrap()));
    *response.status_mut() = code;
    response
}

fn primary() -> LeaseName {
    LeaseName::new("sluice-system", "sluice-scheduler")
}

fn guard() -> LeaseName {
    LeaseName::new("kueue-system", "c1f6bfd2.kueue.x-k8s.io")
}

fn start(script: &Scripted, identity: &str) -> Candidate {
    let config = LeaseConfig {
        primary: primary(),
        guards: vec![guard()],
        identity: identity.into(),
        timing: Timing::default(),
    };
    let metrics = LeaseMetrics::register(&prometheus::Registry::new()).unwrap();
    Candidate::start(script.client(), config, metrics).unwrap()
}

async fn leads(candidate: &Candidate) -> Hold {
    let mut leadership = candidate.leadership();
    let now = leadership.wait_for(Leadership::is_leader).await.unwrap();
    now.hold().unwrap().clone()
}

async fn stands_by(candidate: &Candidate, mut check: impl FnMut(Option<&str>, &str) -> bool) {
    let mut leadership = candidate.leadership();
    leadership
        .wait_for(|now| match now {
            Leadership::Standby { holder, why } => check(holder.as_deref(), why),
            Leadership::Leader(_) => false,
        })
        .await
        .unwrap();
}

fn held_by(identity: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.into()),
        lease_duration_seconds: Some(15),
        renew_time: Some(MicroTime(Timestamp::now())),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_holds_every_lease_and_keeps_renewing_them() {
    let script = Scripted::default();
    let candidate = start(&script, "me");
    let hold = leads(&candidate).await;
    assert_eq!(hold.previous(), Previous::Nobody);
    for lease in [primary(), guard()] {
        assert_eq!(script.holder(&lease).as_deref(), Some("me"), "{lease}");
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(
        hold.remaining(now()) > Duration::from_secs(10),
        "{:?}",
        hold.remaining(now())
    );
    assert!(candidate.leadership().borrow().is_leader());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_costs_the_lease_at_the_renew_deadline() {
    let script = Scripted::default();
    let candidate = start(&script, "me");
    let hold = leads(&candidate).await;
    let before = now();
    script.hang(true);
    stands_by(&candidate, |_, _| true).await;
    let passed = now() - before;
    assert!(
        passed <= Duration::from_secs(10) + Duration::from_millis(5),
        "{passed:?}"
    );
    assert_eq!(hold.remaining(now()), Duration::ZERO, "a lost hold is over for good");

    script.hang(false);
    let again = leads(&candidate).await;
    assert_eq!(again.previous(), Previous::Own, "nobody held it in between");
    assert_eq!(hold.remaining(now()), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_guard_renewed_by_another_means_standby_and_its_holder_is_named() {
    let script = Scripted::default();
    script.put(&guard(), held_by("kueue-controller-manager-0"));
    let candidate = start(&script, "me");
    stands_by(&candidate, |holder, why| {
        holder == Some("kueue-controller-manager-0") && why.contains("c1f6bfd2.kueue.x-k8s.io")
    })
    .await;
    assert_eq!(
        script.holder(&primary()).as_deref(),
        Some("me"),
        "the primary one is kept"
    );

    // It stops renewing: the guard expires as seen from here.
    let hold = leads(&candidate).await;
    assert_eq!(hold.previous(), Previous::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_guard_taken_by_another_ends_the_leading() {
    let script = Scripted::default();
    let candidate = start(&script, "me");
    let hold = leads(&candidate).await;
    script.put(&guard(), held_by("kueue"));
    stands_by(&candidate, |holder, _| holder == Some("kueue")).await;
    assert_eq!(hold.remaining(now()), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn who_loses_the_primary_lease_gives_its_guards_back() {
    let script = Scripted::default();
    let candidate = start(&script, "me");
    leads(&candidate).await;
    script.put(&primary(), held_by("next"));
    stands_by(&candidate, |holder, _| holder == Some("next")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(script.holder(&guard()), None);
}

#[tokio::test(start_paused = true)]
async fn a_guard_without_a_namespace_is_skipped_until_the_namespace_appears() {
    let script = Scripted::default();
    script.0.lock().unwrap().missing_namespace = Some("kueue-system".into());
    let candidate = start(&script, "me");
    leads(&candidate).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        candidate.leadership().borrow().is_leader(),
        "{:?}",
        candidate.leadership()
    );

    script.0.lock().unwrap().missing_namespace = None;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(script.holder(&guard()).as_deref(), Some("me"));
    assert!(candidate.leadership().borrow().is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_released_leader_is_followed_at_once_and_a_vanished_one_after_its_lease() {
    let script = Scripted::default();
    let first = start(&script, "first");
    leads(&first).await;
    let second = start(&script, "second");
    stands_by(&second, |holder, _| holder == Some("first")).await;

    let before = now();
    first.release().await;
    assert_eq!(script.holder(&primary()), None);
    assert_eq!(script.holder(&guard()), None);
    let hold = leads(&second).await;
    assert_eq!(hold.previous(), Previous::Released);
    assert!(now() - before < Duration::from_secs(4), "{:?}", now() - before);
    assert_eq!(hold.transitions(), 1);

    let third = start(&script, "third");
    stands_by(&third, |holder, _| holder == Some("second")).await;
    let before = now();
    drop(second);
    let hold = leads(&third).await;
    assert_eq!(hold.previous(), Previous::Expired);
    let waited = now() - before;
    assert!(
        waited > Duration::from_secs(10) && waited < Duration::from_secs(25),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn release_ends_the_hold_before_anything_is_written() {
    let script = Scripted::default();
    let candidate = start(&script, "me");
    let hold = leads(&candidate).await;
    script.hang(true);
    let before = now();
    candidate.release().await;
    assert_eq!(hold.remaining(now()), Duration::ZERO);
    assert!(
        now() - before <= Duration::from_secs(25),
        "a hanging server does not keep the process"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_one_request_a_lease() {
    let script = Scripted::default();
    let candidate = start(&script, "me");
    leads(&candidate).await;
    script.0.lock().unwrap().requests.clear();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let shared = script.0.lock().unwrap();
    assert!(shared.requests.len() <= 22, "{:?}", shared.requests);
    assert!(
        shared.requests.iter().all(|request| request.starts_with("PUT")),
        "{:?}",
        shared.requests
    );
}

#[test]
fn lease_times_out_of_order_are_refused() {
    let timing = |lease, renew_deadline, retry| Timing {
        lease: Duration::from_secs(lease),
        renew_deadline: Duration::from_secs(renew_deadline),
        retry: Duration::from_secs(retry),
    };
    assert!(Timing::default().validate().is_ok());
    for bad in [timing(10, 10, 2), timing(15, 2, 2), timing(15, 10, 0), timing(5, 10, 2)] {
        assert!(bad.validate().unwrap_err().to_string().contains("must hold"));
    }
}

#[test]
fn two_processes_of_one_pod_have_different_identities() {
    let (first, second) = (
        super::super::identity(Some("pod-0")),
        super::super::identity(Some("pod-0")),
    );
    assert!(first.starts_with("pod-0_"), "{first}");
    assert_ne!(first, second);
}
