//! The scheduler process: shared informers feed one brain, which admits Jobs by patching them.
//!
//! ```text
//! watches (input) ---> Brain { Index { Engine } } ---> writer: one guarded patch per decision
//! lease   (reign) --/       |                                |
//!                           |                                '--> answers, back to the brain
//!                           '--> reporter: statuses, events, ledger
//! readers (visibility) --- questions to the brain, answers in JSON
//! ```
//!
//! Invariants:
//! - Only the [`brain`] decides, in one task, from what it was told; nothing else holds state about Jobs.
//! - Every write is bounded in time, sent only with enough of the lease left, and fenced by its [`term`].
//! - A standby follows the same events and decides nothing.

mod brain;
mod config;
mod input;
mod ledger;
mod metrics;
mod pods;
mod queues;
mod record;
mod reign;
mod reminders;
mod reporter;
mod term;
mod visibility;
mod writer;

use anyhow::{Context, Result};
use prometheus::Registry;
use sluice_runtime::client::Clients;
use sluice_runtime::events::{self, EventLimits, EventMetrics};
use sluice_runtime::http::{self, Checks, Ops};
use sluice_runtime::lease::{Candidate, LeaseConfig, LeaseMetrics, LeaseName, Timing};
use sluice_runtime::shutdown;
use sluice_runtime::watch::{PumpConfig, Watches};
use tokio::sync::mpsc;

pub use config::{Config, Flags};
pub use record::{Replayed, replay};

use brain::{Brain, Parts};
use input::Input;
use record::Recorder;
use reign::Throne;
use reporter::Reporter;
use visibility::Readers;
use writer::Limits;

/// Changes on their way from the watches to the brain.
const INPUTS: usize = 4_096;
/// Reported to the API server with every request.
const USER_AGENT: &str = concat!("sluice-scheduler/", env!("CARGO_PKG_VERSION"));
/// Who reports events on Jobs, as Kueue names it.
const EVENT_CONTROLLER: &str = "batch/job-kueue-controller";

/// Runs until a signal ends it.
///
/// # Errors
/// What kept it from starting: no cluster, an address in use, lease times that cannot work.
pub async fn run(config: Config) -> Result<()> {
    let (_trigger, shutdown) = shutdown::on_signals()?;
    let clients = Clients::load(config.kubeconfig.as_deref(), USER_AGENT).await?;
    let registry = Registry::new();
    let metrics = metrics::Metrics::register(&registry)?;
    sluice_runtime::metrics::register_process(&registry)?;

    let watches = Watches::new(clients.watch()?, &registry, shutdown.clone())?;
    let inputs = watch_everything(&watches);

    let timing = Timing {
        lease: config.lease_duration,
        renew_deadline: config.lease_renew_deadline,
        retry: config.lease_retry_period,
    };
    let identity = sluice_runtime::lease::identity(config.pod_name.as_deref());
    let candidate = Candidate::start(
        clients.write(timing.request_timeout())?,
        LeaseConfig {
            primary: LeaseName::new(&config.lease_namespace, &config.lease_name),
            guards: config.guard_leases.clone(),
            identity: identity.clone(),
            timing,
        },
        LeaseMetrics::register(&registry)?,
    )?;

    let timeout = config.write_timeout();
    let reports = clients.write(timeout)?;
    let reporter = events::Reporter {
        controller: EVENT_CONTROLLER.to_owned(),
        instance: identity.clone(),
    };
    let (publisher, publishing) = events::start(
        reports.clone(),
        reporter,
        EventLimits::default(),
        EventMetrics::register(&registry)?,
        shutdown.clone(),
    );
    let (reporter, clerk) = Reporter::new(reports, &config.namespace, timeout, publisher);
    let (visibility, readers) = match config.visibility.clone() {
        Some(wanted) => {
            let (server, readers) = visibility::serve(wanted, clients.write(timeout)?, &watches, shutdown.clone())?;
            tracing::info!(address = %server.address, "serving the visibility API");
            (Some(server), readers)
        }
        None => (None, Readers::none()),
    };
    let recorder = config.record_events.as_deref().map(Recorder::create).transpose()?;
    let brain = Brain::new(Parts {
        recorder,
        readers,
        own_namespace: config.namespace.clone(),
        configuration: config.configuration.clone(),
        metrics,
        reporter,
        writes: clients.write(timeout)?,
        reads: clients.write(timeout)?,
        limits: Limits {
            timeout,
            margin: config.write_margin(),
        },
        concurrency: config.write_concurrency,
    });
    let (orders, received) = mpsc::channel(4);
    let throne = Throne {
        writes: clients.write(timeout)?,
        reads: clients.watch()?,
        namespace: config.namespace.clone(),
        term_name: config.term_name.clone(),
        write_timeout: timeout,
        synced: watches.synced(),
        orders,
    };

    let synced = watches.synced();
    let ready = Checks::new().with("caches", move || synced.check());
    let ops = Ops {
        registry,
        ready,
        live: Checks::new(),
        extra: axum::Router::new(),
    };
    let server = http::serve(config.health_bind_address, ops, shutdown.clone())
        .await
        .context("failed to serve health and metrics")?;
    tracing::info!(address = %server.address(), identity, "sluice-scheduler runs");

    let clerk = tokio::spawn(clerk.run(shutdown.clone()));
    let throne = tokio::spawn(throne.run(candidate.leadership(), shutdown.clone()));
    let settled = brain.run(inputs, received, shutdown).await;
    throne.await?;
    clerk.await?;
    publishing.await?;
    if let Some(visibility) = visibility {
        visibility.finished().await?;
    }
    if settled {
        // Nothing writes any more: the next leader need not wait for this lease to expire.
        candidate.release().await;
    }
    Ok(())
}

/// One watch a kind, unfiltered, for every reader in the process.
fn watch_everything(watches: &Watches) -> mpsc::Receiver<Input> {
    let (sink, inputs) = mpsc::channel(INPUTS);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::Namespace);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::PriorityClass);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::WorkloadPriorityClass);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::Flavor);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::Cohort);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::ClusterQueue);
    watches.spawn(PumpConfig::default(), sink.clone(), Input::LocalQueue);
    watches.spawn(PumpConfig::default(), sink, Input::Job);
    inputs
}
