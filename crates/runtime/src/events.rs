//! Kubernetes Events about objects: told off the critical path, at a bounded rate, repeats gathered.
//!
//! [`Publisher::publish`] never waits: a notice that finds the queue full is dropped and counted. One task writes them
//! through `events.k8s.io/v1`; the same notice about the same object again, within a few minutes, becomes a
//! series of the event already there, written at most once in [`EventLimits::series_pause`]. (kube's `Recorder` keeps
//! the first note for all repeats and walks its whole cache at each call.)

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use prometheus::Registry;
use rustc_hash::FxHashMap;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::label_set;
use crate::metrics::Counter;
use crate::shutdown::Shutdown;
use crate::telemetry::chain;

/// The API server's limits, in bytes.
const LONGEST_NOTE: usize = 1024;
const LONGEST_REASON: usize = 128;
const LONGEST_INSTANCE: usize = 128;
/// Leaves room for a dot and 16 digits in an object name of at most 253 bytes.
const LONGEST_NAME: usize = 236;

/// How serious a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Nothing to worry about.
    Normal,
    /// Worth a look.
    Warning,
}

/// Something to tell about an object.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object; for one of the cluster the event goes to the namespace `default`.
    pub regarding: ObjectReference,
    /// How serious it is.
    pub severity: Severity,
    /// A word in PascalCase for machines, cut at 128 bytes.
    pub reason: String,
    /// What was done or tried, a word in PascalCase, cut at 128 bytes.
    pub action: String,
    /// A sentence for people, cut at 1024 bytes.
    pub note: String,
}

/// In whose name events are written.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// `reportingController`, such as `batch/job-kueue-controller`.
    pub controller: String,
    /// `reportingInstance`: the pod.
    pub instance: String,
}

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct EventLimits {
    /// Notices that may wait.
    pub queue: usize,
    /// Writes a second, in the long run. An event costs the API server about as much as an admission: what is spent here
    /// is missing there.
    pub per_second: f64,
    /// Writes at once after a quiet time.
    pub burst: u32,
    /// Events remembered for repeats; the oldest are forgotten first.
    pub remembered: usize,
    /// How long an event is remembered after its last notice.
    pub memory: Duration,
    /// Shortest time between two writes of one series.
    pub series_pause: Duration,
    /// How long one write may take.
    pub timeout: Duration,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self {
            queue: 10_000,
            per_second: 10.0,
            burst: 50,
            remembered: 4096,
            memory: Duration::from_secs(360),
            series_pause: Duration::from_secs(30),
            timeout: Duration::from_secs(3),
        }
    }
}

label_set! {
    /// Labels of the notices counted.
    pub struct EventLabels { result }
}

/// What became of notices.
#[derive(Clone, Debug)]
pub struct EventMetrics {
    /// By `created`, `series`, `gathered` (counted in a series, not written yet), `failed` or `dropped`.
    pub notices: Counter<EventLabels<'static>>,
}

impl EventMetrics {
    /// Makes the metrics known to `registry`.
    ///
    /// # Errors
    ///
    /// When they were registered before.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            notices: Counter::register(
                registry,
                "sluice_events_total",
                "Notices about objects, by what became of them.",
            )?,
        })
    }

    fn count(&self, result: &str) {
        self.notices.inc(&EventLabels { result });
    }
}

/// Takes notices from anywhere.
#[derive(Clone, Debug)]
pub struct Publisher {
    queue: mpsc::Sender<Notice>,
    metrics: EventMetrics,
}

impl Publisher {
    /// Hands a notice over; never waits, and drops it if too many wait already.
    pub fn publish(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.metrics.count("dropped");
        }
    }
}

/// Starts the writing task. At shutdown, or once every publisher is dropped, it ends; what still waits at shutdown is dropped.
pub fn start(
    client: Client,
    reporter: Reporter,
    limits: EventLimits,
    metrics: EventMetrics,
    shutdown: Shutdown,
) -> (Publisher, JoinHandle<()>) {
    let (queue, notices) = mpsc::channel(limits.queue.max(1));
    let publisher = Publisher {
        queue,
        metrics: metrics.clone(),
    };
    let writer = Writer {
        client,
        reporter,
        limits,
        metrics,
        memory: Memory::new(limits.memory, limits.series_pause, limits.remembered),
        bucket: Bucket::new(limits.per_second, limits.burst, now()),
    };
    let task = tokio::spawn(async move {
        tokio::select! {
            biased;
            () = shutdown.triggered() => {}
            () = writer.run(notices) => {}
        }
    });
    (publisher, task)
}

struct Writer {
    client: Client,
    reporter: Reporter,
    limits: EventLimits,
    metrics: EventMetrics,
    memory: Memory,
    bucket: Bucket,
}

impl Writer {
    async fn run(mut self, mut notices: mpsc::Receiver<Notice>) {
        while let Some(notice) = notices.recv().await {
            let notice = within_limits(notice);
            let key = Key::of(&notice);
            match self.memory.notice(&key, now()) {
                Step::Gather => self.metrics.count("gathered"),
                Step::Series { name, count } => {
                    self.tokens().await;
                    self.write_series(&key, &name, count).await;
                }
                Step::Create => {
                    self.tokens().await;
                    self.create(key, &notice).await;
                }
            }
        }
    }

    async fn tokens(&mut self) {
        while let Err(wait) = self.bucket.take(now()) {
            tokio::time::sleep(wait).await;
        }
    }

