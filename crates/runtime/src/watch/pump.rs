//! The loop around kube's watcher.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::core::Status;
use kube::runtime::watcher::{self, Event, InitialListStrategy, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::guard::Guarded;
use super::tracker::Tracker;
use super::{
    Backoff, Change, KindState, PumpConfig, SyncHandle, WatchEventLabels, WatchLabels, WatchMetrics, kind_name,
};
use crate::shutdown::Shutdown;
use crate::telemetry::chain;

/// Watches kind `K` and delivers every change, in order, until shutdown or until nobody receives.
///
/// [`Watches::spawn`](super::Watches::spawn) is the usual way in. Waits for room in `sink`, so a consumer that falls behind slows this watch
/// down; the API server then drops it and the watch goes on with a relist.
pub async fn pump<K, E, F>(
    client: Client,
    config: PumpConfig,
    sink: mpsc::Sender<E>,
    wrap: F,
    metrics: &WatchMetrics,
    synced: &SyncHandle,
    shutdown: &Shutdown,
) where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    F: Fn(Change<K>) -> E,
{
    let url = K::url_path(&(), config.namespace.as_deref());
    let mut pump = Pump {
        kind: kind_name::<K>(),
        tracker: Tracker::default(),
        backoff: Backoff::new(config.first_pause, config.longest_pause),
        streaming: config.streaming_lists,
        config,
        client,
        sink,
        wrap,
        metrics,
        synced,
        complained: None,
    };
    tracing::debug!(kind = pump.kind, url, "watching");
    let run = async { while pump.follow().await.is_continue() {} };
    tokio::select! {
        biased;
        () = shutdown.triggered() => {}
        () = run => {}
    }
}

struct Pump<'a, K, E, F> {
    kind: String,
    tracker: Tracker<K>,
    backoff: Backoff,
    streaming: bool,
    config: PumpConfig,
    client: Client,
    sink: mpsc::Sender<E>,
    wrap: F,
    metrics: &'a WatchMetrics,
    synced: &'a SyncHandle,
    /// The error last logged, so that one that lasts is logged once.
    complained: Option<String>,
}

/// What an error asks for.
enum Remedy {
    /// The watcher recovers by itself once it is polled again.
    Again,
    /// Only a new list helps.
    Relist,
    /// The server refuses streaming lists.
    PlainLists,
}

impl<K, E, F> Pump<'_, K, E, F>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    F: Fn(Change<K>) -> E,
{
    /// Follows one watcher until it has to be replaced (`Continue`) or nobody listens any more (`Break`).
    async fn follow(&mut self) -> ControlFlow<()> {
        let mut stream = pin!(watcher(self.api(), self.watcher_config()));
        loop {
            match self.next(&mut stream).await? {
                None => {
                    let was_streaming = std::mem::replace(&mut self.streaming, false);
                    self.fail(
                        "list_stalled",
                        "a list stalled",
                        KindState::Failing("the list stalled".into()),
                    );
                    if !was_streaming {
                        self.pause(None).await;
                    }
                    return ControlFlow::Continue(());
                }
                Some(Ok(event)) => self.deliver(event).await?,
                Some(Err(error)) => match self.judge(&error) {
                    Remedy::Again => self.pause(retry_after(&error)).await,
                    Remedy::Relist => {
                        self.pause(retry_after(&error)).await;
                        return ControlFlow::Continue(());
                    }
                    Remedy::PlainLists => {
                        tracing::info!(
                            kind = self.kind,
                            "the API server refuses streaming lists: listing instead"
                        );
                        self.streaming = false;
                        return ControlFlow::Continue(());
                    }
                },
            }
        }
    }

