//! Units in queue order at an instant: those that still rise by waiting and those that do not, each in an order of their
//! own that time does not change, are merged when asked. Where past usage counts, each LocalQueue has its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;

use crate::ageing::{Pace, Rising, Seat};
use crate::ids::Time;
use crate::local_queue::LocalQueueId;
use crate::parking::ClassId;
use crate::ranked::{Ranked, Turn};
use crate::wide::Weighted;

/// The LocalQueue of a unit, where units are ordered by what that used in the past.
pub(crate) type Lane = Option<LocalQueueId>;

/// The LocalQueues of a queue in the order of what they used in the past; none where that does not count.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    counts: BTreeMap<LocalQueueId, Weighted>,
    order: BTreeSet<(Weighted, LocalQueueId)>,
}

impl Ranking {
    /// Puts a LocalQueue where it belongs. True if it was elsewhere.
    pub(crate) fn set(&mut self, id: LocalQueueId, counts: Weighted) -> bool {
        if self.counts.get(&id) == Some(&counts) {
            return false;
        }
        self.remove(id);
        self.counts.insert(id, counts);
        self.order.insert((counts, id));
        true
    }

    pub(crate) fn remove(&mut self, id: LocalQueueId) {
        if let Some(counts) = self.counts.remove(&id) {
            self.order.remove(&(counts, id));
        }
    }

    /// What counts of a unit's LocalQueue: the less the earlier.
    pub(crate) fn of(&self, lane: Lane) -> Option<Weighted> {
        self.counts.get(&lane?).copied()
    }

    /// The lanes in order, with what counts of each: those of equal counts are one after the other.
    fn lanes(&self) -> impl Iterator<Item = (Option<Weighted>, Lane)> {
        let by_usage = self.order.iter().map(|(counts, id)| (Some(*counts), Some(*id)));
        std::iter::once((None, None)).chain(by_usage)
    }
}

/// Units of one lane.
#[derive(Debug, Default)]
struct Line {
    rising: Ranked<Rising>,
    /// Those that have risen as far as they can, and all where units do not age.
    settled: Ranked,
}

impl Line {
    fn len(&self) -> usize {
        self.rising.len() + self.settled.len()
    }

    fn rank(&self, is_ahead: impl Fn(Turn) -> bool) -> usize {
        self.rising.partition_point(|rising| is_ahead(rising.turn))
            + self.settled.partition_point(|turn| is_ahead(*turn))
    }
}

/// All units that wait in a queue.
#[derive(Debug, Default)]
pub(crate) struct Order {
    pace: Pace,
    /// None is empty.
    lanes: BTreeMap<Lane, Line>,
    len: usize,
}

