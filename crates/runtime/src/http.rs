//! The plain-HTTP server for probes and metrics.
//!
//! ```no_run
//! # use sluice_runtime::{http::{Checks, Ops, serve}, shutdown, watch::Synced};
//! # async fn example(registry: prometheus::Registry, synced: Synced) -> Result<(), Box<dyn std::error::Error>> {
//! let (_trigger, shutdown) = shutdown::on_signals()?;
//! let ops = Ops {
//!     registry,
//!     live: Checks::new(),
//!     ready: Checks::new().with("caches", move || synced.check()),
//!     extra: axum::Router::new(),
//! };
//! let server = serve("127.0.0.1:0".parse()?, ops, shutdown).await?;
//! println!("listening on {}", server.address());
//! server.finished().await?;
//! # Ok(()) }
//! ```

use std::fmt::{self, Write as _};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TextEncoder};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::shutdown::Shutdown;

/// The content type of Prometheus's text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

type Check = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Named questions about a process, asked at each probe. They must answer at once.
#[derive(Clone, Default)]
pub struct Checks(Vec<(&'static str, Check)>);

impl Checks {
    /// No questions: always fine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a question, answered by `Ok` with a remark (or nothing), or by `Err` with what is missing.
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        check: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.0.push((name, Arc::new(check)));
        self
    }

    /// Asks all of them.
    pub fn ask(&self) -> Report {
        let checks: Vec<Answer> = self
            .0
            .iter()
            .map(|(name, check)| {
                let (ok, text) = match check() {
                    Ok(remark) => (true, remark),
                    Err(missing) => (false, missing),
                };
                Answer { name, ok, text }
            })
            .collect();
        Report {
            ok: checks.iter().all(|answer| answer.ok),
            checks,
        }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The answers to all questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// True if every answer was good.
    pub ok: bool,
    /// One answer a question, in the order in which they were added.
    pub checks: Vec<Answer>,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Which question.
    pub name: &'static str,
    /// Whether all is well.
    pub ok: bool,
    /// What is missing, or a remark.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl fmt::Display for Report {
    /// One line a question, as Kubernetes' own health endpoints print them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Answer { name, ok, text } in &self.checks {
            let (sign, word) = if *ok { ('+', "ok") } else { ('-', "not ok") };
            write!(f, "[{sign}] {name} {word}")?;
            if !text.is_empty() {
                write!(f, ": {text}")?;
            }
            f.write_char('\n')?;
        }
        f.write_str(if self.ok { "ok\n" } else { "not ok\n" })
    }
}

/// What the server shows.
#[derive(Clone, Debug)]
pub struct Ops {
    /// Shown at `/metrics`.
    pub registry: Registry,
    /// Asked at `/healthz`: a bad answer means that the process should be restarted.
    pub live: Checks,
    /// Asked at `/readyz`: a bad answer means that the process should get no traffic.
    pub ready: Checks,
    /// More routes.
    pub extra: Router,
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Where it listens; the real port if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when it has ended: after shutdown, once open requests are answered.
    ///
    /// # Errors
    ///
    /// What made it end early.
    pub async fn finished(self) -> io::Result<()> {
        self.task.await.map_err(io::Error::other)?
    }
}

/// Binds `address` and serves `/healthz`, `/readyz`, `/metrics` and the extra routes until `shutdown`.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn serve(address: SocketAddr, ops: Ops, shutdown: Shutdown) -> io::Result<Server> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/healthz", get(probe).with_state(ops.live))
        .route("/readyz", get(probe).with_state(ops.ready))
        .route("/metrics", get(metrics).with_state(ops.registry))
        .merge(ops.extra);
    let task = tokio::spawn(async move {
        axum::serve(listener, router)
            .with_graceful_shutdown(async move { shutdown.triggered().await })
            .await
    });
    Ok(Server { address, task })
}

async fn probe(State(checks): State<Checks>, headers: HeaderMap) -> Response {
    let report = checks.ask();
    let status = if report.ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let wants_json = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/json"));
    if wants_json {
        (status, axum::Json(report)).into_response()
    } else {
        (status, report.to_string()).into_response()
    }
}

async fn metrics(State(registry): State<Registry>) -> Response {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT))], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to encode metrics");
            (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::shutdown;

    async fn fetch(server: &Server, path: &str, accept: &str) -> String {
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn probes_and_metrics_are_served_over_a_real_socket() {
        let (trigger, shutdown) = shutdown::channel();
        let synced = Arc::new(AtomicBool::new(false));
        let asked = synced.clone();
        let registry = Registry::new();
        let counter = prometheus::IntCounter::new("things_total", "Things.").unwrap();
        counter.inc_by(3);
        registry.register(Box::new(counter)).unwrap();
        let ops = Ops {
            registry,
            live: Checks::new(),
            ready: Checks::new()
                .with("certificate", || Ok(String::new()))
                .with("caches", move || {
                    let missing = || "Job.batch: first list not finished".to_owned();
                    asked
                        .load(Ordering::Relaxed)
                        .then(|| "all kinds".into())
                        .ok_or_else(missing)
                }),
            extra: Router::new().route("/debug", get(|| async { "more" })),
        };
        let server = serve("127.0.0.1:0".parse().unwrap(), ops, shutdown).await.unwrap();
        assert_ne!(server.address().port(), 0);

        let live = fetch(&server, "/healthz", "*/*").await;
        assert!(
            live.starts_with("HTTP/1.1 200") && live.ends_with("\r\n\r\nok\n"),
            "{live}"
        );
        let unready = fetch(&server, "/readyz", "*/*").await;
        assert!(unready.starts_with("HTTP/1.1 503"), "{unready}");
        let lines = "[+] certificate ok\n[-] caches not ok: Job.batch: first list not finished\nnot ok\n";
        assert!(unready.ends_with(lines), "{unready}");
        let json = fetch(&server, "/readyz", "application/json").await;
        let body: serde_json::Value = serde_json::from_str(json.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(body["checks"][1]["text"], "Job.batch: first list not finished");
        assert_eq!(body["ok"], false);

        synced.store(true, Ordering::Relaxed);
        let ready = fetch(&server, "/readyz", "*/*").await;
        assert!(
            ready.starts_with("HTTP/1.1 200") && ready.contains("caches ok: all kinds"),
            "{ready}"
        );

        let metrics = fetch(&server, "/metrics", "*/*").await;
        assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
        assert!(
            metrics.contains("# TYPE things_total counter\nthings_total 3\n"),
            "{metrics}"
        );
        assert!(fetch(&server, "/debug", "*/*").await.ends_with("more"));
        assert!(fetch(&server, "/nothing", "*/*").await.starts_with("HTTP/1.1 404"));

        trigger.pull();
        server.finished().await.unwrap();
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_an_error_at_the_start() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ops = Ops {
            registry: Registry::new(),
            live: Checks::new(),
            ready: Checks::new(),
            extra: Router::new(),
        };
        let (_trigger, shutdown) = shutdown::channel();
        let error = serve(taken.local_addr().unwrap(), ops, shutdown).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