    async fn create(&mut self, key: Key, notice: &Notice) {
        let stamp = Timestamp::now();
        let event = event(notice, &self.reporter, stamp);
        let name = event.metadata.name.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(self.client.clone(), &key.namespace);
        let write = async { api.create(&PostParams::default(), &event).await.map(drop) };
        if self.bounded("created", write).await {
            self.memory.created(key, name, now());
        }
    }

    async fn write_series(&mut self, key: &Key, name: &str, count: i32) {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &key.namespace);
        let series = EventSeries {
            count,
            last_observed_time: MicroTime(Timestamp::now()),
        };
        let patch = Patch::Merge(json!({ "series": series }));
        let params = PatchParams::default();
        let write = async { api.patch(name, &params, &patch).await.map(drop) };
        if !self.bounded("series", write).await {
            // The event may have expired on the server: the next notice makes a new one.
            self.memory.forget(key);
        }
    }

    async fn bounded(&self, result: &str, write: impl Future<Output = kube::Result<()>>) -> bool {
        let error = match tokio::time::timeout(self.limits.timeout, write).await {
            Ok(Ok(())) => {
                self.metrics.count(result);
                return true;
            }
            Ok(Err(error)) => chain(&error),
            Err(_elapsed) => "no answer in time".to_owned(),
        };
        self.metrics.count("failed");
        tracing::debug!(error, "failed to write an event");
        false
    }
}

fn event(notice: &Notice, reporter: &Reporter, stamp: Timestamp) -> Event {
    let regarding = &notice.regarding;
    let object = cut(regarding.name.as_deref().unwrap_or("object"), LONGEST_NAME);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{object}.{:016x}", stamp.as_nanosecond())),
            namespace: Some(namespace_of(regarding).to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(stamp)),
        action: Some(notice.action.clone()),
        reason: Some(notice.reason.clone()),
        note: Some(notice.note.clone()),
        regarding: Some(regarding.clone()),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(cut(&reporter.instance, LONGEST_INSTANCE).to_owned()),
        type_: Some(
            match notice.severity {
                Severity::Normal => "Normal",
                Severity::Warning => "Warning",
            }
            .to_owned(),
        ),
        ..Event::default()
    }
}

fn within_limits(notice: Notice) -> Notice {
    Notice {
        reason: cut(&notice.reason, LONGEST_REASON).to_owned(),
        action: cut(&notice.action, LONGEST_REASON).to_owned(),
        note: cut(&notice.note, LONGEST_NOTE).to_owned(),
        ..notice
    }
}

fn namespace_of(regarding: &ObjectReference) -> &str {
    regarding
        .namespace
        .as_deref()
        .filter(|name| !name.is_empty())
        .unwrap_or("default")
}

/// The longest beginning of `text` of at most `limit` bytes that ends between characters.
fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// What makes two notices the same. The note counts: a new reason to wait is news.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    kind: String,
    name: String,
    uid: String,
    severity: Severity,
    reason: String,
    note: String,
}

impl Key {
    fn of(notice: &Notice) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Self {
            namespace: namespace_of(&notice.regarding).to_owned(),
            kind: text(&notice.regarding.kind),
            name: text(&notice.regarding.name),
            uid: text(&notice.regarding.uid),
            severity: notice.severity,
            reason: notice.reason.clone(),
            note: notice.note.clone(),
        }
    }
}

/// What to do about a notice.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Write a new event.
    Create,
    /// Write how often the event of this name was seen by now.
    Series { name: String, count: i32 },
    /// Count it; a later one is written.
    Gather,
}

/// The events written lately.
struct Memory {
    keep: Duration,
    series_pause: Duration,
    limit: usize,
    events: FxHashMap<Key, Remembered>,
    /// In the order of creation, so that the oldest is forgotten without a walk.
    order: VecDeque<Key>,
}

struct Remembered {
    name: String,
    count: i32,
    noticed: Instant,
    written: Instant,
}

impl Memory {
    fn new(keep: Duration, series_pause: Duration, limit: usize) -> Self {
        Self {
            keep,
            series_pause,
            limit: limit.max(1),
            events: FxHashMap::default(),
            order: VecDeque::new(),
        }
    }

    fn notice(&mut self, key: &Key, now: Instant) -> Step {
        let Some(event) = self.events.get_mut(key) else {
            return Step::Create;
        };
        if now.saturating_duration_since(event.noticed) > self.keep {
            self.forget(key);
            return Step::Create;
        }
        event.noticed = now;
        event.count = event.count.saturating_add(1);
        if now.saturating_duration_since(event.written) < self.series_pause {
            return Step::Gather;
        }
        event.written = now;
        Step::Series {
            name: event.name.clone(),
            count: event.count,
        }
    }

    fn created(&mut self, key: Key, name: String, now: Instant) {
        while self.order.len() >= self.limit {
            if let Some(oldest) = self.order.pop_front() {
                self.events.remove(&oldest);
            }
        }
        let event = Remembered {
            name,
            count: 1,
            noticed: now,
            written: now,
        };
        if self.events.insert(key.clone(), event).is_none() {
            self.order.push_back(key);
        }
    }

    fn forget(&mut self, key: &Key) {
        self.events.remove(key);
        self.order.retain(|other| other != key);
    }
}

/// A token bucket on a clock that is passed in.
#[derive(Debug)]
struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    fn new(per_second: f64, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            per_second: per_second.max(0.001),
            burst,
            tokens: burst,
            filled: now,
        }
    }

    /// Takes a token, or says how long until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.filled = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A timer may fire a little early against this clock: never ask for a wait of nothing.
        let wait = Duration::from_secs_f64((1.0 - self.tokens) / self.per_second);
        Err(wait.max(Duration::from_millis(1)))
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
