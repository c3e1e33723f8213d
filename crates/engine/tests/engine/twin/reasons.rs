//! Why a unit waits.

use std::collections::BTreeSet;

use sluice_engine::*;

use super::pools::is_by_pool;
use super::search::{Asking, NOTHING, Refusal, fewest};
use super::{Book, Cell, Claimed, Forest, Twin};

/// Why a unit waits, as far as the twin knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    Is(WaitReason),
    /// It has a claim.
    Claims(Claimed),
    /// Pods have to become ready first; or what it lacks, if it was found to lack something before.
    HeldBack(Option<WaitReason>),
    /// Pods have to become ready first, and whom it is behind was not found out in this pass.
    NotSaid,
}

/// A waiting unit: where it stands and why it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stands {
    pub(crate) local_queue: LocalQueueKey,
    pub(crate) queue: Option<Name>,
    pub(crate) position: Option<usize>,
    pub(crate) why: Why,
}

impl Twin {
    /// Position and reason of a waiting unit, after a pass.
    pub(crate) fn stands(&self, uid: Uid, forest: &Forest) -> Option<Stands> {
        let unit = self.waiting.get(&uid)?;
        let local_queue = unit.local_queue.clone();
        let Some(leads) = self.local_queues.get(&local_queue) else {
            let why = Why::Is(WaitReason::NoLocalQueue(local_queue.clone()));
            return Some(Stands {
                local_queue,
                queue: None,
                position: None,
                why,
            });
        };
        let position = self.order(&leads.queue).iter().position(|other| other.uid == uid);
        let why = match self.queues.get(&leads.queue) {
            None => Why::Is(WaitReason::QueueMissing(leads.queue.clone())),
            Some(spec) if !self.is_open(spec, forest) => {
                let own_words = || Inactive {
                    reason: "".into(),
                    message: "".into(),
                };
                Why::Is(WaitReason::QueueInactive(
                    spec.inactive.clone().unwrap_or_else(own_words),
                ))
            }
            Some(spec) => self.why(unit, leads, spec, forest),
        };
        Some(Stands {
            local_queue,
            queue: Some(leads.queue.clone()),
            position,
            why,
        })
    }

    fn why(&self, unit: &UnitSpec, leads: &LocalQueueSpec, spec: &QueueSpec, forest: &Forest) -> Why {
        if let Some(blocked) = &leads.blocked {
            return Why::Is(WaitReason::LocalQueueBlocked(blocked.clone()));
        }
        if let Some(gate) = &unit.gate {
            return Why::Is(WaitReason::Gated(gate.clone()));
        }
        if let Some(until) = unit.not_before.filter(|until| until.0 > self.now) {
            return Why::Is(WaitReason::BackOff(until));
        }
        if self.is_held_back() && (is_by_pool(spec) || spec.extras.backfill) {
            return Why::NotSaid;
        }
        if is_by_pool(spec) {
            return self.why_by_pool(unit, spec, forest);
        }
        if spec.extras.backfill {
            return self.why_by_reservation(unit, spec, forest);
        }
        let order = self.order(&spec.name);
        let head = order.iter().find(|other| self.may_be_considered(other));
        if let Some(head) = head.filter(|head| spec.strategy == Strategy::StrictFifo && head.uid != unit.uid) {
            return Why::Is(WaitReason::BehindHead(head.uid));
        }
        if let Some(claim) = self.claims.get(&unit.uid) {
            return Why::Claims(claim.why);
        }
        let lacks = self.lacks(unit, spec, forest, &NOTHING);
        if self.is_held_back() {
            return Why::HeldBack(lacks);
        }
        Why::Is(lacks.unwrap_or_else(|| panic!("{} waits for no reason", unit.uid)))
    }

    /// What a unit lacks that is not asked because it finds nothing while nobody holds anything. (It may find something while
    /// others do: an earlier pod set then goes elsewhere.)
    fn passed_over(&self, unit: &UnitSpec, spec: &QueueSpec, forest: &Forest) -> Why {
        Why::Is(self.lacks_with(unit, spec, forest, &NOTHING, true).unwrap())
    }

    /// What keeps out a unit that was looked at and has no outcome.
    fn must_lack(&self, unit: &UnitSpec, spec: &QueueSpec, forest: &Forest, without: &BTreeSet<Cell>) -> Why {
        let lacks = self.lacks(unit, spec, forest, without);
        Why::Is(lacks.unwrap_or_else(|| panic!("{} waits for no reason", unit.uid)))
    }

