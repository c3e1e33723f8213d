//! Fewer pods than asked for, and back: what a partial admission changes in the spec and a stop restores.

use super::builder::Builder;
use crate::partial;
use crate::record::{Delta, Record};
use crate::view::JobView;

const PARALLELISM: &str = "parallelism";
const COMPLETIONS: &str = "completions";

/// Lets a Job run `pods` pods and keeps what its owner had asked for in the delta.
pub(super) fn lower(builder: &mut Builder<'_>, job: &JobView, pods: i64, delta: &mut Delta) {
    let spec = &job.spec;
    let asked = spec.parallelism.unwrap_or(1);
    if asked <= pods {
        return;
    }
    builder.change_number(PARALLELISM, spec.parallelism, pods);
    delta.parallelism = Some(asked);
    if let Some(completions) = spec.completions
        && partial::completions_follow(job).unwrap_or(false)
    {
        builder.change_number(COMPLETIONS, spec.completions, pods);
        delta.completions = Some(completions);
    }
}

/// Gives a Job its owner's numbers back, unless somebody changed them since: then they are what the owner wants now.
pub(super) fn restore(builder: &mut Builder<'_>, job: &JobView, old: &Record) {
    let (spec, ours) = (&job.spec, Some(old.pods()));
    let Some(asked) = old.delta.parallelism.filter(|_| spec.parallelism == ours) else {
        return;
    };
    builder.change_number(PARALLELISM, spec.parallelism, asked);
    if let Some(asked) = old.delta.completions.filter(|_| spec.completions == ours) {
        builder.change_number(COMPLETIONS, spec.completions, asked);
    }
}
