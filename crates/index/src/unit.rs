//! What the index remembers of one Job between two events.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_api::{annotations, labels};
use sluice_engine::{Admission, Time, Uid};
use sluice_jobs::record::{PodsReady, Record};
use sluice_jobs::requests;
use sluice_jobs::view::JobView;

use crate::decide::WriteKind;
use crate::standing::recorded;
use crate::stop::Stopping;

/// A Job, and what is known of it beyond the object itself.
#[derive(Debug)]
pub(crate) struct Unit {
    /// The Job as last seen.
    pub(crate) job: Arc<JobView>,
    /// `metadata.resourceVersion` of `job`. An older event is ignored.
    pub(crate) seen: u64,
    /// What has been decided for it and is not yet known to be written.
    pub(crate) intent: Option<Intent>,
    /// The stop that the engine decided on and the Job does not show yet.
    pub(crate) owed: Option<Stopping>,
    /// When its pods were ready in the present admission, as far as that was seen.
    pub(crate) readiness: Option<PodsReady>,
    /// Set while writes of it are refused by someone.
    pub(crate) aside: Option<Aside>,
    /// A pod list after the present stop showed no pod that still runs.
    pub(crate) pods_gone: bool,
    /// When a pod list is to be asked for.
    pub(crate) probe_at: Option<Time>,
    /// Moves on whenever a pod list that was asked for no longer matters.
    pub(crate) probe_epoch: u64,
    /// The resourceVersion at which the present record was first seen, or the admission that it tells of.
    pub(crate) record_seen: u64,
    /// The fewest pods that it wanted since then: what it gave up it cannot take back.
    pub(crate) least_pods: i64,
    /// The object is gone; only its pods may be left.
    pub(crate) departed: bool,
    /// The engine has been told that this unit holds quota.
    pub(crate) charged: bool,
    /// It has been reported that its record cannot be read.
    pub(crate) unreadable: bool,
    /// The reasons and causes for which it is known to have been evicted.
    pub(crate) evicted_for: BTreeSet<(String, String)>,
}

/// A decided write and how far it got.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) goal: Goal,
    /// Tells its write from every other.
    pub(crate) ticket: u64,
    /// What it was decided on.
    basis: Basis,
    /// The record as sent: the Job shows it once the write has landed. None until it is sent.
    pub(crate) sent: Option<String>,
    /// When it may be sent, after an answer that said neither yes nor no.
    pub(crate) not_before: Time,
    /// Consecutive answers that said neither yes nor no.
    pub(crate) doubts: u32,
}

/// What the guards of a write look at.
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    generation: Option<i64>,
    queue: Option<String>,
    priority: Option<String>,
    record: Option<String>,
    hold: Option<String>,
    deactivated: Option<String>,
}

impl Basis {
    fn of(goal: &Goal, job: &JobView) -> Self {
        let whole = goal.rests_on_all();
        let text = |text: Option<&str>| text.filter(|_| whole).map(str::to_owned);
        Self {
            generation: job.metadata.generation.filter(|_| whole),
            queue: text(job.label(labels::QUEUE_NAME)),
            priority: text(job.label(labels::PRIORITY_CLASS)),
            record: job.record_text().map(str::to_owned),
            hold: text(job.annotation(annotations::HOLD)),
            deactivated: text(job.annotation(annotations::DEACTIVATED)),
        }
    }
}

/// What a write is for.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// Start the Job with the quota assumed for it.
    Admit(Admission),
    /// Stop the Job, and say why.
    Evict(Stopping),
    /// Stop a Job that runs although nobody admitted it.
    SuspendLate,
    /// Write the record of a Job that ran when its namespace opted in.
    Adopt(Box<Record>),
    /// Note that its owner suspended it.
    Hold,
    /// Note when its pods were ready.
    Note(PodsReady),
}

impl Goal {
    /// Whether an edit of anything calls for a new decision. What only stops a running Job, or notes something of it,
    /// rests on its record alone.
    fn rests_on_all(&self) -> bool {
        !matches!(self, Self::Evict(_) | Self::Note(_))
    }

    pub(crate) fn kind(&self) -> WriteKind {
        match self {
            Self::Admit(_) => WriteKind::Admit,
            Self::Evict(_) => WriteKind::Evict,
            Self::SuspendLate => WriteKind::SuspendLate,
            Self::Adopt(_) => WriteKind::Adopt,
            Self::Hold => WriteKind::Hold,
            Self::Note(_) => WriteKind::Note,
        }
    }
}

