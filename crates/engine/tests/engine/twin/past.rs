//! Section 8: what LocalQueues used in the past.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::*;

use super::tree::product;
use super::{Twin, holds};

/// What a LocalQueue used in the past.
#[derive(Debug, Clone, Default)]
pub(crate) struct Past {
    /// The sample up to which `consumed` is counted, in parts of one over 2^32.
    since: i64,
    consumed: BTreeMap<Name, u128>,
    /// What all samples since then found.
    sampled: BTreeMap<Name, u128>,
    /// What was held at the end of the last pass.
    held: BTreeMap<Name, u128>,
    /// What was admitted since the last sample.
    entered: BTreeMap<Name, u128>,
}

/// What counts of a LocalQueue: a sum of products over its weight.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    products: Vec<(u128, u128)>,
    weight: u64,
}

impl Counts {
    /// The sum times a factor, as digits.
    fn times(&self, factor: u64) -> [u64; 12] {
        let mut sum = [0_u64; 12];
        for (one, other) in &self.products {
            let digits = product([*one, *other, factor.into()]);
            let mut carry = 0;
            for place in (0..12).rev() {
                let digit = sum[place] + digits[place] + carry;
                (sum[place], carry) = (digit & 0xffff_ffff, digit >> 32);
            }
        }
        sum
    }
}

impl Ord for Counts {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.weight, other.weight) {
            (0, 0) => Ordering::Equal,
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => self.times(other.weight).cmp(&other.times(self.weight)),
        }
    }
}

impl PartialOrd for Counts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Counts {}

/// What is left after so many samples, in parts of one over 2^64.
fn left(rules: &PastUsageRules, samples: i64) -> u128 {
    let elapsed = u128::try_from(samples).unwrap() * u128::try_from(rules.sampling_ms).unwrap();
    let Some(half_life) = u128::try_from(rules.half_life_ms)
        .ok()
        .filter(|half_life| *half_life > 0)
    else {
        return if elapsed == 0 { 1 << 64 } else { 0 };
    };
    let (mut left, mut rest, mut root) = (1_u128 << 64, elapsed % half_life, 1_u128 << 63);
    for _ in 0..32 {
        root = (root << 64).isqrt();
        rest *= 2;
        if rest >= half_life {
            rest -= half_life;
            left = (left * root) >> 64;
        }
    }
    left.checked_shr(u32::try_from(elapsed / half_life).unwrap_or(u32::MAX))
        .unwrap_or(0)
}

fn part(amount: u128, of: u128) -> u128 {
    let (high, low) = (amount >> 64, amount & u128::from(u64::MAX));
    high * of + ((low * of) >> 64)
}

fn at(map: &BTreeMap<Name, u128>, name: &Name) -> u128 {
    map.get(name).copied().unwrap_or(0)
}

impl Past {
    fn begin(told: Option<&PastUsage>, sample: i64, rules: &PastUsageRules) -> Self {
        let told = told.cloned().unwrap_or(PastUsage {
            consumed: BTreeMap::new(),
            at: Time(sample * rules.sampling_ms),
        });
        let consumed = told.consumed.into_iter();
        Self {
            since: told.at.0.div_euclid(rules.sampling_ms).min(sample),
            consumed: consumed
                .map(|(name, amount)| (name, u128::try_from(amount.get()).unwrap() << 32))
                .collect(),
            ..Self::default()
        }
    }

    fn consumed_at(&self, sample: i64, rules: &PastUsageRules) -> BTreeMap<Name, u128> {
        let left = left(rules, sample - self.since);
        let names: BTreeSet<&Name> = self.consumed.keys().chain(self.sampled.keys()).collect();
        let consumed = names.into_iter().map(|name| {
            let (before, held) = (at(&self.consumed, name), at(&self.sampled, name) << 32);
            let difference = part(before.abs_diff(held), left);
            let now = if before > held {
                held + difference
            } else {
                held - difference
            };
            (name.clone(), now)
        });
        consumed.filter(|(_, now)| *now > 0).collect()
    }
}

impl Twin {
    /// Whether units of a queue are ordered by past usage.
    pub(crate) fn is_by_past_usage(&self, spec: &QueueSpec) -> bool {
        spec.by_past_usage && self.settings.past_usage.is_some()
    }

    fn held_through(&self, key: &LocalQueueKey) -> BTreeMap<Name, u128> {
        let mut held = BTreeMap::new();
        for unit in self.charged.values().filter(|unit| unit.local_queue == *key) {
            for ((_, resource), amount) in holds(unit) {
                *held.entry(resource).or_insert(0_u128) += amount.unsigned_abs();
            }
        }
        let most = u128::from(i64::MAX.unsigned_abs());
        for sum in held.values_mut() {
            *sum = most.min(*sum);
        }
        held
    }

