//! Reviews as the API server sends them, and as it never would.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests count as no tests to clippy"
)]

mod conversion;
mod object_table;
mod robustness;
mod stored_reviews;
mod support;
mod update_table;
mod workload_table;
