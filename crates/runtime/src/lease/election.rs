//! The loop that takes, renews and gives back leases, and announces what it means.

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::core::{ObjectMeta, Status};
use kube::{Api, Client};
use rand::Rng;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{
    Decision, Hold, Leadership, LeaseAttemptLabels, LeaseConfig, LeaseError, LeaseLabels, LeaseMetrics, LeaseName,
    Previous, RETRY_JITTER, State, Timing,
};
use crate::shutdown::{Shutdown, Trigger, channel};
use crate::telemetry::chain;

/// A process that stands for election, until it is released or dropped.
///
/// Dropping it without [`Self::release`] ends the renewals and leaves the leases to expire.
#[derive(Debug)]
pub struct Candidate {
    leadership: watch::Receiver<Leadership>,
    release: Trigger,
    task: JoinHandle<()>,
}

impl Candidate {
    /// Starts to stand for election. `client` should be used for nothing else; see the module's example.
    ///
    /// # Errors
    ///
    /// Durations that do not fit together, or an empty identity.
    pub fn start(client: Client, config: LeaseConfig, metrics: LeaseMetrics) -> Result<Self, LeaseError> {
        config.timing.validate()?;
        if config.identity.is_empty() {
            return Err(LeaseError::Identity);
        }
        let (announce, leadership) = watch::channel(Leadership::Standby {
            holder: None,
            why: format!("lease {} not read yet", config.primary),
        });
        let (release, released) = channel();
        let election = Election::new(client, config, metrics, announce);
        let task = tokio::spawn(election.run(released));
        Ok(Self {
            leadership,
            release,
            task,
        })
    }

    /// Follows whether we lead. The channel closes when the candidate is released or dropped.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Gives the leases back, once the caller has stopped writing: the next leader need not wait. Takes a few request timeouts at most.
    pub async fn release(mut self) {
        self.release.pull();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the election ended early");
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How the last attempt on a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Not tried yet.
    Unknown,
    /// Ours, as of the last successful write.
    Held,
    /// Free, and not taken because one before it is not ours.
    Free,
    /// Somebody else's.
    Waiting(String),
    /// Its namespace does not exist.
    Skipped,
    /// The request failed; what was known stands.
    Failed(String),
}

/// One lease and what is known of it.
#[derive(Clone, Debug)]
struct Slot {
    name: LeaseName,
    guard: bool,
    state: State,
    /// As last read or written: the base, with its version, of the next write.
    object: Option<Lease>,
    /// When the namespace was last found missing.
    skipped: Option<Instant>,
    renew_deadline: Duration,
    outcome: Outcome,
}

impl Slot {
    /// True if this lease does not stand in the way of leading.
    fn is_ours(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }

    /// Until when it does not, unless it is renewed, or found missing again, before.
    fn deadline(&self) -> Option<Instant> {
        let skipped = self.skipped.map(|at| at + self.renew_deadline);
        self.state.deadline().or(skipped)
    }
}

struct Election {
    client: Client,
    timing: Timing,
    identity: String,
    slots: Vec<Slot>,
    hold: Option<Hold>,
    metrics: LeaseMetrics,
    announce: watch::Sender<Leadership>,
}

impl Election {
    fn new(client: Client, config: LeaseConfig, metrics: LeaseMetrics, announce: watch::Sender<Leadership>) -> Self {
        let LeaseConfig {
            primary,
            guards,
            identity,
            timing,
        } = config;
        let names = std::iter::once((primary, false)).chain(guards.into_iter().map(|name| (name, true)));
        let slots = names
            .map(|(name, guard)| Slot {
                name,
                guard,
                state: State::new(identity.clone(), timing.lease, timing.renew_deadline),
                object: None,
                skipped: None,
                renew_deadline: timing.renew_deadline,
                outcome: Outcome::Unknown,
            })
            .collect();
        Self {
            client,
            timing,
            identity,
            slots,
            hold: None,
            metrics,
            announce,
        }
    }

