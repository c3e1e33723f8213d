//! What a Job is to the scheduler now: the one decision table over the object, its record and what is remembered.
//!
//! | record | `spec.suspend` | standing |
//! | --- | --- | --- |
//! | none | true | waits |
//! | none | false, older than its namespace's opt-in | adopted: charged, even over quota |
//! | none | false, otherwise | slipped past the webhook: suspended and queued |
//! | Admitted | false | holds quota |
//! | Admitted | true | holds quota; somebody else stopped it, which is noted in the record |
//! | Evicting, Held, Deactivated | true, pods left | holds quota until the last pod is gone |
//! | Evicting, Held, Deactivated | true, no pods | waits again; set aside while an annotation says that it is held or deactivated |
//! | Waiting | true | waits again, or is held |
//! | any but Admitted | false | started by somebody else: suspended again |
//! | unreadable | false | holds quota as its template and queue say, and is reported |
//!
//! A finished Job is nothing to the scheduler once its last pod is gone, and so is a waiting Job that is being deleted.

use sluice_api::annotations;
use sluice_jobs::record::{Record, RecordError, State};
use sluice_jobs::status::{self, QuotaReturn};
use sluice_jobs::view::JobView;

/// How a Job came to carry the record that it carries.
#[derive(Debug, Clone)]
pub(crate) enum Recorded {
    /// No record, or a copy of another Job's.
    Nothing,
    /// A record that this Job's admission wrote.
    Ours(Box<Record>),
    /// Something that no version of Sluice could have written.
    Unreadable(String),
}

impl Recorded {
    pub(crate) fn ours(self) -> Option<Box<Record>> {
        match self {
            Self::Ours(record) => Some(record),
            Self::Nothing | Self::Unreadable(_) => None,
        }
    }
}

/// What is known of a Job beyond the object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// See `Unit::pods_gone`.
    pub(crate) pods_gone: bool,
    /// See `Unit::departed`.
    pub(crate) departed: bool,
}

/// What a Job is to the scheduler now.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    /// Nothing: not managed, finished, or gone without holding quota.
    Absent,
    /// It waits. `record` is what it carries from an earlier admission.
    Waiting {
        record: Option<Box<Record>>,
        set_aside: Option<SetAside>,
    },
    /// It holds the quota that its record says.
    Holding { record: Box<Record>, hold: Hold },
    /// It runs, and no record says on what quota: it ran when its namespace opted in.
    Adopted,
    /// It runs, or its pods may, and its record cannot be read.
    Unaccounted { why: String, leaving: bool },
    /// It runs although nobody admitted it.
    Runaway,
}

/// Why a Job is not to be considered although it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// Its owner suspended it while it ran.
    Held,
    /// The scheduler took it out of queueing.
    Deactivated,
}

/// Why a Job holds quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It runs.
    Running,
    /// Somebody else suspended it, and its record does not say so yet.
    Stopped,
    /// It was stopped; pods may be left. If its start was never acknowledged, only a pod list can tell.
    Stopping { unacknowledged: bool },
    /// It is deleted, or done; pods may be left.
    Leaving,
}

/// Reads the record that a Job carries.
pub(crate) fn recorded(job: &JobView) -> Recorded {
    match job.record_text().map(|text| Record::parse(text, job.uid())) {
        None | Some(Err(RecordError::ForeignUid { .. })) => Recorded::Nothing,
        Some(Ok(record)) => Recorded::Ours(Box::new(record)),
        Some(Err(error)) => Recorded::Unreadable(error.to_string()),
    }
}

/// The table above. `managed` is the answer of the one predicate; `adopt` says that the Job is older than its namespace's opt-in.
pub(crate) fn standing(job: &JobView, recorded: Recorded, memory: Memory, managed: bool, adopt: bool) -> Standing {
    let finished = status::finished(&job.status).is_some();
    if finished && (memory.pods_gone || status::pods_gone(&job.status)) {
        return Standing::Absent;
    }
    let leaving = finished || memory.departed || job.metadata.deletion_timestamp.is_some();
    match recorded {
        Recorded::Ours(record) if leaving => of_leaving(job, record, memory),
        Recorded::Ours(record) => of_recorded(job, record, memory).for_managed(managed),
        Recorded::Nothing if leaving => Standing::Absent,
        Recorded::Unreadable(_) if leaving && memory.pods_gone => Standing::Absent,
        Recorded::Unreadable(why) if leaving || !stopped(job) => Standing::Unaccounted { why, leaving },
        Recorded::Unreadable(_) | Recorded::Nothing if !managed => Standing::Absent,
        Recorded::Unreadable(_) | Recorded::Nothing if job.is_suspended() => Standing::Waiting {
            record: None,
            set_aside: set_aside(job),
        },
        Recorded::Unreadable(_) | Recorded::Nothing if adopt => Standing::Adopted,
        Recorded::Unreadable(_) | Recorded::Nothing => Standing::Runaway,
    }
}

impl Standing {
    /// Only a pod list can tell when it ends.
    pub(crate) fn awaits_pods(&self) -> bool {
        match self {
            Self::Holding { hold, .. } => matches!(hold, Hold::Leaving | Hold::Stopping { unacknowledged: true }),
            Self::Unaccounted { leaving, .. } => *leaving,
            _ => false,
        }
    }

    /// A Job that is not managed any more keeps what it holds to the end, and neither waits nor is stopped.
    fn for_managed(self, managed: bool) -> Self {
        match self {
            Self::Waiting { .. } | Self::Runaway if !managed => Self::Absent,
            standing => standing,
        }
    }
}

/// It is suspended, and the Job controller says that its pods are gone.
fn stopped(job: &JobView) -> bool {
    job.is_suspended() && status::suspended_since(&job.status).is_some() && status::pods_gone(&job.status)
}

fn of_leaving(job: &JobView, record: Box<Record>, memory: Memory) -> Standing {
    let stopped = job.is_suspended() && status::quota_return(&record, &job.status) == QuotaReturn::Returned;
    let charged = record.state.runs() || record.state.stops();
    if charged && !stopped && !memory.pods_gone {
        Standing::Holding {
            record,
            hold: Hold::Leaving,
        }
    } else {
        Standing::Absent
    }
}

fn of_recorded(job: &JobView, record: Box<Record>, memory: Memory) -> Standing {
    match (record.state, job.is_suspended()) {
        (State::Admitted, false) => Standing::Holding {
            record,
            hold: Hold::Running,
        },
        (_, false) => Standing::Runaway,
        (State::Admitted, true) => Standing::Holding {
            record,
            hold: Hold::Stopped,
        },
        (state, true) if state.stops() && !memory.pods_gone => match status::quota_return(&record, &job.status) {
            QuotaReturn::Returned => Standing::Waiting {
                record: Some(record),
                set_aside: set_aside(job),
            },
            back => {
                let unacknowledged = back == QuotaReturn::Unacknowledged;
                Standing::Holding {
                    record,
                    hold: Hold::Stopping { unacknowledged },
                }
            }
        },
        (_, true) => Standing::Waiting {
            record: Some(record),
            set_aside: set_aside(job),
        },
    }
}

/// Whether a person holds the Job.
pub(crate) fn is_held(job: &JobView) -> bool {
    job.annotation(annotations::HOLD).is_some()
}

fn set_aside(job: &JobView) -> Option<SetAside> {
    let deactivated = job.annotation(annotations::DEACTIVATED).is_some();
    match (is_held(job), deactivated) {
        (true, _) => Some(SetAside::Held),
        (false, true) => Some(SetAside::Deactivated),
        (false, false) => None,
    }
}
