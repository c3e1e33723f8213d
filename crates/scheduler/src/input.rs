//! What the watches deliver, in one channel.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::PartialObjectMeta;
use sluice_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass};
use sluice_engine::Time;
use sluice_index::Index;
use sluice_jobs::view::JobView;
use sluice_runtime::watch::{Broken, Change, ObjectKey};

/// A change of any watched kind.
#[derive(Debug)]
pub(crate) enum Input {
    Job(Change<JobView>),
    Namespace(Change<PartialObjectMeta<Namespace>>),
    ClusterQueue(Change<ClusterQueue>),
    Cohort(Change<Cohort>),
    LocalQueue(Change<LocalQueue>),
    Flavor(Change<ResourceFlavor>),
    WorkloadPriorityClass(Change<WorkloadPriorityClass>),
    PriorityClass(Change<PriorityClass>),
}

impl Input {
    /// Tells the index.
    pub(crate) fn apply(self, index: &mut Index, now: Time) {
        match self {
            Self::Job(change) => each(
                change,
                index,
                |index, job| {
                    index.set_job(job, now);
                },
                |index, key| index.delete_job(&key.namespace, &key.name, &key.uid, now),
            ),
            Self::Namespace(change) => each(
                change,
                index,
                |index, namespace| {
                    let meta = namespace.metadata;
                    let labels: BTreeMap<String, String> = meta.labels.unwrap_or_default();
                    index.set_namespace(meta.name.as_deref().unwrap_or_default(), labels, now);
                },
                |index, key| index.delete_namespace(&key.name, now),
            ),
            Self::ClusterQueue(change) => each(
                change,
                index,
                |index, queue| index.set_cluster_queue(queue, now),
                |index, key| index.delete_cluster_queue(&key.name),
            ),
            Self::Cohort(change) => each(
                change,
                index,
                |index, cohort| index.set_cohort(cohort, now),
                |index, key| index.delete_cohort(&key.name, now),
            ),
            Self::LocalQueue(change) => each(
                change,
                index,
                |index, queue| index.set_local_queue(queue, now),
                |index, key| index.delete_local_queue(&key.namespace, &key.name),
            ),
            Self::Flavor(change) => each(
                change,
                index,
                |index, flavor| index.set_flavor(flavor, now),
                |index, key| index.delete_flavor(&key.name),
            ),
            Self::WorkloadPriorityClass(change) => each(
                change,
                index,
                |index, class| index.set_workload_priority_class(&class, now),
                |index, key| index.delete_workload_priority_class(&key.name, now),
            ),
            Self::PriorityClass(change) => each(
                change,
                index,
                |index, class| index.set_priority_class(&class, now),
                |index, key| index.delete_priority_class(&key.name, now),
            ),
        }
    }
}

fn each<K>(
    change: Change<K>,
    index: &mut Index,
    mut set: impl FnMut(&mut Index, K),
    mut delete: impl FnMut(&mut Index, &ObjectKey),
) {
    match change {
        Change::Apply(object) => set(index, object),
        Change::Delete { key, .. } => delete(index, &key),
        Change::Reset { live, removed, broken } => {
            for key in &removed {
                delete(index, key);
            }
            for object in live {
                set(index, object);
            }
            broken.iter().for_each(say_broken);
        }
        // What was known of it before stays in force: an object nobody can read must not free what it holds.
        Change::Broken(broken) => say_broken(&broken),
    }
}

fn say_broken(broken: &Broken) {
    tracing::error!(
        object = %broken.key,
        error = broken.error,
        "an object cannot be read; what was known of it before stays in force, fix or delete it"
    );
}
