//! Values of the fields that are acted on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::problem::{ConfigurationError, ConfigurationProblem};
use super::schema::{Version, below};
use super::tree::{Entry, Node, Value};
use super::{
    AdmissionFairSharing, Configuration, FairSharing, PreemptionStrategy, RequeuingStrategy, RequeuingTimestamp,
    ResourceWeight, WaitForPodsReady, value_error,
};
use crate::duration::parse_duration;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Reads what is acted on, as far as it can be read, and reports the rest.
pub(super) fn read(file: &[Entry], version: Version, found: &mut Vec<ConfigurationError>) -> Configuration {
    let mut reader = Reader { version, found };
    let file = Block {
        path: String::new(),
        line: 1,
        entries: file,
    };
    Configuration {
        wait_for_pods_ready: reader.wait_for_pods_ready(&file),
        fair_sharing: reader.fair_sharing(&file),
        admission_fair_sharing: reader.admission_fair_sharing(&file),
    }
}

/// A block of fields that is there.
struct Block<'a> {
    path: String,
    line: u64,
    entries: &'a [Entry],
}

impl<'a> Block<'a> {
    /// A field that has a value.
    fn get(&self, name: &str) -> Option<&'a Node> {
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        (entry.node.value != Value::Null).then_some(&entry.node)
    }

    /// A block inside of this one, if there is one.
    fn block(&self, name: &str) -> Option<Block<'a>> {
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        let Value::Block(entries) = &entry.node.value else {
            return None;
        };
        Some(Block {
            path: below(&self.path, name),
            line: entry.line,
            entries,
        })
    }
}

struct Reader<'a> {
    version: Version,
    found: &'a mut Vec<ConfigurationError>,
}

