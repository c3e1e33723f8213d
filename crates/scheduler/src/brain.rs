//! The one task that knows and decides: it owns the index, takes every change and answer in batches, lets the engine
//! pass, and keeps a bounded number of writes under way.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use sluice_api::configuration::Configuration;
use sluice_engine::{LocalQueueKey, Name, Time, Uid};
use sluice_index::{Answer, Changes, Happening, Index, Notice, Probe, Reign, Write, WriteKind};
use sluice_runtime::lease::Hold;
use sluice_runtime::shutdown::Shutdown;
use tokio::sync::mpsc;

use crate::input::Input;
use crate::metrics::{self, Metrics, ResultLabels};
use crate::queues::{QueueKey, show_cohort};
use crate::record::Recorder;
use crate::reign::Order;
use crate::reminders::Reminders;
use crate::reporter::Reporter;
use crate::visibility::Readers;
use crate::writer::{self, Limits};

/// Changes taken before the engine passes again.
const BATCH: usize = 512;
/// Decided writes that may wait to be sent, for each that is under way.
const BACKLOG: usize = 2;
/// Statuses and events are brought up to date this often.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Jobs told again in a second why they wait: half of what events are sent for.
const REMINDERS: usize = 5;
/// Pod lists under way at once.
const PROBES: usize = 8;

/// What comes back from tasks that the brain started.
#[derive(Debug)]
enum Returned {
    Answer {
        uid: Uid,
        ticket: u64,
        kind: WriteKind,
        answer: Answer,
        seconds: f64,
        queue: Name,
        job: (Name, Name),
        why: String,
    },
    Probed {
        unit: Uid,
        epoch: u64,
        pods_left: Option<bool>,
    },
}

/// See the module.
pub(crate) struct Brain {
    index: Index,
    metrics: Metrics,
    reporter: Reporter,
    writes: Client,
    reads: Client,
    limits: Limits,
    concurrency: usize,
    hold: Option<Hold>,
    under_way: usize,
    probing: usize,
    returned: mpsc::UnboundedSender<Returned>,
    answers: mpsc::UnboundedReceiver<Returned>,
    next: Option<Time>,
    dirty_queues: BTreeSet<Name>,
    dirty_cohorts: BTreeSet<Name>,
    dirty_local_queues: BTreeSet<LocalQueueKey>,
    recorder: Option<Recorder>,
    reminders: Reminders,
    readers: Readers,
}

/// What a brain is made of.
pub(crate) struct Parts {
    pub(crate) own_namespace: String,
    pub(crate) configuration: Configuration,
    pub(crate) metrics: Metrics,
    pub(crate) reporter: Reporter,
    pub(crate) writes: Client,
    pub(crate) reads: Client,
    pub(crate) limits: Limits,
    pub(crate) concurrency: usize,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) readers: Readers,
}

impl Brain {
    pub(crate) fn new(parts: Parts) -> Self {
        let (returned, answers) = mpsc::unbounded_channel();
        let mut index = Index::new(&parts.own_namespace);
        if parts.recorder.is_some() {
            index.record();
        }
        index.set_configuration(parts.configuration, now());
        Self {
            index,
            metrics: parts.metrics,
            reporter: parts.reporter,
            writes: parts.writes,
            reads: parts.reads,
            limits: parts.limits,
            concurrency: parts.concurrency,
            hold: None,
            under_way: 0,
            probing: 0,
            returned,
            answers,
            next: None,
            dirty_queues: BTreeSet::new(),
            dirty_cohorts: BTreeSet::new(),
            dirty_local_queues: BTreeSet::new(),
            recorder: parts.recorder,
            reminders: Reminders::default(),
            readers: parts.readers,
        }
    }

