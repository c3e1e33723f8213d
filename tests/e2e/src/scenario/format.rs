//! The form of a scenario file, and the manifests that it stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use sluice_api::QuantityText;
use sluice_api::configuration::{self, Configuration};

use crate::jobs::Stage;

/// The namespace of whatever names none.
const NAMESPACE: &str = "team";

/// One file.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name without its ending; the names of all its objects begin with it.
    pub name: String,
    /// The Configuration file, if it needs one of its own.
    pub config: Option<String>,
    /// What it begins with.
    pub objects: Vec<Object>,
    /// What happens then.
    pub steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    objects: Vec<Object>,
    steps: Vec<Step>,
}

/// An object that is no Job, without what every one has.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name, without the scenario's.
    pub name: String,
    /// The namespace of a LocalQueue.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its labels. A namespace is opted in beside them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Its spec, as in the API.
    #[serde(default)]
    pub spec: Value,
    /// The value of a WorkloadPriorityClass.
    #[serde(default)]
    pub value: Option<i32>,
}

/// Kinds that scenarios use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[allow(missing_docs)]
pub enum Kind {
    Namespace,
    ResourceFlavor,
    Cohort,
    ClusterQueue,
    LocalQueue,
    WorkloadPriorityClass,
}

impl Kind {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::ResourceFlavor => "ResourceFlavor",
            Self::Cohort => "Cohort",
            Self::ClusterQueue => "ClusterQueue",
            Self::LocalQueue => "LocalQueue",
            Self::WorkloadPriorityClass => "WorkloadPriorityClass",
        }
    }
}

/// One step: what is done, and what must be so once everything has come to rest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Step {
    /// Jobs that are created.
    pub create: Vec<NewJob>,
    /// Objects that are created or replaced.
    pub apply: Vec<Object>,
    /// Objects that are changed in part.
    pub change: Vec<Change>,
    /// Objects that are deleted.
    pub remove: Vec<Reference>,
    /// Jobs whose owner changes them.
    pub edit: Vec<Edit>,
    /// Jobs whose pods become ready.
    pub ready: Vec<String>,
    /// Jobs that lose a pod: its replacement is not ready.
    pub lose: Vec<String>,
    /// Jobs of which some pods succeed.
    pub succeed: Vec<Succeed>,
    /// Jobs whose pods all succeed.
    pub finish: Vec<String>,
    /// Jobs that are deleted.
    pub delete: Vec<String>,
    /// Stopped Jobs whose lingering pods go at last.
    pub gone: Vec<String>,
    /// So much time passes.
    pub seconds_pass: i64,
    /// Nobody knows which of the Jobs of this step come first: from now on Jobs are only counted.
    pub any_order: bool,
    /// What must be so afterwards.
    pub expect: Expect,
}

/// A Job that is created.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NewJob {
    /// Its name, unlike that of any other Job of the scenario.
    pub job: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its LocalQueue.
    #[serde(default = "default_queue")]
    pub queue: String,
    /// Its labels, beside those of its queue and class.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Its WorkloadPriorityClass.
    pub priority_class: Option<String>,
    /// Parallelism and completions.
    #[serde(default = "one")]
    pub pods: u32,
    /// Requests of its only container: one cpu if it has no limits either.
    pub requests: Option<BTreeMap<String, QuantityText>>,
    /// Limits of its only container.
    pub limits: Option<BTreeMap<String, QuantityText>>,
    /// Fields of the pod spec that are set or replaced.
    #[serde(default)]
    pub pod: BTreeMap<String, Value>,
    /// Its pods are not ready before a step says so.
    #[serde(default)]
    pub slow: bool,
    /// Its pods do not go before a step says so.
    #[serde(default)]
    pub lingers: bool,
}

/// A change of a Job by its owner.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Which.
    pub job: String,
    /// A merge patch.
    pub patch: Value,
}

/// Names an object that is no Job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Its kind.
    pub kind: Kind,
    /// Its name, without the scenario's.
    pub name: String,
    /// The namespace of a LocalQueue.
    #[serde(default = "default_namespace")]
    pub namespace: String,
}

/// A change of an object that is no Job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Its kind.
    pub kind: Kind,
    /// Its name, without the scenario's.
    pub name: String,
    /// The namespace of a LocalQueue.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// A merge patch.
    pub patch: Value,
}

