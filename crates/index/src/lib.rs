//! Between the API and the engine: objects are lowered to engine events, decisions are raised to writes.
//!
//! ```text
//! watch events --Index::set_*/delete_*--> engine events --> Engine
//!                                                             |
//! patches <------Index::next_write------- intents <---Index::pass
//!    |
//!    '--answers--Index::answer--> the assumption is kept, confirmed or undone
//! ```
//!
//! One [`Index`] lives in one task; it holds the [`Engine`] and is the only place that sees both the API's types
//! and the engine's. It does no I/O, reads no clock, and leaves nothing to choose: whoever carries out a [`Write`]
//! may send it, send it later or not at all, and reports the [`Answer`].
//!
//! Invariants:
//! - A unit has at most one intent. Until its answer is known the engine charges it as decided.
//! - An event older than the last one seen of the same object changes nothing.
//! - Whatever the order in which objects arrive, the final state is the same.

mod answer;
mod ask;
mod decide;
mod lower;
mod namespaces;
mod objects;
mod past;
mod pending;
mod quota;
mod raise;
mod readiness;
mod report;
mod settings;
mod standing;
mod status;
mod stop;
mod tally;
mod unit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use sluice_api::configuration::Configuration;
use sluice_engine::{Engine, Name, Step, Time, Uid};
use sluice_jobs::view::JobView;

pub use answer::{Answer, Happening, Notice};
pub use decide::{Probe, Write, WriteKind};
pub use namespaces::Ledger;
pub use pending::{Pending, PendingRow};
pub use report::{Changes, WaitingUnit};
pub use status::WantedStatus;
pub use tally::Tally;

use namespaces::Namespaces;
use objects::Objects;
use tally::Tallies;
use unit::Unit;

/// How many deleted Jobs are remembered: more than are deleted while one list of all Jobs is read.
const BURIED: usize = 100_000;

/// Namespace and name of a Job.
pub type JobKey = (Name, Name);

/// The world as the scheduler sees it, and the engine that decides on it.
#[derive(Debug)]
pub struct Index {
    engine: Engine,
    tallies: Tallies,
    own_namespace: Name,
    configuration: Configuration,
    namespaces: Namespaces,
    objects: Objects,
    units: FxHashMap<Uid, Unit>,
    by_name: BTreeMap<JobKey, Uid>,
    /// Tickets and units of intents that are to be sent now, in the order decided. A ticket that its unit no longer has
    /// is skipped.
    backlog: VecDeque<(u64, Uid)>,
    /// The same of intents that are to be sent later, by their time.
    later: BTreeSet<(Time, u64, Uid)>,
    /// The last ticket given out.
    tickets: u64,
    /// Jobs that Jobs control, by their owner.
    children: FxHashMap<Uid, Vec<Uid>>,
    /// The last Jobs that were deleted: a list that began before may still show them.
    buried: VecDeque<Uid>,
    /// When pod lists are to be asked for.
    probes: BTreeSet<(Time, Uid)>,
    reign: Option<Reign>,
    /// The newest resourceVersion of a Job seen so far.
    newest: u64,
    notices: Vec<Notice>,
    /// Quota, or who shares it, changed since the last report: that can change the share of every member.
    quota_changed: bool,
    /// What the engine was told and asked since the log was last taken, if that is recorded.
    log: Option<Vec<Step>>,
}

/// The right to decide, and under which term.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reign {
    /// Stamped in every record.
    pub term: u64,
    /// The resourceVersion of the list of Jobs that the reign began with: what an older term admitted later is revoked.
    pub barrier: u64,
}

impl Index {
    /// An empty world. Jobs in `own_namespace` are never managed.
    pub fn new(own_namespace: &str) -> Self {
        Self {
            engine: Engine::new(),
            tallies: Tallies::default(),
            own_namespace: own_namespace.into(),
            configuration: Configuration::default(),
            namespaces: Namespaces::default(),
            objects: Objects::default(),
            units: FxHashMap::default(),
            by_name: BTreeMap::new(),
            backlog: VecDeque::new(),
            later: BTreeSet::new(),
            tickets: 0,
            children: FxHashMap::default(),
            buried: VecDeque::new(),
            probes: BTreeSet::new(),
            reign: None,
            newest: 0,
            notices: Vec::new(),
            quota_changed: false,
            log: None,
        }
    }

    /// From now on everything that the engine is told and asked is recorded. Only a record from the very beginning can be
    /// replayed.
    pub fn record(&mut self) {
        self.log.get_or_insert_default();
    }

    /// From now on nothing is recorded.
    pub fn stop_recording(&mut self) {
        self.log = None;
    }

