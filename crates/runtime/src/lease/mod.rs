//! Leader election over `coordination.k8s.io/v1` Leases, by client-go's rules.
//!
//! A candidate leads while it holds *all* of its leases: the primary one of its installation, and guards,
//! which others may hold for their own reasons (a second installation, Kueue). Leases are taken in order, so that candidates
//! cannot block each other; a guard whose namespace does not exist is skipped and asked for again.
//!
//! ```no_run
//! # use std::time::{Duration, Instant};
//! # use sluice_runtime::{client::Clients, lease::{Candidate, LeaseConfig, LeaseMetrics, LeaseName, Leadership, Timing, identity}};
//! # async fn example(clients: Clients, registry: prometheus::Registry) -> Result<(), Box<dyn std::error::Error>> {
//! let config = LeaseConfig {
//!     primary: LeaseName::new(clients.namespace(), "sluice-scheduler"),
//!     guards: vec![LeaseName::new("kueue-system", "c1f6bfd2.kueue.x-k8s.io")],
//!     identity: identity(None),
//!     timing: Timing::default(),
//! };
//! let client = clients.write(config.timing.request_timeout())?; // its own connections, never those of the writers
//! let candidate = Candidate::start(client, config, LeaseMetrics::register(&registry)?)?;
//! let mut leadership = candidate.leadership();
//! let Ok(Leadership::Leader(hold)) = leadership.wait_for(|now| now.is_leader()).await.map(|now| now.clone()) else {
//!     return Ok(());
//! };
//! // at the moment of sending a write:
//! if hold.remaining(Instant::now()) > Duration::from_secs(5) { /* send it */ }
//! // at the end, once nothing writes any more:
//! candidate.release().await;
//! # Ok(()) }
//! ```
//!
//! [`Hold::remaining`] is no fence by itself: a process can be frozen between the check and the send. It runs on
//! `CLOCK_MONOTONIC`, which goes on while a process is stopped (SIGSTOP) and may stand still while a whole virtual machine is
//! paused; for what arrives late all the same there is the term fence of the scheduler.

mod election;
mod state;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus::Registry;
use rand::Rng;

pub use election::Candidate;
pub use state::{Decision, Previous, State, holder};

use crate::label_set;
use crate::metrics::{Counter, Gauge};

/// Which Lease object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl LeaseName {
    /// The lease `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The three durations of an election; client-go's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others leave a lease alone after its last renewal.
    pub lease: Duration,
    /// After this long without a successful renewal the leader stops leading.
    pub renew_deadline: Duration,
    /// Pause between attempts to take or renew.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// The timeout for one request about a lease: two fit into the renew deadline, at most 5 s.
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).min(Duration::from_secs(5))
    }

    /// Checks the order lease > renew deadline > retry, which the rules rest on.
    ///
    /// # Errors
    ///
    /// Durations that do not fit together.
    pub fn validate(&self) -> Result<(), LeaseError> {
        if self.lease > self.renew_deadline
            && self.renew_deadline > self.retry.mul_f64(RETRY_JITTER)
            && self.retry > Duration::ZERO
        {
            Ok(())
        } else {
            Err(LeaseError::Timing(*self))
        }
    }
}

/// Candidates that wait stretch their pauses by up to this, so that they do not all ask together.
const RETRY_JITTER: f64 = 1.2;

/// Why no election could be started.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Durations that do not fit together.
    #[error(
        "failed to use lease times: lease duration {:?} > renew deadline {:?} > 1.2 times retry period {:?} > 0 must hold",
        .0.lease, .0.renew_deadline, .0.retry
    )]
    Timing(Timing),
    /// An empty identity would read as "nobody".
    #[error("failed to use an empty lease identity")]
    Identity,
}

/// What to be elected for, and as whom.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// The lease of the installation.
    pub primary: LeaseName,
    /// Leases that must be held too, in this order.
    pub guards: Vec<LeaseName>,
    /// Who we are: see [`identity`].
    pub identity: String,
    /// The durations.
    pub timing: Timing,
}

