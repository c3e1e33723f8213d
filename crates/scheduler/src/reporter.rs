//! What the scheduler tells users: statuses of queues, events on Jobs, the ledger of opt-ins. Never on the critical path.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use sluice_api::v1beta2::{ClusterQueue, Cohort, LocalQueue};
use sluice_engine::LocalQueueKey;
use sluice_index::{Happening, Ledger, Notice, WaitingUnit, WantedStatus};
use sluice_runtime::events::{self, Publisher, Severity};
use sluice_runtime::shutdown::Shutdown;
use tokio::sync::Notify;

use crate::ledger;

/// The reason of an eviction that makes room for another Job.
const PREEMPTED: &str = "Preempted";
/// The reason of an eviction that takes the Job out of queueing.
const DEACTIVATED: &str = "Deactivated";
/// Field manager of the statuses.
const MANAGER: &str = "sluice-scheduler";

/// Which object's status; the newest wanted one of each wins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    ClusterQueue(String),
    Cohort(String),
    LocalQueue(LocalQueueKey),
}

#[derive(Debug, Default)]
struct Desk {
    statuses: BTreeMap<Target, WantedStatus>,
    ledger: Option<Ledger>,
}

/// The brain's end: it only leaves things on the desk.
#[derive(Clone)]
pub(crate) struct Reporter {
    desk: Arc<Mutex<Desk>>,
    news: Arc<Notify>,
    events: Publisher,
}

/// The task's end.
pub(crate) struct Clerk {
    desk: Arc<Mutex<Desk>>,
    news: Arc<Notify>,
    client: Client,
    namespace: String,
    timeout: Duration,
}

impl Reporter {
    pub(crate) fn new(client: Client, namespace: &str, timeout: Duration, events: Publisher) -> (Self, Clerk) {
        let desk = Arc::new(Mutex::new(Desk::default()));
        let news = Arc::new(Notify::new());
        let clerk = Clerk {
            desk: desk.clone(),
            news: news.clone(),
            client,
            namespace: namespace.to_owned(),
            timeout,
        };
        (Self { desk, news, events }, clerk)
    }

    fn leave(&self, put: impl FnOnce(&mut Desk)) {
        put(&mut self.desk.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.notify_one();
    }

    /// A status to be written.
    pub(crate) fn status(&self, status: WantedStatus) {
        let target = match &status {
            WantedStatus::ClusterQueue { name, .. } => Target::ClusterQueue(name.clone()),
            WantedStatus::Cohort { name, .. } => Target::Cohort(name.clone()),
            WantedStatus::LocalQueue { key, .. } => Target::LocalQueue(key.clone()),
        };
        self.leave(|desk| {
            desk.statuses.insert(target, status);
        });
    }

    /// The ledger to be stored.
    pub(crate) fn store_ledger(&self, ledger: Ledger) {
        self.leave(|desk| desk.ledger = Some(ledger));
    }
}

impl Clerk {
    /// Writes what is on the desk, one object at a time, until shutdown.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.triggered() => return,
                () = self.news.notified() => {}
            }
            let (statuses, ledger) = {
                let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
                (std::mem::take(&mut desk.statuses), desk.ledger.take())
            };
            if let Some(ledger) = ledger {
                self.store(ledger).await;
            }
            for status in statuses.into_values() {
                self.write(status).await;
            }
        }
    }

    async fn store(&self, ledger: Ledger) {
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let stored = tokio::time::timeout(self.timeout, ledger::store(&config_maps, &ledger)).await;
        let error = match stored {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "timed out".to_owned(),
        };
        tracing::warn!(
            error,
            "failed to store the ledger of opted-in namespaces; tried again soon"
        );
        tokio::time::sleep(self.timeout.min(Duration::from_secs(1))).await;
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        // A newer one that came meanwhile holds this one too.
        desk.ledger.get_or_insert(ledger);
        self.news.notify_one();
    }

    /// A status that could not be written is wanted again by the brain as long as the object does not show it.
    async fn write(&self, status: WantedStatus) {
        match status {
            WantedStatus::ClusterQueue { name, status } => {
                self.apply_status::<ClusterQueue>(Api::all(self.client.clone()), &name, &status)
                    .await;
            }
            WantedStatus::Cohort { name, status } => {
                self.apply_status::<Cohort>(Api::all(self.client.clone()), &name, &status)
                    .await;
            }
            WantedStatus::LocalQueue { key, status } => {
                let queues = Api::namespaced(self.client.clone(), &key.namespace);
                self.apply_status::<LocalQueue>(queues, &key.name, &status).await;
            }
        }
    }

    async fn apply_status<K>(&self, queues: Api<K>, name: &str, status: &impl Serialize)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let body = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "status": status});
        let (params, patch) = (PatchParams::apply(MANAGER).force(), Patch::Apply(&body));
        let error = match tokio::time::timeout(self.timeout, queues.patch_status(name, &params, &patch)).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        let object = format!("{}/{name}", queues.resource_url());
        tracing::warn!(
            object,
            error,
            "failed to write the status of a queue; written again soon"
        );
    }
}

