//! The term of a reign, and the fence that it is.
//!
//! The leader's term is a small custom resource that a ValidatingAdmissionPolicy takes as its parameter. Each write of
//! the scheduler stamps its term in the record, and the API server refuses to let it change `spec.suspend` under any
//! other. So a leader that was frozen or cut off cannot write late, whatever its own clock tells it.

use anyhow::{Context, Result, bail};
use kube::api::{Api, PostParams};
use sluice_api::term::{Term, TermSpec};

/// How often a lost race for the next term is run again before leadership is given up.
const ATTEMPTS: u32 = 8;

/// Begins a new term: one more than the last. A cluster without a term, or whose term was deleted, begins at `now`
/// in seconds since the epoch, which is above every counter that could have been reached before.
pub(crate) async fn begin(terms: &Api<Term>, name: &str, holder: &str, now_seconds: i64) -> Result<u64> {
    for _ in 0..ATTEMPTS {
        let written = match terms.get_opt(name).await.context("failed to read the term")? {
            None => {
                let term = Term::new(name, spec(now_seconds, holder));
                terms.create(&PostParams::default(), &term).await
            }
            Some(mut last) => {
                last.spec = spec(last.spec.term.saturating_add(1), holder);
                terms.replace(name, &PostParams::default(), &last).await
            }
        };
        match written {
            Ok(term) => return u64::try_from(term.spec.term).context("the term is negative"),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {}
            Err(error) => return Err(error).context("failed to write the term"),
        }
    }
    bail!("another scheduler keeps writing the term {name}; this one does not lead")
}

fn spec(term: i64, holder: &str) -> TermSpec {
    TermSpec {
        term,
        holder: holder.to_owned(),
        acquired_at: None,
    }
}