/// A holder identity: the pod's name (else `POD_NAME`, else the host's name) and a random part, so that a restarted process is somebody else.
pub fn identity(pod: Option<&str>) -> String {
    let name = pod
        .map(str::to_owned)
        .or_else(|| std::env::var("POD_NAME").ok())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".to_owned());
    format!("{name}_{:016x}", rand::rng().random::<u64>())
}

/// Whether this process leads.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// It does not.
    Standby {
        /// Who holds the lease that is waited for, if somebody does.
        holder: Option<String>,
        /// The reason for people: which lease, and what is wrong with it.
        why: String,
    },
    /// It does, for as long as the hold says.
    Leader(Hold),
}

impl Leadership {
    /// True for a leader.
    pub fn is_leader(&self) -> bool {
        matches!(self, Self::Leader(_))
    }

    /// The hold of a leader.
    pub fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Leader(hold) => Some(hold),
            Self::Standby { .. } => None,
        }
    }
}

/// One unbroken time of leading. Clones share the expiry, which every renewal moves on.
#[derive(Clone)]
pub struct Hold(Arc<HoldInner>);

struct HoldInner {
    identity: String,
    previous: Previous,
    transitions: i32,
    since: Instant,
    /// Nanoseconds after `since` at which the hold ends; 0 once it has ended.
    expires: AtomicU64,
}

impl Hold {
    fn new(identity: String, previous: Previous, transitions: i32, since: Instant, expires: Instant) -> Self {
        let hold = Self(Arc::new(HoldInner {
            identity,
            previous,
            transitions,
            since,
            expires: AtomicU64::new(0),
        }));
        hold.extend(expires);
        hold
    }

    /// How much is left, from the moment at which the last successful renewal was *sent*. Zero once the hold has
    /// ended, for good: a later time of leading has a hold of its own.
    pub fn remaining(&self, now: Instant) -> Duration {
        let expires = Duration::from_nanos(self.0.expires.load(Ordering::Acquire));
        expires.saturating_sub(now.saturating_duration_since(self.0.since))
    }

    /// How the leases were free before: the most doubtful of them. After [`Previous::Expired`] wait out the write timeout before deciding.
    pub fn previous(&self) -> Previous {
        self.0.previous
    }

    /// `leaseTransitions` of the primary lease.
    pub fn transitions(&self) -> i32 {
        self.0.transitions
    }

    /// As whom the leases are held.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// When leading began.
    pub fn since(&self) -> Instant {
        self.0.since
    }

    fn extend(&self, expires: Instant) {
        let nanos = expires.saturating_duration_since(self.0.since).as_nanos();
        self.0
            .expires
            .store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn end(&self) {
        self.0.expires.store(0, Ordering::Release);
    }
}

impl PartialEq for Hold {
    /// The same time of leading.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("identity", &self.0.identity)
            .field("previous", &self.0.previous)
            .field("transitions", &self.0.transitions)
            .finish_non_exhaustive()
    }
}

label_set! {
    /// Labels of a lease.
    pub struct LeaseLabels { name }
}

label_set! {
    /// Labels of the attempts on a lease.
    pub struct LeaseAttemptLabels { name, result }
}

/// What an election counts.
#[derive(Clone, Debug)]
pub struct LeaseMetrics {
    /// 1 for the leader, 0 for a standby; the name is the primary lease's, as controller-runtime has it.
    pub status: Gauge<LeaseLabels<'static>>,
    /// Attempts on each lease, by `held`, `waiting`, `free`, `skipped` or `failed`.
    pub attempts: Counter<LeaseAttemptLabels<'static>>,
}

impl LeaseMetrics {
    /// Makes the metrics known to `registry`.
    ///
    /// # Errors
    ///
    /// When they were registered before.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            status: Gauge::register(
                registry,
                "leader_election_master_status",
                "Whether this process leads under the lease of that name: 1 it does, 0 it is a standby.",
            )?,
            attempts: Counter::register(
                registry,
                "sluice_lease_attempts_total",
                "Attempts to take or renew a lease, by how they ended.",
            )?,
        })
    }
}
