//! An independent witness of every admission.
//!
//! The referee shares no code with the scheduler's bookkeeping: it watches Jobs,
//! pods and ClusterQueues as an administrator, puts their events in the order of
//! their resourceVersions, and adds up what the records on the Jobs say.

mod ledger;
mod objects;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::background::background;
use crate::plane::Plane;
use ledger::Ledger;

/// How long an event waits for one of an older resourceVersion from another watch.
const REORDERING: Duration = Duration::from_millis(300);

/// Something that must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// An admission took a ClusterQueue over its quota.
    OverQuota {
        /// The Job that was admitted, `namespace/name`.
        job: String,
        /// The ClusterQueue.
        cluster_queue: String,
        /// The flavor.
        flavor: String,
        /// The resource.
        resource: String,
        /// Usage after the admission, a quantity.
        used: String,
        /// The largest quota in force in the seconds before, a quantity.
        quota: String,
    },
    /// A Job was admitted again without having been stopped in between.
    AdmittedTwice {
        /// The Job, `namespace/name`.
        job: String,
    },
    /// A pod was created for a queued Job that had never been admitted.
    PodBeforeAdmission {
        /// The Job, `namespace/name`.
        job: String,
        /// The pod's name.
        pod: String,
    },
    /// A record on a Job could not be read.
    UnreadableRecord {
        /// The Job, `namespace/name`.
        job: String,
        /// Why.
        reason: String,
    },
}

/// The highest usage of one resource of one flavor in one ClusterQueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peak {
    /// Highest usage seen, a quantity.
    pub used: String,
    /// The quota at the end, a quantity; None when the queue has none for it.
    pub quota: Option<String>,
}

/// What the referee has seen so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Everything that must not have happened.
    pub violations: Vec<Violation>,
    /// Highest usage per ClusterQueue, flavor and resource.
    pub peaks: BTreeMap<(String, String, String), Peak>,
    /// Admissions per Job, by `namespace/name`.
    pub admissions: BTreeMap<String, u64>,
}

impl Verdict {
    /// Admissions of all Jobs.
    pub fn total_admissions(&self) -> u64 {
        self.admissions.values().sum()
    }

    /// The verdict, if there is no violation; the error lists them.
    pub fn clean(self) -> Result<Self> {
        anyhow::ensure!(
            self.violations.is_empty(),
            "the referee saw violations: {:#?}",
            self.violations
        );
        Ok(self)
    }
}

/// The watching referee; it stops when dropped.
pub struct Referee {
    ledger: Arc<Mutex<Ledger>>,
    tasks: Vec<JoinHandle<()>>,
}

/// One event of one of the watches.
enum Seen {
    Applied(Kind, Box<DynamicObject>),
    Deleted(Kind, Box<DynamicObject>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Job,
    Pod,
    ClusterQueue,
}

impl Referee {
    /// Starts watching; returns once everything that exists was read.
    ///
    /// The chart must be installed: ClusterQueues are watched.
    pub async fn start(plane: &Plane) -> Result<Self> {
        let admin = plane.admin().clone();
        // Watches and client live in the background, beyond the calling test's runtime.
        let started = background().spawn(async move {
            let client = admin.client().await?;
            let (events, inbox) = mpsc::unbounded_channel();
            let (ready, mut is_ready) = mpsc::channel(3);
            let mut tasks = Vec::new();
            for kind in [Kind::ClusterQueue, Kind::Job, Kind::Pod] {
                tasks.push(tokio::spawn(follow(
                    client.clone(),
                    kind,
                    events.clone(),
                    ready.clone(),
                )));
            }
            for _ in 0..3 {
                is_ready.recv().await;
            }
            let ledger = Arc::new(Mutex::new(Ledger::default()));
            tasks.push(tokio::spawn(judge(inbox, Arc::clone(&ledger))));
            anyhow::Ok(Self { ledger, tasks })
        });
        started.await?
    }

    /// What was seen so far. An event is judged about 0.3 s after it came.
    pub fn verdict(&self) -> Verdict {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).verdict()
    }

    /// Present usage of one resource of one flavor in one ClusterQueue, a quantity.
    pub fn usage(&self, cluster_queue: &str, flavor: &str, resource: &str) -> String {
        self.ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .usage(cluster_queue, flavor, resource)
    }

    /// The verdict after everything that happened until now was judged.
    pub async fn settled(&self) -> Verdict {
        // Not a wait for others: the referee's own delay, and a margin for the watches.
        tokio::time::sleep(REORDERING * 2).await;
        self.verdict()
    }
}

impl Drop for Referee {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn follow(client: Client, kind: Kind, events: mpsc::UnboundedSender<Seen>, ready: mpsc::Sender<()>) {
    let (group, version, name) = match kind {
        Kind::Job => ("batch", "v1", "Job"),
        Kind::Pod => ("", "v1", "Pod"),
        Kind::ClusterQueue => ("kueue.x-k8s.io", "v1beta2", "ClusterQueue"),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, name));
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut stream = Box::pin(watcher(api, watcher::Config::default()));
    while let Some(event) = stream.next().await {
        let seen = match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => Seen::Applied(kind, Box::new(object)),
            Ok(Event::Delete(object)) => Seen::Deleted(kind, Box::new(object)),
            Ok(Event::InitDone) => {
                // Only the first one is waited for.
                let _ = ready.try_send(());
                continue;
            }
            // The watcher starts again by itself.
            Ok(Event::Init) | Err(_) => continue,
        };
        if events.send(seen).is_err() {
            return;
        }
    }
}

/// Judges events in the order of their resourceVersions.
async fn judge(mut inbox: mpsc::UnboundedReceiver<Seen>, ledger: Arc<Mutex<Ledger>>) {
    let mut waiting: BTreeMap<(u64, u64), (Instant, Seen)> = BTreeMap::new();
    let mut arrivals = 0_u64;
    loop {
        let due = waiting.values().map(|(arrived, _)| *arrived + REORDERING).min();
        tokio::select! {
            seen = inbox.recv() => match seen {
                Some(seen) => {
                    arrivals += 1;
                    waiting.insert((seen.resource_version(), arrivals), (Instant::now(), seen));
                }
                None => return,
            },
            () = async { tokio::time::sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                let now = Instant::now();
                // Everything older than the newest event whose time has come, too.
                let Some(last) = waiting
                    .iter()
                    .filter(|(_, (arrived, _))| *arrived + REORDERING <= now)
                    .map(|(key, _)| *key)
                    .max()
                else {
                    continue;
                };
                let rest = waiting.split_off(&(last.0, last.1 + 1));
                let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
                for (arrived, seen) in std::mem::replace(&mut waiting, rest).into_values() {
                    ledger.see(seen, arrived);
                }
            }
        }
    }
}

impl Seen {
    fn resource_version(&self) -> u64 {
        let (Self::Applied(_, object) | Self::Deleted(_, object)) = self;
        object
            .metadata
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or_default()
    }
}