    fn why_by_reservation(&self, unit: &UnitSpec, spec: &QueueSpec, forest: &Forest) -> Why {
        if let Some(claim) = self.claims.get(&unit.uid) {
            return Why::Claims(claim.why);
        }
        let asking = Asking {
            queue: forest.queue(&spec.name).unwrap(),
            spec,
            unit: &fewest(unit),
            without: &NOTHING,
        };
        let book = self.planned_for(forest, &spec.name, unit);
        let ahead = self.reserved_ahead(&spec.name, unit);
        if let Some((head, what)) = ahead
            && !self.never_fits(forest, asking)
            && self.search(&book, asking).is_ok()
        {
            let until = what.until.map(|until| Time(until.max(self.now)));
            return Why::Is(WaitReason::BehindReservation { head, until });
        }
        if self.never_fits(forest, asking) {
            return self.passed_over(unit, spec, forest);
        }
        self.must_lack(unit, spec, forest, &NOTHING)
    }

    fn why_by_pool(&self, unit: &UnitSpec, spec: &QueueSpec, forest: &Forest) -> Why {
        if let Some(claim) = self.claims.get(&unit.uid) {
            return Why::Claims(claim.why);
        }
        let asking = Asking {
            queue: forest.queue(&spec.name).unwrap(),
            spec,
            unit,
            without: &NOTHING,
        };
        if self.never_fits(forest, asking) {
            return self.passed_over(unit, spec, forest);
        }
        if let Some(behind) = self.behind(forest, asking) {
            return Why::Is(WaitReason::BehindHead(behind));
        }
        let (blockers, _) = self.walk(forest, spec, Some(unit.uid));
        let without = blockers.into_iter().flat_map(|(_, cells)| cells).collect();
        self.must_lack(unit, spec, forest, &without)
    }

    /// What keeps a unit out even with the fewest pods that it may start with; none if nothing does.
    fn lacks(
        &self,
        unit: &UnitSpec,
        spec: &QueueSpec,
        forest: &Forest,
        without: &BTreeSet<Cell>,
    ) -> Option<WaitReason> {
        self.lacks_with(unit, spec, forest, without, false)
    }

    fn lacks_with(
        &self,
        unit: &UnitSpec,
        spec: &QueueSpec,
        forest: &Forest,
        without: &BTreeSet<Cell>,
        is_passed_over: bool,
    ) -> Option<WaitReason> {
        let unit = fewest(unit);
        let asking = Asking {
            queue: forest.queue(&spec.name).unwrap(),
            spec,
            unit: &unit,
            without: &NOTHING,
        };
        let planned = self.planned_for(forest, &spec.name, &unit);
        let empty = self.search(&Book::empty(forest), asking);
        let asking = Asking { without, ..asking };
        let with_mismatches = |names: Vec<Name>| {
            let names = names.into_iter();
            names.map(|name| (name, Mismatch::NodeAffinity)).collect()
        };
        let lacks = match (empty, self.search(&planned, asking)) {
            (_, Ok(_)) if !is_passed_over => return None,
            (Err(Refusal::NotCovered { pod_set, resource }), _) => WaitReason::ResourceNotCovered { pod_set, resource },
            (
                Err(Refusal::NoFlavor {
                    pod_set,
                    mismatches,
                    usable: false,
                    ..
                }),
                _,
            ) => WaitReason::NoMatchingFlavor {
                pod_set,
                mismatches: with_mismatches(mismatches),
            },
            (
                Err(Refusal::NoFlavor {
                    pod_set,
                    shortages,
                    mismatches,
                    ..
                }),
                _,
            ) => WaitReason::ExceedsMaxQuota {
                pod_set,
                shortages: shortages
                    .into_iter()
                    .map(|shortage| {
                        let cell = (shortage.flavor.clone(), shortage.resource.clone());
                        Shortage {
                            free: super::saturated(planned.available(asking.queue, &cell)),
                            borrowable: super::saturated(planned.borrowable(asking.queue, &cell)),
                            ..shortage
                        }
                    })
                    .collect(),
                mismatches: with_mismatches(mismatches),
            },
            (
                _,
                Err(Refusal::NoFlavor {
                    pod_set,
                    shortages,
                    mismatches,
                    ..
                }),
            ) => WaitReason::WaitingForQuota {
                pod_set,
                shortages,
                mismatches: with_mismatches(mismatches),
            },
            // Said of no pod set in particular: only the kind can be compared.
            (_, Err(_)) => WaitReason::WaitingForQuota {
                pod_set: "".into(),
                shortages: vec![],
                mismatches: vec![],
            },
            (Ok(_) | Err(Refusal::NoVictims), Ok(_)) => return None,
        };
        Some(lacks)
    }
}
