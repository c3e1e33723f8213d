//! Rules of the whole cluster: what the Configuration file says.

use std::time::Duration;

use sluice_api::configuration::{AdmissionFairSharing, Configuration, PreemptionStrategy, RequeuingStrategy};
use sluice_engine::{Event, FairSharing, PastUsageRules, Settings, ShareRule, Time};

use crate::Index;

impl Index {
    /// From now on these rules hold.
    pub fn set_configuration(&mut self, configuration: Configuration, now: Time) {
        self.tell(Event::SetSettings(settings(&configuration)));
        self.configuration = configuration;
        self.quota_changed = true;
        self.relower_all(now);
    }
}

fn settings(configuration: &Configuration) -> Settings {
    let wait = configuration.wait_for_pods_ready.as_ref();
    Settings {
        fair_sharing: configuration.fair_sharing.map(|sharing| FairSharing {
            first: rule(sharing.first),
            second: sharing.second.map(rule),
        }),
        past_usage: configuration.admission_fair_sharing.as_ref().map(past_usage_rules),
        block_admission: wait.is_some_and(|wait| wait.block_admission),
    }
}

fn past_usage_rules(sharing: &AdmissionFairSharing) -> PastUsageRules {
    let weights = sharing.resource_weights.iter();
    PastUsageRules {
        half_life_ms: milliseconds(sharing.usage_half_life_time),
        sampling_ms: milliseconds(sharing.usage_sampling_interval).max(1),
        resource_weights: weights.map(|(name, weight)| (name.as_str().into(), weight.0)).collect(),
    }
}

fn rule(strategy: PreemptionStrategy) -> ShareRule {
    match strategy {
        PreemptionStrategy::LessThanOrEqualToFinalShare => ShareRule::LessThanOrEqualToFinalShare,
        PreemptionStrategy::LessThanInitialShare => ShareRule::LessThanInitialShare,
    }
}

/// The pause before the next attempt of a Job that was too slow so many times, in milliseconds.
pub(crate) fn pause_ms(strategy: &RequeuingStrategy, count: u32) -> i64 {
    let doublings = count.saturating_sub(1);
    let pause = 1_i64
        .checked_shl(doublings)
        .filter(|factor| *factor > 0)
        .map_or(i64::MAX, |factor| {
            milliseconds(strategy.backoff_base).saturating_mul(factor)
        });
    pause.min(milliseconds(strategy.backoff_max))
}

pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_the_one_before_up_to_the_longest() {
        let strategy = RequeuingStrategy::default();
        let pauses: Vec<i64> = (1..=7).map(|count| pause_ms(&strategy, count) / 60_000).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60]);
        for count in [62, 63, 64, 65, u32::MAX] {
            assert_eq!(pause_ms(&strategy, count), 3_600_000, "{count}");
        }
    }
}
