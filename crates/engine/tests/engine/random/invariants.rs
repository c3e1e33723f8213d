//! What holds whatever the rules are.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{TestCaseError, prop_assert, prop_assert_eq};
use sluice_engine::*;

use crate::twin::{At, Book, Cell, Forest, Needs, Twin, end_of, holds, is_to_shrink, turn};

/// Checks a pass: the world before it, after it, and what it decided.
pub(crate) fn hold(before: &Twin, after: &Twin, pass: &Pass) -> Result<(), TestCaseError> {
    nobody_is_lost(before, after, pass)?;
    nobody_is_passed_unduly(before, after)?;
    let forest = after.forest();
    limits_hold(&before.held(&forest), &after.held(&forest))?;
    what_shrinks_has_shrunk(after, &forest)?;
    who_waits_in_a_pool_has_somebody_ahead(after, &forest)?;
    nobody_who_passes_delays(before, after, &forest, pass)?;
    nothing_that_fits_waits(after, &forest)
}

fn nobody_is_lost(before: &Twin, after: &Twin, pass: &Pass) -> Result<(), TestCaseError> {
    let everyone = |twin: &Twin| -> Vec<Uid> {
        let mut all: Vec<Uid> = twin.waiting.keys().chain(twin.charged.keys()).copied().collect();
        all.sort_unstable();
        all
    };
    prop_assert_eq!(everyone(before), everyone(after));
    let (mut admitted, mut evicted) = (BTreeSet::new(), BTreeSet::new());
    for action in &pass.actions {
        let (uid, is_new, was) = match action {
            Action::Admit(admission) => (
                admission.uid,
                admitted.insert(admission.uid),
                before.waiting.contains_key(&admission.uid),
            ),
            Action::Evict(eviction) => (
                eviction.uid,
                evicted.insert(eviction.uid),
                before
                    .charged
                    .get(&eviction.uid)
                    .is_some_and(|unit| unit.phase == Phase::Admitted),
            ),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert!(is_new && was, "{uid} twice, or not what it was");
    }
    Ok(())
}

/// By ageing alone a unit is passed only by one of a higher priority, and only when it has risen as far as it can. So whoever
/// comes after it with less than its priority and all steps is behind it until then.
fn nobody_is_passed_unduly(before: &Twin, after: &Twin) -> Result<(), TestCaseError> {
    for spec in before.queues.values().filter(|spec| !before.is_by_past_usage(spec)) {
        let Some(ageing) = spec.extras.ageing else { continue };
        let (then, now) = (
            before.order_at(&spec.name, before.now),
            before.order_at(&spec.name, after.now),
        );
        for (place, first) in then.iter().enumerate() {
            let place_now = now.iter().position(|unit| unit.uid == first.uid).unwrap_or(0);
            for second in &then[place + 1..] {
                if now[place_now..].iter().any(|unit| unit.uid == second.uid) {
                    continue;
                }
                let most = i64::from(ageing.max_steps).saturating_mul(ageing.ms_per_step);
                prop_assert!(second.priority > first.priority, "{} passed {}", second.uid, first.uid);
                prop_assert!(
                    after.now - first.queued_at.0 >= most,
                    "{} passed {}",
                    second.uid,
                    first.uid
                );
            }
        }
        for pair in now.windows(2) {
            let has_all =
                after.now - pair[1].queued_at.0 >= i64::from(ageing.max_steps).saturating_mul(ageing.ms_per_step);
            let later = pair[0].queued_at.0 >= after.now;
            let most = i64::from(pair[1].priority) + i64::from(ageing.max_steps);
            prop_assert!(!has_all || !later || i64::from(pair[0].priority) >= most);
        }
    }
    Ok(())
}

/// No limit is exceeded that was not exceeded by as much before: quota at a root, borrowing below.
fn limits_hold(before: &Book<'_>, after: &Book<'_>) -> Result<(), TestCaseError> {
    let forest = after.forest;
    for n in forest.all() {
        for cell in cells(after, n) {
            let most = match (forest.parent(n), forest.borrow(n, &cell)) {
                (None, _) => forest.subtree(n, &cell),
                (Some(_), Some(borrow)) => forest.subtree(n, &cell) + borrow,
                (Some(_), None) => continue,
            };
            let (then, now) = (before.usage(n, &cell), after.usage(n, &cell));
            let name = &forest.member(n).name;
            prop_assert!(
                now <= most.max(then),
                "{name}: {cell:?}: {now} of {most}, {then} before"
            );
        }
    }
    Ok(())
}

/// Who is admitted behind a unit that something is reserved for does not make that one wait longer than it was promised, or
/// would have anyway. Said of the decisions one by one, and of when the needs fit with no claims in the books.
fn nobody_who_passes_delays(before: &Twin, after: &Twin, forest: &Forest, pass: &Pass) -> Result<(), TestCaseError> {
    let mut holding = before.charged.clone();
    holding.retain(|_, unit| unit.phase != Phase::Evicting);
    let fits_at = |holding: &BTreeMap<Uid, ChargedUnit>, queue: At, needs: &Needs| -> i64 {
        let ends = holding.values().filter_map(end_of);
        let mut instants: Vec<i64> = ends.chain([i64::MIN]).collect();
        instants.sort_unstable();
        let fits = |until: &i64| {
            let mut book = Book::empty(forest);
            for unit in holding
                .values()
                .filter(|unit| end_of(unit).is_none_or(|end| end > *until))
            {
                if let Some(queue) = forest.queue(&unit.queue) {
                    book.add(queue, &holds(unit));
                }
            }
            book.fits(queue, needs)
        };
        instants.into_iter().find(fits).unwrap_or(i64::MAX)
    };
    for action in &pass.actions {
        let admission = match action {
            Action::Admit(admission) => admission,
            Action::Evict(eviction) => {
                holding.remove(&eviction.uid);
                continue;
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let heads = after.claims.iter().filter_map(|(uid, claim)| {
            let what = claim.reserved.as_ref().filter(|_| claim.queue == admission.queue)?;
            let is_behind = turn(&before.waiting[uid]) < turn(&before.waiting[&admission.uid]);
            is_behind.then_some((uid, what))
        });
        let Some(unit) = after.charged.get(&admission.uid) else {
            continue;
        };
        let queue = forest.queue(&admission.queue).unwrap();
        let heads: Vec<_> = heads
            .map(|(uid, what)| (uid, what, fits_at(&holding, queue, &what.needs)))
            .collect();
        holding.insert(admission.uid, unit.clone());
        for (uid, what, at) in heads {
            let promised = what.until.unwrap_or(i64::MAX).max(at);
            let then = fits_at(&holding, queue, &what.needs);
            prop_assert!(
                then <= promised,
                "{} delays {uid} from {promised} to {then}",
                admission.uid
            );
        }
    }
    Ok(())
}

/// In a ClusterQueue with FIFO per pool a unit of one pod set that asks for one resource waits, though a flavor has room for
/// it in both books, only if somebody ahead of it waits too and wants that flavor.
fn who_waits_in_a_pool_has_somebody_ahead(after: &Twin, forest: &Forest) -> Result<(), TestCaseError> {
    if after.is_held_back() {
        return Ok(());
    }
    let (held, planned) = (after.held(forest), after.planned(forest));
    let pools = after.queues.values().filter(|spec| {
        let by_pool = spec.extras.fifo_per_pool && !spec.extras.backfill;
        spec.strategy == Strategy::StrictFifo && by_pool && after.is_open(spec, forest)
    });
    for spec in pools {
        let queue = forest.queue(&spec.name).unwrap();
        let mut units = after.order(&spec.name);
        units.retain(|unit| after.may_be_considered(unit));
        for (place, unit) in units.iter().enumerate() {
            let [pod_set] = &unit.pod_sets[..] else { continue };
            let [(resource, amount)] = &pod_set.per_pod[..] else {
                continue;
            };
            let mut covered = spec.groups.iter().flat_map(|group| &group.resources);
            if covered.any(|r| &**r == "pods") || pod_set.count < 1 || after.claims.contains_key(&unit.uid) {
                continue;
            }
            let need = i128::from(amount.get()) * i128::from(pod_set.count);
            let Some(group) = spec.groups.iter().find(|group| group.resources.contains(resource)) else {
                continue;
            };
            for offered in group.flavors.iter().map(|offered| &offered.flavor) {
                let needs = Needs::from([((offered.clone(), resource.clone()), need)]);
                let has_room = held.fits(queue, &needs) && planned.fits(queue, &needs);
                if !has_room || !after.may_use(offered, &pod_set.constraints) {
                    continue;
                }
                let wants = |other: &UnitSpec| {
                    let mut pod_sets = other.pod_sets.iter();
                    pod_sets.any(|pod_set| {
                        let asks = |(r, amount): &(Name, Amount)| group.resources.contains(r) && !amount.is_zero();
                        after.may_use(offered, &pod_set.constraints) && pod_set.per_pod.iter().any(asks)
                    })
                };
                prop_assert!(
                    units[..place].iter().any(wants),
                    "{} fits in {offered} and waits behind nobody",
                    unit.uid
                );
            }
        }
    }
    Ok(())
}

/// A ClusterQueue that was over for its grace time is so no longer, or has nobody left to evict there: said of the node
/// that is over and of who uses too much under it, not of who is evicted.
fn what_shrinks_has_shrunk(after: &Twin, forest: &Forest) -> Result<(), TestCaseError> {
    let mut without_claims = after.clone();
    without_claims.claims.clear();
    let book = without_claims.planned(forest);
    for ((name, cell), since) in &after.over_since {
        let grace = after.queues[name].extras.shrink_after_ms.unwrap_or(i64::MAX);
        let mut admitted = after.charged.values().filter(|unit| {
            let holds = holds(unit).contains_key(cell);
            unit.queue == *name && unit.phase == Phase::Admitted && holds
        });
        if after.now < since.saturating_add(grace) || admitted.next().is_none() {
            continue;
        }
        let queue = forest.queue(name).unwrap();
        prop_assert!(
            !is_to_shrink(&book, queue, cell),
            "{name} still uses too much of {cell:?}"
        );
    }
    Ok(())
}

fn cells(book: &Book<'_>, n: At) -> BTreeSet<Cell> {
    book.cells_of_tree(n)
}

/// A unit of one pod set that asks for one resource waits only where no flavor has room for it in both books.
///
/// Said without the search: for such a unit every flavor that has room ends in an outcome, by whatever policy.
fn nothing_that_fits_waits(after: &Twin, forest: &Forest) -> Result<(), TestCaseError> {
    if after.is_held_back() {
        return Ok(());
    }
    let (held, planned) = (after.held(forest), after.planned(forest));
    for spec in after.queues.values() {
        if spec.strategy == Strategy::StrictFifo || spec.extras.backfill || !after.is_open(spec, forest) {
            continue;
        }
        let queue = forest.queue(&spec.name).unwrap();
        let mut units = after.order(&spec.name);
        units.retain(|unit| after.may_be_considered(unit) && !after.claims.contains_key(&unit.uid));
        for unit in units {
            let [pod_set] = &unit.pod_sets[..] else { continue };
            let [(resource, amount)] = &pod_set.per_pod[..] else {
                continue;
            };
            let counts_pods = spec
                .groups
                .iter()
                .any(|group| group.resources.iter().any(|r| &**r == "pods"));
            if counts_pods || pod_set.count < 1 {
                continue;
            }
            let need = i128::from(amount.get()) * i128::from(pod_set.count);
            let group = spec.groups.iter().find(|group| group.resources.contains(resource));
            let offered = group.into_iter().flat_map(|group| &group.flavors);
            for offered in offered.filter(|offered| after.may_use(&offered.flavor, &pod_set.constraints)) {
                let needs = Needs::from([((offered.flavor.clone(), resource.clone()), need)]);
                let has_room = held.fits(queue, &needs) && planned.fits(queue, &needs);
                prop_assert!(!has_room, "{} fits in {} and waits", unit.uid, offered.flavor);
            }
        }
    }
    Ok(())
}
