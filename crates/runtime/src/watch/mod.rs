//! The shared informer of a process: one watch a kind, delivered in order to one bounded channel.
//!
//! Built on kube's [`watcher`](kube::runtime::watcher()) and not on its shared reflector, which forwards no deletions. On top of it:
//! objects that a relist no longer shows are named as removed; an object that does not decode is delivered
//! as [`Change::Broken`] and stops nobody; a server without streaming lists gets lists; a kind whose CRD is missing is
//! asked for until it appears. A slow consumer slows its own watches down and nothing else.
//!
//! ```no_run
//! # use k8s_openapi::api::batch::v1::Job;
//! # use k8s_openapi::api::core::v1::Namespace;
//! # use kube::core::PartialObjectMeta;
//! # use sluice_runtime::{client::Clients, shutdown, watch::{Change, PumpConfig, Watches}};
//! # async fn example(clients: Clients, registry: prometheus::Registry) -> Result<(), Box<dyn std::error::Error>> {
//! enum Event {
//!     Job(Change<Job>),
//!     Namespace(Change<PartialObjectMeta<Namespace>>),
//! }
//! let (_trigger, shutdown) = shutdown::on_signals()?;
//! let (sink, mut events) = tokio::sync::mpsc::channel(1024);
//! let watches = Watches::new(clients.watch()?, &registry, shutdown)?;
//! watches.spawn(PumpConfig::default(), sink.clone(), Event::Job);
//! watches.spawn(PumpConfig::default(), sink, Event::Namespace); // metadata only is asked for
//! let readiness = watches.synced();
//! while let Some(event) = events.recv().await { /* ... */ }
//! # Ok(()) }
//! ```

mod backoff;
mod guard;
mod pump;
mod synced;
mod tracker;

use std::fmt;
use std::time::Duration;

use kube::core::ObjectMeta;
use kube::{Client, Resource};
use prometheus::Registry;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use backoff::Backoff;
pub use pump::pump;
pub use synced::{KindState, KindStatus, SyncHandle, Synced};

use crate::label_set;
use crate::metrics::{Counter, Gauge};
use crate::shutdown::Shutdown;

/// Which incarnation of which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid; empty where the server gave none.
    pub uid: String,
}

impl ObjectKey {
    /// The key of an object.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object that exists and does not decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which object.
    pub key: ObjectKey,
    /// Its version; empty where the server gave none.
    pub resource_version: String,
    /// What the decoder says.
    pub error: String,
}

/// One step of a kind's history.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// Created or changed.
    Apply(K),
    /// Gone.
    Delete {
        /// Which object.
        key: ObjectKey,
        /// How it last was; `None` if that does not decode.
        last: Option<K>,
    },
    /// Everything there is, at the start and whenever the history was cut (410 Gone, a long disconnect).
    ///
    /// Replaces all that was known of the kind.
    Reset {
        /// All objects that decode.
        live: Vec<K>,
        /// What had been delivered and is gone, or exists again under another uid; sorted.
        removed: Vec<ObjectKey>,
        /// What exists and does not decode; not in `removed`.
        broken: Vec<Broken>,
    },
    /// An object was created or changed, and does not decode: what is known of it is out of date.
    Broken(Broken),
}

/// What to watch, and how patiently. The default is every object of a required kind.
#[derive(Clone, Debug)]
pub struct PumpConfig {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only objects with these labels (selector grammar of kubectl).
    pub labels: Option<String>,
    /// Only objects with these fields (selector grammar of kubectl).
    pub fields: Option<String>,
    /// The process can work without the kind: readiness does not wait for it while its CRD is missing.
    pub optional: bool,
    /// After this the server ends a watch and it is resumed; 5 s of silence later it is taken for dead.
    pub watch_timeout: Duration,
    /// Longest silence inside a list before it is given up. A streaming list that stalls is replaced by plain lists.
    pub list_stall: Duration,
    /// First pause after an error; doubles up to [`Self::longest_pause`].
    pub first_pause: Duration,
    /// Longest pause between attempts, a missing CRD included.
    pub longest_pause: Duration,
    /// Whether to begin with streaming lists; without them the first attempt is a plain list.
    pub streaming_lists: bool,
}

