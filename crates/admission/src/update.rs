//! A Job that changes: what the scheduler owns stays as stored, whoever applies a manifest again.
//!
//! Writes of the scheduler and of break-glass users pass as they are, and so do writes to subresources, to Jobs that are
//! being deleted, and to Jobs that are managed neither before nor after. For everybody else, by what is **stored**:
//!
//! | stored Job | write | stored then |
//! | --- | --- | --- |
//! | waits | `suspend: false` or absent | `suspend: true`: it waits on |
//! | waits | any edit of its template | as written, but what its last admission put there (the record's delta) stays in |
//! | is held | `suspend: false` or absent | the hold annotation goes, `suspend: true`: it queues again |
//! | is held | the hold annotation removed | as written: it queues again |
//! | is deactivated | `suspend: false` or absent | `suspend: true` |
//! | is deactivated | that annotation removed | as written: it queues again, unless our others were lost with it |
//! | is held | hold and our other annotations lost together | still held: a replacing manifest did not mean it |
//! | runs, admitted, created running | `suspend: true` | as written, with the hold annotation: quota goes back |
//! | runs, admitted, created suspended | `suspend: true` | `suspend: false`: a manifest applied again |
//! | runs, admitted, created suspended | `suspend: true` with the hold annotation | as written: a hold |
//! | runs, admitted | other node selector, tolerations or pod labels of ours | as stored: such a template cannot change |
//! | runs, admitted with fewer pods | the numbers of pods that its owner asked for | as stored: a manifest applied again |
//! | runs, admitted | queue label lost | as stored |
//! | runs, not admitted, created running | `suspend: true` | as written, with the hold annotation |
//! | runs, not admitted, created suspended or unknown | `suspend: true` | as written: it queues |
//! | has finished | other `suspend`, template fields of ours | as stored |
//! | any, namespace opted in | queue label lost | as stored; another queue's name passes |
//! | waits, namespace not opted in | queue label lost | as written: it leaves Sluice, suspended |
//! | any | record or created-running annotation changed, lost or added | as stored |
//! | not managed, becomes managed | `suspend: false` on a suspended Job | `suspend: true`: it queues |
//!
//! "Admitted" includes a record that cannot be read: such a Job is never suspended for it. "Created running" is the
//! annotation `sluice.internal/created-running`. A write that `suspend` is absent from reads as `false` here, because
//! the API server has filled in its default: server-side and client-side apply keep the stored value unless the manifest
//! names the field, and only a replacing write arrives as `false`. That is also why a replacing write never releases a
//! hold, while an explicit `suspend: false` by apply, patch or edit does.
//!
//! Each deviation is told to the user in a warning. A write that touches none of this gets no patch.

use serde_json::json;
use sluice_api::annotations::{ADMISSION, CREATED_RUNNING, DEACTIVATED, HOLD};
use sluice_api::labels::QUEUE_NAME;
use sluice_jobs::record::{Delta, RecordError};
use sluice_jobs::{Managed, Record};

use crate::job::Job;
use crate::managed_reason;
use crate::patch::{Edits, look_up};
use crate::queue::{default_queue, trouble};
use crate::reply::Verdict;
use crate::review::{Request, ReviewError};
use crate::shown::Shown;
use crate::template::{keep_delta, keep_fewer_pods, keep_running};
use crate::world::World;

const SUSPEND: &[&str] = &["spec", "suspend"];
const BOOKKEEPING: [&str; 2] = [ADMISSION, CREATED_RUNNING];

pub(crate) fn mutate(request: &Request, world: &World) -> Result<Verdict, ReviewError> {
    if world.is_exempt(request) {
        return Ok(Verdict::untouched("written by the scheduler or a break-glass user"));
    }
    let old = Job::read(&request.old_object, "request.oldObject")?;
    let new = Job::read(&request.object, "request.object")?;
    if old.being_deleted || new.being_deleted {
        return Ok(Verdict::untouched("the Job is being deleted"));
    }
    let was_managed = world.managed(&request.namespace, &old).is_managed();
    let becomes = world.managed(&request.namespace, &new);
    let mut update = Update {
        world,
        namespace: &request.namespace,
        standing: Standing::of(&old),
        edits: Edits::of(&request.object),
        old: &old,
        new: &new,
        warnings: Vec::new(),
    };
    match (was_managed, becomes) {
        (true, _) => update.keep(),
        (false, Managed::No(why)) => return Ok(Verdict::untouched(managed_reason(why))),
        (false, _) => update.enter(),
    }
    let reason = match update.warnings.first() {
        Some(first) => first.clone(),
        None => "nothing that the scheduler owns changes".to_owned(),
    };
    Ok(Verdict::Allow {
        patch: update.edits.into_patch(),
        warnings: update.warnings,
        reason,
    })
}

