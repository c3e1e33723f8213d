//! Process glue shared by `sluice-webhook` and `sluice-scheduler`: everything that touches the API server,
//! the clock, signals, sockets and logs, and decides nothing about jobs.
//!
//! ```text
//! kubeconfig -> client -+-> watch  -> Change<K> on a bounded channel -> the owner task of a process
//!                       +-> lease  -> Leadership on a watch channel   -> whoever writes
//!                       +-> events <- Notice from anywhere, never waiting
//! metrics registry, readiness -> http (/healthz, /readyz, /metrics)
//! files -> certificate -> the resolver of a TLS server
//! signals -> shutdown
//! ```
//!
//! What it must never do: retry a write behind its caller's back, hold a lock or a connection that a slow
//! consumer of watch events could block for others, or judge a lease by somebody else's wall clock.
//!
//! Entry points: [`client::Clients`], [`watch::Watches`], [`lease::Candidate`], [`events::start`],
//! [`http::serve`], [`configuration::load`], [`telemetry::init`], [`shutdown::on_signals`].

pub mod aggregation;
pub mod certificate;
pub mod client;
pub mod configuration;
pub mod events;
pub mod http;
pub mod lease;
pub mod metrics;
pub mod shutdown;
pub mod telemetry;
pub mod watch;
