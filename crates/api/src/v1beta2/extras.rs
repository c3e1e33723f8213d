//! Rules of a ClusterQueue beyond Kueue's, in annotations of Sluice's own.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::cluster_queue::ClusterQueue;
use super::cohort::Cohort;
use super::policy::{AdmissionMode, QueueingStrategy};
use super::validation::{Problem, Violation};
use crate::annotations::{
    AGEING_INTERVAL, AGEING_MAX_STEPS, BACKFILL, FIFO_PER_POOL, MINIMUM_RUN_TIME, SHRINK_TO_QUOTA_AFTER, SLUICE_PREFIX,
};
use crate::duration::parse_duration;

/// What a ClusterQueue has beyond Kueue's rules; each off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Jobs behind a head that does not fit may start only if that does not delay it.
    pub backfill: bool,
    /// A head that does not fit blocks only those behind it that could use a flavor it waits for. With StrictFIFO alone.
    pub fifo_per_pool: bool,
    /// How fast waiting raises a job in the order of the queue.
    pub ageing: Option<Ageing>,
    /// A job that has run for less than this is not preempted; zero: at any time.
    pub minimum_run_time: Duration,
    /// When quota is lowered, usage above it is evicted after this time; never if none.
    pub shrink_to_quota_after: Option<Duration>,
}

/// How fast waiting raises a job in the order of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    /// Waiting that is worth one step of priority; at least a millisecond.
    pub interval: Duration,
    /// How many steps waiting can be worth at most; at least one.
    pub max_steps: i32,
}

impl Ageing {
    /// How many steps waiting is worth at most where the annotation does not say.
    pub const DEFAULT_MAX_STEPS: i32 = 100;
}

/// All annotations that are read here.
const KNOWN: &[&str] = &[
    AGEING_INTERVAL,
    AGEING_MAX_STEPS,
    BACKFILL,
    FIFO_PER_POOL,
    MINIMUM_RUN_TIME,
    SHRINK_TO_QUOTA_AFTER,
];
/// The longest value that a message repeats, in characters.
const LONGEST: usize = 60;

impl ClusterQueue {
    /// Whether jobs of LocalQueues that used less lately go first.
    pub fn goes_by_past_usage(&self) -> bool {
        let scope = self.spec.admission_scope.as_ref();
        scope.is_some_and(|scope| scope.admission_mode == AdmissionMode::UsageBasedAdmissionFairSharing)
    }

    /// The annotations under `sluice.internal/` that are acted on, as `name=value`, by name; none if one of them is broken.
    pub fn rules_in_force(&self) -> Vec<String> {
        if self.extras().is_err() {
            return Vec::new();
        }
        let annotations = self.metadata.annotations.iter().flatten();
        let ours = annotations.filter_map(|(key, value)| Some((key.strip_prefix(SLUICE_PREFIX)?, value)));
        let in_force = ours.filter(|(_, value)| *value != "false");
        in_force.map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// What the queue has beyond Kueue's rules.
    ///
    /// # Errors
    /// Everything that is wrong with the annotations under `sluice.internal/`, in the order of their names. One that is not
    /// known is wrong too: a rule that somebody relies on must not be missing for a slip of the pen.
    pub fn extras(&self) -> Result<Extras, Vec<Violation>> {
        let mut reader = Reader::of(&self.metadata);
        let extras = Extras {
            backfill: reader.flag(BACKFILL),
            fifo_per_pool: reader.flag(FIFO_PER_POOL),
            ageing: reader.ageing(),
            minimum_run_time: reader.duration(MINIMUM_RUN_TIME, TIME).unwrap_or_default(),
            shrink_to_quota_after: reader.duration(SHRINK_TO_QUOTA_AFTER, TIME),
        };
        if extras.fifo_per_pool && self.spec.queueing_strategy != QueueingStrategy::StrictFIFO {
            reader.add(FIFO_PER_POOL, Problem::Needs("spec.queueingStrategy StrictFIFO"));
        }
        for (is_set, key) in [(extras.backfill, BACKFILL), (extras.fifo_per_pool, FIFO_PER_POOL)] {
            if is_set && extras.ageing.is_some() {
                reader.add(key, Problem::Excludes("the annotation sluice.internal/ageing-interval"));
            } else if is_set && self.goes_by_past_usage() {
                reader.add(
                    key,
                    Problem::Excludes("spec.admissionScope.admissionMode UsageBasedAdmissionFairSharing"),
                );
            }
        }
        reader.unknown(KNOWN);
        reader.finish(extras)
    }
}

impl Cohort {
    /// Annotations of Sluice's own on a cohort: there are none that it reads.
    pub(super) fn annotation_violations(&self) -> Vec<Violation> {
        let mut reader = Reader::of(&self.metadata);
        reader.unknown(&[]);
        reader.finish(()).err().unwrap_or_default()
    }
}

/// What a duration must be.
struct Wanted {
    least: Duration,
    words: &'static str,
}

const TIME: Wanted = Wanted {
    least: Duration::ZERO,
    words: "a duration such as 90s or 10m",
};
const INTERVAL: Wanted = Wanted {
    least: Duration::from_millis(1),
    words: "a duration of at least 1ms, such as 90s or 10m",
};

struct Reader<'a> {
    annotations: Option<&'a BTreeMap<String, String>>,
    found: Vec<(String, Problem)>,
}