/// Where the stored Job stands.
#[derive(Debug)]
enum Standing {
    /// It runs on quota. Without a delta its record cannot be read.
    Admitted(Option<Delta>),
    /// It runs, and nobody admitted it.
    Runaway,
    /// It is suspended, waiting or held, with the record of an earlier admission if there was one.
    Suspended(Option<Box<Record>>),
    /// It has finished, with what its last admission put into its template.
    Finished(Option<Delta>),
}

impl Standing {
    fn of(job: &Job<'_>) -> Self {
        let record = match job.annotations.get(ADMISSION).map(|text| Record::parse(text, job.uid)) {
            Some(Ok(record)) => Ok(Some(record)),
            None | Some(Err(RecordError::ForeignUid { .. })) => Ok(None),
            Some(Err(_)) => Err(()),
        };
        match record {
            _ if job.finished => Self::Finished(record.ok().flatten().map(|record| record.delta)),
            _ if job.suspended => Self::Suspended(record.ok().flatten().map(Box::new)),
            Ok(Some(record)) if record.state.runs() => Self::Admitted(Some(record.delta)),
            Ok(_) => Self::Runaway,
            Err(()) => Self::Admitted(None),
        }
    }
}

struct Update<'a> {
    world: &'a World,
    namespace: &'a str,
    standing: Standing,
    old: &'a Job<'a>,
    new: &'a Job<'a>,
    edits: Edits<'a>,
    warnings: Vec<String>,
}