    async fn run(mut self, released: Shutdown) {
        loop {
            let held_before = self.ours();
            let round = round(self.client.clone(), self.slots.clone(), self.timing.request_timeout());
            let Some(slots) = self.meanwhile(round, &released).await else {
                break;
            };
            self.slots = slots;
            self.count();
            self.conclude();
            // A lease just taken opens the way to the next one.
            if self.ours() > held_before && self.hold.is_none() {
                continue;
            }
            let pause = tokio::time::sleep(self.pause());
            if self.meanwhile(pause, &released).await.is_none() {
                break;
            }
        }
        self.give_back().await;
    }

    /// Runs `work` to its end, announcing the loss of the lease at the deadline even if the work hangs. `None` at release.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>, released: &Shutdown) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let deadline = self.hold.as_ref().and_then(|_| self.deadline());
            tokio::select! {
                biased;
                () = released.triggered() => return None,
                () = until(deadline) => self.conclude(),
                done = &mut work => return Some(done),
            }
        }
    }

    /// The earliest moment at which a lease that we hold has to be renewed.
    fn deadline(&self) -> Option<Instant> {
        self.slots.iter().filter_map(Slot::deadline).min()
    }

    fn ours(&self) -> usize {
        let now = now();
        self.slots.iter().filter(|slot| slot.is_ours(now)).count()
    }

    fn pause(&self) -> Duration {
        if self.hold.is_some() {
            self.timing.retry
        } else {
            self.timing.retry.mul_f64(rand::rng().random_range(1.0..=RETRY_JITTER))
        }
    }

    /// Announces what the present knowledge means.
    fn conclude(&mut self) {
        let now = now();
        let Some(blocking) = self.slots.iter().find(|slot| !slot.is_ours(now)) else {
            self.lead(now);
            return;
        };
        let (holder, why) = match &blocking.outcome {
            Outcome::Waiting(holder) => (
                Some(holder.clone()),
                format!("lease {} is held by {holder}", blocking.name),
            ),
            Outcome::Failed(error) => (None, format!("lease {}: {error}", blocking.name)),
            Outcome::Held => (
                None,
                format!(
                    "lease {} was not renewed within {:?}",
                    blocking.name, self.timing.renew_deadline
                ),
            ),
            _ => (None, format!("lease {} is not taken yet", blocking.name)),
        };
        if let Some(hold) = self.hold.take() {
            hold.end();
            tracing::error!(identity = self.identity, why, "stopped leading");
        }
        let standby = Leadership::Standby { holder, why };
        self.publish(standby);
    }

    fn lead(&mut self, now: Instant) {
        let expires = self
            .slots
            .iter()
            .filter_map(|slot| slot.state.expires())
            .min()
            .unwrap_or(now);
        if let Some(hold) = &self.hold {
            hold.extend(expires);
            return;
        }
        let previous = self.slots.iter().filter_map(|slot| slot.state.claim()).max();
        let previous = previous.unwrap_or(Previous::Own);
        let transitions = self.slots.first().map_or(0, |slot| slot.state.transitions());
        for slot in &mut self.slots {
            slot.state.settle();
        }
        let hold = Hold::new(self.identity.clone(), previous, transitions, now, expires);
        tracing::info!(identity = self.identity, ?previous, transitions, "leading");
        self.hold = Some(hold.clone());
        self.publish(Leadership::Leader(hold));
    }

    fn publish(&self, leadership: Leadership) {
        let name = self.slots.first().map_or("", |slot| slot.name.name.as_str());
        let status = if leadership.is_leader() { 1.0 } else { 0.0 };
        self.metrics.status.set(&LeaseLabels { name }, status);
        self.announce.send_if_modified(|before| {
            let changed = *before != leadership;
            if changed {
                match &leadership {
                    Leadership::Standby { holder: Some(_), why } => tracing::info!(why, "standing by"),
                    Leadership::Standby { holder: None, why } => tracing::debug!(why, "standing by"),
                    Leadership::Leader(_) => {}
                }
                *before = leadership;
            }
            changed
        });
    }

    fn count(&self) {
        for slot in &self.slots {
            let result = match slot.outcome {
                Outcome::Unknown | Outcome::Free => "free",
                Outcome::Held => "held",
                Outcome::Waiting(_) => "waiting",
                Outcome::Skipped => "skipped",
                Outcome::Failed(_) => "failed",
            };
            let name = slot.name.name.as_str();
            self.metrics.attempts.inc(&LeaseAttemptLabels { name, result });
        }
    }

    /// Gives all leases back, the primary one last: whoever then takes it finds the guards free.
    async fn give_back(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.end();
        }
        self.publish(Leadership::Standby {
            holder: None,
            why: "released".to_owned(),
        });
        let timeout = self.timing.request_timeout();
        for slot in self.slots.iter_mut().rev() {
            let api = Api::namespaced(self.client.clone(), &slot.name.namespace);
            // The write cut off by the release may have changed the version: read it afresh once.
            for _ in 0..2 {
                match slot.give_back(&api, timeout).await {
                    Ok(()) => break,
                    Err(error) => tracing::warn!(lease = %slot.name, error, "failed to give a lease back"),
                }
            }
        }
    }
}