impl<'a> Reader<'a> {
    fn of(metadata: &'a ObjectMeta) -> Self {
        Self {
            annotations: metadata.annotations.as_ref(),
            found: Vec::new(),
        }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.annotations?.get(key).map(String::as_str)
    }

    fn add(&mut self, key: &str, problem: Problem) {
        self.found.push((key.to_owned(), problem));
    }

    fn refuse(&mut self, key: &str, value: &str, wanted: &'static str) {
        let mut shown: String = value.chars().take(LONGEST).collect();
        if shown.len() < value.len() {
            shown.push_str("...");
        }
        self.add(key, Problem::Annotation { value: shown, wanted });
    }

    fn flag(&mut self, key: &str) -> bool {
        match self.get(key) {
            Some("true") => true,
            None | Some("false") => false,
            Some(other) => {
                self.refuse(key, other, "\"true\" or \"false\"");
                false
            }
        }
    }

    fn duration(&mut self, key: &str, wanted: Wanted) -> Option<Duration> {
        let value = self.get(key)?;
        let duration = parse_duration(value).ok().filter(|duration| *duration >= wanted.least);
        if duration.is_none() {
            self.refuse(key, value, wanted.words);
        }
        duration
    }

    fn ageing(&mut self) -> Option<Ageing> {
        let max_steps = self.get(AGEING_MAX_STEPS).and_then(|value| {
            // A sign or blanks are no part of a count.
            let digits = value.bytes().all(|byte| byte.is_ascii_digit());
            let steps = value.parse().ok().filter(|steps| digits && *steps >= 1);
            if steps.is_none() {
                self.refuse(AGEING_MAX_STEPS, value, "a whole number from 1 to 2147483647");
            }
            steps
        });
        if self.get(AGEING_INTERVAL).is_none() && self.get(AGEING_MAX_STEPS).is_some() {
            self.add(
                AGEING_MAX_STEPS,
                Problem::Needs("the annotation sluice.internal/ageing-interval"),
            );
        }
        Some(Ageing {
            interval: self.duration(AGEING_INTERVAL, INTERVAL)?,
            max_steps: max_steps.unwrap_or(Ageing::DEFAULT_MAX_STEPS),
        })
    }

    /// Reports annotations under Sluice's prefix that are not known.
    fn unknown(&mut self, known: &'static [&'static str]) {
        let ours = self.annotations.into_iter().flat_map(BTreeMap::keys);
        let unknown = ours.filter(|key| key.starts_with(SLUICE_PREFIX) && !known.contains(&key.as_str()));
        for key in unknown {
            self.found.push((key.clone(), Problem::UnknownAnnotation { known }));
        }
    }

    fn finish<T>(mut self, read: T) -> Result<T, Vec<Violation>> {
        if self.found.is_empty() {
            return Ok(read);
        }
        self.found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let violation = |(key, problem)| Violation {
            field: format!("metadata.annotations[{key}]"),
            problem,
        };
        Err(self.found.into_iter().map(violation).collect())
    }
}