/// Some pods of a Job succeed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Succeed {
    /// Which Job.
    pub job: String,
    /// How many of its pods.
    pub pods: i64,
}

/// What must be so. What is not named may be anything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Jobs, by name.
    pub jobs: BTreeMap<String, ExpectJob>,
    /// How many Jobs are in each stage.
    pub counts: BTreeMap<StageName, usize>,
    /// All Jobs that were ever admitted, in the order of that.
    pub admitted: Option<Vec<String>>,
    /// ClusterQueues, by name.
    pub queues: BTreeMap<String, ExpectQueue>,
}

/// What must be so of a Job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectJob {
    /// Where it is.
    pub stage: StageName,
    /// The flavor of each resource that it got.
    pub flavors: Option<BTreeMap<String, String>>,
    /// The kind of reason why it waits.
    pub why: Option<String>,
    /// Why it was stopped last, as long as it has not been admitted again: `Preempted/InClusterQueue`.
    pub evicted: Option<String>,
    /// How often it was stopped.
    pub evictions: Option<u64>,
    /// How many pods it was admitted with.
    pub pods: Option<i64>,
    /// Its `spec.parallelism`.
    pub parallelism: Option<i64>,
}

/// What must be so of a ClusterQueue, as its status tells.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectQueue {
    /// Its condition Active.
    pub active: Option<bool>,
    /// The reason of that.
    pub reason: Option<String>,
    /// Jobs that wait.
    pub pending: Option<i32>,
    /// Jobs that hold quota.
    pub reserving: Option<i32>,
    /// What is held, by flavor and resource.
    pub reserved: BTreeMap<String, BTreeMap<String, QuantityText>>,
    /// How much of that is borrowed.
    pub borrowed: BTreeMap<String, BTreeMap<String, QuantityText>>,
    /// Its weighted share.
    pub share: Option<i64>,
}

/// A [`Stage`], as files name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[allow(missing_docs)]
pub enum StageName {
    Held,
    Running,
    Completed,
    Failed,
}

impl From<Stage> for StageName {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Held => Self::Held,
            Stage::Running => Self::Running,
            Stage::Completed => Self::Completed,
            Stage::Failed => Self::Failed,
        }
    }
}

fn default_namespace() -> String {
    NAMESPACE.to_owned()
}

fn default_queue() -> String {
    "default".to_owned()
}

fn one() -> u32 {
    1
}

