//! The flavor search: whether and how a unit gets what it asks for: `docs/scheduling.md`, section 3.

use std::cmp::Reverse;

use crate::assign::{Ask, Choice, Chosen, LARGEST, Plan, Taken};
use crate::pools::Jam;
use crate::report::WaitKind;
use crate::spec::{Fungibility, Preference, Reclaim, Search, WithinQueue};
use crate::tree::{Book, Slot};
use crate::victims::{Asker, Ground, Hunt, Needs, Victim};
use crate::watch::Wakes;

/// How a unit would get what it asks for.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) chosen: Chosen,
    pub(crate) needs: Needs,
    /// The greatest level of its needs, victims gone.
    pub(crate) level: u32,
    /// Whom it would evict first; nobody if it fits.
    pub(crate) victims: Vec<Victim>,
}

/// Where a unit got stuck and what has to happen before asking again can end differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) kind: WaitKind,
    /// The ask that no flavor serves.
    pub(crate) ask: usize,
    /// What earlier asks of the same unit would take.
    pub(crate) taken: Taken,
    pub(crate) wakes: Wakes,
    /// What counted as blocked when it was asked, and what it blocks itself, where units are asked by pool.
    pub(crate) pools: Option<Box<Jam>>,
}

impl Stuck {
    pub(crate) fn new(kind: WaitKind) -> Self {
        Self {
            kind,
            ask: 0,
            taken: Taken::default(),
            wakes: Wakes::default(),
            pools: None,
        }
    }
}

/// What a flavor is good for, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    NoCandidates,
    Preempts,
    Reclaims,
    Fits,
}

/// A flavor looked at.
#[derive(Debug)]
struct Look {
    at: usize,
    mode: Mode,
    level: u32,
    victims: Vec<Victim>,
}

impl Look {
    /// Greater is better.
    fn rank(&self, preference: Preference) -> (bool, u64, u64) {
        let (mode, level) = (self.mode as u64, u64::from(u32::MAX - self.level));
        let served = self.mode > Mode::NoCandidates;
        match preference {
            Preference::PreemptionOverBorrowing if served => (served, level, mode),
            _ => (served, mode, level),
        }
    }

    fn ends_search(&self, fungibility: Fungibility) -> bool {
        let borrowing_is_fine = self.level == 0 || fungibility.when_can_borrow == Search::Stop;
        match self.mode {
            Mode::Fits => borrowing_is_fine,
            Mode::Reclaims | Mode::Preempts => borrowing_is_fine && fungibility.when_can_preempt == Search::Stop,
            Mode::NoCandidates => false,
        }
    }
}

