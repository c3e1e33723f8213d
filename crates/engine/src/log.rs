//! What an engine was told and asked, step by step, so that it can be done again: the same steps give the same decisions,
//! byte for byte.

use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::ids::Time;
use crate::report::Action;
use crate::spec::Event;

/// One call that can change an engine, with what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// [`Engine::apply`].
    Apply(Event),
    /// [`Engine::settle`].
    Settle {
        /// The instant.
        now: Time,
    },
    /// [`Engine::pass_at_most`].
    Pass {
        /// The instant of the pass.
        now: Time,
        /// How many admissions were allowed at most.
        limit: usize,
        /// What was decided.
        actions: Vec<Action>,
        /// The next instant at which time alone changes something.
        next: Option<Time>,
    },
}

/// A pass that decided otherwise than the one that was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pass decided {found:?}, recorded is {recorded:?}")]
pub struct Divergence {
    /// The pass as recorded.
    pub recorded: Box<Step>,
    /// The pass as it was now.
    pub found: Box<Step>,
}

impl Engine {
    /// Does once more what was done to another engine that had been through the same steps.
    ///
    /// # Errors
    /// The pass decided something else.
    pub fn replay(&mut self, step: Step) -> Result<(), Divergence> {
        match step {
            Step::Apply(event) => self.apply(event),
            Step::Settle { now } => self.settle(now),
            Step::Pass { now, limit, .. } => {
                let pass = self.pass_at_most(now, limit);
                let found = Step::Pass {
                    now,
                    limit,
                    actions: pass.actions,
                    next: pass.next,
                };
                if found != step {
                    return Err(Divergence {
                        recorded: Box::new(step),
                        found: Box::new(found),
                    });
                }
            }
        }
        Ok(())
    }
}
