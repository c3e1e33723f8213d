//! The webhook over real TLS sockets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests count as no tests to clippy"
)]

mod drain;
mod process;
mod reload;
mod requests;
mod support;
