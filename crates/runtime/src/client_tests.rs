//! Clients against a real socket: a small HTTP server of our own that counts what arrives.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{Request as Arrived, State};
use axum::http::StatusCode;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Barrier;

use super::*;

#[derive(Default)]
struct Seen {
    connections: BTreeSet<SocketAddr>,
    agents: BTreeSet<String>,
    requests: usize,
}

#[derive(Clone)]
struct Server {
    seen: Arc<Mutex<Seen>>,
    /// Answers wait until so many requests are open at once.
    together: Option<Arc<Barrier>>,
    code: StatusCode,
}

impl Server {
    async fn start(together: Option<usize>, code: StatusCode) -> (Self, Clients) {
        let server = Self {
            seen: Arc::default(),
            together: together.map(|count| Arc::new(Barrier::new(count))),
            code,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let router = Router::new().fallback(answer).with_state(server.clone());
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        (server, Clients::new(Config::new(url), "sluice-test/1").unwrap())
    }
}

async fn answer(
    State(server): State<Server>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Arrived,
) -> (StatusCode, axum::Json<serde_json::Value>) {
    {
        let mut seen = server.seen.lock().unwrap();
        seen.requests += 1;
        seen.connections.insert(peer);
        let agent = request
            .headers()
            .get(USER_AGENT)
            .map(|agent| agent.to_str().unwrap().to_owned());
        seen.agents.insert(agent.unwrap_or_default());
    }
    if let Some(together) = &server.together {
        together.wait().await;
    }
    (
        server.code,
        axum::Json(json!({"metadata": {"name": "a"}, "kind": "ConfigMap", "apiVersion": "v1"})),
    )
}

async fn patch(client: &Client) -> kube::Result<ConfigMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let patch = Patch::Merge(json!({"data": {"a": "b"}}));
    api.patch("a", &PatchParams::default(), &patch).await
}

#[tokio::test]
async fn concurrent_writes_use_their_connections_again() {
    const AT_ONCE: usize = 48;
    let (server, clients) = Server::start(Some(AT_ONCE), StatusCode::OK).await;
    let client = clients.write(Duration::from_secs(20)).unwrap();
    for _ in 0..5 {
        let results = join_all((0..AT_ONCE).map(|_| patch(&client))).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.requests, 5 * AT_ONCE);
    // A connection may come back to the pool a moment after its answer; without reuse there would be five times as many.
    let connections = seen.connections.len();
    assert!((AT_ONCE..2 * AT_ONCE).contains(&connections), "{connections}");
    assert_eq!(seen.agents, BTreeSet::from(["sluice-test/1".to_owned()]));
}

#[tokio::test]
async fn a_refused_write_is_not_repeated() {
    for code in [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ] {
        let (server, clients) = Server::start(None, code).await;
        let client = clients.write(Duration::from_secs(20)).unwrap();
        patch(&client).await.unwrap_err();
        assert_eq!(server.seen.lock().unwrap().requests, 1, "{code}");
    }
}

#[tokio::test]
async fn a_write_that_gets_no_answer_ends_at_its_timeout() {
    let (server, clients) = Server::start(Some(2), StatusCode::OK).await;
    let client = clients.write(Duration::from_millis(200)).unwrap();
    let error = patch(&client).await.unwrap_err();
    assert!(matches!(error, kube::Error::Service(_)), "{error:?}");
    assert_eq!(server.seen.lock().unwrap().requests, 1);
}

#[test]
fn streaming_lists_are_asked_for_at_the_most_recent_version() {
    let rewritten = |uri: &str| {
        let request = consistent_streaming_list(Request::get(uri).body(()).unwrap());
        request.uri().to_string()
    };
    assert_eq!(
        rewritten(
            "http://a/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
        ),
        "http://a/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    for untouched in [
        "/api/v1/pods?watch=true&resourceVersion=0",
        "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersion=01",
        "/api/v1/pods",
    ] {
        assert_eq!(rewritten(untouched), untouched);
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_or_wants_a_proxy_is_named() {
    let error = Clients::load(Some(Path::new("/nowhere/kubeconfig")), "a")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
    let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
    config.proxy_url = Some("http://proxy:3128".parse().unwrap());
    assert!(
        Clients::new(config, "a")
            .unwrap_err()
            .to_string()
            .contains("proxy:3128")
    );
    let config = Config::new("http://127.0.0.1:1".parse().unwrap());
    assert!(matches!(Clients::new(config, "a\nb"), Err(ClientError::UserAgent(_))));
}
