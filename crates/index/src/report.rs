//! What changed since the last look, for statuses and events.

use std::collections::BTreeSet;

use sluice_engine::{LocalQueueKey, Name, Uid, WaitKind};

use crate::{Index, JobKey, key_of};

/// Queues and waiting units whose report changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// ClusterQueues whose report or tally may differ.
    pub cluster_queues: BTreeSet<Name>,
    /// Cohorts whose report or share may differ, those that only ClusterQueues name included.
    pub cohorts: BTreeSet<Name>,
    /// LocalQueues whose report or tally may differ.
    pub local_queues: BTreeSet<LocalQueueKey>,
    /// Units that wait for another reason than before.
    pub waiting: Vec<WaitingUnit>,
}

/// A unit that waits, and why.
#[derive(Debug, Clone)]
pub struct WaitingUnit {
    /// The Job.
    pub job: JobKey,
    /// The Job's uid.
    pub uid: String,
    /// The same as the engine knows it.
    pub unit: Uid,
    /// The kind of reason.
    pub kind: WaitKind,
    /// The reason, for people.
    pub message: String,
}

/// How many waiting units are explained in full at once: more than events are sent for in a second, few enough that a spike
/// of submissions does not hold up decisions.
const EXPLAINED: usize = 100;

impl Index {
    /// Why a unit waits, and until when at least, in words.
    fn explain(&self, uid: Uid) -> Option<String> {
        let waiting = self.engine.waiting(uid)?;
        let reason = waiting.reason.to_string();
        let Some(start) = waiting.earliest_start else {
            return Some(reason);
        };
        let start = crate::lower::timestamp(start).strftime("%Y-%m-%dT%H:%M:%SZ");
        Some(format!(
            "{reason}; by the ends that are known there is enough at {start}"
        ))
    }

    /// A unit that waits, and why; none if it does not.
    pub fn waiting_unit(&self, uid: Uid) -> Option<WaitingUnit> {
        self.waiting_as(uid, self.engine.wait_kind(uid)?, self.explain(uid)?)
    }

    fn waiting_as(&self, uid: Uid, kind: WaitKind, mut message: String) -> Option<WaitingUnit> {
        let unit = self.units.get(&uid)?;
        if let Some(aside) = &unit.aside {
            message = format!("{message}: the last attempt was refused: {}", aside.message);
        }
        Some(WaitingUnit {
            job: key_of(&unit.job),
            uid: unit.job.uid().to_owned(),
            unit: uid,
            kind,
            message,
        })
    }

    /// What changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let changed = self.engine.take_changed();
        let waiting = changed
            .units
            .into_iter()
            .enumerate()
            .filter_map(|(index, uid)| {
                let kind = self.engine.wait_kind(uid)?;
                self.tallies.waits_for(uid, kind);
                let message = if index < EXPLAINED {
                    self.explain(uid)?
                } else {
                    format!("{kind}: one of many that wait since the same moment")
                };
                self.waiting_as(uid, kind, message)
            })
            .collect();
        let (mut cluster_queues, mut local_queues) = self.tallies.take_changed();
        cluster_queues.extend(changed.queues);
        local_queues.extend(changed.local_queues);
        let mut cohorts = BTreeSet::new();
        if std::mem::take(&mut self.quota_changed) {
            cluster_queues.extend(self.objects.cluster_queues.keys().cloned());
            cohorts.extend(self.objects.cohorts.keys().cloned());
        }
        cohorts.extend(
            cluster_queues
                .iter()
                .flat_map(|queue| self.objects.cohorts_above(queue)),
        );
        Changes {
            cluster_queues,
            cohorts,
            local_queues,
            waiting,
        }
    }
}
