//! The webhook process: the API server's AdmissionReviews and ConversionReviews in over TLS, answers out of memory.
//!
//! ```text
//! watches -> World --------.
//!                           v
//! API server --TLS--> review::answer -> sluice_admission -> answer, one log line, metrics
//!               ^
//! files -> Resolver (the certificate of the moment)
//! ```
//!
//! It never calls the API server to answer a review, and keeps no state that another replica would need: any replica
//! answers any review. What the answers are is the business of `sluice_admission`.
//!
//! Entry point: [`run`]. [`Server`] is the part without a cluster.

mod args;
mod cache;
mod metrics;
mod review;
mod server;
mod stand_in;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use cache::Taken;
use prometheus::Registry;
use sluice_admission::World;
use sluice_api::visibility::Version;
use sluice_pki::Resolver;
use sluice_runtime::aggregation::{self, Attendant};
use sluice_runtime::certificate::{CertificateFiles, Look, check as check_certificate, keep_loaded};
use sluice_runtime::client::{self, Clients};
use sluice_runtime::http::{self, Checks, Ops};
use sluice_runtime::metrics::register_process;
use sluice_runtime::shutdown::{self, Shutdown};
use sluice_runtime::watch::Watches;

pub use args::{Args, Config};
pub use cache::SharedWorld;
pub use metrics::Metrics;
pub use review::{MUTATE_JOB, VALIDATE_CLUSTER_QUEUE, VALIDATE_COHORT, VALIDATE_JOB};
pub use server::{Limits, ServeError, Server};

const USER_AGENT: &str = concat!("sluice-webhook/", env!("CARGO_PKG_VERSION"));
/// How often it is asked whether caches and certificate are complete.
const START_POLL: Duration = Duration::from_millis(20);
/// Reviews in work at the end get this long. None of an object takes longer; of a conversion that does, the API server asks
/// another replica.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// Longest that a write to an APIService may take.
const PARK_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until `shutdown`, then drains.
///
/// The port opens once a certificate is loaded: conversions depend on nothing else, and without them the API server could
/// not even list the queues that the caches need. Until the caches are complete, reviews of Jobs are turned away: the API
/// server then follows its failure policy, instead of getting answers from half a cluster.
///
/// # Errors
///
/// No usable cluster configuration, an address that cannot be bound, or a server that fails.
pub async fn run(config: Config, shutdown: Shutdown) -> anyhow::Result<()> {
    client::install_crypto();
    let registry = Registry::new();
    register_process(&registry)?;
    let metrics = Metrics::register(&registry)?;
    let resolver = Arc::new(Resolver::new());
    let certificate = tokio::spawn(keep_certificate(
        config.certificate,
        Arc::clone(&resolver),
        metrics.clone(),
    ));

    // Watches, probes and metrics go on while the server drains.
    let (end, ended) = shutdown::channel();
    let clients = Clients::load(config.kubeconfig.as_deref(), USER_AGENT).await?;
    let watches = Watches::new(clients.watch()?, &registry, ended.clone())?;
    let world = SharedWorld::to_be_read(World::new(config.settings));
    let (taken, cache) = cache::follow(&watches, world.clone());
    if let Some((after, stand_in)) = config.park_visibility {
        let names = Version::ALL.map(Version::api_service);
        let client = clients.write(PARK_TIMEOUT)?;
        aggregation::attend(
            &watches,
            client,
            &names,
            Attendant::Warden { after, stand_in },
            ended.clone(),
        );
    }

    let listening: Arc<OnceLock<Check>> = Arc::default();
    let ready = readiness(&taken, &resolver, &listening);
    let ops = Ops {
        registry,
        ready,
        live: Checks::new(),
        extra: axum::Router::new(),
    };
    let probes = http::serve(config.health_bind_address, ops, ended)
        .await
        .with_context(|| format!("failed to listen on {}", config.health_bind_address))?;
    tracing::info!(address = %probes.address(), "serving probes and metrics");

    let opening = tokio::spawn({
        let world = world.clone();
        async move {
            until(|| taken.is_complete()).await;
            world.set_complete();
            tracing::info!("answering reviews of Jobs");
        }
    });
    let result = tokio::select! {
        () = shutdown.triggered() => Ok(()),
        () = until(|| resolver.current().is_some()) => {
            let server = Server::start(config.bind_address, config.limits, world, Arc::clone(&resolver), metrics)?;
            tracing::info!(address = %server.address(), "answering conversions and reviews of queues");
            // Set once: this arm runs once.
            let _first = listening.set(Box::new(server.check()));
            serve(server, &shutdown, config.drain_delay).await
        }
    };
    end.pull();
    opening.abort();
    certificate.abort();
    cache.abort();
    probes.finished().await?;
    result
}

/// Keeps `resolver` at what the files say, for ever.
pub async fn keep_certificate(files: CertificateFiles, resolver: Arc<Resolver>, metrics: Metrics) {
    let tell = move |look| match look {
        Look::New { expires } => metrics.set_certificate_expiry(expires),
        Look::Failed => metrics.count_reload_failure(),
    };
    keep_loaded(files, resolver, tell).await;
}

type Check = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Ready: the world is complete, the certificate is one that clients accept, and the server takes calls.
fn readiness(taken: &Arc<Taken>, resolver: &Arc<Resolver>, listening: &Arc<OnceLock<Check>>) -> Checks {
    let (taken, resolver, listening) = (Arc::clone(taken), Arc::clone(resolver), Arc::clone(listening));
    Checks::new()
        .with("caches", move || taken.check())
        .with("certificate", move || check_certificate(&resolver, SystemTime::now()))
        .with("server", move || match listening.get() {
            Some(check) => check(),
            None => Err("not listening yet".to_owned()),
        })
}

async fn serve(mut server: Server, shutdown: &Shutdown, delay: Duration) -> anyhow::Result<()> {
    tokio::select! {
        () = shutdown.triggered() => {}
        error = server.failed() => return Err(error).context("failed to serve reviews"),
    }
    tracing::info!(?delay, "draining");
    server.drain(delay, DRAIN_PATIENCE).await.context("failed to drain")?;
    tracing::info!("drained");
    Ok(())
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(START_POLL).await;
    }
}
