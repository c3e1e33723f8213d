//! The brain of Sluice: who waits, who may start, and why.
//!
//! A pure library. Events say what the world is like, a pass says what to do about it:
//!
//! ```text
//!  Event ──apply──▶ units ──▶ LocalQueue ──▶ queue order ─┬─▶ set aside (gate, back-off, blocked)
//!                                                         └─▶ parking lot: classes of one shape
//!            cohorts, quota ──▶ forest of trees               active ⇄ parked (watched in the tree)
//!                   flavors ──▶ plan of a shape ──search──────────┤
//!  Pass ◀──pass(now)── admit: charge the books ◀──────────────────┤
//!                      evict: victims, claim for the preemptor ◀──┘
//!  Waiting, QueueReport, Changed ◀──── asked at any time
//! ```
//!
//! The rules are written down in `docs/scheduling.md`; each module says which section it carries out.
//!
//! The entry point is [`Engine`]. What goes in is in [`Event`], what comes out in [`Action`], [`Waiting`] and
//! [`QueueReport`].
//!
//! It must never: do input or output, log, wait, read a clock, draw a random number, know a Kubernetes type, or
//! let the order of a hash table or of arrival reach a decision. The same events give the same bytes, always.
//!
//! ```
//! use sluice_engine::*;
//!
//! let mut engine = Engine::new();
//! let key = LocalQueueKey::new("team-a", "default");
//! engine.apply(Event::SetFlavor(FlavorSpec {
//!     name: "any".into(),
//!     node_labels: Default::default(),
//!     taints: vec![],
//!     tolerations: vec![],
//! }));
//! engine.apply(Event::SetQueue(QueueSpec {
//!     name: "main".into(),
//!     strategy: Strategy::BestEffortFifo,
//!     groups: vec![ResourceGroup {
//!         resources: vec!["cpu".into()],
//!         flavors: vec![FlavorQuota { flavor: "any".into(), quotas: vec![Amount::new(4000).into()] }],
//!     }],
//!     ..QueueSpec::default()
//! }));
//! engine.apply(Event::SetLocalQueue(LocalQueueSpec {
//!     key: key.clone(),
//!     queue: "main".into(),
//!     blocked: None,
//!     drain: false,
//!     weight: Weight::ONE,
//!     past_usage: None,
//! }));
//! for uid in 0..3 {
//!     engine.apply(Event::SetWaiting(UnitSpec {
//!         uid: Uid(uid),
//!         local_queue: key.clone(),
//!         priority: 0,
//!         queued_at: Time(0),
//!         pod_sets: vec![PodSetSpec {
//!             name: "main".into(),
//!             count: 2,
//!             min_count: None,
//!             per_pod: vec![("cpu".into(), Amount::new(1000))],
//!             constraints: Default::default(),
//!         }],
//!         gate: None,
//!         not_before: None,
//!         runs_at_most_ms: None,
//!     }));
//! }
//! assert_eq!(engine.pass(Time(0)).actions.len(), 2);
//! assert_eq!(engine.waiting(Uid(2)).map(|waiting| waiting.reason.to_string()).as_deref(), Some(
//!     "pod set main waits for quota: flavor any has 0 of 4 cpu free and 2 is needed"
//! ));
//! ```

mod adopt;
mod ageing;
mod amount;
mod arena;
mod assign;
mod audit;
mod backfill;
mod books;
mod engine;
mod estimate;
mod explain;
mod fairness;
mod flavors;
mod forest;
mod ids;
mod interner;
mod local_queue;
mod log;
mod memory;
mod nominate;
mod order;
mod overview;
mod parking;
mod pass;
mod past;
mod pools;
mod positions;
mod queue;
mod quota;
mod ranked;
mod report;
mod search;
mod sentences;
mod shapes;
mod shrink;
mod spec;
mod take;
mod tree;
mod units;
mod victims;
mod waitlist;
mod watch;
mod wide;

pub use amount::Amount;
pub use audit::AuditError;

pub use engine::Engine;
pub use flavors::{
    Constraints, Effect, FlavorSpec, Mismatch, NodeSelectorRequirement, NodeSelectorTerm, SelectorOperator, Taint,
    Toleration, TolerationOperator,
};
pub use ids::{LocalQueueKey, Name, Time, Uid};
pub use log::{Divergence, Step};
pub use overview::{CohortReport, CohortUsage};
pub use positions::Place;
pub use report::{
    Action, Admission, Binding, Changed, Counters, Eviction, EvictionCause, Pass, PodSetAssignment, PreemptionReason,
    QueueReport, Shortage, Usage, WaitKind, WaitReason, Waiting,
};
pub use spec::{
    Ageing, Blocked, BorrowWithinCohort, Charge, ChargedUnit, CohortSpec, Deadline, Event, Extras, FairSharing,
    FlavorQuota, Fungibility, Gate, Inactive, LocalQueueSpec, Overdue, PastUsage, PastUsageRules, Phase, PodSetSpec,
    Preemption, Preference, QueueSpec, Quota, Reclaim, ResourceGroup, Search, Settings, ShareRule, Strategy, UnitSpec,
    Weight, WithinQueue,
};
