//! The Kubernetes API that Sluice speaks: custom resources, and the names shared with users' manifests.
//!
//! Types of the group `kueue.x-k8s.io` have one module per version; [`Term`](term::Term) is Sluice's own.
//! The CRDs that the chart installs are derived from these types by [`crds()`].
//!
//! This crate never does I/O and never decides anything: it says what can be written, and what a written
//! object contains. It decodes tolerantly (see [`v1beta2`]), so that one odd object never stops a watch.

mod absent;
pub mod annotations;
pub mod conditions;
pub mod configuration;
pub mod conversion;
mod crds;
pub mod duration;
pub mod labels;
mod names;
mod open_enum;
mod quantity_text;
mod schema;
pub mod term;
mod v1beta1;
pub mod v1beta2;
pub mod visibility;

pub use crds::{CONVERT, crds};
pub use quantity_text::QuantityText;
pub use term::{TERM_NAME, Term, TermSpec};

/// API group of the queue objects.
pub const GROUP: &str = "kueue.x-k8s.io";
/// API group of Sluice's own objects.
pub const SLUICE_GROUP: &str = "sluice.internal";
/// LocalQueue that a managed Job without a queue label waits in.
pub const DEFAULT_LOCAL_QUEUE: &str = "default";
/// WorkloadPriorityClass that orders a Job which names none, if a class of this name exists.
pub const DEFAULT_PRIORITY_CLASS: &str = "default";
/// The resource every pod requests one of, so that a quota can count pods.
pub const RESOURCE_PODS: &str = "pods";
/// Finalizer that keeps a ClusterQueue or a ResourceFlavor while something uses it.
pub const RESOURCE_IN_USE_FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
