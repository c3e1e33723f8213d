//! The rules of one lease, as one candidate sees it: a pure step function.
//!
//! They are client-go's. A lease is judged by when *this* process, on its own monotonic clock, last saw it
//! change, never by the times written in it: clocks of other machines do not enter.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

/// How the lease came to be free for the present holder. The later ones ask for more care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Previous {
    /// It was ours before, and nobody held it in between.
    Own,
    /// There was no lease: the first start, or somebody deleted it.
    Nobody,
    /// The holder before gave it back: it had stopped writing.
    Released,
    /// The holder before stopped renewing: its last writes may still be on their way.
    Expired,
}

/// What to do about a lease that was just read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is ours: renew it.
    Renew,
    /// It is free: take it.
    Take(Previous),
    /// Somebody else holds it.
    Wait {
        /// Who.
        holder: String,
        /// When it is free unless it is renewed before.
        until: Instant,
    },
}

/// What one candidate knows of one lease.
#[derive(Clone, Debug)]
pub struct State {
    identity: String,
    duration: Duration,
    renew_deadline: Duration,
    /// The lease as last seen, and when it was first seen so.
    seen: Option<(LeaseSpec, Instant)>,
    /// How it was free when we decided to take it; kept while a write of ours may have taken it.
    claim: Option<Previous>,
    /// When we sent the last write of ours that succeeded.
    renewed: Option<Instant>,
}

impl State {
    /// A candidate that knows nothing yet.
    pub fn new(identity: String, duration: Duration, renew_deadline: Duration) -> Self {
        Self {
            identity,
            duration,
            renew_deadline,
            seen: None,
            claim: None,
            renewed: None,
        }
    }

    /// Takes in what the API server says of the lease (`None`: there is none) and says what to do.
    pub fn observe(&mut self, lease: Option<&LeaseSpec>, now: Instant) -> Decision {
        if let Some(lease) = lease
            && self.seen.as_ref().is_none_or(|(seen, _)| seen != lease)
        {
            self.seen = Some((lease.clone(), now));
        }
        let Some((seen, at)) = &self.seen else {
            return self.take(Previous::Nobody);
        };
        match holder(seen) {
            None => self.take(Previous::Released),
            Some(holder) if holder == self.identity => {
                let claim = *self.claim.get_or_insert(Previous::Own);
                if lease.is_some() {
                    return Decision::Renew;
                }
                self.renewed = None;
                Decision::Take(claim)
            }
            Some(holder) => {
                // A lease deleted under its holder, who is last to know, is as good as held until it would have expired.
                let until = *at + self.duration.max(duration(seen));
                if until > now {
                    let holder = holder.to_owned();
                    self.claim = None;
                    self.renewed = None;
                    Decision::Wait { holder, until }
                } else {
                    self.take(Previous::Expired)
                }
            }
        }
    }

    /// What to write in order to take or renew the lease. `wall` goes into the object for people to read.
    pub fn record(&self, wall: MicroTime) -> LeaseSpec {
        let before = self.seen.as_ref().map(|(spec, _)| spec);
        let ours = before.and_then(holder).is_some_and(|holder| holder == self.identity);
        let mut spec = before.cloned().unwrap_or_default();
        let transitions = spec.lease_transitions.unwrap_or(0);
        if !ours {
            spec.acquire_time = Some(wall.clone());
            spec.lease_transitions = Some(if before.is_some() {
                transitions.saturating_add(1)
            } else {
                0
            });
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(whole_seconds(self.duration));
        spec.renew_time = Some(wall);
        spec
    }

    /// What to write in order to give the lease back.
    pub fn released(&self, wall: MicroTime) -> LeaseSpec {
        let mut spec = self.seen.as_ref().map(|(spec, _)| spec.clone()).unwrap_or_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time = Some(wall.clone());
        spec.renew_time = Some(wall);
        spec
    }

    /// Notes that the API server accepted our record, which was sent at `sent` and now reads `lease`.
    pub fn accepted(&mut self, lease: LeaseSpec, sent: Instant) {
        self.seen = Some((lease, sent));
        self.renewed = Some(sent);
    }

    /// Notes that the lease was given back.
    pub fn gave_back(&mut self, lease: LeaseSpec, now: Instant) {
        self.seen = Some((lease, now));
        self.renewed = None;
        self.claim = None;
    }

    /// True while we may act on the lease: our last successful write was sent less than the renew deadline ago.
    pub fn is_held(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }

    /// When we have to stop acting unless a renewal succeeds before.
    pub fn deadline(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + self.renew_deadline)
    }

    /// Until when nobody else takes the lease: others count from when they see our write, which is after it was sent.
    pub fn expires(&self) -> Option<Instant> {
        self.renewed.map(|sent| sent + self.duration)
    }

    /// How the lease was free when we took it, if we may hold it.
    pub fn claim(&self) -> Option<Previous> {
        self.claim
    }

    /// From now on a new hold of this lease follows our own.
    pub fn settle(&mut self) {
        self.claim = self.claim.map(|_| Previous::Own);
    }

    /// How often the lease changed hands.
    pub fn transitions(&self) -> i32 {
        self.seen
            .as_ref()
            .and_then(|(spec, _)| spec.lease_transitions)
            .unwrap_or(0)
    }

    fn take(&mut self, previous: Previous) -> Decision {
        self.claim = Some(previous);
        self.renewed = None;
        Decision::Take(previous)
    }
}

/// Who holds a lease; an empty holder is nobody.
pub fn holder(lease: &LeaseSpec) -> Option<&str> {
    lease.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

fn duration(lease: &LeaseSpec) -> Duration {
    Duration::from_secs(u64::try_from(lease.lease_duration_seconds.unwrap_or(0)).unwrap_or(0))
}

fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