impl Default for PumpConfig {
    fn default() -> Self {
        Self {
            namespace: None,
            labels: None,
            fields: None,
            optional: false,
            watch_timeout: Duration::from_secs(290),
            list_stall: Duration::from_secs(75),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(15),
            streaming_lists: true,
        }
    }
}

impl PumpConfig {
    /// Every object of a kind that may be missing from the cluster.
    pub fn optional() -> Self {
        Self {
            optional: true,
            ..Self::default()
        }
    }
}

label_set! {
    /// Labels of a watch.
    pub struct WatchLabels { kind }
}

label_set! {
    /// Labels of the changes and errors of a watch.
    pub struct WatchEventLabels { kind, event }
}

/// What the watches of a process count.
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    /// Changes delivered, by kind and `apply`, `delete`, `reset` or `broken`.
    pub changes: Counter<WatchEventLabels<'static>>,
    /// Errors met, by kind and cause.
    pub errors: Counter<WatchEventLabels<'static>>,
    /// Objects known.
    pub objects: Gauge<WatchLabels<'static>>,
    /// Delivered by the watch and not yet taken by the consumer is at most the channel; this counts waits for room in it.
    pub waits: Counter<WatchLabels<'static>>,
}

impl WatchMetrics {
    /// Makes the metrics known to `registry`.
    ///
    /// # Errors
    ///
    /// When they were registered before.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            changes: Counter::register(
                registry,
                "sluice_watch_changes_total",
                "Changes delivered by the watch of a kind.",
            )?,
            errors: Counter::register(
                registry,
                "sluice_watch_errors_total",
                "Errors met by the watch of a kind, by cause.",
            )?,
            objects: Gauge::register(
                registry,
                "sluice_watch_objects",
                "Objects of a kind that the process knows.",
            )?,
            waits: Counter::register(
                registry,
                "sluice_watch_channel_full_total",
                "Times the watch of a kind waited for its consumer.",
            )?,
        })
    }
}

/// The watches of a process: what they share.
#[derive(Clone)]
pub struct Watches {
    client: Client,
    metrics: WatchMetrics,
    synced: Synced,
    shutdown: Shutdown,
}

impl Watches {
    /// Prepares to watch through `client` (see [`Clients::watch`](crate::client::Clients::watch)) until `shutdown`.
    ///
    /// # Errors
    ///
    /// When the metrics were registered before.
    pub fn new(client: Client, registry: &Registry, shutdown: Shutdown) -> prometheus::Result<Self> {
        Ok(Self {
            client,
            metrics: WatchMetrics::register(registry)?,
            synced: Synced::default(),
            shutdown,
        })
    }

    /// Watches of the same process whose completeness nobody else waits for.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self {
            synced: Synced::default(),
            ..self.clone()
        }
    }

    /// Which kinds are complete.
    pub fn synced(&self) -> Synced {
        self.synced.clone()
    }

    /// Starts the watch of kind `K`. It ends at shutdown, or when the receiver of `sink` is dropped.
    ///
    /// The kind is waited for by [`Self::synced`] from the moment this returns.
    pub fn spawn<K, E, F>(&self, config: PumpConfig, sink: mpsc::Sender<E>, wrap: F) -> JoinHandle<()>
    where
        K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
        E: Send + 'static,
        F: Fn(Change<K>) -> E + Send + Sync + 'static,
    {
        let handle = self.synced.expect(kind_name::<K>(), config.optional);
        let (client, metrics, shutdown) = (self.client.clone(), self.metrics.clone(), self.shutdown.clone());
        tokio::spawn(async move { pump(client, config, sink, wrap, &metrics, &handle, &shutdown).await })
    }
}

/// Kind with its group, as logs, metrics and readiness name it: `Job.batch`, `Namespace`.
pub fn kind_name<K: Resource<DynamicType = ()>>() -> String {
    let group = K::group(&());
    if group.is_empty() {
        K::kind(&()).into_owned()
    } else {
        format!("{}.{group}", K::kind(&()))
    }
}

#[cfg(test)]
mod tests;
