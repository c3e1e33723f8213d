//! A proxy in front of the API server that breaks what it is told to break.
//!
//! It ends TLS with an authority of its own and speaks HTTP/1.1 to both sides, one
//! connection for one connection. The caller's bearer token goes through as it is,
//! so a process behind it keeps its own identity.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sluice_pki::{Authority, Issued};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::background::background;
use crate::certificates;
use crate::kubeconfig::Kubeconfig;
use crate::plane::Plane;

type Body = BoxBody<Bytes, anyhow::Error>;

/// Which requests a rule is about; what is not given matches anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// Method.
    pub method: Option<Method>,
    /// A part of path and query.
    pub path: Option<String>,
    /// Whether it is a watch.
    pub watch: Option<bool>,
}

impl Match {
    /// Every request.
    pub fn all() -> Self {
        Self::default()
    }

    /// PATCH of batch Jobs, the status subresource not included.
    pub fn patch_jobs() -> Self {
        Self {
            method: Some(Method::PATCH),
            path: Some("/jobs/".to_owned()),
            watch: None,
        }
    }

    /// Requests to the coordination API: the lease.
    pub fn leases() -> Self {
        Self {
            path: Some("/leases".to_owned()),
            ..Self::default()
        }
    }

    /// Watches of a resource, by its plural name.
    pub fn watches(plural: &str) -> Self {
        Self {
            path: Some(format!("/{plural}?")),
            watch: Some(true),
            ..Self::default()
        }
    }

    fn holds(&self, request: &Request<Incoming>) -> bool {
        let target = request.uri().path_and_query().map_or("", |target| target.as_str());
        let watches = target.contains("watch=true") || target.contains("watch=1");
        let status = self.method == Some(Method::PATCH) && request.uri().path().ends_with("/status");
        self.method.as_ref().is_none_or(|method| method == request.method())
            && self.path.as_ref().is_none_or(|part| target.contains(part.as_str()))
            && self.watch.is_none_or(|watch| watch == watches)
            && !(status && self.path.as_deref() == Some("/jobs/"))
    }
}

/// What happens to a matching request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The connection is closed; the server never sees the request.
    DropRequest,
    /// The server does what was asked; then the connection is closed without its answer.
    DropResponse,
    /// Nothing is ever answered; the server never sees the request.
    Stall,
    /// The server does what was asked; its answer never comes.
    HoldResponse,
    /// This status instead of the server's answer; the server never sees the request.
    Status(u16),
    /// The request goes on after a time, even if the caller has given up by then.
    Delay(Duration),
}

/// A fault to inject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The requests it is about.
    pub when: Match,
    /// What happens to them.
    pub answer: Answer,
    /// How many requests it takes; None: every one until it is removed.
    pub times: Option<u64>,
}

impl Rule {
    /// A rule that stays until it is removed.
    pub fn always(when: Match, answer: Answer) -> Self {
        Self {
            when,
            answer,
            times: None,
        }
    }

    /// A rule for the next `times` matching requests.
    pub fn times(times: u64, when: Match, answer: Answer) -> Self {
        Self {
            when,
            answer,
            times: Some(times),
        }
    }
}

/// Names a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

struct Active {
    id: RuleId,
    rule: Rule,
}

struct Rules {
    active: Vec<Active>,
    hits: Vec<u64>,
}

struct Shared {
    upstream: SocketAddr,
    name: ServerName<'static>,
    connector: TlsConnector,
    rules: Mutex<Rules>,
    /// Raised to end every watch that is open.
    cut: watch::Sender<u64>,
    /// Raised when rules change, to let go of requests that stall.
    changed: watch::Sender<u64>,
}

/// The running proxy.
pub struct FaultProxy {
    address: SocketAddr,
    authority: Authority,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy before the plane's API server; it passes everything on until rules are added.
    pub async fn start(plane: &Plane) -> Result<Arc<Self>> {
        crate::plane::install_crypto_provider();
        let upstream: SocketAddr = plane.server().trim_start_matches("https://").parse()?;
        let address = plane.free_address();
        let authority = certificates::authority("sluice-fault-proxy")?;
        let acceptor = acceptor(&certificates::server(&authority, &[address.ip().to_string()])?)?;
        let shared = Arc::new(Shared {
            upstream,
            name: ServerName::IpAddress(upstream.ip().into()),
            connector: connector(plane.authority().certificate())?,
            rules: Mutex::new(Rules {
                active: Vec::new(),
                hits: Vec::new(),
            }),
            cut: watch::Sender::new(0),
            changed: watch::Sender::new(0),
        });
        let serving = Arc::clone(&shared);
        let run = async move {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("failed to listen on {address}"))?;
            anyhow::Ok(tokio::spawn(serve(listener, acceptor, serving)))
        };
        let task = background().spawn(run).await??;
        Ok(Arc::new(Self {
            address,
            authority,
            shared,
            task,
        }))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `base`'s identity, through this proxy.
    pub fn kubeconfig(&self, base: &Kubeconfig, path: &Path) -> Result<Kubeconfig> {
        base.through(path, &format!("https://{}", self.address), self.authority.certificate())
    }

