//! Namespaces: their labels, the Jobs in them, and since when each is opted in.
//!
//! The ledger of opt-ins outlives the process (the scheduler keeps it in a ConfigMap). It tells a Job that ran before
//! Sluice was asked to manage its namespace, which is adopted, from one that slipped past the webhook, which is suspended.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::labels;
use sluice_engine::{Name, Time, Uid};

use crate::Index;

/// Since when namespaces are opted in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    /// When Sluice first led in this cluster; counts for labelled Jobs in namespaces that are not opted in.
    pub since: Option<Time>,
    /// When each opted-in namespace was first seen so.
    pub opted_in: BTreeMap<Name, Time>,
}

#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    labels: BTreeMap<Name, BTreeMap<String, String>>,
    jobs: BTreeMap<Name, BTreeSet<Uid>>,
    ledger: Ledger,
}

impl Namespaces {
    pub(crate) fn labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        self.labels.get(namespace)
    }

    pub(crate) fn add_job(&mut self, namespace: &Name, uid: Uid) {
        self.jobs.entry(namespace.clone()).or_default().insert(uid);
    }

    pub(crate) fn remove_job(&mut self, namespace: &Name, uid: Uid) {
        if let Some(jobs) = self.jobs.get_mut(namespace) {
            jobs.remove(&uid);
            if jobs.is_empty() {
                self.jobs.remove(namespace);
            }
        }
    }

    /// The value of a namespace's opt-in label.
    pub(crate) fn opt_in(&self, namespace: &str) -> Option<&str> {
        self.labels
            .get(namespace)?
            .get(labels::MANAGED_NAMESPACE)
            .map(String::as_str)
    }

    fn is_opted_in(&self, namespace: &str) -> bool {
        self.opt_in(namespace) == Some(labels::MANAGED_NAMESPACE_VALUE)
    }

    /// Whether a Job of this namespace, created then, ran before Sluice was asked to manage it.
    pub(crate) fn predates_opt_in(&self, namespace: &str, created: Time) -> bool {
        let since = if self.is_opted_in(namespace) {
            self.ledger.opted_in.get(namespace).copied()
        } else {
            self.ledger.since
        };
        // What is not noted yet was there first.
        since.is_none_or(|since| created <= since)
    }
}

impl Index {
    /// A Namespace exists and carries these labels.
    pub fn set_namespace(&mut self, name: &str, labels: BTreeMap<String, String>, now: Time) {
        let name = Name::from(name);
        if self.namespaces.labels.get(&name) == Some(&labels) {
            return;
        }
        self.namespaces.labels.insert(name.clone(), labels);
        self.after_namespace(&name, now);
    }

    /// A Namespace is gone.
    pub fn delete_namespace(&mut self, name: &str, now: Time) {
        let name = Name::from(name);
        self.namespaces.labels.remove(&name);
        self.after_namespace(&name, now);
    }

    fn after_namespace(&mut self, name: &Name, now: Time) {
        self.lower_local_queues_of_namespace(name);
        let jobs: Vec<Uid> = self.namespaces.jobs.get(name).into_iter().flatten().copied().collect();
        self.relower_each(jobs, now);
    }

    /// The ledger as it was stored. Call it before [`Index::begin_reign`].
    pub fn set_ledger(&mut self, ledger: Ledger) {
        self.namespaces.ledger = ledger;
    }

    /// Brings the ledger up to date and returns what changed, to be stored. Only the leader may call it,
    /// and once all namespaces are known.
    pub fn update_ledger(&mut self, now: Time) -> Option<&Ledger> {
        let opted_in: BTreeSet<Name> = self
            .namespaces
            .labels
            .keys()
            .filter(|name| self.namespaces.is_opted_in(name))
            .cloned()
            .collect();
        let ledger = &mut self.namespaces.ledger;
        let mut changed = ledger.since.is_none();
        ledger.since.get_or_insert(now);
        let gone: Vec<Name> = ledger
            .opted_in
            .keys()
            .filter(|name| !opted_in.contains(*name))
            .cloned()
            .collect();
        for name in &gone {
            ledger.opted_in.remove(name);
        }
        let new: Vec<Name> = opted_in
            .into_iter()
            .filter(|name| !ledger.opted_in.contains_key(name))
            .collect();
        for name in &new {
            ledger.opted_in.insert(name.clone(), now);
        }
        changed |= !gone.is_empty() || !new.is_empty();
        for name in new {
            let jobs: Vec<Uid> = self.namespaces.jobs.get(&name).into_iter().flatten().copied().collect();
            self.relower_each(jobs, now);
        }
        changed.then_some(&self.namespaces.ledger)
    }
}
