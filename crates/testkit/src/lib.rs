//! A real Kubernetes control plane for Sluice's demo, tests and benchmarks.
//!
//! A [`Plane`] is etcd, a kube-apiserver and the controllers a batch cluster
//! needs, with kube-scheduler and fake nodes where pods must run, and with the
//! real Sluice binaries installed from the rendered chart under their own
//! identities. Nothing here imitates the API server.
//!
//! ```text
//! test ── Plane ──stdin/stdout──> supervisor ──> etcd, kube-apiserver, controllers, kwok,
//!          │                          │            sluice-webhook, sluice-scheduler
//!          ├── Audit   (who asked what)└─ removes the folder when stdin closes
//!          ├── FaultProxy (between one Sluice process and the API server)
//!          └── Referee (an independent watcher of Jobs and pods)
//! ```
//!
//! This crate is for tests: it must never be a dependency of a Sluice binary.
//! Every child process belongs to the supervisor, which ends them all when this
//! process is gone, however it ended. Waiting is always for a condition
//! ([`eventually`]), never for a fixed time.

mod audit;
mod background;
mod balancer;
mod binaries;
mod certificates;
mod chart;
mod fault;
mod kubeconfig;
mod kubectl;
mod nodes;
mod plane;
mod port;
mod processes;
mod referee;
mod sluice;
mod supervisor;
mod wait;

pub use audit::{Audit, AuditEvent, AuditMark};
pub use background::background;
pub use balancer::Balancer;
pub use binaries::{ControlPlaneBinaries, SluiceBinaries, repository};
pub use chart::{Chart, Container};
pub use fault::{Answer, FaultProxy, Match, Rule, RuleId};
pub use kubeconfig::{Identity, Kubeconfig};
pub use kubectl::{Kubectl, KubectlOutput};
pub use nodes::{FakeNode, annotations};
pub use plane::{Plane, PlaneOptions};
pub use port::check_webhook_port;
pub use processes::{Exit, Signal};
pub use referee::{Peak, Referee, Verdict, Violation};
pub use sluice::{SchedulerOptions, Sluice, WebhookOptions};
pub use wait::{eventually, eventually_ok};