impl Drop for Election {
    /// An election that was aborted renews nothing, so nobody may act on its hold.
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.end();
        }
    }
}

/// What the leases before one allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// All before it are ours: take it, renew it.
    Hold,
    /// One before it is not ours at the moment: leave it alone.
    Pause,
    /// One before it is somebody else's, who needs this one too: give it back.
    Yield,
}

/// One attempt on every lease at the same time. A lease is taken only if all before it were ours when the round began.
async fn round(client: Client, slots: Vec<Slot>, timeout: Duration) -> Vec<Slot> {
    let now = now();
    let mut turn = Turn::Hold;
    let attempts: Vec<_> = slots
        .into_iter()
        .map(|slot| {
            let this_turn = turn;
            if matches!(slot.outcome, Outcome::Waiting(_)) {
                turn = Turn::Yield;
            } else if turn == Turn::Hold && !slot.is_ours(now) {
                turn = Turn::Pause;
            }
            let api: Api<Lease> = Api::namespaced(client.clone(), &slot.name.namespace);
            async move { slot.attempt(&api, this_turn, timeout).await }
        })
        .collect();
    join_all(attempts).await
}

impl Slot {
    async fn attempt(mut self, api: &Api<Lease>, turn: Turn, timeout: Duration) -> Self {
        self.outcome = match self.step(api, turn, timeout).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(lease = %self.name, error, "failed to take or renew a lease");
                Outcome::Failed(error)
            }
        };
        self
    }

    async fn step(&mut self, api: &Api<Lease>, turn: Turn, timeout: Duration) -> Result<Outcome, String> {
        // While nothing went wrong a renewal is one write, guarded by the version that we wrote last.
        if turn == Turn::Hold && self.state.is_held(now()) && self.object.is_some() {
            match self.write(api, timeout).await {
                Ok(()) => return Ok(Outcome::Held),
                Err(Refusal::Changed | Refusal::Missing) => {}
                Err(refusal) => return Err(refusal.text()),
            }
        }
        self.object = bounded(timeout, api.get_opt(&self.name.name))
            .await
            .map_err(Refusal::text)?;
        let spec = self.object.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        if spec.is_some() {
            self.skipped = None;
        }
        match self.state.observe(spec.as_ref(), now()) {
            Decision::Wait { holder, .. } => Ok(Outcome::Waiting(holder)),
            Decision::Renew if turn == Turn::Yield => {
                self.give_back(api, timeout).await?;
                Ok(Outcome::Free)
            }
            Decision::Renew | Decision::Take(_) if turn != Turn::Hold => Ok(Outcome::Free),
            Decision::Renew | Decision::Take(_) => match self.write(api, timeout).await {
                Ok(()) => Ok(Outcome::Held),
                Err(Refusal::Changed | Refusal::Missing) => Ok(Outcome::Unknown),
                Err(Refusal::NoNamespace) if self.guard => {
                    self.skipped = Some(now());
                    Ok(Outcome::Skipped)
                }
                Err(refusal) => Err(refusal.text()),
            },
        }
    }

    /// Writes ourselves in: over the version last seen, or as a new object.
    async fn write(&mut self, api: &Api<Lease>, timeout: Duration) -> Result<(), Refusal> {
        let spec = self.state.record(MicroTime(Timestamp::now()));
        let sent = now();
        let written = self.put(api, spec, timeout).await?;
        self.state.accepted(written.spec.clone().unwrap_or_default(), sent);
        self.object = Some(written);
        Ok(())
    }

    async fn put(&self, api: &Api<Lease>, spec: LeaseSpec, timeout: Duration) -> Result<Lease, Refusal> {
        let params = PostParams::default();
        let name = &self.name;
        let fresh = || ObjectMeta {
            name: Some(name.name.clone()),
            namespace: Some(name.namespace.clone()),
            ..ObjectMeta::default()
        };
        let base = self.object.as_ref().map(|object| object.metadata.clone());
        let exists = base.is_some();
        let lease = Lease {
            metadata: base.unwrap_or_else(fresh),
            spec: Some(spec),
        };
        if exists {
            return bounded(timeout, api.replace(&name.name, &params, &lease)).await;
        }
        match bounded(timeout, api.create(&params, &lease)).await {
            Err(Refusal::Missing) => Err(Refusal::NoNamespace),
            other => other,
        }
    }

    /// Empties the holder, if it is us.
    async fn give_back(&mut self, api: &Api<Lease>, timeout: Duration) -> Result<(), String> {
        let found = bounded(timeout, api.get_opt(&self.name.name))
            .await
            .map_err(Refusal::text)?;
        let Some(lease) = found else {
            return Ok(());
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if self.state.observe(Some(&spec), now()) != Decision::Renew {
            return Ok(());
        }
        self.object = Some(lease);
        let spec = self.state.released(MicroTime(Timestamp::now()));
        let written = self.put(api, spec, timeout).await.map_err(Refusal::text)?;
        self.state.gave_back(written.spec.clone().unwrap_or_default(), now());
        self.object = Some(written);
        tracing::info!(lease = %self.name, "gave a lease back");
        Ok(())
    }
}

