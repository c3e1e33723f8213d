//! What LocalQueues used in the past: `docs/scheduling.md`, section 11.
//!
//! Nothing is added up step by step: usage at any sample follows from the last one at which what is held changed. So it costs the
//! same however many samples were missed, and does not depend on how often the engine passes.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Amount;
use crate::engine::Engine;
use crate::ids::{LocalQueueKey, Name, Time};
use crate::local_queue::{LocalQueue, LocalQueueId};
use crate::queue::QueueId;
use crate::quota::Cells;
use crate::spec::{PastUsage, PastUsageRules};
use crate::units::UnitId;
use crate::wide::Weighted;

/// One, in the fixed point of what is left of something.
const WHOLE: u128 = 1 << 64;
/// The bits behind the point of what was consumed.
const FRACTION: u32 = 32;
/// How many binary digits of a half-life count.
const DIGITS: usize = 32;
/// What is left after a half, a quarter, an eighth and so on of a half-life: each the square root of the one before.
const ROOTS: [u128; DIGITS] = roots();
/// Thousandths in one unit of a resource that is not counted in thousandths.
const THOUSANDTHS: u128 = 1_000;

const fn roots() -> [u128; DIGITS] {
    let mut roots = [0; DIGITS];
    let mut last = WHOLE / 2;
    let mut at = 0;
    while at < DIGITS {
        last = (last << 64).isqrt();
        roots[at] = last;
        at += 1;
    }
    roots
}

/// What is left of past usage after so many milliseconds, of [`WHOLE`].
fn left_after(elapsed_ms: u128, half_life_ms: u128) -> u128 {
    let Some(half_lives) = elapsed_ms.checked_div(half_life_ms) else {
        return if elapsed_ms == 0 { WHOLE } else { 0 };
    };
    if half_lives > 64 {
        return 0;
    }
    let digits = ((elapsed_ms % half_life_ms) << DIGITS) / half_life_ms;
    let roots = ROOTS.iter().enumerate();
    let set = roots.filter(|(at, _)| (digits >> (DIGITS - 1 - at)) & 1 == 1);
    set.fold(WHOLE, |left, (_, root)| (left * root) >> 64) >> half_lives
}

/// A part of an amount, of [`WHOLE`].
fn part(amount: u128, of_whole: u128) -> u128 {
    (amount >> 64) * of_whole + (((amount % WHOLE) * of_whole) >> 64)
}

fn fixed(amount: Amount) -> u128 {
    u128::try_from(amount.get()).unwrap_or(0) << FRACTION
}

impl PastUsageRules {
    fn sample_at(&self, at: Time) -> i64 {
        at.0.div_euclid(self.sampling_ms.max(1))
    }

    fn left_after_samples(&self, samples: i64) -> u128 {
        let of = |number: i64| u128::try_from(number).unwrap_or(0);
        left_after(of(samples) * of(self.sampling_ms.max(1)), of(self.half_life_ms))
    }
}

/// What a LocalQueue used in the past.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// The sample up to which `consumed` is counted.
    since: i64,
    /// By resource, in fixed point.
    consumed: BTreeMap<Name, u128>,
    /// What every sample after that found held.
    sampled: BTreeMap<Name, Amount>,
    /// What was held at the end of the last pass.
    held: BTreeMap<Name, Amount>,
    /// What was asked for by units admitted since the last sample.
    entered: BTreeMap<Name, Amount>,
}

impl Past {
    /// Begins to count at a sample, with what is known to have been used before.
    fn begin(told: Option<&PastUsage>, sample: i64, rules: &PastUsageRules) -> Self {
        let consumed = told.into_iter().flat_map(|told| &told.consumed);
        Self {
            since: told.map_or(sample, |told| rules.sample_at(told.at).min(sample)),
            consumed: consumed.map(|(name, amount)| (name.clone(), fixed(*amount))).collect(),
            ..Self::default()
        }
    }

    /// Takes in that there were samples after `last`.
    fn sample(&mut self, last: i64, rules: &PastUsageRules) {
        self.entered.clear();
        if self.sampled != self.held {
            self.consumed = self.consumed_at(last, rules);
            self.since = last;
            self.sampled = self.held.clone();
        }
    }

    fn consumed_at(&self, sample: i64, rules: &PastUsageRules) -> BTreeMap<Name, u128> {
        let left = rules.left_after_samples(sample.saturating_sub(self.since));
        let names: BTreeSet<&Name> = self.consumed.keys().chain(self.sampled.keys()).collect();
        let consumed = names.into_iter().map(|name| {
            let before = self.consumed.get(name).copied().unwrap_or(0);
            let held = fixed(self.sampled.get(name).copied().unwrap_or_default());
            let now = if before > held {
                held + part(before - held, left)
            } else {
                held - part(held - before, left)
            };
            (name.clone(), now)
        });
        consumed.filter(|(_, amount)| *amount > 0).collect()
    }