impl Reporter {
    /// An event about what happened to a Job, where a user wants to know.
    pub(crate) fn event(&self, notice: &Notice) {
        let (severity, reason, message) = match &notice.what {
            Happening::Admitted { waited_ms, flavors } => {
                let seconds = waited_ms / 1_000;
                let queue = &notice.queue;
                (
                    Severity::Normal,
                    "Started",
                    format!("Admitted by ClusterQueue {queue} ({flavors}) after waiting {seconds} s"),
                )
            }
            Happening::Evicted {
                reason, cause, message, ..
            } => return self.evicted(notice, reason, cause, message),
            Happening::SuspendedLate => (
                Severity::Warning,
                "Suspended",
                format!(
                    "It ran without having been admitted; it waits in LocalQueue {} now",
                    notice.local_queue
                ),
            ),
            Happening::Adopted => (
                Severity::Normal,
                "Adopted",
                format!(
                    "It ran when its namespace opted in; ClusterQueue {} is charged for it",
                    notice.queue
                ),
            ),
            Happening::Held => (
                Severity::Normal,
                "Held",
                "Its owner suspended it, so its quota goes back; set spec.suspend to false to queue it again"
                    .to_owned(),
            ),
            Happening::Refused {
                kind,
                message,
                retry_ms,
            } => (
                Severity::Warning,
                "WriteRefused",
                format!(
                    "Failed to {} it, tried again in {} s: {message}",
                    kind.as_str(),
                    retry_ms / 1_000
                ),
            ),
            Happening::UnreadableRecord { message } => (
                Severity::Warning,
                "UnreadableRecord",
                format!("{message}; it runs on and is charged by its template and queue"),
            ),
            Happening::Finished { .. } | Happening::QuotaReturned { .. } => return,
        };
        self.publish(&notice.job.0, &notice.job.1, &notice.uid, severity, reason, message);
    }

    /// An eviction has Kueue's words as the event's reason: `Preempted`, or `EvictedDueTo` and why.
    fn evicted(&self, notice: &Notice, reason: &str, cause: &str, message: &str) {
        let word = match (reason, cause) {
            (PREEMPTED, _) => PREEMPTED.to_owned(),
            (reason, "") => format!("EvictedDueTo{reason}"),
            (reason, cause) => format!("EvictedDueTo{reason}DueTo{cause}"),
        };
        // Its owner has to do something about a Job that comes back by nobody else's doing.
        let severity = if reason == DEACTIVATED {
            Severity::Warning
        } else {
            Severity::Normal
        };
        let sentence = format!("Evicted: {message}");
        self.publish(&notice.job.0, &notice.job.1, &notice.uid, severity, &word, sentence);
    }

    /// An event that says why a Job waits.
    pub(crate) fn waiting(&self, unit: &WaitingUnit) {
        self.publish(
            &unit.job.0,
            &unit.job.1,
            &unit.uid,
            Severity::Warning,
            unit.kind.as_str(),
            unit.message.clone(),
        );
    }

    fn publish(&self, namespace: &str, name: &str, uid: &str, severity: Severity, reason: &str, note: String) {
        let regarding = ObjectReference {
            api_version: Some(Job::api_version(&()).into_owned()),
            kind: Some(Job::kind(&()).into_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        self.events.publish(events::Notice {
            regarding,
            severity,
            reason: reason.to_owned(),
            action: reason.to_owned(),
            note,
        });
    }
}
