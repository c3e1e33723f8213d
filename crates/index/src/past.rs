//! What LocalQueues used in the past: read from their statuses before this replica decides, and written there as it does.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as K8sTime;
use sluice_api::QuantityText;
use sluice_api::v1beta2::{AdmissionFairSharingStatus, LocalQueue, LocalQueueFairSharingStatus};
use sluice_engine::{LocalQueueKey, Name, PastUsage, Time};

use crate::Index;
use crate::lower::{amount_of, quantity_of, time_of, timestamp};

impl Index {
    /// Takes in what the status of a LocalQueue says of its past; true if the engine has to be told. While this replica decides
    /// the engine knows better, and the status follows it.
    pub(crate) fn remember_past(&mut self, key: &LocalQueueKey, queue: &LocalQueue) -> bool {
        if self.reign.is_some() && self.objects.local_queues.contains_key(key) {
            return false;
        }
        let before = self.objects.pasts.remove(key);
        let past = past_usage(queue);
        let is_news = before != past;
        self.objects.pasts.extend(past.map(|past| (key.clone(), past)));
        is_news
    }

    /// What the status of a LocalQueue should say of its past. As long as the amounts are the same what is there stays: they
    /// were so at that time, and come to the same from then on.
    pub(crate) fn wanted_past(
        &self,
        key: &LocalQueueKey,
        old: Option<&LocalQueueFairSharingStatus>,
    ) -> Option<LocalQueueFairSharingStatus> {
        let Some(past) = self.engine.past_usage(key) else {
            return old.cloned();
        };
        let consumed: BTreeMap<String, QuantityText> = past
            .consumed
            .iter()
            .map(|(name, amount)| (name.to_string(), QuantityText::from(&quantity_of(name, *amount))))
            .collect();
        let known = old.and_then(|old| old.admission_fair_sharing_status.as_ref());
        if known.is_some_and(|known| known.consumed_resources == consumed) {
            return old.cloned();
        }
        Some(LocalQueueFairSharingStatus {
            weighted_share: 0,
            admission_fair_sharing_status: Some(AdmissionFairSharingStatus {
                consumed_resources: consumed,
                last_update: K8sTime(timestamp(whole_second(past.at))),
            }),
        })
    }
}

/// The first whole second that is no earlier: Kubernetes keeps no finer times, and what a sample found is not to be sampled
/// again.
fn whole_second(at: Time) -> Time {
    let seconds = at.0.div_euclid(1_000) + i64::from(at.0.rem_euclid(1_000) > 0);
    Time(seconds.saturating_mul(1_000))
}

/// What the status of a LocalQueue says of its past. An amount that cannot be read counts as none.
fn past_usage(queue: &LocalQueue) -> Option<PastUsage> {
    let sharing = queue.status.as_ref()?.fair_sharing.as_ref()?;
    let status = sharing.admission_fair_sharing_status.as_ref()?;
    let consumed = status.consumed_resources.iter().filter_map(|(name, text)| {
        let quantity = text.parse().ok()?;
        Some((Name::from(name.as_str()), amount_of(name, &quantity)))
    });
    Some(PastUsage {
        consumed: consumed.collect(),
        at: time_of(status.last_update.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_whole_seconds() {
        let rounded = |at| whole_second(Time(at)).0;
        assert_eq!([0, 1, 999, 1_000, 1_001].map(rounded), [0, 1_000, 1_000, 1_000, 2_000]);
        assert_eq!([-1, -1_000, -1_001].map(rounded), [0, -1_000, -1_000]);
        assert_eq!(rounded(i64::MAX), i64::MAX);
    }
}
