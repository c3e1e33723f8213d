//! The server over real TLS, with certificates of real authorities, and a brain that knows three Jobs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::authorization::v1::{SubjectAccessReviewSpec, SubjectAccessReviewStatus};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use sluice_engine::Time;
use sluice_index::Index;
use sluice_pki::{Authority, Issued, Resolver, ServingCertificate, Usage};
use sluice_runtime::watch::{KindState, Synced};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::answer::Service;
use super::authentication::tests::{authority, config_map, leaf};
use super::authentication::{FrontProxy, Rules};
use super::authorization::Authorizer;
use super::*;

const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";
const CQ: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
const LQ: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/default/pendingworkloads";

/// A server, and everything around it that a test may turn.
struct Fixture {
    address: SocketAddr,
    serving: Authority,
    proxies: Authority,
    front_proxy: FrontProxy,
    synced: sluice_runtime::watch::SyncHandle,
    reviews: Arc<Mutex<Vec<SubjectAccessReviewSpec>>>,
}

/// Three Jobs wait in the order c, a, b; b in a LocalQueue of its own.
fn index() -> Index {
    let mut index = Index::new("sluice-system");
    let now = Time(0);
    let read = |value: Value| serde_json::from_value(value).unwrap();
    index.set_flavor(
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {},
        }))
        .unwrap(),
        now,
    );
    index.set_cluster_queue(
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "0"}]}],
            }]},
        }))
        .unwrap(),
        now,
    );
    for name in ["default", "other"] {
        index.set_local_queue(
            serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                "metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": "cq"},
            }))
            .unwrap(),
            now,
        );
    }
    index.set_namespace("team", BTreeMap::new(), now);
    index.set_workload_priority_class(
        &serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"},
            "value": 100,
        }))
        .unwrap(),
        now,
    );
    for (number, (name, queue, class)) in [("a", "default", ""), ("b", "other", ""), ("c", "default", "high")]
        .into_iter()
        .enumerate()
    {
        let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
        if !class.is_empty() {
            labels["kueue.x-k8s.io/priority-class"] = class.into();
        }
        let job = read(json!({
            "metadata": {
                "name": name, "namespace": "team", "uid": format!("00000000-0000-0000-0000-00000000000{number}"),
                "resourceVersion": format!("{}", 40 + number), "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:0{number}Z"), "labels": labels,
            },
            "spec": {
                "suspend": true, "parallelism": 1, "completions": 1,
                "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}},
            },
        }));
        assert!(index.set_job(job, now));
    }
    index
}

/// Ann may see everything, bob discovery and LocalQueues of his team, everybody else nothing.
fn review(spec: &SubjectAccessReviewSpec) -> bool {
    let resource = spec.resource_attributes.as_ref();
    match spec.user.as_deref() {
        Some("ann") => true,
        Some("bob") => resource.is_none_or(|resource| {
            resource.resource.as_deref() == Some("localqueues") && resource.namespace.as_deref() == Some("team")
        }),
        _ => false,
    }
}

impl Fixture {
    fn start() -> Self {
        let fixture = Self::before_the_first_lists();
        fixture.synced.set(KindState::Synced);
        fixture
    }

    fn before_the_first_lists() -> Self {
        let (serving, proxies) = (authority("serving"), authority("front-proxy-ca"));
        let front_proxy = FrontProxy::default();
        front_proxy.set(Some(Rules::read(&config_map(&proxies)).unwrap()));
        let reviews: Arc<Mutex<Vec<SubjectAccessReviewSpec>>> = Arc::default();
        let asked = Arc::clone(&reviews);
        let authorizer = Authorizer::asking(Arc::new(move |spec| {
            asked.lock().unwrap().push(spec.clone());
            let allowed = review(&spec);
            Box::pin(async move {
                if spec.user.as_deref() == Some("lost") {
                    return Err("timed out".to_owned());
                }
                Ok(SubjectAccessReviewStatus {
                    allowed,
                    ..SubjectAccessReviewStatus::default()
                })
            })
        }));
        let (desk, mut readers) = desk::desk();
        tokio::spawn(async move {
            let index = index();
            while let Some(asked) = readers.next().await {
                readers.answer(asked, &index, true);
            }
        });
        let all = Synced::default();
        let synced = all.expect("Job.batch".to_owned(), false);
        let resolver = Arc::new(Resolver::new());
        let Issued { certificate, key } = leaf(&serving, "server", Usage::Server);
        resolver.replace(ServingCertificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap());
        let service = Service {
            front_proxy: front_proxy.clone(),
            authorizer,
            desk,
            synced: all,
        };
        let (address, _, _) = listen("127.0.0.1:0".parse().unwrap(), resolver, service).unwrap();
        Self {
            address,
            serving,
            proxies,
            front_proxy,
            synced,
            reviews,
        }
    }