    /// What counts for the order: what was consumed and what was entered since, by the weights of the resources.
    fn counts(&self, sample: i64, rules: &PastUsageRules, weight: u64) -> Weighted {
        let mut sum = Weighted::nothing_over(weight);
        let mut add = |name: &Name, amount: u128| {
            let scale = if &**name == "cpu" { 1 } else { THOUSANDTHS };
            let weight = rules.resource_weights.get(name).copied().unwrap_or(1_000_000_000);
            sum.add_product(scale * u128::from(weight), amount);
        };
        for (name, amount) in self.consumed_at(sample, rules) {
            add(&name, amount);
        }
        let entry = WHOLE - rules.left_after_samples(1);
        for (name, amount) in &self.entered {
            add(name, part(fixed(*amount), entry));
        }
        sum
    }
}

/// What the units of a LocalQueue hold, by resource.
fn held(local_queue: &LocalQueue, cells: &Cells) -> BTreeMap<Name, Amount> {
    let mut held: BTreeMap<Name, i128> = BTreeMap::new();
    for (cell, sums) in local_queue.books.iter() {
        let sum = held.entry(cells.names(cell).1.clone()).or_default();
        *sum = sum.saturating_add(sums.reserved);
    }
    held.into_iter()
        .map(|(name, sum)| (name, Amount::from_wide(sum)))
        .collect()
}

impl Engine {
    /// Takes the samples that are due, and begins to count where that has not begun.
    pub(crate) fn sample(&mut self) {
        let Some(rules) = &self.settings.past_usage else { return };
        let due = rules.sample_at(self.aged_to);
        let last = self.last_sample.unwrap_or(due);
        let now = due.max(last);
        self.last_sample = Some(now);
        if now == last && self.uncounted.is_empty() {
            return;
        }
        let rules = rules.clone();
        if now > last {
            for id in self.local_queues.ids() {
                if let Some(past) = self.local_queues.get_mut(id).and_then(|known| known.past.as_mut()) {
                    past.sample(last, &rules);
                    self.revalue(id);
                    self.mark_if_by_usage(id);
                }
            }
        }
        for id in std::mem::take(&mut self.uncounted) {
            let Some(local_queue) = self.local_queues.get_mut(id) else {
                continue;
            };
            let Some((spec, _)) = &local_queue.spec else { continue };
            let mut past = Past::begin(spec.past_usage.as_ref(), now, &rules);
            // What is held when counting begins counts as held since it was last counted.
            past.held = held(local_queue, &self.cells);
            past.sampled = past.held.clone();
            local_queue.past = Some(past);
            self.revalue(id);
            self.mark_if_by_usage(id);
        }
    }

    /// Notes what LocalQueues hold at the end of a pass.
    pub(crate) fn note_held(&mut self) {
        for id in std::mem::take(&mut self.books_changed) {
            let Some(local_queue) = self.local_queues.get_mut(id) else {
                continue;
            };
            if local_queue.past.is_some() {
                let held = held(local_queue, &self.cells);
                if let Some(past) = &mut local_queue.past {
                    past.held = held;
                }
            }
        }
    }

    /// Forgets what a LocalQueue used. If it exists, counting begins with the next pass.
    pub(crate) fn forget_past(&mut self, id: LocalQueueId) {
        if let Some(local_queue) = self.local_queues.get_mut(id) {
            local_queue.past = None;
            self.uncounted.insert(id);
            self.revalue(id);
        }
    }

    /// The same of all, because other rules hold.
    pub(crate) fn forget_all_pasts(&mut self) {
        self.last_sample = None;
        self.uncounted.clear();
        for id in self.local_queues.ids() {
            self.forget_past(id);
        }
    }

    /// Adds what a unit that is admitted asks for to what counts until the next sample.
    pub(crate) fn note_entry(&mut self, unit: UnitId) {
        let Some(known) = self.units.get(unit) else { return };
        let (id, Some(held)) = (known.local_queue, self.units.held(unit)) else {
            return;
        };
        let Some(past) = self.local_queues.get_mut(id).and_then(|known| known.past.as_mut()) else {
            return;
        };
        for (cell, amount) in &held.charges {
            let entered = past.entered.entry(self.cells.names(*cell).1.clone()).or_default();
            *entered = Amount::from_wide(entered.wide().saturating_add(amount.wide()));
        }
        self.revalue(id);
    }

