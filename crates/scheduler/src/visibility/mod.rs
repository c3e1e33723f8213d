//! The visibility API: who waits in a queue, and at which position, as an aggregated API server.
//!
//! ```text
//! API server --TLS, its front proxy's certificate--> answer: authentication -> authorization (SubjectAccessReview)
//!                                                       |
//!                                                       '-> desk -- question --> brain --> Index --> Engine
//! ```
//!
//! Every replica answers, from memory. The answer is one task's: exact, and of one moment; it says which resourceVersion it
//! rests on and whether its replica leads. A follower knows what its watches have told it, and nothing of what the leader
//! has decided and not written yet.

mod answer;
mod authentication;
mod authorization;
mod desk;
mod negotiation;
mod openapi;
mod page;
mod status;
mod summary;
mod target;
mod tls;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use sluice_api::visibility::Version;
use sluice_pki::{Authority, Leaf, Resolver, ServingCertificate, Usage};
use sluice_runtime::aggregation::{self, Attendant};
use sluice_runtime::certificate::{CertificateFiles, keep_loaded};
use sluice_runtime::shutdown::Shutdown;
use sluice_runtime::watch::{Change, PumpConfig, Watches};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) use desk::Readers;

use answer::Service;
use authentication::{FrontProxy, Rules};
use authorization::Authorizer;

/// Where the API server says how its front proxy is known.
const RULES_NAMESPACE: &str = "kube-system";
const RULES_NAME: &str = "extension-apiserver-authentication";
/// Longest that the API server may take to say whether something is allowed.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the 90 s after which the API server itself closes an idle connection: the server must not be the first.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Requests in work at the end get this long.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
/// How long a certificate that the process makes for itself is valid. Nobody looks: see [`own_certificate`].
const OWN_VALIDITY: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What the API is served with.
#[derive(Clone, Debug)]
pub(crate) struct VisibilityConfig {
    pub(crate) address: SocketAddr,
    /// None: the process makes a certificate for itself.
    pub(crate) certificate: Option<CertificateFiles>,
    /// The DNS name that the API server calls.
    pub(crate) service: String,
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Returns when it has ended: after shutdown, once open requests are answered.
    pub(crate) async fn finished(self) -> Result<()> {
        self.task.await?.context("failed to serve the visibility API")
    }
}

/// Serves the API until `shutdown`. The second thing returned is for the brain, which answers.
pub(crate) fn serve(
    config: VisibilityConfig,
    client: Client,
    watches: &Watches,
    shutdown: Shutdown,
) -> Result<(Server, Readers)> {
    let (desk, readers) = desk::desk();
    let front_proxy = FrontProxy::default();
    follow_rules(watches, front_proxy.clone());
    let (known, synced) = (front_proxy.clone(), watches.synced());
    let serves = Arc::new(move || known.is_known() && synced.is_synced());
    let names = Version::ALL.map(Version::api_service);
    let attendant = Attendant::Server { serves };
    aggregation::attend(watches, client.clone(), &names, attendant, shutdown.clone());
    let service = Service {
        front_proxy,
        authorizer: Authorizer::new(client, REVIEW_TIMEOUT),
        desk,
        synced: watches.synced(),
    };
    let resolver = Arc::new(Resolver::new());
    let loading = config
        .certificate
        .map(|files| tokio::spawn(keep_loaded(files, Arc::clone(&resolver), |_| {})));
    if loading.is_none() {
        resolver.replace(own_certificate(&config.service)?);
    }
    let (address, handle, task) = listen(config.address, resolver, service)?;
    tokio::spawn(async move {
        shutdown.triggered().await;
        handle.graceful_shutdown(Some(DRAIN_PATIENCE));
        if let Some(loading) = loading {
            loading.abort();
        }
    });
    Ok((Server { address, task }, readers))
}

type Listening = (SocketAddr, Handle<SocketAddr>, JoinHandle<std::io::Result<()>>);

fn listen(address: SocketAddr, resolver: Arc<Resolver>, service: Service) -> Result<Listening> {
    let failed = || format!("failed to serve the visibility API on {address}");
    let listener = std::net::TcpListener::bind(address).with_context(failed)?;
    let bound = listener.local_addr().with_context(failed)?;
    let tls = RustlsAcceptor::new(RustlsConfig::from_config(tls::config(resolver)?))
        .handshake_timeout(HANDSHAKE_TIMEOUT)
        .acceptor(NoDelayAcceptor::new());
    let handle = Handle::new();
    let mut server = axum_server::from_tcp(listener)
        .with_context(failed)?
        .acceptor(tls)
        .handle(handle.clone())
        // So that replicas share the load.
        .http1_only()
        .first_request_timeout(FIRST_REQUEST_TIMEOUT)
        .accept_error_handler(|peer, error| tracing::debug!(?peer, %error, "a connection failed"));
    server.http_builder().http1().header_read_timeout(IDLE_TIMEOUT);
    let task = tokio::spawn(server.serve(answer::router(service).into_make_service()));
    Ok((bound, handle, task))
}

/// A certificate for an APIService that does not check it: the connection is secret, but whoever answers at the Service's
/// address is believed.
fn own_certificate(service: &str) -> Result<ServingCertificate> {
    let now = SystemTime::now();
    let (not_before, not_after) = (now - Duration::from_secs(3_600), now + OWN_VALIDITY);
    let authority = Authority::new("sluice-visibility", not_before, not_after)?;
    let issued = authority.issue(&Leaf {
        common_name: service.to_owned(),
        organization: None,
        dns_names: vec![service.to_owned()],
        ip_addresses: Vec::new(),
        usage: Usage::Server,
        not_before,
        not_after,
    })?;
    Ok(ServingCertificate::from_pem(
        issued.certificate.as_bytes(),
        issued.key.as_bytes(),
    )?)
}

/// Keeps the rules at what the API server says. Nobody else waits for this watch: without it the scheduler does its work.
fn follow_rules(watches: &Watches, front_proxy: FrontProxy) {
    let (sink, mut changes) = mpsc::channel(4);
    let config = PumpConfig {
        namespace: Some(RULES_NAMESPACE.to_owned()),
        fields: Some(format!("metadata.name={RULES_NAME}")),
        ..PumpConfig::default()
    };
    watches.apart().spawn::<ConfigMap, _, _>(config, sink, |change| change);
    tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            take_rules(change, &front_proxy);
        }
    });
}

fn take_rules(change: Change<ConfigMap>, front_proxy: &FrontProxy) {
    let newest = match change {
        Change::Apply(newest) => Some(newest),
        Change::Reset { live, .. } => live.into_iter().next(),
        Change::Delete { .. } => None,
        // What was known before stays in force.
        Change::Broken(_) => return,
    };
    let object = format!("{RULES_NAMESPACE}/{RULES_NAME}");
    let rules = newest.map(|newest| Rules::read(&newest.data.unwrap_or_default()));
    match rules {
        None => {
            tracing::warn!(
                object,
                "the ConfigMap does not exist: the visibility API believes nobody"
            );
            front_proxy.set(None);
        }
        Some(Ok(rules)) => front_proxy.set(Some(rules)),
        Some(Err(error)) => {
            tracing::warn!(object, %error, "the ConfigMap cannot be used: the visibility API believes nobody");
            front_proxy.set(None);
        }
    }
}
