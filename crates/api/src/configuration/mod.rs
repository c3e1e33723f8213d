//! The configuration file of both processes: kind `Configuration` of `config.kueue.x-k8s.io`, as Kueue has it.
//!
//! ```text
//! text -> tree (values with their lines) -> schema (is each field known, and acted on?) -> read (values) -> Configuration
//!                                                '-----------------------------------------'-> all errors together
//! ```
//!
//! Nothing in the file is ignored: a field that Sluice does not act on is refused by name, unless its value says what
//! Sluice does anyway. What is Sluice's own is to live under the key `sluice`.

mod problem;
mod read;
mod schema;
mod tree;

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_quantity::Quantity;

pub use problem::{ConfigurationError, ConfigurationProblem};
use schema::Version;
use tree::{Entry, Node, Value};

/// The kind of the file.
pub const KIND: &str = "Configuration";

/// What the file sets. The default is that of an empty file: everything off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Jobs whose pods do not all become ready in time are evicted; off if none. (An absent block is off; Kueue's newest
    /// release takes it as on.)
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Shares decide on order and preemption within cohorts; off if none.
    pub fair_sharing: Option<FairSharing>,
    /// How past usage of LocalQueues is counted, for the ClusterQueues whose `admissionScope` asks for it; off if none.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
}

/// `waitForPodsReady`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// The time that the pods of an admitted Job have to become ready; above zero. Default 30 minutes (5 in v1beta1).
    pub timeout: Duration,
    /// The time that a Job which has run has to replace a pod that is no longer ready; no limit if none. By default that of
    /// `timeout` (none in v1beta1); written as `0s` it is none.
    pub recovery_timeout: Option<Duration>,
    /// Nothing is admitted while an admitted Job has pods that are not ready. Default false (true in v1beta1).
    pub block_admission: bool,
    /// When an evicted Job may be tried again.
    pub requeuing_strategy: RequeuingStrategy,
}

/// `waitForPodsReady.requeuingStrategy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequeuingStrategy {
    /// What the queue time of a Job is that was evicted because its pods were not ready.
    pub timestamp: RequeuingTimestamp,
    /// After so many evictions a Job is deactivated; never if none.
    pub backoff_limit_count: Option<u32>,
    /// The delay after the first eviction, in whole seconds. It doubles with each further one. Default 60 s.
    pub backoff_base: Duration,
    /// The longest delay, in whole seconds. Default one hour.
    pub backoff_max: Duration,
}

impl Default for RequeuingStrategy {
    fn default() -> Self {
        Self {
            timestamp: RequeuingTimestamp::Eviction,
            backoff_limit_count: None,
            backoff_base: Duration::from_secs(60),
            backoff_max: Duration::from_secs(3600),
        }
    }
}

/// What the queue time of an evicted Job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequeuingTimestamp {
    /// The time of its eviction: it goes behind those that came before.
    #[default]
    Eviction,
    /// The time of its creation: it keeps its place.
    Creation,
}

impl RequeuingTimestamp {
    /// The value as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eviction => "Eviction",
            Self::Creation => "Creation",
        }
    }
}

/// `fairSharing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairSharing {
    /// The strategy that is tried first.
    pub first: PreemptionStrategy,
    /// The strategy that is tried when the first does not make enough room.
    pub second: Option<PreemptionStrategy>,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            first: PreemptionStrategy::LessThanOrEqualToFinalShare,
            second: Some(PreemptionStrategy::LessThanInitialShare),
        }
    }
}

/// When a share allows a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptionStrategy {
    /// The preemptor's share is at most what the victim's side has without the victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share is less than what the victim's side has with the victim.
    LessThanInitialShare,
}

impl PreemptionStrategy {
    /// The value as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LessThanOrEqualToFinalShare => "LessThanOrEqualToFinalShare",
            Self::LessThanInitialShare => "LessThanInitialShare",
        }
    }
}

/// `admissionFairSharing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionFairSharing {
    /// The time after which past usage counts half; with zero it is forgotten at once. Default one hour. (Kueue's default is
    /// zero.)
    pub usage_half_life_time: Duration,
    /// How often the usage in the status of LocalQueues is brought up to date; above zero. Default five minutes.
    pub usage_sampling_interval: Duration,
    /// What one unit of a resource counts; [`ResourceWeight::ONE`] for those not named.
    pub resource_weights: BTreeMap<String, ResourceWeight>,
}

/// What usage of a resource counts, in thousand-millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceWeight(pub u64);

impl ResourceWeight {
    /// One.
    pub const ONE: Self = Self(1_000_000_000);
    /// The greatest weight that a file may set: a thousand million.
    pub const MAX: Self = Self(1_000_000_000_000_000_000);

    /// Reads a decimal number; what is below a thousand-millionth is rounded up.
    fn parse(text: &str) -> Option<Self> {
        let billionths = Quantity::parse(text).ok()?.nanos();
        let weight = Self(u64::try_from(billionths).ok()?);
        (weight <= Self::MAX).then_some(weight)
    }
}

impl Default for ResourceWeight {
    fn default() -> Self {
        Self::ONE
    }
}

/// Reads a configuration file. An empty one, or one with comments alone, sets nothing.
///
/// # Errors
/// Everything that is wrong with the file, in the order of its lines.
pub fn parse(text: &str) -> Result<Configuration, Vec<ConfigurationError>> {
    let file = tree::read(text).map_err(|error| vec![error])?;
    let entries = match &file.value {
        Value::Null => return Ok(Configuration::default()),
        Value::Block(entries) => entries,
        _ => return Err(vec![value_error(&file, "the file", "a block of fields")]),
    };
    let mut found = Vec::new();
    let version = version(entries, &mut found);
    found.extend(schema::check(entries, version));
    let configuration = read::read(entries, version, &mut found);
    if found.is_empty() {
        return Ok(configuration);
    }
    found.sort_by_key(|error| error.line);
    Err(found)
}

/// The version of the file, by what it says of itself; the newest if that is unclear.
fn version(file: &[Entry], found: &mut Vec<ConfigurationError>) -> Version {
    let versions = [Version::V1Beta2, Version::V1Beta1];
    let named = one_of(file, "apiVersion", &versions.map(Version::name), found);
    one_of(file, "kind", &[KIND], found);
    versions
        .into_iter()
        .find(|version| Some(version.name()) == named)
        .unwrap_or(Version::V1Beta2)
}

/// The value of a field that must be there and have one of a few values.
fn one_of(
    file: &[Entry],
    name: &str,
    allowed: &[&'static str],
    found: &mut Vec<ConfigurationError>,
) -> Option<&'static str> {
    let Some(entry) = file.iter().find(|entry| entry.name == name) else {
        found.push(ConfigurationError {
            line: 1,
            field: name.to_owned(),
            problem: ConfigurationProblem::Missing,
        });
        return None;
    };
    let text = entry.node.value.scalar();
    let known = allowed.iter().copied().find(|known| Some(*known) == text.as_deref());
    if known.is_none() {
        found.push(value_error(&entry.node, name, &allowed.join(" or ")));
    }
    known
}

fn value_error(node: &Node, field: &str, expected: &str) -> ConfigurationError {
    ConfigurationError {
        line: node.line,
        field: field.to_owned(),
        problem: ConfigurationProblem::Value {
            expected: expected.to_owned(),
            found: node.value.to_string(),
        },
    }
}