impl Order {
    /// None yet, of a queue whose units age like this.
    pub(crate) fn new(pace: Pace) -> Self {
        Self {
            pace,
            ..Self::default()
        }
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    pub(crate) fn let_age(&mut self, now: Time) {
        self.pace.let_age(now);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, lane: Lane, turn: Turn) {
        let line = self.lanes.entry(lane).or_default();
        let is_new = match self.pace.rising(turn) {
            Some(rising) => line.rising.insert(rising),
            None => line.settled.insert(turn),
        };
        self.len += usize::from(is_new);
    }

    pub(crate) fn remove(&mut self, lane: Lane, turn: &Turn) {
        let Some(line) = self.lanes.get_mut(&lane) else { return };
        let was_there = match self.pace.rising(*turn) {
            Some(rising) => line.rising.remove(&rising),
            None => line.settled.remove(turn),
        };
        self.len -= usize::from(was_there);
        if line.len() == 0 {
            self.lanes.remove(&lane);
        }
    }

    /// Takes in that a unit rises no more.
    pub(crate) fn settle(&mut self, lane: Lane, turn: Turn) {
        if let Some(line) = self.lanes.get_mut(&lane)
            && line.rising.remove(&self.pace.as_rising(turn))
        {
            line.settled.insert(turn);
        }
    }

    /// How many units are ahead of one at `now`.
    pub(crate) fn rank(&self, ranking: &Ranking, lane: Lane, turn: Turn, now: Time) -> usize {
        let (counts, seat) = (ranking.of(lane), self.pace.seat(turn, now));
        let lines = ranking
            .lanes()
            .filter_map(|(other, lane)| Some((other, self.lanes.get(&lane)?)));
        let ahead = lines.take_while(|(other, _)| *other <= counts).map(|(other, line)| {
            if other < counts {
                line.len()
            } else {
                line.rank(|turn| self.pace.seat(turn, now) < seat)
            }
        });
        ahead.sum()
    }

    /// The units in order at `now`.
    pub(crate) fn iter<'a>(&'a self, ranking: &Ranking, now: Time) -> impl Iterator<Item = Turn> + 'a {
        let mut tiers: Vec<(Option<Weighted>, Vec<&Line>)> = Vec::new();
        for (counts, lane) in ranking.lanes() {
            let Some(line) = self.lanes.get(&lane) else { continue };
            match tiers.last_mut().filter(|(last, _)| *last == counts) {
                Some((_, lines)) => lines.push(line),
                None => tiers.push((counts, vec![line])),
            }
        }
        tiers
            .into_iter()
            .flat_map(move |(_, lines)| merged(lines, self.pace, now))
    }

    /// The units in order at `now`, from the one on that `rank` units are ahead of. Costs O(log n) for the first where the
    /// order is the plain one, else O(rank).
    pub(crate) fn iter_from<'a>(
        &'a self,
        ranking: &Ranking,
        rank: usize,
        now: Time,
    ) -> impl Iterator<Item = Turn> + 'a {
        let only = self
            .lanes
            .get(&None)
            .filter(|_| self.lanes.len() == 1 && !self.pace.is_on());
        let plain = only.map(|line| line.settled.iter_from(rank));
        let other = only.is_none().then(|| self.iter(ranking, now).skip(rank));
        plain.into_iter().flatten().chain(other.into_iter().flatten())
    }

    /// Whether every unit is where it belongs.
    pub(crate) fn is_sound(&self) -> bool {
        let is_line_sound = |line: &Line| {
            line.len() > 0
                && line.rising.is_sound()
                && line.settled.is_sound()
                && line
                    .rising
                    .iter()
                    .all(|rising| self.pace.rising(rising.turn) == Some(rising))
                && line.settled.iter().all(|turn| self.pace.rising(turn).is_none())
        };
        self.lanes.values().all(is_line_sound) && self.lanes.values().map(Line::len).sum::<usize>() == self.len
    }
}

/// The units of several lines in order at `now`.
fn merged<'a>(lines: Vec<&'a Line>, pace: Pace, now: Time) -> impl Iterator<Item = Turn> + 'a {
    let sorted = lines.into_iter().flat_map(|line| {
        let rising: Box<dyn Iterator<Item = Turn> + 'a> = Box::new(line.rising.iter().map(|rising| rising.turn));
        [rising, Box::new(line.settled.iter())]
    });
    let mut sorted: Vec<_> = sorted.collect();
    let mut heads: BinaryHeap<Reverse<(Seat, usize, Turn)>> = BinaryHeap::new();
    for (at, turns) in sorted.iter_mut().enumerate() {
        heads.extend(turns.next().map(|turn| Reverse((pace.seat(turn, now), at, turn))));
    }
    std::iter::from_fn(move || {
        let Reverse((_, at, first)) = heads.pop()?;
        heads.extend(sorted[at].next().map(|turn| Reverse((pace.seat(turn, now), at, turn))));
        Some(first)
    })
}

/// The first units of some classes of one lane.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeadLine {
    rising: BTreeMap<Rising, ClassId>,
    settled: BTreeMap<Turn, ClassId>,
}

impl HeadLine {
    fn first(&self, pace: Pace, now: Time) -> Option<(Seat, Turn, ClassId)> {
        let rising = self
            .rising
            .first_key_value()
            .map(|(rising, class)| (rising.turn, *class));
        let settled = self.settled.first_key_value().map(|(turn, class)| (*turn, *class));
        let both = [rising, settled].into_iter().flatten();
        both.map(|(turn, class)| (pace.seat(turn, now), turn, class))
            .min_by_key(|(seat, _, _)| *seat)
    }
}