    /// What was recorded since the last call.
    pub fn take_log(&mut self) -> Vec<Step> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, step: impl FnOnce() -> Step) {
        if let Some(log) = &mut self.log {
            log.push(step());
        }
    }

    /// The engine, to be asked.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The present reign; `None` on a standby.
    pub fn reign(&self) -> Option<Reign> {
        self.reign
    }

    /// From now on this replica decides.
    pub fn begin_reign(&mut self, reign: Reign, now: Time) {
        self.reign = Some(reign);
        self.relower_all(now);
    }

    /// From now on another replica decides: what was decided and not yet seen to be written is forgotten.
    pub fn end_reign(&mut self, now: Time) {
        self.reign = None;
        self.backlog.clear();
        self.later.clear();
        for unit in self.units.values_mut() {
            unit.intent = None;
            unit.owed = None;
            unit.aside = None;
        }
        self.relower_all(now);
    }

    /// A Job as the API server shows it, by watch, list or as the answer to a write.
    ///
    /// Returns whether it was news.
    pub fn set_job(&mut self, job: JobView, now: Time) -> bool {
        let Some(uid_text) = job.metadata.uid.as_deref() else {
            return false;
        };
        let uid = unit::uid_of(uid_text);
        let seen = version_of(job.metadata.resource_version.as_deref());
        self.newest = self.newest.max(seen);
        let key = key_of(&job);
        if self
            .units
            .get(&uid)
            .is_some_and(|unit| unit.departed || unit.seen >= seen)
        {
            return false;
        }
        if let Some(&previous) = self.by_name.get(&key)
            && previous != uid
        {
            // Of two Jobs of one name the one seen later lives.
            if self.units.get(&previous).is_some_and(|unit| unit.seen >= seen) {
                return false;
            }
            self.depart(previous, now);
        }
        let owner = job
            .controlling_owner()
            .filter(|owner| owner.kind == "Job")
            .map(|owner| unit::uid_of(&owner.uid));
        let new = !self.units.contains_key(&uid);
        if let Some(unit) = self.units.get_mut(&uid) {
            unit.renew(Arc::new(job), seen);
        } else {
            self.units.insert(uid, Unit::new(Arc::new(job), seen));
        }
        self.namespaces.add_job(&key.0, uid);
        self.by_name.insert(key, uid);
        self.relower(uid, now);
        if new {
            if let Some(owner) = owner {
                self.children.entry(owner).or_default().push(uid);
            }
            // Children that came first were judged without their owner.
            let children = self.children.get(&uid).cloned().unwrap_or_default();
            self.relower_each(children, now);
        }
        true
    }

    /// A Job is gone. Its pods may not be: DELETE without a propagation policy leaves them running.
    ///
    /// An empty `uid` means whichever Job has the name.
    pub fn delete_job(&mut self, namespace: &str, name: &str, uid: &str, now: Time) {
        let named = self.by_name.get(&(Name::from(namespace), Name::from(name))).copied();
        let gone = if uid.is_empty() { named } else { Some(unit::uid_of(uid)) };
        if let Some(gone) = gone {
            self.buried.push_back(gone);
            if self.buried.len() > BURIED {
                self.buried.pop_front();
            }
            self.depart(gone, now);
        }
    }

    /// Everything there is, as a list with quorum at `resource_version` shows it: what is not in it is gone.
    pub fn reset_jobs(&mut self, live: Vec<JobView>, resource_version: u64, now: Time) {
        let names: BTreeSet<JobKey> = live.iter().map(key_of).collect();
        let gone: Vec<Uid> = self
            .by_name
            .iter()
            .filter(|(key, uid)| {
                !names.contains(*key) && self.units.get(*uid).is_some_and(|unit| unit.seen <= resource_version)
            })
            .map(|(_, &uid)| uid)
            .collect();
        for uid in gone {
            self.depart(uid, now);
        }
        let buried: BTreeSet<Uid> = self.buried.drain(..).collect();
        for job in live {
            let uid = unit::uid_of(job.uid());
            if buried.contains(&uid) {
                continue;
            }
            if let Some(unit) = self.units.get_mut(&uid)
                && unit.is_same_admission(&job)
            {
                unit.record_seen = unit.record_seen.min(resource_version);
            }
            self.set_job(job, now);
        }
    }

    fn depart(&mut self, uid: Uid, now: Time) {
        let Some(unit) = self.units.get_mut(&uid) else { return };
        let key = key_of(&unit.job);
        if self.by_name.get(&key) == Some(&uid) {
            self.by_name.remove(&key);
        }
        unit.departed = true;
        if !unit.is_sent() {
            unit.intent = None;
        }
        self.relower(uid, now);
    }

    /// Forgets a unit altogether.
    fn drop_unit(&mut self, uid: Uid) {
        if let Some(unit) = self.units.remove(&uid) {
            self.namespaces.remove_job(&key_of(&unit.job).0, uid);
            if let Some(at) = unit.probe_at {
                self.probes.remove(&(at, uid));
            }
            self.children.remove(&uid);
            if let Some(owner) = unit.job.controlling_owner()
                && let Some(siblings) = self.children.get_mut(&unit::uid_of(&owner.uid))
            {
                siblings.retain(|sibling| *sibling != uid);
            }
        }
        self.tell(sluice_engine::Event::RemoveUnit(uid));
    }

    fn relower_all(&mut self, now: Time) {
        let mut uids: Vec<Uid> = self.units.keys().copied().collect();
        uids.sort_unstable();
        self.relower_each(uids, now);
    }

    fn relower_each(&mut self, uids: impl IntoIterator<Item = Uid>, now: Time) {
        for uid in uids {
            self.relower(uid, now);
        }
    }

    /// The next instant at which there is something to do without a new event: `pass` is what [`Index::pass`] returned;
    /// `writes` and `probes` say whether the caller has room for another write or pod list.
    pub fn next_deadline(&self, pass: Option<Time>, writes: bool, probes: bool) -> Option<Time> {
        let probe = self.probes.first().map(|&(at, _)| at).filter(|_| probes);
        let backlog = self.next_backlog_time().filter(|_| writes);
        [pass, probe, backlog].into_iter().flatten().min()
    }

    /// What happened since the last call, for events, metrics and logs.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}

fn key_of(job: &JobView) -> JobKey {
    (
        job.metadata.namespace.as_deref().unwrap_or_default().into(),
        job.metadata.name.as_deref().unwrap_or_default().into(),
    )
}

/// A resourceVersion as a number. Kubernetes' API server makes them comparable integers (KEP-5504).
fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