impl Intent {
    pub(crate) fn new(goal: Goal, ticket: u64, job: &JobView, not_before: Time) -> Self {
        Self {
            basis: Basis::of(&goal, job),
            goal,
            ticket,
            sent: None,
            not_before,
            doubts: 0,
        }
    }

    /// The Job is still what it was decided on. If it is not, the guards of every copy of its write must fail.
    pub(crate) fn holds_for(&self, job: &JobView) -> bool {
        self.basis == Basis::of(&self.goal, job)
    }

    /// The write was sent and the Job shows it.
    pub(crate) fn is_shown_by(&self, job: &JobView) -> bool {
        match (&self.sent, &self.goal) {
            (None, _) => false,
            (Some(_), Goal::SuspendLate) => job.is_suspended(),
            (Some(record), _) => job.record_text() == Some(record.as_str()),
        }
    }
}

/// A unit whose writes are refused waits here, longer each time, and its queue goes on without it.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    pub(crate) until: Time,
    pub(crate) refusals: u32,
    pub(crate) message: String,
    /// The generation that was refused: an edit by the owner earns a new attempt at once.
    pub(crate) generation: i64,
}

impl Unit {
    pub(crate) fn new(job: Arc<JobView>, seen: u64) -> Self {
        let least_pods = requests::pods_count(&job.spec);
        Self {
            job,
            seen,
            intent: None,
            owed: None,
            readiness: None,
            aside: None,
            pods_gone: false,
            probe_at: None,
            probe_epoch: 0,
            record_seen: seen,
            least_pods,
            departed: false,
            charged: false,
            unreadable: false,
            evicted_for: BTreeSet::new(),
        }
    }

    /// Takes note of the eviction that the record tells of. One of which the answer is not known yet is noted with it.
    pub(crate) fn remember_eviction(&mut self, record: &Record) {
        if let Some(eviction) = record.eviction.as_ref().filter(|_| !self.is_sent()) {
            self.evicted_for
                .insert((eviction.reason.clone(), eviction.cause.clone()));
        }
    }

    /// Takes a newer view of the Job.
    pub(crate) fn renew(&mut self, job: Arc<JobView>, seen: u64) {
        if self.job.is_suspended() != job.is_suspended() {
            self.pods_gone = false;
        }
        let wanted = requests::pods_count(&job.spec);
        if self.is_same_admission(&job) {
            self.least_pods = self.least_pods.min(wanted);
        } else {
            self.record_seen = seen;
            self.least_pods = wanted;
            self.readiness = None;
            self.owed = None;
        }
        let edited = self.job.metadata.generation != job.metadata.generation
            || self.job.metadata.labels != job.metadata.labels
            || self.job.metadata.annotations != job.metadata.annotations;
        // An edit calls for a new decision, unless a copy of the write may still be on its way: then only an edit that
        // the guards of that copy notice makes sure that it will not land.
        let void = self.intent.as_ref().is_some_and(|intent| {
            !intent.holds_for(&job) || edited && intent.doubts == 0 && intent.goal.rests_on_all()
        });
        if void && !self.is_sent() {
            self.intent = None;
        }
        if self
            .aside
            .as_ref()
            .is_some_and(|aside| job.metadata.generation != Some(aside.generation))
        {
            self.aside = None;
        }
        self.job = job;
        self.seen = seen;
    }

    /// The record is the one last seen, or one in which something was noted meanwhile.
    pub(crate) fn is_same_admission(&self, job: &JobView) -> bool {
        self.job.record_text() == job.record_text()
            || recorded(&self.job)
                .ours()
                .zip(recorded(job).ours())
                .is_some_and(|(old, new)| old.is_same_admission(&new))
    }

    /// The Job as last seen is as the intent wants it.
    pub(crate) fn shows_intent(&self) -> bool {
        self.intent.as_ref().is_some_and(|intent| intent.is_shown_by(&self.job))
    }

    /// The intent has left the process and no answer has settled it.
    pub(crate) fn is_sent(&self) -> bool {
        self.intent.as_ref().is_some_and(|intent| intent.sent.is_some())
    }
}

/// The identity of a Job in the engine: its uid as a number, in the order of the text.
///
/// The API server makes uids as UUIDs. A text of another form (an imported object) still gets a stable number.
pub(crate) fn uid_of(text: &str) -> Uid {
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    if hex.len() == 32
        && let Ok(number) = u128::from_str_radix(&hex, 16)
    {
        return Uid(number);
    }
    // FNV-1a, 128 bits: stable between processes, so that a restart keeps the order.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in text.bytes() {
        hash ^= u128::from(byte);
        hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    Uid(hash)
}
