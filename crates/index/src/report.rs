//! What changed since the last look, for statuses and events.

use std::collections::BTreeSet;

use sluice_engine::{LocalQueueKey, Name, WaitKind};

use crate::{Index, JobKey, key_of};

/// Queues and waiting units whose report changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// ClusterQueues whose report or tally may differ.
    pub cluster_queues: BTreeSet<Name>,
    /// Cohorts whose share may differ.
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
    /// The kind of reason.
    pub kind: WaitKind,
    /// The reason, for people.
    pub message: String,
}

impl Index {
    /// What changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let changed = self.engine.take_changed();
        let waiting = changed
            .units
            .into_iter()
            .filter_map(|uid| {
                let waiting = self.engine.waiting(uid)?;
                self.tallies.waits_for(uid, waiting.reason.kind());
                let unit = self.units.get(&uid)?;
                let mut message = waiting.reason.to_string();
                if let Some(aside) = &unit.aside {
                    message = format!("{message}: the last attempt was refused: {}", aside.message);
                }
                Some(WaitingUnit {
                    job: key_of(&unit.job),
                    uid: unit.job.uid().to_owned(),
                    kind: waiting.reason.kind(),
                    message,
                })
            })
            .collect();
        let (mut cluster_queues, mut local_queues) = self.tallies.take_changed();
        cluster_queues.extend(changed.queues);
        local_queues.extend(changed.local_queues);
        if std::mem::take(&mut self.quota_changed) {
            cluster_queues.extend(self.objects.cluster_queues.keys().cloned());
        }
        let cohorts = cluster_queues
            .iter()
            .flat_map(|queue| self.objects.cohorts_above(queue));
        Changes {
            cohorts: cohorts.collect(),
            cluster_queues,
            local_queues,
            waiting,
        }
    }
}
