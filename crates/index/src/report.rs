//! What changed since the last look, for statuses and events.

use sluice_engine::{LocalQueueKey, Name, WaitKind};

use crate::{Index, JobKey, key_of};

/// Queues and waiting units whose report changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// ClusterQueues, in order of name.
    pub cluster_queues: Vec<Name>,
    /// LocalQueues, in order of namespace and name.
    pub local_queues: Vec<LocalQueueKey>,
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
        Changes {
            cluster_queues: changed.queues,
            local_queues: changed.local_queues,
            waiting,
        }
    }
}
