//! Keeps the [`World`] at what the watches say.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::core::PartialObjectMeta;
use serde::{Deserialize, Deserializer};
use sluice_admission::{KnownJob, World};
use sluice_api::labels::{MANAGED_NAMESPACE, QUEUE_NAME};
use sluice_api::v1beta2::{ClusterQueue, LocalQueue};
use sluice_runtime::watch::{Change, ObjectKey, PumpConfig, Watches};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Changes that wait for the world at most; more wait in their watches.
const BACKLOG: usize = 1024;

/// The world, shared between the task that keeps it and the reviews that read it.
#[derive(Debug, Clone)]
pub struct SharedWorld(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    world: RwLock<World>,
    /// Whether everything that there is has been read once.
    complete: AtomicBool,
}

impl SharedWorld {
    /// Shares a world that is known as a whole.
    pub fn new(world: World) -> Self {
        let shared = Self::to_be_read(world);
        shared.set_complete();
        shared
    }

    /// Shares a world that is still being read.
    pub fn to_be_read(world: World) -> Self {
        Self(Arc::new(Shared {
            world: RwLock::new(world),
            complete: AtomicBool::new(false),
        }))
    }

    /// From now on reviews may rest on it.
    pub fn set_complete(&self) {
        self.0.complete.store(true, Ordering::Release);
    }

    /// Whether reviews may rest on it.
    pub fn is_complete(&self) -> bool {
        self.0.complete.load(Ordering::Acquire)
    }

    /// The world for the time of a review.
    pub fn read(&self) -> RwLockReadGuard<'_, World> {
        // A panic while the world is held leaves it as it was between two of its own, complete changes.
        self.0.world.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world to change.
    pub fn write(&self) -> RwLockWriteGuard<'_, World> {
        self.0.world.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which kinds the world is complete in.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    namespaces: AtomicBool,
    local_queues: AtomicBool,
    cluster_queues: AtomicBool,
    jobs: AtomicBool,
}

impl Taken {
    /// For readiness: which kinds are still missing.
    ///
    /// # Errors
    ///
    /// The names of the kinds that are not complete.
    pub(crate) fn check(&self) -> Result<String, String> {
        let kinds = [
            ("namespaces", &self.namespaces),
            ("localqueues", &self.local_queues),
            ("clusterqueues", &self.cluster_queues),
            ("jobs", &self.jobs),
        ];
        let missing: Vec<&str> = kinds
            .iter()
            .filter(|(_, taken)| !taken.load(Ordering::Acquire))
            .map(|(name, _)| *name)
            .collect();
        if missing.is_empty() {
            Ok(String::new())
        } else {
            Err(format!("still reading {}", missing.join(", ")))
        }
    }

    /// Whether nothing is missing.
    pub(crate) fn is_complete(&self) -> bool {
        self.check().is_ok()
    }
}

/// The part of a Job that matters to the Jobs it owns.
///
/// The whole Job is not asked for as metadata only, because one that another controller runs (`spec.managedBy`) takes no
/// Job that it owns out of its queue.
#[derive(Debug, Clone, Resource, Deserialize)]
#[resource(inherit = "k8s_openapi::api::batch::v1::Job")]
struct OwnerJob {
    #[serde(default, deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: OwnerJobSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerJobSpec {
    managed_by: Option<String>,
}

fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    struct Slim {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let slim = Slim::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        labels: slim.labels,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}

enum Event {
    Namespace(Change<PartialObjectMeta<Namespace>>),
    LocalQueue(Change<LocalQueue>),
    ClusterQueue(Change<PartialObjectMeta<ClusterQueue>>),
    Job(Change<OwnerJob>),
}

/// Starts the watches and the task that follows them.
pub(crate) fn follow(watches: &Watches, world: SharedWorld) -> (Arc<Taken>, JoinHandle<()>) {
    let (sink, mut events) = mpsc::channel(BACKLOG);
    watches.spawn(PumpConfig::default(), sink.clone(), Event::Namespace);
    watches.spawn(PumpConfig::default(), sink.clone(), Event::LocalQueue);
    watches.spawn(PumpConfig::default(), sink.clone(), Event::ClusterQueue);
    watches.spawn(PumpConfig::default(), sink, Event::Job);
    let taken = Arc::new(Taken::default());
    let task = tokio::spawn({
        let taken = Arc::clone(&taken);
        async move {
            let mut batch = Vec::with_capacity(BACKLOG);
            while events.recv_many(&mut batch, BACKLOG).await > 0 {
                let mut world = world.write();
                for event in batch.drain(..) {
                    apply(&mut world, &taken, event);
                }
            }
        }
    });
    (taken, task)
}

fn apply(world: &mut World, taken: &Taken, event: Event) {
    match event {
        Event::Namespace(change) => fold(
            world,
            &taken.namespaces,
            change,
            |world, namespace| {
                let opt_in = namespace
                    .metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get(MANAGED_NAMESPACE));
                let name = namespace.metadata.name.as_deref().unwrap_or_default();
                world.set_namespace(name, opt_in.map(String::as_str));
            },
            |world, key| world.remove_namespace(&key.name),
        ),
        Event::LocalQueue(change) => fold(
            world,
            &taken.local_queues,
            change,
            |world, queue| {
                let key = ObjectKey::of(&queue.metadata);
                world.set_local_queue(
                    &key.namespace,
                    &key.name,
                    queue.spec.cluster_queue.as_deref().unwrap_or_default(),
                );
            },
            |world, key| world.remove_local_queue(&key.namespace, &key.name),
        ),
        Event::ClusterQueue(change) => fold(
            world,
            &taken.cluster_queues,
            change,
            |world, queue| world.set_cluster_queue(queue.metadata.name.as_deref().unwrap_or_default()),
            |world, key| world.remove_cluster_queue(&key.name),
        ),
        Event::Job(change) => fold(
            world,
            &taken.jobs,
            change,
            |world, job| {
                let key = ObjectKey::of(&job.metadata);
                world.set_job(&key.namespace, &key.name, known(job));
            },
            |world, key| world.remove_job(&key.namespace, &key.name),
        ),
    }
}

/// Applies one change of a kind. What does not decode stays as it was last understood.
fn fold<K>(
    world: &mut World,
    taken: &AtomicBool,
    change: Change<K>,
    set: impl Fn(&mut World, K),
    remove: impl Fn(&mut World, &ObjectKey),
) {
    match change {
        Change::Apply(object) => set(world, object),
        Change::Delete { key, .. } => remove(world, &key),
        Change::Reset { live, removed, .. } => {
            // First what is gone: an object may exist again under its old name.
            for key in &removed {
                remove(world, key);
            }
            for object in live {
                set(world, object);
            }
            taken.store(true, Ordering::Release);
        }
        Change::Broken(_) => {}
    }
}

fn known(job: OwnerJob) -> KnownJob {
    let owners = job.metadata.owner_references.unwrap_or_default();
    KnownJob {
        uid: job.metadata.uid.unwrap_or_default(),
        queue_name: job.metadata.labels.and_then(|mut labels| labels.remove(QUEUE_NAME)),
        managed_by: job.spec.managed_by,
        owner: owners.into_iter().find(|owner| owner.controller == Some(true)),
    }
}