impl Reader<'_> {
    fn add(&mut self, line: u64, field: String, problem: ConfigurationProblem) {
        self.found.push(ConfigurationError { line, field, problem });
    }

    fn refuse(&mut self, node: &Node, field: String, expected: &str) {
        self.found.push(value_error(node, &field, expected));
    }

    fn wait_for_pods_ready(&mut self, file: &Block<'_>) -> Option<WaitForPodsReady> {
        let block = file.block("waitForPodsReady")?;
        let beta1 = self.version == Version::V1Beta1;
        let enabled = !beta1 || self.flag(&block, "enable").unwrap_or(false);
        let timeout = self.duration(&block, "timeout", LONGER);
        let timeout = timeout.unwrap_or(MINUTE * if beta1 { 5 } else { 30 });
        let recovery = self.duration(&block, "recoveryTimeout", ANY);
        let recovery = recovery.or((!beta1).then_some(timeout));
        let read = WaitForPodsReady {
            timeout,
            recovery_timeout: recovery.filter(|recovery| !recovery.is_zero()),
            block_admission: self.flag(&block, "blockAdmission").unwrap_or(beta1),
            requeuing_strategy: block
                .block("requeuingStrategy")
                .map_or_else(RequeuingStrategy::default, |block| self.requeuing(&block)),
        };
        enabled.then_some(read)
    }

    fn requeuing(&mut self, block: &Block<'_>) -> RequeuingStrategy {
        let default = RequeuingStrategy::default();
        let timestamps = [RequeuingTimestamp::Eviction, RequeuingTimestamp::Creation];
        let timestamp = self.word(block, "timestamp", &timestamps, RequeuingTimestamp::as_str);
        let seconds = |count: Option<u32>| count.map(|count| Duration::from_secs(count.into()));
        RequeuingStrategy {
            timestamp: timestamp.unwrap_or(default.timestamp),
            backoff_limit_count: self.count(block, "backoffLimitCount"),
            backoff_base: seconds(self.count(block, "backoffBaseSeconds")).unwrap_or(default.backoff_base),
            backoff_max: seconds(self.count(block, "backoffMaxSeconds")).unwrap_or(default.backoff_max),
        }
    }

    fn fair_sharing(&mut self, file: &Block<'_>) -> Option<FairSharing> {
        let block = file.block("fairSharing")?;
        let beta1 = self.version == Version::V1Beta1;
        let enabled = !beta1 || self.flag(&block, "enable").unwrap_or(false);
        let field = below(&block.path, "preemptionStrategies");
        let strategies = block.get("preemptionStrategies");
        if strategies.is_none() && !beta1 {
            self.add(block.line, field.clone(), ConfigurationProblem::Missing);
        }
        let sharing = strategies
            .and_then(|node| self.strategies(node, field))
            .unwrap_or_default();
        enabled.then_some(sharing)
    }

    fn strategies(&mut self, node: &Node, field: String) -> Option<FairSharing> {
        use PreemptionStrategy::{LessThanInitialShare as B, LessThanOrEqualToFinalShare as A};
        let texts: Option<Vec<String>> = match &node.value {
            Value::List(nodes) => nodes.iter().map(|node| node.value.scalar()).collect(),
            _ => None,
        };
        let texts = texts.unwrap_or_default();
        let strategies = [(A, None), (B, None), (A, Some(B))];
        let named = strategies.into_iter().find(|(first, second)| {
            let names = [Some(*first), *second];
            names
                .into_iter()
                .flatten()
                .map(PreemptionStrategy::as_str)
                .eq(texts.iter().map(String::as_str))
        });
        if named.is_none() {
            let (a, b) = (A.as_str(), B.as_str());
            let expected = format!("[{a}], [{b}] or [{a}, {b}]");
            let found = match &node.value {
                Value::List(_) => format!(
                    "[{}]",
                    texts.iter().map(|text| below("", text)).collect::<Vec<_>>().join(", ")
                ),
                other => other.to_string(),
            };
            self.add(node.line, field, ConfigurationProblem::Value { expected, found });
        }
        named.map(|(first, second)| FairSharing { first, second })
    }

    fn admission_fair_sharing(&mut self, file: &Block<'_>) -> Option<AdmissionFairSharing> {
        let block = file.block("admissionFairSharing")?;
        Some(AdmissionFairSharing {
            usage_half_life_time: self.duration(&block, "usageHalfLifeTime", ANY).unwrap_or(HOUR),
            usage_sampling_interval: self
                .duration(&block, "usageSamplingInterval", LONGER)
                .unwrap_or(MINUTE * 5),
            resource_weights: self.weights(&block),
        })
    }

    fn weights(&mut self, block: &Block<'_>) -> BTreeMap<String, ResourceWeight> {
        let mut weights = BTreeMap::new();
        let path = below(&block.path, "resourceWeights");
        match block.get("resourceWeights") {
            None => {}
            Some(Node {
                value: Value::Block(entries),
                ..
            }) => {
                let mut lines = BTreeMap::new();
                for Entry { line, name, node } in entries {
                    let field = below(&path, name);
                    match (lines.get(name), weight(&node.value)) {
                        (Some(first), _) => self.add(*line, field, ConfigurationProblem::Duplicate(*first)),
                        (None, Some(weight)) => _ = weights.insert(name.clone(), weight),
                        (None, None) => self.refuse(node, field, "a number from 0 to 1000000000, such as 0.5"),
                    }
                    lines.entry(name).or_insert(*line);
                }
            }
            Some(node) => self.refuse(node, path, "a block of resources and their weights"),
        }
        weights
    }

    fn flag(&mut self, block: &Block<'_>, name: &str) -> Option<bool> {
        let node = block.get(name)?;
        if let Value::Bool(flag) = node.value {
            return Some(flag);
        }
        self.refuse(node, below(&block.path, name), "true or false");
        None
    }

    /// A count as the API has it: a signed integer of 32 bits that is not negative.
    fn count(&mut self, block: &Block<'_>, name: &str) -> Option<u32> {
        let node = block.get(name)?;
        let count = match node.value {
            Value::Integer(count) => i32::try_from(count).ok().and_then(|count| u32::try_from(count).ok()),
            _ => None,
        };
        if count.is_none() {
            self.refuse(node, below(&block.path, name), "a whole number from 0 to 2147483647");
        }
        count
    }

    fn duration(&mut self, block: &Block<'_>, name: &str, wanted: Wanted) -> Option<Duration> {
        let node = block.get(name)?;
        let duration = match &node.value {
            Value::Text(text) => parse_duration(text).ok(),
            _ => None,
        };
        let duration = duration.filter(|duration| wanted.zero || !duration.is_zero());
        if duration.is_none() {
            self.refuse(node, below(&block.path, name), wanted.words);
        }
        duration
    }

    fn word<T: Copy>(&mut self, block: &Block<'_>, name: &str, words: &[T], text: fn(T) -> &'static str) -> Option<T> {
        let node = block.get(name)?;
        let found = node.value.scalar().unwrap_or_default();
        let word = words.iter().copied().find(|word| text(*word) == found);
        if word.is_none() {
            let names: Vec<_> = words.iter().map(|word| text(*word)).collect();
            self.refuse(node, below(&block.path, name), &names.join(" or "));
        }
        word
    }
}

/// Which durations a field takes.
struct Wanted {
    zero: bool,
    words: &'static str,
}

const ANY: Wanted = Wanted {
    zero: true,
    words: "a duration such as 5m or 1h30m",
};
const LONGER: Wanted = Wanted {
    zero: false,
    words: "a duration longer than 0s, such as 5m or 1h30m",
};

fn weight(value: &Value) -> Option<ResourceWeight> {
    // The text of a float is the shortest that means it: what its author wrote, unless that was longer than a float.
    let text = match value {
        Value::Integer(weight) => weight.to_string(),
        Value::Float(weight) => format!("{weight}"),
        _ => return None,
    };
    ResourceWeight::parse(&text)
}
