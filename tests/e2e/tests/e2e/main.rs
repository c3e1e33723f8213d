//! End-to-end tests on a real control plane: one binary, one module a subject.

mod admission;
mod chart;
mod compatibility;
mod faults;
mod fence;
mod gitops;
mod lifecycle;
mod malformed;
mod policies;
mod queue_webhook;
mod release;
mod scenarios;
mod turns;
mod visibility;
mod webhook_rules;
mod world;
