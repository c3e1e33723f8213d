//! Tests of the whole crate: against the table that Kubernetes wrote, and against exact arithmetic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod golden;
mod properties;
