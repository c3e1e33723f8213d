//! The engine from outside: named cases, its cost, and a naive twin that must agree with it on everything.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "all of this is test code, also what stands outside of test functions"
)]

mod ageing;
mod build;
mod cases;
mod cost;
mod extras;
mod order;
mod past_usage;
mod positions;
mod random;
mod together;
mod twin;
