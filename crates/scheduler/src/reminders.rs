//! Who waits so long that the API server forgets the event that said why: they are told again.
//!
//! Nobody walks the waiting Jobs for it: each one told about stands in a list by time and is looked at when its turn comes.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use sluice_engine::{Time, Uid};

/// An event is told again after this long, in milliseconds: a little less than the hour that the API server keeps it.
const INTERVAL_MS: i64 = 50 * 60 * 1_000;

/// When each Job that waits was last told why.
#[derive(Debug, Default)]
pub(crate) struct Reminders {
    told: FxHashMap<Uid, Time>,
    /// Each of them once, by the time at which it is looked at.
    due: BTreeSet<(Time, Uid)>,
}

impl Reminders {
    /// Notes that a Job was told why it waits.
    pub(crate) fn told(&mut self, unit: Uid, now: Time) {
        if self.told.insert(unit, now).is_none() {
            self.due.insert((after(now), unit));
        }
    }

    /// Up to `most` Jobs that were last told an interval ago, the longest ago first. Each counts as told now if it goes on
    /// waiting, as `waits` says, and is forgotten if not.
    pub(crate) fn due(&mut self, now: Time, most: usize, waits: impl Fn(Uid) -> bool) -> Vec<Uid> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(&(at, unit)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            let Some(told) = self.told.get_mut(&unit) else { continue };
            if !waits(unit) {
                self.told.remove(&unit);
                continue;
            }
            if after(*told) <= now {
                *told = now;
                due.push(unit);
            }
            self.due.insert((after(*told), unit));
        }
        due
    }
}

fn after(told: Time) -> Time {
    Time(told.0.saturating_add(INTERVAL_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uid = Uid(1);
    const B: Uid = Uid(2);

    #[test]
    fn who_still_waits_is_told_again_an_interval_after_the_last_time() {
        let mut reminders = Reminders::default();
        reminders.told(A, Time(0));
        assert!(reminders.due(Time(INTERVAL_MS - 1), 9, |_| true).is_empty());
        assert_eq!(reminders.due(Time(INTERVAL_MS), 9, |_| true), [A]);
        assert!(reminders.due(Time(2 * INTERVAL_MS - 1), 9, |_| true).is_empty());
        assert_eq!(reminders.due(Time(2 * INTERVAL_MS), 9, |_| true), [A]);
    }

    #[test]
    fn news_in_between_puts_it_off() {
        let mut reminders = Reminders::default();
        reminders.told(A, Time(0));
        reminders.told(A, Time(1_000));
        assert!(reminders.due(Time(INTERVAL_MS), 9, |_| true).is_empty());
        assert_eq!(reminders.due(Time(INTERVAL_MS + 1_000), 9, |_| true), [A]);
    }

    #[test]
    fn who_waits_no_more_is_forgotten() {
        let mut reminders = Reminders::default();
        reminders.told(A, Time(0));
        assert!(reminders.due(Time(INTERVAL_MS), 9, |_| false).is_empty());
        assert!(reminders.told.is_empty() && reminders.due.is_empty());
    }

    #[test]
    fn no_more_than_the_most_are_told_at_once_and_the_longest_waiting_come_first() {
        let mut reminders = Reminders::default();
        reminders.told(B, Time(0));
        reminders.told(A, Time(1));
        let now = Time(INTERVAL_MS + 1);
        assert_eq!(reminders.due(now, 1, |_| true), [B]);
        assert_eq!(reminders.due(now, 1, |_| true), [A]);
        assert!(reminders.due(now, 1, |_| true).is_empty());
    }
}
