use k8s_openapi::jiff::Timestamp;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const LEASE: Duration = Duration::from_secs(15);
const DEADLINE: Duration = Duration::from_secs(10);

fn state(identity: &str) -> State {
    State::new(identity.into(), LEASE, DEADLINE)
}

fn wall(second: i64) -> MicroTime {
    MicroTime(Timestamp::from_second(second).unwrap())
}

fn held_by(holder: &str, renewed: i64) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.into()),
        lease_duration_seconds: Some(15),
        renew_time: Some(wall(renewed)),
        lease_transitions: Some(3),
        ..LeaseSpec::default()
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_lease_that_does_not_exist_is_taken_at_once() {
    let start = Instant::now();
    let mut me = state("me");
    assert_eq!(me.observe(None, start), Decision::Take(Previous::Nobody));
    let written = me.record(wall(0));
    assert_eq!(written.lease_transitions, Some(0));
    assert!(!me.is_held(start), "nothing is ours before the server said so");
    me.accepted(written, start);
    assert!(me.is_held(start));
    assert_eq!(me.claim(), Some(Previous::Nobody));
}

#[test]
fn a_lease_held_by_another_is_left_alone_for_its_duration_from_when_we_first_saw_it() {
    let start = Instant::now();
    let mut me = state("me");
    let lease = held_by("other", 0);
    let until = start + LEASE;
    for after in [0, 5, 14] {
        let decision = me.observe(Some(&lease), start + secs(after));
        let holder = "other".to_owned();
        assert_eq!(decision, Decision::Wait { holder, until }, "after {after} s");
    }
    assert_eq!(me.observe(Some(&lease), until), Decision::Take(Previous::Expired));
    assert_eq!(me.record(wall(15)).lease_transitions, Some(4));
}

#[test]
fn each_renewal_by_another_starts_the_wait_again() {
    let start = Instant::now();
    let mut me = state("me");
    for after in (0..100).step_by(10) {
        let decision = me.observe(Some(&held_by("other", after)), start + secs(after.unsigned_abs()));
        assert!(
            matches!(decision, Decision::Wait { .. }),
            "after {after} s: {decision:?}"
        );
    }
}

#[test]
fn clocks_of_other_machines_do_not_matter() {
    let start = Instant::now();
    // Written an hour ago, an hour ahead, and going backwards: only the change counts.
    for (first, second) in [(-3600, -3590), (3600, 3610), (100, 50)] {
        let mut me = state("me");
        me.observe(Some(&held_by("other", first)), start);
        let renewed = me.observe(Some(&held_by("other", second)), start + secs(10));
        assert!(
            matches!(renewed, Decision::Wait { until, .. } if until == start + secs(25)),
            "{renewed:?}"
        );
        let expired = me.observe(Some(&held_by("other", second)), start + secs(25));
        assert_eq!(expired, Decision::Take(Previous::Expired));
    }
}

#[test]
fn the_longer_of_the_holders_duration_and_ours_is_waited() {
    let start = Instant::now();
    let mut lease = held_by("other", 0);
    lease.lease_duration_seconds = Some(60);
    let mut me = state("me");
    assert!(matches!(me.observe(Some(&lease), start), Decision::Wait { until, .. } if until == start + secs(60)));
    lease.lease_duration_seconds = Some(1);
    assert!(matches!(me.observe(Some(&lease), start), Decision::Wait { until, .. } if until == start + LEASE));
}

#[test]
fn a_lease_given_back_is_taken_at_once_and_known_as_released() {
    let start = Instant::now();
    let mut other = state("other");
    other.observe(None, start);
    other.accepted(other.record(wall(0)), start);
    let released = other.released(wall(1));
    assert_eq!(holder(&released), None);
    assert_eq!(released.lease_duration_seconds, Some(1));
    other.gave_back(released.clone(), start);
    assert!(!other.is_held(start));

    let mut me = state("me");
    me.observe(Some(&held_by("other", 0)), start);
    assert_eq!(
        me.observe(Some(&released), start + secs(1)),
        Decision::Take(Previous::Released)
    );
}

#[test]
fn a_lease_deleted_under_its_holder_is_held_until_it_would_have_expired() {
    let start = Instant::now();
    let mut me = state("me");
    me.observe(Some(&held_by("other", 0)), start);
    assert!(matches!(me.observe(None, start + secs(14)), Decision::Wait { .. }));
    assert_eq!(me.observe(None, start + LEASE), Decision::Take(Previous::Expired));
}

#[test]
fn the_hold_runs_from_the_sending_of_the_last_renewal_that_succeeded() {
    let start = Instant::now();
    let mut me = state("me");
    me.observe(None, start);
    me.accepted(me.record(wall(0)), start);
    me.accepted(me.record(wall(2)), start + secs(2));
    assert_eq!(me.deadline(), Some(start + secs(12)));
    assert_eq!(me.expires(), Some(start + secs(17)));
    assert!(me.is_held(start + Duration::from_millis(11_999)));
    assert!(!me.is_held(start + secs(12)), "the deadline itself is too late");
}

