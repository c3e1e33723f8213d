//! From holding the lease to deciding, and back.
//!
//! A new leader writes its term, which fences the last one's writes; waits until a write of the last one could no longer
//! be under way, unless that one gave its lease back; reads the ledger and lists all Jobs with quorum. Only then does it decide.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ListParams};
use sluice_api::term::Term;
use sluice_index::Ledger;
use sluice_jobs::view::JobView;
use sluice_runtime::lease::{Hold, Leadership, Previous};
use sluice_runtime::shutdown::Shutdown;
use sluice_runtime::watch::{Backoff, Synced};
use tokio::sync::{mpsc, watch};

use crate::{ledger, term};

/// Jobs asked for in one page of the quorum list.
const PAGE: u32 = 500;

/// What the brain is told about leading.
#[derive(Debug)]
pub(crate) enum Order {
    /// Lead, from this list of all Jobs on.
    Reign {
        term: u64,
        hold: Hold,
        ledger: Ledger,
        jobs: Vec<JobView>,
        resource_version: u64,
    },
    /// Follow.
    Deposed { why: String },
}

/// What it takes to begin a reign.
pub(crate) struct Throne {
    pub(crate) writes: Client,
    pub(crate) reads: Client,
    pub(crate) namespace: String,
    pub(crate) term_name: String,
    pub(crate) write_timeout: Duration,
    pub(crate) synced: Synced,
    pub(crate) orders: mpsc::Sender<Order>,
}

impl Throne {
    /// Follows the lease until shutdown.
    pub(crate) async fn run(self, mut leadership: watch::Receiver<Leadership>, shutdown: Shutdown) {
        loop {
            let follow = async {
                let hold = self.until_leading(&mut leadership).await?;
                self.reign(hold, &mut leadership).await
            };
            tokio::select! {
                () = shutdown.triggered() => return,
                going_on = follow => if going_on.is_none() { return },
            }
        }
    }

    async fn until_leading(&self, leadership: &mut watch::Receiver<Leadership>) -> Option<Hold> {
        let leading = leadership.wait_for(Leadership::is_leader).await.ok()?;
        leading.hold().cloned()
    }

    /// One reign, from the lease to its loss.
    async fn reign(&self, hold: Hold, leadership: &mut watch::Receiver<Leadership>) -> Option<()> {
        let begun = tokio::select! {
            order = self.begin(&hold) => order,
            lost = self.lost(leadership) => {
                lost?;
                tracing::warn!("the lease was lost before this replica could begin to lead");
                return Some(());
            }
        };
        self.orders.send(begun).await.ok()?;
        let why = self.lost(leadership).await?;
        self.orders.send(Order::Deposed { why }).await.ok()
    }

    async fn lost(&self, leadership: &mut watch::Receiver<Leadership>) -> Option<String> {
        let standby = leadership.wait_for(|now| !now.is_leader()).await.ok()?;
        match &*standby {
            Leadership::Standby { why, .. } => Some(why.clone()),
            Leadership::Leader(_) => Some(String::new()),
        }
    }

    /// Prepares until it succeeds; the caller gives up when the lease is lost.
    async fn begin(&self, hold: &Hold) -> Order {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.prepare(hold).await {
                Ok(order) => return order,
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "failed to begin to lead; tried again soon"
                ),
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    async fn prepare(&self, hold: &Hold) -> Result<Order> {
        self.synced.wait().await;
        let terms: Api<Term> = Api::all(self.writes.clone());
        let now = k8s_openapi::jiff::Timestamp::now().as_second();
        let term = term::begin(&terms, &self.term_name, hold.identity(), now).await?;
        tracing::info!(term, identity = hold.identity(), "a new term has begun");
        if hold.previous() == Previous::Expired {
            tokio::time::sleep(self.write_timeout).await;
        }
        let config_maps: Api<ConfigMap> = Api::namespaced(self.reads.clone(), &self.namespace);
        let ledger = ledger::load(&config_maps).await?;
        let started = Instant::now();
        let (jobs, resource_version) = self.list_jobs().await?;
        tracing::info!(
            jobs = jobs.len(),
            resource_version,
            seconds = started.elapsed().as_secs_f64(),
            "listed all Jobs"
        );
        Ok(Order::Reign {
            term,
            hold: hold.clone(),
            ledger,
            jobs,
            resource_version,
        })
    }

    /// All Jobs, read with quorum. The pages after the first are of the same moment.
    async fn list_jobs(&self) -> Result<(Vec<JobView>, u64)> {
        let api: Api<JobView> = Api::all(self.reads.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut jobs = Vec::new();
        loop {
            let page = api.list(&params).await.context("failed to list all Jobs")?;
            let version = page
                .metadata
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or(0);
            jobs.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok((jobs, version)),
            }
        }
    }
}