/// The fields of a scenario's `config` as a file.
fn configuration_file(mut fields: Value) -> Result<String> {
    ensure!(fields.is_object(), "config is no map");
    fields["apiVersion"] = "config.kueue.x-k8s.io/v1beta2".into();
    fields["kind"] = "Configuration".into();
    Ok(fields.to_string())
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

impl Scenario {
    /// The scenario of this name; `_` stands for `-`.
    ///
    /// # Errors
    /// There is no such file, or it is no scenario.
    pub fn load(name: &str) -> Result<Self> {
        let name = name.replace('_', "-");
        let path = folder().join(&name).with_extension("yaml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        Self::read(&name, &text).with_context(|| format!("{}", path.display()))
    }

    /// Names of all files, in order.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all_names() -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder()).context("failed to list the scenarios")? {
            let file = entry?.file_name();
            let name = file.to_str().and_then(|name| name.strip_suffix(".yaml"));
            names.push(
                name.with_context(|| format!("{} is no .yaml file", file.display()))?
                    .to_owned(),
            );
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Reads a scenario, and refuses one whose outcome nobody could foretell.
    ///
    /// # Errors
    /// It is malformed, names what it does not have, or hangs on the order of uids.
    pub fn read(name: &str, text: &str) -> Result<Self> {
        let File {
            config,
            mut objects,
            steps,
        } = serde_saphyr::from_str(text).context("malformed scenario")?;
        let mut scenario = Self {
            name: name.to_owned(),
            config: config.map(configuration_file).transpose()?,
            objects: Vec::new(),
            steps,
        };
        scenario.declare_namespaces(&mut objects);
        scenario.objects = objects;
        scenario.check()?;
        Ok(scenario)
    }

    /// Namespaces that are used and not among the objects come first.
    fn declare_namespaces(&self, objects: &mut Vec<Object>) {
        let declared: BTreeSet<&str> = objects
            .iter()
            .filter(|one| one.kind == Kind::Namespace)
            .map(|one| one.name.as_str())
            .collect();
        let applied = self.steps.iter().flat_map(|step| &step.apply);
        let of_queues = objects.iter().chain(applied).filter(|one| one.kind == Kind::LocalQueue);
        let of_jobs = self
            .steps
            .iter()
            .flat_map(|step| &step.create)
            .map(|job| job.namespace.clone());
        let used: BTreeSet<String> = of_queues.map(|queue| queue.namespace.clone()).chain(of_jobs).collect();
        let missing = used.into_iter().filter(|name| !declared.contains(name.as_str()));
        let missing: Vec<Object> = missing.map(|name| Object::new(Kind::Namespace, &name)).collect();
        objects.splice(0..0, missing);
    }

    /// What its Configuration file says.
    ///
    /// # Errors
    /// There is something wrong in it.
    pub fn configuration(&self) -> Result<Configuration> {
        let text = self.config.as_deref().unwrap_or_default();
        configuration::parse(text).map_err(|errors| anyhow::anyhow!("malformed config: {errors:?}"))
    }

    fn check(&self) -> Result<()> {
        self.configuration()?;
        ensure!(
            self.steps.last().is_some_and(|step| !step.expect.is_empty()),
            "the last step expects nothing"
        );
        let mut jobs = BTreeSet::new();
        let mut any_order = false;
        for (number, step) in (1..).zip(&self.steps) {
            step.check(&mut jobs, &mut any_order)
                .with_context(|| format!("step {number}"))?;
        }
        Ok(())
    }

    /// Every object of a kind that it has at any time; one that is applied again comes again.
    pub fn all_of(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let all = self
            .objects
            .iter()
            .chain(self.steps.iter().flat_map(|step| &step.apply));
        all.filter(move |object| object.kind == kind)
    }

    /// The Job of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn job(&self, name: &str) -> Result<&NewJob> {
        let mut jobs = self.steps.iter().flat_map(|step| &step.create);
        jobs.find(|job| job.job == name)
            .with_context(|| format!("there is no Job {name}"))
    }

    /// The name that an object has in the cluster.
    pub fn full(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// The name that an object of the cluster has in the file.
    pub fn short<'a>(&self, full: &'a str) -> &'a str {
        full.strip_prefix(&self.name)
            .and_then(|rest| rest.strip_prefix('-'))
            .unwrap_or(full)
    }

    /// Names in the cluster of its namespaces.
    pub fn namespaces(&self) -> Vec<String> {
        self.objects
            .iter()
            .filter(|one| one.kind == Kind::Namespace)
            .map(|one| self.full(&one.name))
            .collect()
    }
}

impl Object {
    fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            namespace: default_namespace(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec: Value::Null,
            value: None,
        }
    }
}

impl Step {
    fn check(&self, jobs: &mut BTreeSet<String>, any_order: &mut bool) -> Result<()> {
        *any_order |= self.any_order;
        let mut places: BTreeMap<_, &str> = BTreeMap::new();
        for job in &self.create {
            ensure!(jobs.insert(job.job.clone()), "there are two Jobs {}", job.job);
            let place = (&job.namespace, &job.queue, &job.priority_class);
            if let Some(other) = places.insert(place, &job.job)
                && !self.any_order
            {
                bail!(
                    "Jobs {other} and {} are equal but for their uids: give each a step, or say anyOrder and count",
                    job.job
                );
            }
        }
        let edited = self.edit.iter().map(|edit| &edit.job);
        let edited = edited.chain(self.succeed.iter().map(|some| &some.job));
        let expected = self.expect.jobs.keys().chain(self.expect.admitted.iter().flatten());
        let lists = [&self.ready, &self.lose, &self.finish, &self.delete, &self.gone];
        let touched: Vec<&String> = edited.chain(lists.into_iter().flatten()).collect();
        for name in touched.iter().copied().chain(expected) {
            ensure!(jobs.contains(name), "there is no Job {name} yet");
        }
        let named = !self.expect.jobs.is_empty() || self.expect.admitted.is_some();
        let touched = !touched.is_empty();
        ensure!(
            !*any_order || !named && !touched,
            "after anyOrder a step may only count Jobs, never name one"
        );
        Ok(())
    }
}

impl Expect {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.counts.is_empty() && self.admitted.is_none() && self.queues.is_empty()
    }

    /// Whether it says why a Job waits.
    pub fn asks_why(&self) -> bool {
        self.jobs.values().any(|job| job.why.is_some())
    }
}