/// Why a request about a lease did not succeed.
enum Refusal {
    /// Somebody else wrote or created the lease since we last read it.
    Changed,
    /// The lease, or for a creation its namespace, is not there.
    Missing,
    /// The namespace is not there, or is going away.
    NoNamespace,
    /// Anything else.
    Other(String),
}

impl Refusal {
    fn text(self) -> String {
        match self {
            Self::Changed => "changed by somebody else at the same time".to_owned(),
            Self::Missing => "deleted by somebody else at the same time".to_owned(),
            Self::NoNamespace => "its namespace does not exist".to_owned(),
            Self::Other(text) => text,
        }
    }
}

async fn bounded<T>(timeout: Duration, request: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    match tokio::time::timeout(timeout, request).await {
        Err(_elapsed) => Err(Refusal::Other(format!("no answer within {timeout:?}"))),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(refusal(&status)),
        Ok(Err(error)) => Err(Refusal::Other(chain(&error))),
    }
}

fn refusal(status: &Status) -> Refusal {
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
    if causes.iter().any(|cause| cause.reason == "NamespaceTerminating") {
        Refusal::NoNamespace
    } else if status.code == 409 {
        Refusal::Changed
    } else if status.code == 404 {
        Refusal::Missing
    } else {
        Refusal::Other(format!("{} ({})", status.message, status.code))
    }
}

/// The monotonic clock; tests may move it by tokio's.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
