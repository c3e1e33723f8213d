//! What came of a write, and what follows from it.
//!
//! | answer | what follows |
//! | --- | --- |
//! | applied | the assumption is confirmed by the object returned |
//! | guard failed | the assumption is undone and the object, read again, decides |
//! | refused by someone's policy | set aside with growing back-off and a reason; the queue goes on |
//! | not sent, too many requests | the assumption is kept; sent again later |
//! | unknown (timeout, lost connection, 5xx) | the assumption is kept; the object is read with quorum: landed, or sent again |
//!
//! An unknown write that did not land is **sent again** rather than undone: the first copy may still be on its way, and
//! giving its quota to another unit meanwhile could overspend it. The guards make the second copy harmless.

use sluice_engine::{Name, Time, Uid};
use sluice_jobs::view::JobView;

use crate::decide::{WriteKind, flavors_in_words};
use crate::standing::recorded;
use crate::unit::{Aside, Goal};
use crate::{Index, key_of, lower};

/// What came of a [`crate::Write`].
#[derive(Debug)]
pub enum Answer {
    /// It was carried out; the object as it is now.
    Applied(Box<JobView>),
    /// The object is not as the guards want it. What a quorum read then showed; `None` if the Job is gone.
    GuardFailed(Option<Box<JobView>>),
    /// Somebody's policy, webhook or validation refused it. It will not pass by being sent again at once.
    Refused {
        /// What the API server said.
        message: String,
    },
    /// It was not sent, or the server turned it away unread (429).
    Delayed,
    /// Nobody knows whether it was carried out. What a quorum read then showed; `None` if the Job is gone.
    Unknown(Option<Box<JobView>>),
}

/// Something that happened to a unit, for events, metrics and logs.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The Job's namespace and name.
    pub job: (Name, Name),
    /// The Job's uid.
    pub uid: String,
    /// The ClusterQueue concerned; empty if there is none.
    pub queue: Name,
    /// The LocalQueue concerned.
    pub local_queue: Name,
    /// The name of the WorkloadPriorityClass, or empty.
    pub priority_class: Name,
    /// What happened.
    pub what: Happening,
}

/// See [`Notice`].
#[derive(Debug, Clone)]
pub enum Happening {
    /// Admitted, so many milliseconds after it was queued.
    Admitted {
        /// Milliseconds from the queue time to the admission.
        waited_ms: i64,
        /// The flavors it got, in words.
        flavors: String,
    },
    /// Stopped, and why.
    Evicted {
        /// One word.
        reason: String,
        /// A second word that says more, or nothing.
        cause: String,
        /// A sentence.
        message: String,
        /// The ClusterQueue of the Job that gets the room, if one does.
        preemptor: Option<Name>,
        /// It is the Job's first eviction for this reason and cause, as far as is known here: the record names the last one only.
        first: bool,
    },
    /// What it held when it was evicted is free again.
    QuotaReturned {
        /// Why it was evicted, in one word.
        reason: String,
        /// Milliseconds from the eviction to now.
        after_ms: i64,
    },
    /// It ran without an admission and was stopped.
    SuspendedLate,
    /// It ran when its namespace opted in and is charged from now on.
    Adopted,
    /// Its owner suspended it; that is noted as a hold.
    Held,
    /// A write of it was refused.
    Refused {
        /// What was to be written.
        kind: WriteKind,
        /// What the API server said.
        message: String,
        /// Milliseconds until the next attempt.
        retry_ms: i64,
    },
    /// Its record cannot be read; it is charged from its template and queue.
    UnreadableRecord {
        /// Why.
        message: String,
    },
    /// It finished, so many milliseconds after its admission.
    Finished {
        /// Milliseconds from the last admission to now.
        ran_ms: i64,
    },
}

/// The first pause after a refusal, in milliseconds; doubles to [`LONGEST_ASIDE_MS`].
const FIRST_ASIDE_MS: i64 = 1_000;
/// The longest pause between attempts that somebody's policy refuses, in milliseconds.
const LONGEST_ASIDE_MS: i64 = 300_000;
/// The first pause after an answer that said neither yes nor no, in milliseconds; doubles to [`LONGEST_DOUBT_MS`].
const FIRST_DOUBT_MS: i64 = 50;
/// The longest pause between attempts of which nothing is known, in milliseconds.
const LONGEST_DOUBT_MS: i64 = 5_000;

impl Index {
    /// Takes the answer to a write.
    pub fn answer(&mut self, uid: Uid, ticket: u64, answer: Answer, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        let Some(kind) = unit
            .intent
            .as_ref()
            .filter(|intent| intent.ticket == ticket)
            .map(|intent| intent.goal.kind())
        else {
            // Another reign's write. The object itself tells what came of it.
            if let Answer::Applied(job) | Answer::GuardFailed(Some(job)) | Answer::Unknown(Some(job)) = answer {
                self.set_job(*job, now);
            }
            return;
        };
        match answer {
            Answer::Applied(job) => self.landed(uid, Some(*job), now),
            Answer::GuardFailed(job) => {
                if self.shows_intent(uid, job.as_deref()) {
                    return self.landed(uid, job.map(|job| *job), now);
                }
                if let Some(unit) = self.units.get_mut(&uid) {
                    unit.intent = None;
                }
                self.look_again(uid, job.map(|job| *job), now);
            }
            Answer::Refused { message } => self.set_aside(uid, kind, message, now),
            Answer::Delayed => self.send_again(uid, now),
            Answer::Unknown(job) => {
                if self.shows_intent(uid, job.as_deref())
                    || self.units.get(&uid).is_some_and(crate::unit::Unit::shows_intent)
                {
                    return self.landed(uid, job.map(|job| *job), now);
                }
                if let Some(job) = job {
                    self.set_job(*job, now);
                    self.send_again(uid, now);
                } else {
                    if let Some(unit) = self.units.get_mut(&uid) {
                        unit.intent = None;
                    }
                    self.depart(uid, now);
                }
            }
        }
    }

