//! The TLS server that the API server calls, from the first connection to the last.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::NoServerSessionStorage;
use sluice_pki::Resolver;
use tokio::task::JoinHandle;

use crate::cache::SharedWorld;
use crate::metrics::Metrics;
use crate::{review, stand_in};

/// What one client may ask of the server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest review. An update carries two objects of 3 MiB at most, the API server's own limit of a request.
    pub body_bytes: usize,
    /// Time from the head of a request to its answer, reading the body included.
    pub request_timeout: Duration,
    /// Reviews in work at once.
    pub concurrent_reviews: usize,
    /// Largest review of a conversion: a whole list of objects comes in one.
    pub conversion_bytes: usize,
    /// Time from the head of a conversion to its answer. The API server waits for 30 s.
    pub conversion_timeout: Duration,
    /// Conversions in work at once. Each holds its objects twice, as they came and as they go.
    pub concurrent_conversions: usize,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time from the handshake to the head of the first request.
    pub first_request_timeout: Duration,
    /// Time that a connection may be idle. Longer than the 90 s after which the API server itself closes one: the
    /// server must not be the first, or a call could meet a connection that is just being closed.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 8 * 1024 * 1024,
            request_timeout: Duration::from_millis(1500),
            concurrent_reviews: 512,
            conversion_bytes: 128 * 1024 * 1024,
            conversion_timeout: Duration::from_secs(25),
            concurrent_conversions: 4,
            handshake_timeout: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, not ours, or needs rights that the process lacks.
    #[error("failed to listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The TLS library refuses its own defaults.
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    handle: Handle<SocketAddr>,
    draining: Arc<AtomicBool>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Binds `address` and answers reviews with what `world` knows and `resolver` shows.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound.
    pub fn start(
        address: SocketAddr,
        limits: Limits,
        world: SharedWorld,
        resolver: Arc<Resolver>,
        metrics: Metrics,
    ) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(tls(resolver)?))
            .handshake_timeout(limits.handshake_timeout)
            .acceptor(NoDelayAcceptor::new());
        let handle = Handle::new();
        let draining = Arc::new(AtomicBool::new(false));
        let router = review::router(&world, &limits, &metrics, &draining).merge(stand_in::router());
        let mut server = axum_server::from_tcp(listener)
            .map_err(failed)?
            .acceptor(acceptor)
            .handle(handle.clone())
            // The API server calls webhooks over HTTP/1.1, on purpose: so that replicas share the load.
            .http1_only()
            .first_request_timeout(limits.first_request_timeout)
            .accept_error_handler(move |peer, error| {
                metrics.count_connection_error();
                tracing::debug!(?peer, %error, "a connection failed");
            });
        server.http_builder().http1().header_read_timeout(limits.idle_timeout);
        let task = tokio::spawn(server.serve(router.into_make_service()));
        Ok(Self {
            address: bound,
            handle,
            draining,
            task,
        })
    }

    /// Where it listens; the real port if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A question for readiness that outlives this handle.
    pub fn check(&self) -> impl Fn() -> Result<String, String> + Send + Sync + 'static {
        let (draining, task) = (Arc::clone(&self.draining), self.task.abort_handle());
        move || {
            if draining.load(Ordering::Acquire) {
                Err("draining".to_owned())
            } else if task.is_finished() {
                Err("not listening".to_owned())
            } else {
                Ok(String::new())
            }
        }
    }

    /// Ends when the server does: only by a failure, unless [`Self::drain`] is under way.
    pub async fn failed(&mut self) -> io::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => io::Error::other("the server ended"),
            Ok(Err(error)) => error,
            Err(error) => io::Error::other(error),
        }
    }

    /// Stops without failing a call.
    ///
    /// For `delay` calls are taken as before, while readiness already says no and every answer asks its client to close
    /// the connection: by the end of it, clients have heard that they should go elsewhere. Then the listener closes, and
    /// calls in work get up to `patience`.
    pub async fn drain(self, delay: Duration, patience: Duration) -> io::Result<()> {
        self.draining.store(true, Ordering::Release);
        tokio::time::sleep(delay).await;
        self.handle.graceful_shutdown(Some(patience));
        self.task.await.map_err(io::Error::other)?
    }
}

fn tls(resolver: Arc<Resolver>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would go on under the certificate it began with; the few clients there are keep their connections.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