    /// Puts a LocalQueue where it belongs among those of its queue. In a StrictFIFO queue another unit may be first then.
    pub(crate) fn revalue(&mut self, id: LocalQueueId) {
        let Some(local_queue) = self.local_queues.get(id) else {
            return;
        };
        let Some((spec, queue_id)) = &local_queue.spec else {
            return;
        };
        let queue_id = *queue_id;
        let counts = match (&local_queue.past, &self.settings.past_usage, self.last_sample) {
            (Some(past), Some(rules), Some(sample)) => past.counts(sample, rules, spec.weight.0),
            _ => Weighted::nothing_over(spec.weight.0),
        };
        let Some(queue) = self.queues.get_mut(queue_id) else {
            return;
        };
        if queue.by_past_usage && queue.ranking.set(id, counts) && queue.is_strict() {
            self.dirty.insert(queue_id);
        }
    }

    /// Puts all LocalQueues of a queue where they belong.
    pub(crate) fn revalue_all(&mut self, id: QueueId) {
        let local_queues = self.queues.get(id).map(|queue| queue.local_queues.clone());
        for local_queue in local_queues.into_iter().flatten() {
            self.revalue(local_queue);
        }
    }

    fn mark_if_by_usage(&mut self, id: LocalQueueId) {
        let queue = self.local_queues.get(id).and_then(LocalQueue::queue);
        if queue
            .and_then(|queue| self.queues.get(queue))
            .is_some_and(|queue| queue.by_past_usage)
        {
            self.mark_local_queue(id);
        }
    }

    /// When the next sample is taken; none if that is beyond all time.
    pub(crate) fn next_sample(&self) -> Option<Time> {
        let rules = self.settings.past_usage.as_ref()?;
        let next = self.last_sample?.checked_add(1)?;
        next.checked_mul(rules.sampling_ms.max(1)).map(Time)
    }

    /// What a LocalQueue used in the past as of the last sample, rounded to whole amounts; none if its ClusterQueue does not
    /// order units by it.
    pub fn past_usage(&self, key: &LocalQueueKey) -> Option<PastUsage> {
        let local_queue = self.local_queues.get(self.local_queues.find(key)?)?;
        let queue = self.queues.get(local_queue.queue()?)?;
        let (rules, sample) = (self.settings.past_usage.as_ref()?, self.last_sample?);
        let past = local_queue.past.as_ref().filter(|_| queue.by_past_usage)?;
        let consumed = past.consumed_at(sample, rules).into_iter().map(|(name, amount)| {
            let rounded = amount.saturating_add(1 << (FRACTION - 1)) >> FRACTION;
            (name, Amount::from_wide(i128::try_from(rounded).unwrap_or(i128::MAX)))
        });
        Some(PastUsage {
            consumed: consumed.collect(),
            at: Time(sample.saturating_mul(rules.sampling_ms.max(1))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_is_left_after_a_half_life_and_nothing_after_many() {
        assert_eq!(left_after(0, 30), WHOLE);
        assert_eq!(left_after(30, 30), WHOLE / 2);
        assert_eq!(left_after(90, 30), WHOLE / 8);
        assert_eq!(left_after(64 * 30, 30), 1);
        assert_eq!(left_after(65 * 30, 30), 0);
        assert_eq!(
            left_after(u128::from(u64::MAX) * u128::from(u64::MAX), u128::from(u64::MAX)),
            0
        );
        assert_eq!((left_after(0, 0), left_after(1, 0)), (WHOLE, 0));
    }

    #[test]
    fn what_is_left_is_a_power_of_two() {
        for parts in [2, 3, 7, 1_000, 3_600] {
            let one = left_after(1, parts);
            let all = (0..parts).fold(WHOLE, |left, _| part(left, one));
            // Of the exponent of each part less than 2⁻³² is cut off.
            let error = all.abs_diff(WHOLE / 2);
            assert!(error <= (parts << 32), "{parts}: {error}");
        }
        let falls = (0..10_000).map(|ms| left_after(ms, 777));
        assert!(falls.collect::<Vec<_>>().is_sorted_by(|one, other| one > other));
    }

    #[test]
    fn a_part_of_the_largest_amount_does_not_overflow() {
        let most = fixed(Amount::MAX);
        assert_eq!(part(most, WHOLE), most);
        assert_eq!(part(most, WHOLE / 2), most / 2);
        assert_eq!(part(most, 0), 0);
    }
}
