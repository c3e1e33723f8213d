//! Rules of the workspace that no other tool checks.
//!
//! | module | rule |
//! |---|---|
//! | `layers` | a crate uses only the crates that it may |
//! | `purity` | pure crates reach no I/O, async runtime, clock or randomness, and clippy is told so |
//! | `supply` | licences, banned crates, crates present in two versions |
//! | `sources` | what may stand in a file |

mod layers;
mod purity;
mod sources;
mod supply;

use std::path::Path;

use crate::workspace;

/// Every breach of a rule, one line each.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = workspace::metadata(root)?;
    let mut findings = layers::findings(&metadata);
    findings.extend(purity::findings(root, &metadata)?);
    findings.extend(supply::findings(root, &metadata)?);
    findings.extend(sources::findings(root)?);
    Ok(findings)
}