impl<'a> Ground<'a> {
    /// The flavors that count for an ask.
    pub(crate) fn usable<'p>(&self, ask: &'p Ask) -> impl Iterator<Item = (usize, &'p Choice)> + use<'a, 'p> {
        let without = self.without;
        let counts =
            move |choice: &Choice| choice.admitted.is_ok() && !choice.slots.iter().any(|slot| without.contains(slot));
        ask.choices.iter().enumerate().filter(move |(_, choice)| counts(choice))
    }

    /// How a unit with this plan would get what it asks for now.
    ///
    /// # Errors
    /// Where it gets stuck, if it does.
    pub(crate) fn find(&mut self, plan: &Plan, asker: &Asker, fungibility: Fungibility) -> Result<Found, Box<Stuck>> {
        let mut stuck = Stuck::new(plan.kind());
        if plan.is_uncovered() {
            return Err(Box::new(stuck));
        }
        let mut taken = Taken::default();
        let mut chosen = Chosen::new();
        let mut level = 0;
        let mut first_unfit = None;
        let mut victims = Vec::new();
        let mut earlier = Vec::new();
        for (index, ask) in plan.asks.iter().enumerate() {
            if !plan.entangled && stuck.wakes != Wakes::default() {
                // Nothing that happens to an ask before this one can make room for it.
                earlier.push(std::mem::take(&mut stuck.wakes));
            }
            let Some(look) = self.best(ask, asker, fungibility, &taken, &mut stuck.wakes) else {
                stuck.ask = index;
                if plan.entangled {
                    stuck.wakes.charges = plan.asks.iter().flat_map(slots_of).collect();
                    // One before it may go where it would have to borrow now, and leave room.
                    for slot in plan.asks[..index].iter().flat_map(slots_of) {
                        self.watch_releases(asker, slot, &mut stuck.wakes);
                    }
                }
                stuck.taken = taken;
                return Err(Box::new(stuck));
            };
            if look.mode != Mode::Fits && first_unfit.is_none() {
                first_unfit = Some((index, taken.clone()));
            }
            level = level.max(look.level);
            ask.take(look.at, &mut taken);
            chosen.push(look.at);
            victims = look.victims;
        }
        let needs = taken.into_needs();
        let Some((unfit, before)) = first_unfit else {
            return Ok(Found {
                chosen,
                needs,
                level,
                victims: Vec::new(),
            });
        };
        if plan.asks.len() > 1 {
            victims = self.hunt(asker, &needs).victims;
        }
        if !victims.is_empty() {
            return Ok(Found {
                level: self.level_without(&victims, asker, &needs),
                chosen,
                needs,
                victims,
            });
        }
        if let Some(found) = self.without_victims(plan, asker, fungibility) {
            return Ok(found);
        }
        stuck.ask = unfit;
        stuck.taken = before;
        for wakes in earlier {
            stuck.wakes.join(wakes);
        }
        self.watch_everything(plan, asker, &mut stuck.wakes);
        Err(Box::new(stuck))
    }

    /// The same search, in which only flavors that fit count.
    fn without_victims(&self, plan: &Plan, asker: &Asker, fungibility: Fungibility) -> Option<Found> {
        let mut taken = Taken::default();
        let mut chosen = Chosen::new();
        let mut level = 0;
        for ask in &plan.asks {
            let (its_level, at) = self.best_that_fits(ask, asker, fungibility, &taken)?;
            level = level.max(its_level);
            ask.take(at, &mut taken);
            chosen.push(at);
        }
        Some(Found {
            chosen,
            needs: taken.into_needs(),
            level,
            victims: Vec::new(),
        })
    }

    /// The best flavor for one ask of those that fit, and its level.
    pub(crate) fn best_that_fits(
        &self,
        ask: &Ask,
        asker: &Asker,
        fungibility: Fungibility,
        taken: &Taken,
    ) -> Option<(u32, usize)> {
        let mut best: Option<(Reverse<u32>, Reverse<usize>)> = None;
        for (at, choice) in self.usable(ask) {
            let needs: Needs = ask.wants(choice, taken).collect();
            if self.is_never(asker, &needs) || !self.fits(asker.node, &needs) {
                continue;
            }
            let level = self.level(asker, &needs);
            best = best.max(Some((Reverse(level), Reverse(at))));
            if level == 0 || fungibility.when_can_borrow == Search::Stop {
                break;
            }
        }
        best.map(|(Reverse(level), Reverse(at))| (level, at))
    }

    /// The best flavor for one ask; none if all are `never` or without candidates.
    fn best(
        &mut self,
        ask: &Ask,
        asker: &Asker,
        fungibility: Fungibility,
        taken: &Taken,
        wakes: &mut Wakes,
    ) -> Option<Look> {
        let mut best: Option<Look> = None;
        for (at, choice) in self.usable(ask) {
            let needs: Needs = ask.wants(choice, taken).collect();
            if self.is_never(asker, &needs) {
                continue;
            }
            let look = self.look(at, &needs, asker, wakes);
            let ends = look.ends_search(fungibility);
            let better = best
                .as_ref()
                .is_none_or(|known| look.rank(fungibility.preference) > known.rank(fungibility.preference));
            if better {
                best = Some(look);
            }
            if ends {
                break;
            }
        }
        best.filter(|look| look.mode > Mode::NoCandidates)
    }

    fn look(&mut self, at: usize, needs: &[(Slot, i128)], asker: &Asker, wakes: &mut Wakes) -> Look {
        let level = self.level(asker, needs);
        let look = |mode, level, victims| Look {
            at,
            mode,
            level,
            victims,
        };
        if self.fits(asker.node, needs) {
            return look(Mode::Fits, level, Vec::new());
        }
        let hunt = self.hunt(asker, needs);
        self.watch(needs, asker, &hunt, wakes);
        if hunt.victims.is_empty() {
            return look(Mode::NoCandidates, level, hunt.victims);
        }
        let own = hunt.victims.iter().any(|victim| victim.queue == asker.queue);
        let mode = if own { Mode::Preempts } else { Mode::Reclaims };
        let level = self.level_without(&hunt.victims, asker, needs);
        look(mode, level, hunt.victims)
    }

    /// The level of a need once the victims are gone.
    fn level_without(&mut self, victims: &[Victim], asker: &Asker, needs: &[(Slot, i128)]) -> u32 {
        let place = |victim: &Victim| Some((self.queues.get(victim.queue)?.place?.1, victim.unit));
        let places: Vec<_> = victims.iter().filter_map(place).collect();
        for (node, unit) in &places {
            self.plan(*node, *unit, -1);
        }
        let level = self.level(asker, needs);
        for (node, unit) in &places {
            self.plan(*node, *unit, 1);
        }
        level
    }

    fn is_never(&self, asker: &Asker, needs: &[(Slot, i128)]) -> bool {
        needs
            .iter()
            .any(|(slot, need)| *need > self.tree.state(asker.node, *slot).potential.min(LARGEST))
    }

    fn level(&self, asker: &Asker, needs: &[(Slot, i128)]) -> u32 {
        let levels = needs
            .iter()
            .map(|(slot, need)| self.tree.level(asker.node, *slot, *need));
        levels.max().unwrap_or(0)
    }

    /// What has to happen before a flavor that does not fit can be of use.
    fn watch(&self, needs: &[(Slot, i128)], asker: &Asker, hunt: &Hunt, wakes: &mut Wakes) {
        let lacking = || {
            let bar = |(slot, need): &(Slot, i128)| {
                Some((*slot, *need, self.tree.bar(asker.node, *slot, *need, Book::Planned)?))
            };
            needs.iter().filter_map(bar)
        };
        // All that lacks must be there: watching for one of them is enough.
        if let Some((slot, _, bar)) = lacking().next() {
            wakes.rooms.push((slot, bar));
            if bar.shifting {
                self.watch_releases(asker, slot, wakes);
            }
        }
        if asker.policy.within_queue == WithinQueue::Never && asker.policy.reclaim == Reclaim::Never {
            return;
        }
        wakes.own_victims |= asker.policy.within_queue != WithinQueue::Never;
        if self.settings.fair_sharing.is_some() {
            wakes.shares = true;
            wakes.other_victims |= asker.policy.reclaim != Reclaim::Never;
            return;
        }
        wakes.other_victims |= hunt.others;
        for (slot, need, _) in lacking() {
            let above = |node: &crate::tree::NodeId| self.tree.node(*node).parent.is_some();
            if asker.policy.reclaim != Reclaim::Never {
                // With less in use on the own side, others can turn out to use what is the own side's.
                let own_side = self.tree.path(asker.node).filter(above);
                wakes.releases.extend(own_side.map(|node| (node, slot)));
            }
            // What evictions can give of one cell is of use only when the others have room.
            let within_reach = hunt.within_reach.iter().find(|(lacking, _)| *lacking == slot);
            let left = need.saturating_sub(within_reach.map_or(0, |(_, sum)| *sum));
            match self.tree.bar(asker.node, slot, left, Book::Planned) {
                Some(bar) if left > 0 => {
                    wakes.rooms.push((slot, bar));
                    if bar.shifting {
                        self.watch_releases(asker, slot, wakes);
                    }
                }
                _ => self.watch_releases(asker, slot, wakes),
            }
        }
    }

    /// Whatever is released at the asker's ClusterQueue or above it is watched for.
    fn watch_releases(&self, asker: &Asker, slot: Slot, wakes: &mut Wakes) {
        let path = self.tree.path(asker.node);
        wakes.releases.extend(path.map(|node| (node, slot)));
    }

    /// Where victims were found for each pod set but not for all together: look again whenever anything is released.
    fn watch_everything(&self, plan: &Plan, asker: &Asker, wakes: &mut Wakes) {
        for slot in plan.asks.iter().flat_map(slots_of) {
            self.watch_releases(asker, slot, wakes);
            wakes.charges.push(slot);
        }
        wakes.own_victims = true;
        wakes.other_victims = true;
    }
}

fn slots_of(ask: &Ask) -> impl Iterator<Item = Slot> {
    ask.choices.iter().flat_map(|choice| choice.slots.iter().copied())
}
