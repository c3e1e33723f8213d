//! Which kinds a process knows completely, and which it still waits for.

use std::fmt;

use tokio::sync::watch;

/// How far a kind is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindState {
    /// The first list has not ended yet.
    Pending,
    /// The API server does not serve the kind: its CRD is missing.
    Absent,
    /// Listing fails, and why.
    Failing(String),
    /// Everything there was has been delivered, and changes follow.
    Synced,
}

/// One kind's place in [`Synced`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// Kind with its group, such as `Job.batch`.
    pub kind: String,
    /// Whether the process can do its work without it.
    pub optional: bool,
    /// How far it is.
    pub state: KindState,
}

impl KindStatus {
    /// True when the process waits for this kind.
    pub fn holds_up(&self) -> bool {
        match self.state {
            KindState::Synced => false,
            KindState::Absent => !self.optional,
            KindState::Pending | KindState::Failing(_) => true,
        }
    }
}

impl fmt::Display for KindStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = &self.kind;
        match &self.state {
            KindState::Pending => write!(f, "{kind}: first list not finished"),
            KindState::Absent => write!(f, "{kind}: not served by the API server (is its CRD installed?)"),
            KindState::Failing(why) => write!(f, "{kind}: {why}"),
            KindState::Synced => write!(f, "{kind}: synced"),
        }
    }
}

/// Counts the kinds of a process; every clone sees the same.
///
/// A kind counts as synced once its first [`Change::Reset`](super::Change::Reset) is in the channel, and stays so while a
/// later relist runs or fails: what is known then is old, not incomplete.
#[derive(Clone, Debug)]
pub struct Synced(watch::Sender<Vec<KindStatus>>);

impl Default for Synced {
    fn default() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }
}

impl Synced {
    /// Starts to wait for a kind. Register all kinds before anything looks at the whole.
    pub fn expect(&self, kind: String, optional: bool) -> SyncHandle {
        let mut index = 0;
        self.0.send_modify(|kinds| {
            index = kinds.len();
            kinds.push(KindStatus {
                kind,
                optional,
                state: KindState::Pending,
            });
        });
        SyncHandle {
            synced: self.clone(),
            index,
        }
    }

    /// Where each kind stands, in the order of registration.
    pub fn kinds(&self) -> Vec<KindStatus> {
        self.0.borrow().clone()
    }

    /// True when no kind is waited for.
    pub fn is_synced(&self) -> bool {
        !self.0.borrow().iter().any(KindStatus::holds_up)
    }

    /// Returns when no kind is waited for.
    pub async fn wait(&self) {
        // `self` holds a sender, so the channel cannot close and the wait cannot fail.
        let mut kinds = self.0.subscribe();
        let _status = kinds.wait_for(|kinds| !kinds.iter().any(KindStatus::holds_up)).await;
    }

    /// A readiness check: what is missing, or nothing.
    ///
    /// # Errors
    ///
    /// The kinds that are waited for, each with its reason.
    pub fn check(&self) -> Result<String, String> {
        let kinds = self.0.borrow();
        let waited: Vec<String> = kinds
            .iter()
            .filter(|kind| kind.holds_up())
            .map(ToString::to_string)
            .collect();
        if !waited.is_empty() {
            return Err(waited.join("; "));
        }
        let absent: Vec<String> = kinds
            .iter()
            .filter(|kind| kind.state != KindState::Synced)
            .map(ToString::to_string)
            .collect();
        Ok(absent.join("; "))
    }
}

/// The right to say where one kind stands.
#[derive(Clone, Debug)]
pub struct SyncHandle {
    synced: Synced,
    index: usize,
}

impl SyncHandle {
    /// Notes where the kind stands. A synced kind stays synced.
    pub fn set(&self, state: KindState) {
        self.synced.0.send_if_modified(|kinds| {
            let Some(status) = kinds.get_mut(self.index) else {
                return false;
            };
            if status.state == KindState::Synced || status.state == state {
                return false;
            }
            status.state = state;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_each_kind_that_is_waited_for_and_why() {
        let synced = Synced::default();
        let jobs = synced.expect("Job.batch".into(), false);
        let queues = synced.expect("ClusterQueue.kueue.x-k8s.io".into(), false);
        let checks = synced.expect("AdmissionCheck.kueue.x-k8s.io".into(), true);
        jobs.set(KindState::Synced);
        queues.set(KindState::Absent);
        checks.set(KindState::Absent);
        let why = synced.check().unwrap_err();
        assert!(why.contains("ClusterQueue.kueue.x-k8s.io: not served"), "{why}");
        assert!(!why.contains("Job.batch") && !why.contains("AdmissionCheck"), "{why}");
        assert!(!synced.is_synced());
    }

    #[test]
    fn a_missing_optional_kind_is_mentioned_and_holds_nothing_up() {
        let synced = Synced::default();
        synced.expect("AdmissionCheck".into(), true).set(KindState::Absent);
        assert!(synced.is_synced());
        assert!(synced.check().unwrap().contains("AdmissionCheck: not served"));
    }

    #[test]
    fn a_synced_kind_stays_synced_while_a_relist_fails() {
        let synced = Synced::default();
        let jobs = synced.expect("Job".into(), false);
        jobs.set(KindState::Failing("connection refused".into()));
        assert!(synced.check().unwrap_err().contains("connection refused"));
        jobs.set(KindState::Synced);
        jobs.set(KindState::Failing("connection refused".into()));
        assert_eq!(synced.check(), Ok(String::new()));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_last_kind() {
        let synced = Synced::default();
        let a = synced.expect("A".into(), false);
        let b = synced.expect("B".into(), true);
        let waiter = tokio::spawn({
            let synced = synced.clone();
            async move { synced.wait().await }
        });
        a.set(KindState::Synced);
        assert!(!waiter.is_finished());
        b.set(KindState::Absent);
        waiter.await.unwrap();
    }
}
