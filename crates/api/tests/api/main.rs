//! The API as its users meet it: manifests in, what they mean or what is wrong with them out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

mod arbitrary;
mod cases;
mod cel;
mod configuration;
mod conversion;
mod extras;
mod fields;
mod manifests;
mod schemas;