#[test]
fn a_takeover_by_another_ends_the_hold_at_once() {
    let start = Instant::now();
    let mut me = state("me");
    me.observe(None, start);
    me.accepted(me.record(wall(0)), start);
    assert!(matches!(
        me.observe(Some(&held_by("other", 1)), start + secs(1)),
        Decision::Wait { .. }
    ));
    assert!(!me.is_held(start + secs(1)));
    assert_eq!(me.expires(), None);
    assert_eq!(me.claim(), None);
}

#[test]
fn a_take_whose_answer_was_lost_keeps_its_reason_when_the_lease_turns_out_to_be_ours() {
    let start = Instant::now();
    let mut me = state("me");
    let old = held_by("other", 0);
    me.observe(Some(&old), start);
    assert_eq!(me.observe(Some(&old), start + LEASE), Decision::Take(Previous::Expired));
    let written = me.record(wall(15));
    // The answer to this write is lost; the next read shows it.
    assert_eq!(me.observe(Some(&written), start + secs(17)), Decision::Renew);
    assert!(
        !me.is_held(start + secs(17)),
        "only an accepted write of a known sending time counts"
    );
    me.accepted(me.record(wall(17)), start + secs(17));
    assert_eq!(me.claim(), Some(Previous::Expired));
    me.settle();
    assert_eq!(me.claim(), Some(Previous::Own));
}

#[test]
fn renewing_keeps_what_others_wrote_and_counts_no_transition() {
    let start = Instant::now();
    let mut me = state("me");
    let mut lease = held_by("", 0);
    lease.strategy = Some("OldestEmulationVersion".into());
    me.observe(Some(&lease), start);
    let taken = me.record(wall(1));
    assert_eq!(taken.lease_transitions, Some(4));
    assert_eq!(taken.acquire_time, Some(wall(1)));
    me.accepted(taken, start);
    let renewed = me.record(wall(2));
    assert_eq!(renewed.lease_transitions, Some(4));
    assert_eq!(renewed.acquire_time, Some(wall(1)));
    assert_eq!(renewed.renew_time, Some(wall(2)));
    assert_eq!(renewed.strategy, lease.strategy);
}

#[test]
fn durations_are_written_in_whole_seconds_rounded_up() {
    let me = State::new("me".into(), Duration::from_millis(2500), Duration::from_secs(2));
    assert_eq!(me.record(wall(0)).lease_duration_seconds, Some(3));
}

/// Plays candidates against one lease object with optimistic concurrency: requests take time, answers get lost, and
/// processes freeze. At no time may two of them believe that they hold it.
#[test]
fn two_candidates_never_hold_the_lease_at_the_same_time() {
    let mut takeovers = 0;
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let start = Instant::now();
        let mut object: (u64, Option<LeaseSpec>) = (0, None);
        let mut candidates = [state("a"), state("b"), state("c")];
        let mut frozen_until = [0_u64; 3];
        let mut last_holder: Option<String> = None;
        for step in 0..600_u64 {
            let ms = step * 500;
            let at = |ms: u64| start + Duration::from_millis(ms);
            let index = rng.random_range(0..candidates.len());
            if frozen_until[index] > ms {
                continue;
            }
            if rng.random_bool(0.01) {
                frozen_until[index] = ms + rng.random_range(5_000..60_000);
                continue;
            }
            let candidate = &mut candidates[index];
            let (version, lease) = object.clone();
            let decision = candidate.observe(lease.as_ref(), at(ms));
            if matches!(decision, Decision::Renew | Decision::Take(_)) {
                let written = candidate.record(wall(i64::try_from(step).unwrap()));
                if object.0 == version {
                    if last_holder.as_deref() != written.holder_identity.as_deref() {
                        takeovers += 1;
                        last_holder.clone_from(&written.holder_identity);
                    }
                    object = (version + 1, Some(written.clone()));
                    if rng.random_bool(0.9) {
                        candidate.accepted(written, at(ms));
                    }
                }
            }
            let holders = candidates.iter().filter(|one| one.is_held(at(ms))).count();
            assert!(holders <= 1, "seed {seed}, step {step}: {holders} holders");
            for one in &candidates {
                let outlives = one.expires().is_some_and(|expires| expires > at(ms));
                let other = object
                    .1
                    .as_ref()
                    .and_then(holder)
                    .is_some_and(|name| name != one.identity);
                assert!(
                    !(outlives && other),
                    "seed {seed}, step {step}: {} was overtaken early",
                    one.identity
                );
            }
        }
    }
    assert!(takeovers > 400, "the play must contain takeovers: {takeovers}");
}