    /// Takes all samples that are due.
    pub(crate) fn sample(&mut self) {
        let Some(rules) = self.settings.past_usage.clone() else {
            return;
        };
        let due = self.now.div_euclid(rules.sampling_ms);
        let last = self.last_sample.unwrap_or(due);
        let now = due.max(last);
        self.last_sample = Some(now);
        if now > last {
            for past in self.pasts.values_mut() {
                past.entered.clear();
                if past.sampled != past.held {
                    past.consumed = past.consumed_at(last, &rules);
                    past.since = last;
                    past.sampled = past.held.clone();
                }
            }
        }
        for spec in self.local_queues.values() {
            if !self.pasts.contains_key(&spec.key) {
                let mut past = Past::begin(spec.past_usage.as_ref(), now, &rules);
                past.held = self.held_through(&spec.key);
                past.sampled = past.held.clone();
                self.pasts.insert(spec.key.clone(), past);
            }
        }
    }

    /// Notes what is held at the end of a pass.
    pub(crate) fn note_held(&mut self) {
        for key in self.pasts.keys().cloned().collect::<Vec<_>>() {
            let held = self.held_through(&key);
            self.pasts.get_mut(&key).unwrap().held = held;
        }
    }

    pub(crate) fn note_entry(&mut self, unit: &ChargedUnit) {
        let Some(past) = self.pasts.get_mut(&unit.local_queue) else {
            return;
        };
        for ((_, resource), amount) in holds(unit) {
            let entered = past.entered.entry(resource).or_insert(0);
            *entered = (*entered + amount.unsigned_abs()).min(u128::from(i64::MAX.unsigned_abs()));
        }
    }

    /// What counts of the LocalQueue of a unit; none where past usage decides nothing.
    pub(crate) fn counts(&self, unit: &UnitSpec) -> Option<Counts> {
        let leads = self.local_queues.get(&unit.local_queue)?;
        self.queues
            .get(&leads.queue)
            .filter(|spec| self.is_by_past_usage(spec))?;
        let rules = self.settings.past_usage.as_ref()?;
        let mut products = Vec::new();
        if let (Some(past), Some(sample)) = (self.pasts.get(&leads.key), self.last_sample) {
            let entry = (1 << 64) - left(rules, 1);
            let consumed = past.consumed_at(sample, rules).into_iter();
            let entered = past.entered.clone().into_iter();
            let amounts = consumed.chain(entered.map(|(name, amount)| (name, part(amount << 32, entry))));
            products.extend(amounts.map(|(name, amount)| {
                let weight = rules.resource_weights.get(&name).copied().unwrap_or(Weight::ONE.0);
                // Amounts of cpu are thousandths.
                let scale = if *name == *"cpu" { 1 } else { 1_000 };
                (u128::from(weight) * scale, amount)
            }));
        }
        Some(Counts {
            products,
            weight: leads.weight.0,
        })
    }

    /// When the next sample may make another unit of a StrictFIFO queue first.
    pub(crate) fn next_sample(&self, queue: &QueueSpec) -> Option<Time> {
        let rules = self.settings.past_usage.as_ref().filter(|_| queue.by_past_usage)?;
        let mut units = self.order(&queue.name);
        units.retain(|unit| self.may_be_considered(unit));
        let local_queues: BTreeSet<&LocalQueueKey> = units.iter().map(|unit| &unit.local_queue).collect();
        let next = (self.last_sample? + 1).checked_mul(rules.sampling_ms)?;
        (local_queues.len() > 1).then_some(Time(next))
    }

    /// What a LocalQueue used, rounded.
    pub(crate) fn past_usage(&self, key: &LocalQueueKey) -> Option<PastUsage> {
        let leads = self.local_queues.get(key)?;
        self.queues
            .get(&leads.queue)
            .filter(|spec| self.is_by_past_usage(spec))?;
        let (rules, sample) = (self.settings.past_usage.as_ref()?, self.last_sample?);
        let consumed = self.pasts.get(key)?.consumed_at(sample, rules).into_iter();
        let rounded = |amount: u128| Amount::new(i64::try_from((amount + (1 << 31)) >> 32).unwrap_or(i64::MAX));
        Some(PastUsage {
            consumed: consumed.map(|(name, amount)| (name, rounded(amount))).collect(),
            at: Time(sample.saturating_mul(rules.sampling_ms)),
        })
    }
}