    fn api(&self) -> Api<Guarded<K>> {
        match &self.config.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &()),
            None => Api::all_with(self.client.clone(), &()),
        }
    }

    fn watcher_config(&self) -> watcher::Config {
        watcher::Config {
            label_selector: self.config.labels.clone(),
            field_selector: self.config.fields.clone(),
            timeout: Some(
                u32::try_from(self.config.watch_timeout.as_secs())
                    .unwrap_or(u32::MAX)
                    .max(1),
            ),
            initial_list_strategy: if self.streaming {
                InitialListStrategy::StreamingList
            } else {
                InitialListStrategy::ListWatch
            },
            ..watcher::Config::default()
        }
    }

    /// The next item; `None` when a list has been silent for too long.
    async fn next<S, T>(&mut self, stream: &mut S) -> ControlFlow<(), Option<T>>
    where
        S: Stream<Item = T> + Unpin,
    {
        let item = async {
            if self.tracker.is_listing() {
                // The watcher's own idle timeout begins only with an open watch.
                tokio::time::timeout(self.config.list_stall, stream.next())
                    .await
                    .unwrap_or(None)
            } else {
                stream.next().await
            }
        };
        tokio::select! {
            biased;
            () = self.sink.closed() => ControlFlow::Break(()),
            item = item => ControlFlow::Continue(item),
        }
    }

    async fn deliver(&mut self, event: Event<Guarded<K>>) -> ControlFlow<()> {
        match &event {
            // A list that ends without its end makes the watcher start again at once, for ever.
            Event::Init if self.tracker.is_listing() => self.pause(None).await,
            Event::Init | Event::InitApply(_) => {}
            Event::InitDone | Event::Apply(_) | Event::Delete(_) => self.recovered(),
        }
        let Some(change) = self.tracker.take(event) else {
            return ControlFlow::Continue(());
        };
        let is_reset = self.note(&change);
        let change = (self.wrap)(change);
        let sent = match self.sink.try_send(change) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(change)) => {
                self.metrics.waits.inc(&WatchLabels { kind: &self.kind });
                self.sink.send(change).await.map_err(drop)
            }
            Err(TrySendError::Closed(_)) => Err(()),
        };
        if sent.is_err() {
            return ControlFlow::Break(());
        }
        if is_reset {
            self.synced.set(KindState::Synced);
        }
        ControlFlow::Continue(())
    }

    /// Counts and logs a change; true for a reset.
    fn note(&self, change: &Change<K>) -> bool {
        let kind = self.kind.as_str();
        let mut is_reset = false;
        let event = match change {
            Change::Apply(_) => "apply",
            Change::Delete { .. } => "delete",
            Change::Broken(broken) => {
                tracing::warn!(kind, object = %broken.key, error = broken.error, "an object does not decode");
                "broken"
            }
            Change::Reset { live, removed, broken } => {
                is_reset = true;
                let (live, removed) = (live.len(), removed.len());
                tracing::info!(kind, live, removed, broken = broken.len(), "listed");
                for broken in broken {
                    tracing::warn!(kind, object = %broken.key, error = broken.error, "an object does not decode");
                }
                "reset"
            }
        };
        self.metrics.changes.inc(&WatchEventLabels { kind, event });
        #[allow(clippy::cast_precision_loss)] // exact up to 2^53 objects
        self.metrics
            .objects
            .set(&WatchLabels { kind }, self.tracker.len() as f64);
        is_reset
    }

    fn judge(&mut self, error: &watcher::Error) -> Remedy {
        let status = status_of(error);
        let code = status.map_or(0, |status| status.code);
        let starting = matches!(error, watcher::Error::WatchStartFailed(_));
        if self.streaming && starting && matches!(code, 400 | 422) {
            self.metrics.errors.inc(&WatchEventLabels {
                kind: &self.kind,
                event: "streaming_refused",
            });
            return Remedy::PlainLists;
        }
        let state = if code == 404 {
            KindState::Absent
        } else {
            KindState::Failing(chain(error))
        };
        self.fail(cause(error, code), &chain(error), state);
        if is_undecodable(error) {
            // An event without so much as a name is lost, and with it the claim to know everything.
            self.streaming = false;
            return Remedy::Relist;
        }
        // kube's watcher resumes for ever from a version that is gone when the refusal is an answer, not an event.
        if starting && code == 410 {
            Remedy::Relist
        } else {
            Remedy::Again
        }
    }

    fn fail(&mut self, cause: &str, message: &str, state: KindState) {
        let kind = self.kind.as_str();
        self.metrics.errors.inc(&WatchEventLabels { kind, event: cause });
        let known = self.complained.as_deref() == Some(cause);
        if known || (state == KindState::Absent && self.config.optional) || cause == "gone" {
            tracing::debug!(kind, cause, error = message, "watch failed");
        } else {
            tracing::warn!(kind, cause, error = message, "watch failed; retrying");
        }
        self.complained = Some(cause.to_owned());
        self.synced.set(state);
    }

    fn recovered(&mut self) {
        self.backoff.reset();
        if self.complained.take().is_some() {
            tracing::info!(kind = self.kind, "watch recovered");
        }
    }

    async fn pause(&mut self, at_least: Option<Duration>) {
        let pause = self.backoff.pause();
        tokio::time::sleep(pause.max(at_least.unwrap_or_default())).await;
    }
}

fn status_of(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// True if a line of the watch was lost. kube tries to read what is no event as a `Status`, whose fields are all
/// optional: such a line mostly comes out as a status that says nothing.
fn is_undecodable(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchFailed(kube::Error::SerdeError(_)) => true,
        watcher::Error::WatchFailed(kube::Error::Api(status)) => status.code == 0,
        _ => false,
    }
}

/// A short name for metrics.
fn cause(error: &watcher::Error, code: u16) -> &'static str {
    match (code, error) {
        (401, _) => "unauthorized",
        (403, _) => "forbidden",
        (404, _) => "not_served",
        (410, _) => "gone",
        (429, _) => "throttled",
        (500.., _) => "server_error",
        (_, watcher::Error::NoResourceVersion) => "undecodable",
        _ if is_undecodable(error) => "undecodable",
        _ => "connection",
    }
}

fn retry_after(error: &watcher::Error) -> Option<Duration> {
    let seconds = status_of(error)?.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}