    /// A request with a client certificate, or without.
    async fn send(&self, client: Option<&Issued>, request: Request<Empty<Bytes>>) -> Response<Bytes> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.serving.certificate().as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(Issued { certificate, key }) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
                    .collect::<Result<_, _>>()
                    .unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let socket = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let tls = TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await
            .unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
    }

    fn front_proxy_client(&self) -> Issued {
        leaf(&self.proxies, "front-proxy-client", Usage::Client)
    }

    /// A GET that the front proxy passes on for a user.
    async fn get(&self, user: &str, path: &str, accept: &str) -> (StatusCode, Value) {
        let request = Request::get(path)
            .header("host", "sluice")
            .header("accept", accept)
            .header("x-remote-user", user)
            .body(Empty::new())
            .unwrap();
        let response = self.send(Some(&self.front_proxy_client()), request).await;
        let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        (response.status(), body)
    }

    async fn json(&self, user: &str, path: &str) -> (StatusCode, Value) {
        self.get(user, path, "application/json").await
    }
}

/// Name, position in the ClusterQueue, position in the LocalQueue.
fn places(summary: &Value) -> Vec<(&str, i64, i64)> {
    let items = summary["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap(),
                item["positionInClusterQueue"].as_i64().unwrap(),
                item["positionInLocalQueue"].as_i64().unwrap(),
            )
        })
        .collect()
}

#[tokio::test]
async fn both_queues_show_who_waits_in_both_versions() {
    let server = Fixture::start();
    for version in ["v1beta1", "v1beta2"] {
        let (code, of_queue) = server.json("ann", &CQ.replace("v1beta2", version)).await;
        assert_eq!(code, StatusCode::OK, "{of_queue}");
        assert_eq!(of_queue["apiVersion"], format!("visibility.kueue.x-k8s.io/{version}"));
        assert_eq!(places(&of_queue), [("c", 0, 0), ("a", 1, 1), ("b", 2, 0)]);
        assert_eq!(of_queue["metadata"]["resourceVersion"], "42");
    }
    let (_, part) = server.json("ann", &format!("{CQ}?limit=1&offset=1")).await;
    assert_eq!(places(&part), [("a", 1, 1)]);
    let (_, local) = server.json("bob", &format!("{LQ}?offset=1")).await;
    assert_eq!(places(&local), [("a", 1, 1)]);
    let (_, beyond) = server.json("ann", &format!("{CQ}?offset=2147483647")).await;
    assert_eq!(places(&beyond), []);
}

#[tokio::test]
async fn kubectl_gets_a_table() {
    let server = Fixture::start();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let (_, table) = server.get("ann", CQ, accept).await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"].as_array().unwrap().len(), 3);
    assert_eq!(table["rows"][0]["cells"][0], "c");
}

#[tokio::test]
async fn only_the_front_proxy_is_believed() {
    let server = Fixture::start();
    let request = |bearer: bool| {
        let request = Request::get(CQ).header("host", "sluice").header("x-remote-user", "ann");
        let request = if bearer {
            request.header("authorization", "Bearer abc")
        } else {
            request
        };
        request.body(Empty::new()).unwrap()
    };
    let foreign = leaf(&authority("front-proxy-ca"), "front-proxy-client", Usage::Client);
    let other_name = leaf(&server.proxies, "somebody", Usage::Client);
    for client in [None, Some(&foreign), Some(&other_name)] {
        for bearer in [false, true] {
            let refused = server.send(client, request(bearer)).await;
            assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
            let status: Value = serde_json::from_slice(refused.body()).unwrap();
            assert_eq!(
                (&status["kind"], &status["reason"]),
                (&json!("Status"), &json!("Unauthorized"))
            );
        }
    }
    assert!(server.reviews.lock().unwrap().is_empty());
    assert_eq!(server.json("ann", CQ).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_new_authority_of_the_front_proxy_counts_from_the_next_request_on() {
    let server = Fixture::start();
    let next = authority("front-proxy-ca");
    server.front_proxy.set(Some(Rules::read(&config_map(&next)).unwrap()));
    assert_eq!(server.json("ann", CQ).await.0, StatusCode::UNAUTHORIZED);
    server.front_proxy.set(None);
    let (code, status) = server.json("ann", CQ).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("ServiceUnavailable"))
    );
}

