//! End-to-end tests on a real control plane: one binary, one module a subject.

mod admission;
mod chart;
mod fence;
mod gitops;
mod lifecycle;
mod policies;
mod release;
mod smoke;
mod webhook_rules;
mod world;