    /// Runs until shutdown. Writes that are under way then are left to finish; nothing new is sent. Returns whether
    /// the answers of all are known.
    pub(crate) async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut orders: mpsc::Receiver<Order>,
        shutdown: Shutdown,
    ) -> bool {
        let mut batch = Vec::with_capacity(BATCH);
        let mut report = tokio::time::interval(REPORT_INTERVAL);
        report.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wake = self.until_next();
            tokio::select! {
                biased;
                () = shutdown.triggered() => break,
                Some(order) = orders.recv() => {
                    // The order was given when every kind's first list was in the channel: it must be known first.
                    while let Ok(input) = inputs.try_recv() {
                        input.apply(&mut self.index, now());
                    }
                    self.obey(order);
                }
                _ = report.tick() => self.report(),
                // Before the rest, or a flood of changes would leave readers no turn. They get a tenth of the time.
                Some(asked) = self.readers.next() => {
                    // What the watches have delivered by now belongs to the answer.
                    for _ in 0..inputs.len() {
                        let Ok(input) = inputs.try_recv() else { break };
                        input.apply(&mut self.index, now());
                    }
                    self.readers.answer(asked, &self.index, self.hold.is_some());
                }
                Some(first) = self.answers.recv() => self.take(first),
                count = inputs.recv_many(&mut batch, BATCH) => if count == 0 { break },
                () = wake => {}
            }
            // Answers and changes are taken together, so that neither can starve the other.
            while let Ok(more) = self.answers.try_recv() {
                self.take(more);
            }
            while batch.len() < BATCH
                && let Ok(more) = inputs.try_recv()
            {
                batch.push(more);
            }
            let now = now();
            for input in batch.drain(..) {
                input.apply(&mut self.index, now);
            }
            self.decide();
            self.record();
        }
        let settled = self.finish().await;
        self.record();
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
        settled
    }

    /// Writes down what the engine was told and decided, if that is wanted.
    fn record(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.write(&self.index.take_log());
        if !recorder.is_open() {
            self.index.stop_recording();
            self.recorder = None;
        }
    }

    /// Waits for the answers to what is under way: an orderly stop leaves no write in doubt.
    async fn finish(&mut self) -> bool {
        // A write to the status may come before the patch, and a read after it.
        let deadline = tokio::time::Instant::now() + 3 * self.limits.timeout;
        while self.under_way > 0 {
            match tokio::time::timeout_at(deadline, self.answers.recv()).await {
                Ok(Some(returned)) => self.take(returned),
                Ok(None) | Err(_) => return false,
            }
        }
        true
    }

    async fn until(next: Option<Time>) {
        match next {
            Some(at) => {
                let pause = at.0.saturating_sub(now().0).max(1);
                tokio::time::sleep(Duration::from_millis(u64::try_from(pause).unwrap_or(1))).await;
            }
            None => std::future::pending().await,
        }
    }

    fn until_next(&self) -> impl Future<Output = ()> + use<> {
        let backlog_can_move = self.under_way < self.concurrency;
        let next = self
            .index
            .next_deadline(self.next, backlog_can_move, self.probing < PROBES);
        Self::until(next)
    }

    fn obey(&mut self, order: Order) {
        let now = now();
        match order {
            Order::Reign {
                term,
                hold,
                ledger,
                jobs,
                resource_version,
            } => {
                self.index.set_ledger(ledger);
                self.index.reset_jobs(jobs, resource_version, now);
                self.hold = Some(hold);
                self.index.begin_reign(
                    Reign {
                        term,
                        barrier: resource_version,
                    },
                    now,
                );
                self.metrics.leads(true);
                self.everything_is_dirty();
                tracing::info!(term, "this replica leads: it admits Jobs from now on");
            }
            Order::Deposed { why } => {
                self.hold = None;
                self.next = None;
                self.index.end_reign(now);
                self.metrics.leads(false);
                tracing::warn!(why, "this replica no longer leads: it admits nothing and follows");
            }
        }
    }

    fn everything_is_dirty(&mut self) {
        self.dirty_queues.extend(self.index.engine().queues().cloned());
        self.dirty_cohorts.extend(self.index.engine().cohorts().cloned());
        self.dirty_local_queues
            .extend(self.index.engine().local_queues().cloned());
    }

    fn decide(&mut self) {
        let now = now();
        if self.hold.is_some() {
            if let Some(ledger) = self.index.update_ledger(now) {
                self.reporter.store_ledger(ledger.clone());
            }
            let started = Instant::now();
            let before = self.index.engine().counters().admissions;
            self.next = self.index.pass(now, self.concurrency.saturating_mul(BACKLOG));
            let counters = self.index.engine().counters();
            self.note_pass(counters.admissions > before, started);
        } else {
            self.index.pass(now, 0);
        }
        self.send(now);
        self.probe(now);
        for notice in self.index.take_notices() {
            self.tell(&notice);
        }
    }

    fn note_pass(&self, admitted: bool, started: Instant) {
        let result = if admitted { "success" } else { "inadmissible" };
        let labels = ResultLabels {
            result,
            replica_role: "leader",
        };
        self.metrics.attempts.inc(&labels);
        self.metrics
            .attempt_seconds
            .observe(&labels, started.elapsed().as_secs_f64());
    }

    /// Keeps as many writes under way as are allowed.
    fn send(&mut self, now: Time) {
        let Some(hold) = self.hold.clone() else { return };
        while self.under_way < self.concurrency {
            let Some(write) = self.index.next_write(now) else {
                return;
            };
            self.under_way += 1;
            let (client, hold, limits, returned) =
                (self.writes.clone(), hold.clone(), self.limits, self.returned.clone());
            tokio::spawn(async move {
                let Write {
                    uid,
                    ticket,
                    kind,
                    queue,
                    why,
                    ..
                } = write.clone();
                let job = (write.namespace.clone(), write.name.clone());
                let started = Instant::now();
                let answer = writer::carry_out(client, write, hold, limits).await;
                let seconds = started.elapsed().as_secs_f64();
                // The brain outlives its writes except at shutdown, when nobody wants the answer.
                let _closed = returned.send(Returned::Answer {
                    uid,
                    ticket,
                    kind,
                    answer,
                    seconds,
                    queue,
                    job,
                    why,
                });
            });
        }
    }

    fn probe(&mut self, now: Time) {
        while self.probing < PROBES {
            let Some(Probe {
                unit,
                epoch,
                namespace,
                uid,
            }) = self.index.next_probe(now)
            else {
                return;
            };
            self.probing += 1;
            let (client, timeout, returned) = (self.reads.clone(), self.limits.timeout, self.returned.clone());
            tokio::spawn(async move {
                let pods_left = crate::pods::any_left(client, &namespace, &uid, timeout).await;
                let _closed = returned.send(Returned::Probed { unit, epoch, pods_left });
            });
        }
    }

    fn take(&mut self, returned: Returned) {
        let now = now();
        match returned {
            Returned::Answer {
                uid,
                ticket,
                kind,
                answer,
                seconds,
                queue,
                job,
                why,
            } => {
                self.under_way -= 1;
                let outcome = outcome_of(&answer);
                self.metrics.wrote(kind, outcome, seconds);
                log_write(kind, outcome, &answer, &job, &queue, &why, seconds);
                self.index.answer(uid, ticket, answer, now);
            }
            Returned::Probed { unit, epoch, pods_left } => {
                self.probing -= 1;
                self.index.probed(unit, epoch, pods_left, now);
            }
        }
    }

    fn tell(&mut self, notice: &Notice) {
        self.metrics.count(notice, metrics::role(self.hold.is_some()));
        if self.hold.is_none() {
            return;
        }
        let (namespace, name) = (&*notice.job.0, &*notice.job.1);
        match &notice.what {
            Happening::Finished { .. } => {
                tracing::info!(namespace, name, queue = &*notice.queue, "finished: its quota is free");
            }
            Happening::UnreadableRecord { message } => {
                tracing::error!(
                    namespace,
                    name,
                    message,
                    "its record cannot be read: it is charged from its template and queue"
                );
            }
            _ => {}
        }
        self.reporter.event(notice);
    }

    fn report(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
        let Changes {
            cluster_queues,
            cohorts,
            local_queues,
            waiting,
        } = self.index.take_changes();
        self.dirty_queues.extend(cluster_queues);
        self.dirty_cohorts.extend(cohorts);
        self.dirty_local_queues.extend(local_queues);
        let now = now();
        for unit in &waiting {
            if self.hold.is_some() {
                self.reporter.waiting(unit);
            }
            // By whoever leads.
            self.reminders.told(unit.unit, now);
        }
        self.remind(now);
        let (queues, local_queues) = (
            std::mem::take(&mut self.dirty_queues),
            std::mem::take(&mut self.dirty_local_queues),
        );
        self.dirty_queues = self.report_queues(queues, now);
        self.dirty_local_queues = self.report_queues(local_queues, now);
        self.metrics
            .board
            .keep_cohorts(|name| self.index.engine().has_cohort(name));
        let mut cohorts = std::mem::take(&mut self.dirty_cohorts);
        cohorts.retain(|name| self.report_cohort(name));
        self.dirty_cohorts = cohorts;
    }

    /// Tells Jobs again that wait so long that nothing says why any more.
    fn remind(&mut self, now: Time) {
        let waits = |unit| self.index.engine().wait_kind(unit).is_some();
        for unit in self.reminders.due(now, REMINDERS, waits) {
            if self.hold.is_some()
                && let Some(unit) = self.index.waiting_unit(unit)
            {
                self.reporter.waiting(&unit);
            }
        }
    }

    /// Shows a cohort in metrics and in its status. Returns whether it is to be looked at again.
    fn report_cohort(&self, name: &Name) -> bool {
        show_cohort(name, &self.index, &self.metrics);
        let wanted = self.index.wanted_cohort_status(name).filter(|_| self.hold.is_some());
        let Some(status) = wanted else { return false };
        self.reporter.status(status);
        true
    }

    /// Shows queues in metrics and statuses. Returns those to be looked at again: until the object shows its status, so
    /// that a lost write is written again.
    fn report_queues<K: QueueKey>(&self, mut queues: BTreeSet<K>, now: Time) -> BTreeSet<K> {
        queues.retain(|key| {
            key.show(&self.index, &self.metrics);
            if self.hold.is_some()
                && let Some(status) = key.wanted_status(&self.index, now)
            {
                self.reporter.status(status);
                return true;
            }
            false
        });
        queues
    }
}

fn outcome_of(answer: &Answer) -> &'static str {
    match answer {
        Answer::Applied(_) => "applied",
        Answer::GuardFailed(_) => "guard-failed",
        Answer::Refused { .. } => "refused",
        Answer::Delayed => "delayed",
        Answer::Unknown(_) => "unknown",
    }
}

fn log_write(
    kind: WriteKind,
    outcome: &str,
    answer: &Answer,
    job: &(Name, Name),
    queue: &str,
    why: &str,
    seconds: f64,
) {
    let (namespace, name, kind) = (&*job.0, &*job.1, kind.as_str());
    match answer {
        Answer::Applied(_) => tracing::info!(namespace, name, queue, why, seconds, "{kind}: done"),
        Answer::Refused { message } => {
            tracing::warn!(
                namespace,
                name,
                queue,
                why,
                message,
                "{kind}: refused; the Job is set aside for a while"
            );
        }
        _ => tracing::warn!(namespace, name, queue, why, outcome, "{kind}: not carried out yet"),
    }
}

/// The wall clock: what objects' times are compared with.
pub(crate) fn now() -> Time {
    Time(Timestamp::now().as_millisecond())
}