impl Update<'_> {
    /// The Job was managed before this write.
    fn keep(&mut self) {
        self.keep_suspend();
        self.keep_deactivation();
        self.keep_bookkeeping();
        self.keep_template();
        self.keep_queue();
    }

    /// The Job becomes managed by this write.
    fn enter(&mut self) {
        if self.old.suspended && !self.new.suspended && !self.old.finished {
            self.wait_on();
        }
        self.keep_bookkeeping();
    }

    fn keep_suspend(&mut self) {
        let created_running = self.old.annotations.contains_key(CREATED_RUNNING);
        let held = self.old.annotations.contains_key(HOLD);
        match &self.standing {
            Standing::Finished(_) if self.new.suspended != self.old.suspended => {
                self.edits.set(SUSPEND, json!(self.old.suspended));
                self.warn(format!(
                    "spec.suspend stays {}: the Job has finished",
                    self.old.suspended
                ));
            }
            Standing::Admitted(_) if self.new.suspended => {
                if created_running || self.new.annotations.contains_key(HOLD) {
                    self.hold();
                } else {
                    self.edits.set(SUSPEND, json!(false));
                    self.warn(format!(
                        "spec.suspend stays false: the Job is admitted, and as it was created with suspend: true this reads \
                         as its manifest applied again; to stop it, set the annotation {HOLD}: \"true\" as well"
                    ));
                }
            }
            Standing::Runaway if self.new.suspended => {
                if created_running {
                    self.hold();
                } else {
                    self.warn(format!("the Job is stopped and waits in {}", self.queue()));
                }
            }
            Standing::Suspended(_) if held => self.keep_hold(),
            Standing::Suspended(_) if !self.new.suspended => {
                if self.old.annotations.contains_key(DEACTIVATED) {
                    self.edits.set(SUSPEND, json!(true));
                    self.warn(format!(
                        "spec.suspend stays true: the Job was deactivated and does not queue; remove the annotation \
                         {DEACTIVATED} to queue it again"
                    ));
                } else {
                    self.wait_on();
                }
            }
            _ => {}
        }
    }

    fn wait_on(&mut self) {
        self.edits.set(SUSPEND, json!(true));
        self.warn(format!(
            "spec.suspend stays true: the Job waits in {}, and Sluice starts it when quota allows",
            self.queue()
        ));
        self.warnings
            .extend(trouble(self.world, self.namespace, self.destination()));
    }

    fn hold(&mut self) {
        if !self.new.annotations.contains_key(HOLD) {
            self.edits.set(&["metadata", "annotations", HOLD], json!("true"));
        }
        self.warn(format!(
            "the Job is held: it is stopped and gives its quota back; set spec.suspend to false, or remove the annotation \
             {HOLD}, to queue it again"
        ));
    }

    /// The stored Job is held and suspended.
    fn keep_hold(&mut self) {
        if self.was_lost_with_ours(HOLD) {
            self.restore_annotation(HOLD);
            self.edits.set(SUSPEND, json!(true));
            self.warn(format!(
                "the Job stays held: replacing it by a manifest without its annotations does not release it; remove the \
                 annotation {HOLD}, or patch spec.suspend to false, to queue it again"
            ));
        } else if !self.new.suspended {
            self.edits.remove(&["metadata", "annotations", HOLD]);
            self.edits.set(SUSPEND, json!(true));
            self.warn(format!(
                "the Job is released from its hold and waits in {}: spec.suspend stays true until Sluice admits it",
                self.queue()
            ));
        }
    }

    /// A manifest without its annotations replaces the Job: nobody meant the loss of this one.
    fn was_lost_with_ours(&self, key: &str) -> bool {
        let lost = |key: &str| self.old.annotations.contains_key(key) && !self.new.annotations.contains_key(key);
        lost(key) && BOOKKEEPING.into_iter().any(lost)
    }

    fn keep_deactivation(&mut self) {
        if self.was_lost_with_ours(DEACTIVATED) {
            self.restore_annotation(DEACTIVATED);
            self.warn(format!(
                "the Job stays deactivated: replacing it by a manifest without its annotations does not queue it again; \
                 remove the annotation {DEACTIVATED} to do so"
            ));
        }
    }

    fn keep_bookkeeping(&mut self) {
        let changed: Vec<&str> = BOOKKEEPING
            .into_iter()
            .filter(|key| self.old.annotations.get(key) != self.new.annotations.get(key))
            .collect();
        if changed.is_empty() {
            return;
        }
        for key in &changed {
            self.restore_annotation(key);
        }
        let (verb, them) = if changed.len() == 1 {
            ("stays", "it")
        } else {
            ("stay", "them")
        };
        self.warn(format!(
            "{} {verb} as stored: only Sluice writes {them}",
            changed.join(" and ")
        ));
    }

    fn restore_annotation(&mut self, key: &str) {
        let stored = look_up(self.old.raw, &["metadata", "annotations", key]).filter(|value| !value.is_null());
        self.edits.restore(&["metadata", "annotations", key], stored);
    }

    fn keep_template(&mut self) {
        let (old, new) = (self.old.raw, self.new.raw);
        match &self.standing {
            Standing::Admitted(delta) => {
                let kept = keep_running(&mut self.edits, new, old, delta.as_ref());
                let pods = keep_fewer_pods(&mut self.edits, new, old, delta.as_ref());
                self.warn_of_template(&kept, "the Job runs, and the template of a running Job cannot change");
                if let Some(asked) = pods {
                    self.warn(format!(
                        "the numbers of pods stay as stored: the Job runs with fewer than the {asked} that it asks for, and \
                         gets its own numbers back when it stops"
                    ));
                }
            }
            Standing::Finished(Some(delta)) => {
                let kept = keep_running(&mut self.edits, new, old, Some(delta));
                self.warn_of_template(&kept, "the Job has finished");
            }
            Standing::Suspended(Some(record)) => {
                let kept = keep_delta(&mut self.edits, new, old, &record.delta);
                self.warn_of_template(
                    &kept,
                    "Sluice put it there, and takes it out when it admits the Job again",
                );
            }
            Standing::Runaway | Standing::Finished(None) | Standing::Suspended(None) => {}
        }
    }

    fn warn_of_template(&mut self, kept: &[&str], why: &str) {
        if !kept.is_empty() {
            self.warn(format!("in the pod template, {} as stored: {why}", stay(kept)));
        }
    }

    fn keep_queue(&mut self) {
        let Some(stored) = self.old.queue_name() else { return };
        match self.new.queue_name() {
            Some(name) if name != stored => {
                if matches!(self.standing, Standing::Suspended(_)) {
                    self.warnings.extend(trouble(self.world, self.namespace, Some(name)));
                }
            }
            Some(_) => {}
            None => {
                let why = if matches!(self.standing, Standing::Admitted(_)) {
                    "the Job runs on that queue's quota"
                } else if self.world.namespace(self.namespace).is_opted_in() {
                    "every Job of this namespace has a queue; to move the Job, name another one"
                } else {
                    if matches!(self.standing, Standing::Suspended(_)) {
                        self.warn(
                            "the Job leaves its queue and stays suspended: set spec.suspend to false to run it without one"
                                .to_owned(),
                        );
                    }
                    return;
                };
                self.edits.set(&["metadata", "labels", QUEUE_NAME], json!(stored));
                self.warn(format!("the label {QUEUE_NAME} stays {}: {why}", Shown(stored)));
            }
        }
    }

    /// The queue that the Job waits in after this write.
    fn destination(&self) -> Option<&str> {
        let opted_in = self.world.namespace(self.namespace).is_opted_in();
        let kept = self.old.queue_name().filter(|_| opted_in);
        self.new
            .queue_name()
            .or(kept)
            .or_else(|| default_queue(self.world, self.namespace))
    }

    fn queue(&self) -> String {
        self.destination()
            .map_or_else(|| "no queue".to_owned(), |name| format!("LocalQueue {}", Shown(name)))
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

fn stay(kept: &[&str]) -> String {
    match kept {
        [one] => format!("{one} {}", if one.ends_with('s') { "stay" } else { "stays" }),
        [first @ .., last] => format!("{} and {last} stay", first.join(", ")),
        [] => String::new(),
    }
}