/// The first units of some classes of a queue, with their classes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pace: Pace,
    /// None is empty but that of no LocalQueue, which is always there.
    lanes: BTreeMap<Lane, HeadLine>,
}

impl Default for Heads {
    fn default() -> Self {
        Self::new(Pace::default())
    }
}

impl Heads {
    /// None yet, of a queue whose units age like this.
    pub(crate) fn new(pace: Pace) -> Self {
        let lanes = [(None, HeadLine::default())].into();
        Self { pace, lanes }
    }

    pub(crate) fn let_age(&mut self, now: Time) {
        self.pace.let_age(now);
    }

    pub(crate) fn insert(&mut self, lane: Lane, turn: Turn, class: ClassId) {
        let line = self.lanes.entry(lane).or_default();
        match self.pace.rising(turn) {
            Some(rising) => line.rising.insert(rising, class),
            None => line.settled.insert(turn, class),
        };
    }

    /// Takes the first unit of a class away; false if it was not there.
    pub(crate) fn remove(&mut self, lane: Lane, turn: &Turn) -> bool {
        let Some(line) = self.lanes.get_mut(&lane) else {
            return false;
        };
        let known = match self.pace.rising(*turn) {
            Some(rising) => line.rising.remove(&rising),
            None => line.settled.remove(turn),
        };
        if lane.is_some() && line.rising.is_empty() && line.settled.is_empty() {
            self.lanes.remove(&lane);
        }
        known.is_some()
    }

    /// Takes in that a unit rises no more, if it is one of these.
    pub(crate) fn settle(&mut self, lane: Lane, turn: Turn) {
        if let Some(line) = self.lanes.get_mut(&lane)
            && let Some(class) = line.rising.remove(&self.pace.as_rising(turn))
        {
            line.settled.insert(turn, class);
        }
    }

    /// Takes over all of `other`, of the same queue.
    pub(crate) fn append(&mut self, other: &mut Self) {
        for (lane, more) in &mut other.lanes {
            let line = self.lanes.entry(*lane).or_default();
            line.rising.append(&mut more.rising);
            line.settled.append(&mut more.settled);
        }
        other.lanes.retain(|lane, _| lane.is_none());
    }

    /// The first of all at `now`.
    pub(crate) fn first(&self, ranking: &Ranking, now: Time) -> Option<(Turn, ClassId)> {
        if self.lanes.len() < ranking.counts.len() / 2 {
            // Most LocalQueues have nobody here.
            let firsts = self.lanes.iter().filter_map(|(lane, line)| {
                let (seat, turn, class) = line.first(self.pace, now)?;
                Some((ranking.of(*lane), seat, turn, class))
            });
            let first = firsts.min_by_key(|(counts, seat, ..)| (*counts, *seat));
            return first.map(|(_, _, turn, class)| (turn, class));
        }
        let lines = ranking
            .lanes()
            .filter_map(|(counts, lane)| Some((counts, self.lanes.get(&lane)?)));
        let mut best: Option<(Option<Weighted>, Seat, Turn, ClassId)> = None;
        for (counts, line) in lines {
            if best.as_ref().is_some_and(|(known, ..)| *known < counts) {
                break;
            }
            if let Some((seat, turn, class)) = line.first(self.pace, now)
                && best.as_ref().is_none_or(|(_, known, ..)| seat < *known)
            {
                best = Some((counts, seat, turn, class));
            }
        }
        best.map(|(_, _, turn, class)| (turn, class))
    }

    /// The next behind a unit, or the first of all, where nothing but turns counts.
    pub(crate) fn after(&self, turn: Option<Turn>) -> Option<(Turn, ClassId)> {
        let behind = (turn.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let (turn, class) = self.lanes.get(&None)?.settled.range(behind).next()?;
        Some((*turn, *class))
    }

    /// The classes, in an order that depends on their first units alone.
    pub(crate) fn classes(&self) -> impl Iterator<Item = ClassId> {
        let lines = self.lanes.values();
        lines.flat_map(|line| line.rising.values().chain(line.settled.values()).copied())
    }

    /// The LocalQueues that have units here, where past usage counts.
    pub(crate) fn local_queues(&self) -> impl Iterator<Item = LocalQueueId> {
        self.lanes.keys().filter_map(|lane| *lane)
    }
}
