//! What the demo, the benchmark and the end-to-end tests share: manifests, and reading Jobs back.
//!
//! The tests themselves are one binary, `tests/e2e`; the programs are in `src/bin`.

pub mod jobs;
pub mod manifests;
pub mod scenario;
