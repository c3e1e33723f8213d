//! Random worlds: the engine and its twin are told the same and must agree on everything, and whatever is decided keeps
//! within limits and comes to rest.

mod invariants;
mod pair;
mod worlds;

use proptest::prelude::*;
use sluice_engine::*;

use pair::Pair;
use worlds::{Step, a_history};
pub(crate) use worlds::{an_event, furnished};

/// Two thousand; the environment variable PROPTEST_CASES, 256 if unset, makes them more.
fn cases() -> u32 {
    ProptestConfig::default().cases.saturating_mul(8)
}

fn live(mut pair: Pair, (beginning, steps): (Vec<Event>, Vec<Step>)) -> Result<Pair, TestCaseError> {
    for event in beginning {
        pair.tell(event)?;
    }
    for step in steps {
        pair.step(step)?;
    }
    let _ = pair.pass(pair.twin.now)?;
    Ok(pair)
}

/// Passes and what comes of them, with nothing else happening, until a pass decides nothing.
fn come_to_rest(mut pair: Pair) -> Result<(), TestCaseError> {
    pair.settle()?;
    let epoch = pair.twin.epoch;
    let units = pair.twin.waiting.len() + pair.twin.charged.len();
    for _ in 0..(units + 2) * 3 {
        if pair.pass(pair.twin.now)?.actions.is_empty() {
            return Ok(());
        }
        pair.settle()?;
        prop_assert_eq!(pair.twin.epoch, epoch);
    }
    Err(TestCaseError::fail("no rest"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn the_engine_agrees_with_its_naive_twin(history in a_history(true)) {
        come_to_rest(live(Pair::of(Engine::new()), history)?)?;
    }

    #[test]
    fn the_engine_agrees_with_its_naive_twin_where_nothing_is_shared(history in a_history(false)) {
        come_to_rest(live(Pair::of(Engine::new()), history)?)?;
    }

    #[test]
    fn by_the_rules_every_world_comes_to_rest(history in a_history(true)) {
        come_to_rest(live(Pair::of_twin_alone(), history)?)?;
    }
}