    /// Adds a rule; of several that match, the oldest acts.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut rules = self.rules();
        let id = RuleId(rules.hits.len() as u64);
        rules.hits.push(0);
        rules.active.push(Active { id, rule });
        id
    }

    /// Removes a rule; requests that it stalls lose their connection.
    pub fn remove(&self, id: RuleId) {
        self.rules().active.retain(|active| active.id != id);
        self.shared.changed.send_modify(|changes| *changes += 1);
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.rules().active.clear();
        self.shared.changed.send_modify(|changes| *changes += 1);
    }

    /// How many requests the rule took.
    pub fn hits(&self, id: RuleId) -> u64 {
        usize::try_from(id.0)
            .ok()
            .and_then(|index| self.rules().hits.get(index).copied())
            .unwrap_or_default()
    }

    /// Ends every watch that is open now, as an API server does that restarts.
    pub fn cut_watches(&self) {
        self.shared.cut.send_modify(|cuts| *cuts += 1);
    }

    fn rules(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn acceptor(pair: &Issued) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector(authority: &str) -> Result<TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate?)?;
    }
    let mut config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    // Requests of one connection come one after the other: the lock is never waited for.
    let upstream = Arc::new(tokio::sync::Mutex::new(None));
    let service = service_fn(move |request| handle(request, Arc::clone(&shared), Arc::clone(&upstream)));
    // An error here is a fault that was asked for, or a caller that went away.
    let _ = server::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Upstream = Arc<tokio::sync::Mutex<Option<client::SendRequest<Incoming>>>>;

async fn handle(request: Request<Incoming>, shared: Arc<Shared>, upstream: Upstream) -> Result<Response<Body>> {
    match shared.decide(&request) {
        None => forward(request, &shared, &upstream).await,
        Some((_, Answer::Status(code))) => status_answer(code),
        Some((_, Answer::DropRequest)) => Err(anyhow!("dropped")),
        Some((_, Answer::Delay(time))) => {
            // A task of its own: what is on its way arrives, even if the caller does not wait for it.
            let late = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                forward(request, &shared, &upstream).await
            });
            late.await?
        }
        Some((id, Answer::Stall)) => Err(shared.until_removed(id).await),
        Some((_, Answer::DropResponse)) => Err(commit(request, shared, upstream).await),
        Some((id, Answer::HoldResponse)) => {
            commit(request, Arc::clone(&shared), upstream).await;
            Err(shared.until_removed(id).await)
        }
    }
}

/// Lets the server do what was asked, even if the caller goes away meanwhile.
async fn commit(request: Request<Incoming>, shared: Arc<Shared>, upstream: Upstream) -> anyhow::Error {
    let done = tokio::spawn(async move {
        let answer = forward(request, &shared, &upstream).await?;
        answer.into_body().collect().await?;
        anyhow::Ok(())
    });
    match done.await {
        Ok(Ok(())) => anyhow!("the answer is dropped"),
        Ok(Err(error)) => error,
        Err(error) => error.into(),
    }
}

async fn forward(request: Request<Incoming>, shared: &Shared, upstream: &Upstream) -> Result<Response<Body>> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    let watches = target.contains("watch=true") || target.contains("watch=1");
    let mut sender = upstream.lock().await;
    if sender.as_ref().is_none_or(client::SendRequest::is_closed) {
        *sender = Some(shared.connect().await?);
    }
    let sender = sender.as_mut().context("not connected")?;
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    let (parts, body) = answer.into_parts();
    let body = if watches {
        cuttable(body, shared.cut.subscribe())
    } else {
        body.map_err(anyhow::Error::from).boxed()
    };
    Ok(Response::from_parts(parts, body))
}

/// A watch's events until the watch is cut.
fn cuttable(body: Incoming, mut cut: watch::Receiver<u64>) -> Body {
    cut.mark_unchanged();
    let cut = Box::pin(async move {
        // The sender lives as long as the proxy; its end is an end of the watch too.
        let _ = cut.changed().await;
    });
    let frames = body
        .into_data_stream()
        .map(|chunk| chunk.map(Frame::data).map_err(anyhow::Error::from))
        .take_until(cut);
    BodyExt::boxed(StreamBody::new(SyncStream(Mutex::new(Box::pin(frames)))))
}

type Frames = std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>>> + Send>>;

/// `BoxBody` asks for a stream that can be shared; this one is only ever polled by its owner.
struct SyncStream(Mutex<Frames>);

impl futures::Stream for SyncStream {
    type Item = Result<Frame<Bytes>>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .poll_next(context)
    }
}

fn status_answer(code: u16) -> Result<Response<Body>> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "Unknown",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected {code}"), "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(serde_json::to_vec(&status)?))
        .map_err(|never| match never {})
        .boxed();
    Ok(Response::builder()
        .status(StatusCode::from_u16(code)?)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)?)
}

impl Shared {
    /// The oldest rule that matches, counted.
    fn decide(&self, request: &Request<Incoming>) -> Option<(RuleId, Answer)> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let active = rules
            .active
            .iter_mut()
            .find(|active| active.rule.times != Some(0) && active.rule.when.holds(request))?;
        let (id, answer) = (active.id, active.rule.answer.clone());
        // A rule that is used up stays: the requests it stalls wait for its removal.
        if let Some(left) = &mut active.rule.times {
            *left = left.saturating_sub(1);
        }
        if let Some(hits) = usize::try_from(id.0).ok().and_then(|index| rules.hits.get_mut(index)) {
            *hits += 1;
        }
        Some((id, answer))
    }

    async fn until_removed(&self, id: RuleId) -> anyhow::Error {
        let mut changed = self.changed.subscribe();
        loop {
            let there = self
                .rules
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .active
                .iter()
                .any(|active| active.id == id);
            if !there || changed.changed().await.is_err() {
                return anyhow!("let go");
            }
        }
    }

    async fn connect(&self) -> Result<client::SendRequest<Incoming>> {
        let stream = TcpStream::connect(self.upstream).await?;
        stream.set_nodelay(true)?;
        let stream = self.connector.connect(self.name.clone(), stream).await?;
        let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// GET over plain HTTP: status and body.
pub(crate) async fn http_get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    let get = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(http::header::HOST, address.to_string())
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        anyhow::Ok((code, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(Duration::from_secs(5), get)
        .await
        .with_context(|| format!("{address} does not answer"))?
}