    fn shows_intent(&self, uid: Uid, job: Option<&JobView>) -> bool {
        let (Some(unit), Some(job)) = (self.units.get(&uid), job) else {
            return false;
        };
        unit.intent.as_ref().is_some_and(|intent| intent.is_shown_by(job))
    }

    fn landed(&mut self, uid: Uid, job: Option<JobView>, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        let Some(intent) = unit.intent.take() else { return };
        unit.aside = None;
        self.notice_landed(uid, &intent.goal, now);
        self.look_again(uid, job, now);
    }

    /// Takes what a read or an answer showed, and decides anew even if it was no news.
    fn look_again(&mut self, uid: Uid, job: Option<JobView>, now: Time) {
        match job {
            Some(job) => {
                if !self.set_job(job, now) {
                    self.relower(uid, now);
                }
            }
            None => self.depart(uid, now),
        }
    }

    fn send_again(&mut self, uid: Uid, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        let Some(intent) = unit.intent.as_mut() else { return };
        if !intent.holds_for(&unit.job) {
            // It would be sent with guards on what it was not decided on. What was sent before cannot land any more.
            unit.intent = None;
            self.relower(uid, now);
            return;
        }
        intent.doubts = intent.doubts.saturating_add(1);
        let pause = doubled(FIRST_DOUBT_MS, intent.doubts - 1, LONGEST_DOUBT_MS);
        intent.not_before = Time(now.0.saturating_add(pause));
        intent.sent = None;
        self.line_up(uid);
    }

    /// The unit waits aside, with the reason, and its queue goes on without it.
    pub(crate) fn set_aside(&mut self, uid: Uid, kind: WriteKind, message: String, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        unit.intent = None;
        unit.owed = None;
        let refusals = unit.aside.as_ref().map_or(0, |aside| aside.refusals);
        let retry_ms = doubled(FIRST_ASIDE_MS, refusals, LONGEST_ASIDE_MS);
        unit.aside = Some(Aside {
            until: Time(now.0.saturating_add(retry_ms)),
            refusals: refusals.saturating_add(1),
            message: message.clone(),
            generation: unit.job.metadata.generation.unwrap_or(0),
        });
        self.notice(
            uid,
            Happening::Refused {
                kind,
                message,
                retry_ms,
            },
        );
        self.relower(uid, now);
    }

    fn notice_landed(&mut self, uid: Uid, goal: &Goal, now: Time) {
        let what = match goal {
            Goal::Admit(admission) => {
                let queued = self.units.get(&uid).map_or(now, |unit| {
                    lower::queued_at(&unit.job, recorded(&unit.job).ours().as_deref())
                });
                let flavors = flavors_in_words(admission);
                Happening::Admitted {
                    waited_ms: now.0.saturating_sub(queued.0).max(0),
                    flavors,
                }
            }
            Goal::Evict(stopping) => Happening::Evicted {
                reason: stopping.reason.to_owned(),
                cause: stopping.cause.to_owned(),
                message: stopping.message.clone(),
                preemptor: stopping.preemptor.clone(),
                first: self.units.get_mut(&uid).is_some_and(|unit| {
                    let why = (stopping.reason.to_owned(), stopping.cause.to_owned());
                    unit.evicted_for.insert(why)
                }),
            },
            Goal::Note(_) => return,
            Goal::SuspendLate => Happening::SuspendedLate,
            Goal::Adopt(_) => Happening::Adopted,
            Goal::Hold => Happening::Held,
        };
        let queue = match goal {
            Goal::Admit(admission) => Some(admission.queue.clone()),
            Goal::Evict(_) => self.paying_queue(uid),
            _ => None,
        };
        self.notice_in(uid, queue, what);
    }

    /// The ClusterQueue that pays for a unit, by its record.
    fn paying_queue(&self, uid: Uid) -> Option<Name> {
        let record = recorded(&self.units.get(&uid)?.job).ours()?;
        Some(record.cluster_queue.as_str().into()).filter(|queue: &Name| !queue.is_empty())
    }

    pub(crate) fn notice(&mut self, uid: Uid, what: Happening) {
        self.notice_in(uid, None, what);
    }

    pub(crate) fn notice_in(&mut self, uid: Uid, queue: Option<Name>, what: Happening) {
        let Some(unit) = self.units.get(&uid) else { return };
        let local_queue = lower::local_queue_of(&unit.job);
        let queue = queue
            .or_else(|| self.objects.cluster_queue_of(&local_queue))
            .unwrap_or_default();
        let notice = Notice {
            job: key_of(&unit.job),
            uid: unit.job.metadata.uid.clone().unwrap_or_default(),
            queue,
            local_queue: local_queue.name,
            priority_class: unit
                .job
                .label(sluice_api::labels::PRIORITY_CLASS)
                .unwrap_or_default()
                .into(),
            what,
        };
        self.notices.push(notice);
    }
}

/// `first * 2^times`, at most `longest`.
fn doubled(first: i64, times: u32, longest: i64) -> i64 {
    first
        .checked_shl(times.min(32))
        .unwrap_or(longest)
        .clamp(first, longest)
}
