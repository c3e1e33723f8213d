//! What the rules know about the cluster, kept in memory by whoever watches it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use rustc_hash::FxHashMap;
use sluice_api::labels::MANAGED_NAMESPACE_VALUE;
use sluice_jobs::managed::{OwnerJob, resolve_owner};
use sluice_jobs::{JobFacts, Managed, NamespaceFacts, Owner, managed};

use crate::job::Job;
use crate::review::Request;

/// Names that the installation gives.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The namespace that Sluice itself runs in; its Jobs are never managed.
    pub own_namespace: String,
    /// Users that the scheduler writes as. Their writes are never changed.
    pub scheduler_users: BTreeSet<String>,
    /// Users that an administrator trusts to repair Jobs by hand. Their updates are never changed.
    pub break_glass_users: BTreeSet<String>,
    /// Groups whose members an administrator trusts in the same way.
    pub break_glass_groups: BTreeSet<String>,
}

/// Namespaces, queues and Jobs as last seen. Filled from watches; reviews only read it.
#[derive(Debug, Default)]
pub struct World {
    settings: Settings,
    /// Opt-in label of each namespace, if it has one.
    namespaces: FxHashMap<String, Option<String>>,
    /// Namespace, name, ClusterQueue.
    local_queues: FxHashMap<String, BTreeMap<String, String>>,
    cluster_queues: BTreeSet<String>,
    /// Namespace, name.
    jobs: FxHashMap<String, FxHashMap<String, KnownJob>>,
}

/// What is kept of a Job, in case it owns another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownJob {
    /// Its uid.
    pub uid: String,
    /// Its queue label, if it carries one.
    pub queue_name: Option<String>,
    /// Its `spec.managedBy`.
    pub managed_by: Option<String>,
    /// The owner that controls it.
    pub owner: Option<OwnerReference>,
}

/// What is known about the queue that a Job names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Queue<'a> {
    /// There is no such LocalQueue.
    Missing,
    /// Its ClusterQueue, of this name, does not exist.
    Unpaid(&'a str),
    /// It points to a ClusterQueue that exists.
    Whole,
}

impl World {
    /// An empty world.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// A namespace exists, with this value of the opt-in label or without the label.
    pub fn set_namespace(&mut self, name: &str, opt_in: Option<&str>) {
        self.namespaces.insert(name.to_owned(), opt_in.map(str::to_owned));
    }

    /// A namespace is gone.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// A LocalQueue exists and points to this ClusterQueue; empty if it points to none.
    pub fn set_local_queue(&mut self, namespace: &str, name: &str, cluster_queue: &str) {
        let queues = self.local_queues.entry(namespace.to_owned()).or_default();
        queues.insert(name.to_owned(), cluster_queue.to_owned());
    }

    /// A LocalQueue is gone.
    pub fn remove_local_queue(&mut self, namespace: &str, name: &str) {
        if let Some(queues) = self.local_queues.get_mut(namespace) {
            queues.remove(name);
            if queues.is_empty() {
                self.local_queues.remove(namespace);
            }
        }
    }

    /// A ClusterQueue exists.
    pub fn set_cluster_queue(&mut self, name: &str) {
        self.cluster_queues.insert(name.to_owned());
    }

    /// A ClusterQueue is gone.
    pub fn remove_cluster_queue(&mut self, name: &str) {
        self.cluster_queues.remove(name);
    }

    /// A Job exists.
    pub fn set_job(&mut self, namespace: &str, name: &str, job: KnownJob) {
        self.jobs
            .entry(namespace.to_owned())
            .or_default()
            .insert(name.to_owned(), job);
    }

    /// A Job is gone.
    pub fn remove_job(&mut self, namespace: &str, name: &str) {
        if let Some(jobs) = self.jobs.get_mut(namespace) {
            jobs.remove(name);
            if jobs.is_empty() {
                self.jobs.remove(namespace);
            }
        }
    }

    /// Whether a user's writes are to be left as they are.
    pub(crate) fn is_exempt(&self, request: &Request) -> bool {
        let Settings {
            scheduler_users,
            break_glass_users,
            break_glass_groups,
            ..
        } = &self.settings;
        scheduler_users.contains(&request.username)
            || break_glass_users.contains(&request.username)
            || request.groups.iter().any(|group| break_glass_groups.contains(group))
    }

    /// What decides for a namespace.
    ///
    /// A namespace that is not known yet was made a moment ago. It counts as opted in: the API server, which reads
    /// selectors from its own, newer view, sends Jobs only from opted-in namespaces or with the queue label.
    pub(crate) fn namespace<'a>(&'a self, name: &'a str) -> NamespaceFacts<'a> {
        let opt_in = match self.namespaces.get(name) {
            Some(label) => label.as_deref(),
            None => Some(MANAGED_NAMESPACE_VALUE),
        };
        NamespaceFacts {
            name,
            opt_in,
            own_namespace: &self.settings.own_namespace,
        }
    }

    /// Whether a Job of this namespace is managed.
    pub(crate) fn managed(&self, namespace: &str, job: &Job<'_>) -> Managed {
        let namespace = self.namespace(namespace);
        managed(&namespace, &job.facts(), self.owner(&namespace, job.owner.as_ref()))
    }

    /// The state of a queue that a Job of this namespace names.
    pub(crate) fn queue(&self, namespace: &str, name: &str) -> Queue<'_> {
        match self.local_queues.get(namespace).and_then(|queues| queues.get(name)) {
            None => Queue::Missing,
            Some(cluster_queue) if self.cluster_queues.contains(cluster_queue) => Queue::Whole,
            Some(cluster_queue) => Queue::Unpaid(cluster_queue),
        }
    }

    /// Names of the LocalQueues of a namespace, in order.
    pub(crate) fn local_queues(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.local_queues
            .get(namespace)
            .into_iter()
            .flat_map(|queues| queues.keys().map(String::as_str))
    }

    fn owner(&self, namespace: &NamespaceFacts<'_>, owner: Option<&OwnerReference>) -> Owner {
        let jobs = self.jobs.get(namespace.name);
        resolve_owner(namespace, owner, |name| {
            let job = jobs?.get(name)?;
            Some(OwnerJob {
                uid: &job.uid,
                facts: JobFacts {
                    queue_name: job.queue_name.as_deref(),
                    managed_by: job.managed_by.as_deref(),
                },
                owner: job.owner.as_ref(),
            })
        })
    }
}