#[tokio::test]
async fn what_a_user_may_not_see_is_refused_by_name_and_silence_is_a_no() {
    let server = Fixture::start();
    let (code, status) = server.json("bob", CQ).await;
    assert_eq!((code, &status["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")));
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("\"bob\" may not get clusterqueues/pendingworkloads \"cq\""),
        "{message}"
    );
    let other = LQ.replace("/team/", "/other/");
    assert_eq!(server.json("bob", &other).await.0, StatusCode::FORBIDDEN);
    assert_eq!(server.json("lost", LQ).await.0, StatusCode::SERVICE_UNAVAILABLE);
    // Also what is not there: nobody learns names by asking.
    assert_eq!(
        server.json("eve", &CQ.replace("/cq/", "/x/")).await.0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(server.json("eve", GROUP).await.0, StatusCode::FORBIDDEN);
    assert_eq!(server.json("bob", GROUP).await.0, StatusCode::OK);
}

#[tokio::test]
async fn each_mistake_has_its_status() {
    let server = Fixture::start();
    for (path, code, reason) in [
        (CQ.replace("/cq/", "/x/"), 404, "NotFound"),
        (LQ.replace("default", "x"), 404, "NotFound"),
        (format!("{GROUP}/v1"), 404, "NotFound"),
        (format!("{GROUP}/v1beta2/clusterqueues"), 405, "MethodNotAllowed"),
        (
            format!("{GROUP}/v1beta2/clusterqueues?watch=true"),
            405,
            "MethodNotAllowed",
        ),
        (
            format!("{GROUP}/v1beta2/namespaces/team/localqueues/default"),
            405,
            "MethodNotAllowed",
        ),
        (format!("{CQ}?limit=100001"), 400, "BadRequest"),
        (format!("{CQ}?offset=-1"), 400, "BadRequest"),
        (format!("{CQ}?includeObject=x"), 400, "BadRequest"),
    ] {
        let (got, status) = server.json("ann", &path).await;
        assert_eq!(
            (got.as_u16(), &status["reason"]),
            (code, &json!(reason)),
            "{path}: {status}"
        );
        assert_eq!((&status["code"], &status["status"]), (&json!(code), &json!("Failure")));
    }
    let (got, status) = server.get("ann", CQ, "application/yaml").await;
    assert_eq!((got.as_u16(), &status["reason"]), (406, &json!("NotAcceptable")));
    let delete = Request::delete(CQ)
        .header("host", "sluice")
        .header("x-remote-user", "ann")
        .body(Empty::new())
        .unwrap();
    let refused = server.send(Some(&server.front_proxy_client()), delete).await;
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
    let verbs = server.reviews.lock().unwrap();
    let verb = |spec: &SubjectAccessReviewSpec| spec.resource_attributes.as_ref()?.verb.clone();
    assert_eq!(verbs.last().and_then(verb).as_deref(), Some("delete"));
}

#[tokio::test]
async fn a_replica_that_does_not_know_everything_yet_says_so() {
    let server = Fixture::before_the_first_lists();
    let (code, status) = server.json("ann", CQ).await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert!(status["message"].as_str().unwrap().contains("Job.batch"), "{status}");
    let probe = |path| Request::get(path).header("host", "sluice").body(Empty::new()).unwrap();
    assert_eq!(
        server.send(None, probe("/readyz")).await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(server.send(None, probe("/livez")).await.status(), StatusCode::OK);
    // Discovery does not change with what is known: the APIService stays available.
    assert_eq!(server.json("ann", GROUP).await.0, StatusCode::OK);
    server.synced.set(KindState::Synced);
    assert_eq!(server.send(None, probe("/readyz")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_document_that_is_known_is_not_sent_again() {
    let server = Fixture::start();
    let client = server.front_proxy_client();
    let request = |tag: &str| {
        Request::get("/openapi/v2")
            .header("host", "sluice")
            .header("x-remote-user", "ann")
            .header("if-none-match", tag)
            .body(Empty::new())
            .unwrap()
    };
    let first = server.send(Some(&client), request("\"0\"")).await;
    assert_eq!(first.status(), StatusCode::OK);
    let tag = first.headers()["etag"].to_str().unwrap();
    let second = server.send(Some(&client), request(tag)).await;
    assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
    assert!(second.body().is_empty());
}

#[tokio::test]
async fn a_process_without_a_certificate_makes_one_for_its_service() {
    let made = own_certificate("sluice-visibility.sluice-system.svc").unwrap();
    assert_eq!(made.names(), ["sluice-visibility.sluice-system.svc"]);
    assert!(
        made.not_before() < SystemTime::now() && made.not_after() > SystemTime::now() + Duration::from_secs(86_400)
    );
}
