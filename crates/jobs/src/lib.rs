//! Everything about batch/v1 Jobs that is pure: what is read from a Job, what is decided from it alone, and the guarded
//! patches that change it.
//!
//! ```text
//! watch ---> JobView --+--> managed()      is this Job ours?
//!                      +--> requests       what does one pod ask for, how many pods?
//!                      +--> priority       which priority orders it?
//!                      +--> limits         how long may it run, when is it gone?
//!                      +--> partial        how few pods does it accept?
//!                      +--> gates          who must let it go first?
//!                      +--> unsupported    what does it ask for that is not supported yet?
//!                      +--> status         has it finished, has its quota come back?
//!                      +--> Record         what the scheduler decided last
//!                      '--> patch::*       one guarded JSON patch per state change
//! ```
//!
//! The crate never does I/O, reads no clock and draws no randomness: times are arguments. It never edits a typed Job and
//! sends it back: patches name only the paths they mean, so fields it does not know survive.
//!
//! Entry points: [`JobView`], [`managed()`], [`requests::pod_requests`], [`Record`] and the builders in [`patch`].
#![deny(missing_docs)]

pub mod apply;
pub mod gates;
pub mod limits;
pub mod managed;
pub mod partial;
pub mod patch;
pub mod priority;
pub mod record;
pub mod requests;
pub mod status;
pub mod unsupported;
pub mod view;

#[cfg(test)]
mod fixture;

/// A point in time, as Kubernetes' own types use it.
pub use k8s_openapi::jiff::Timestamp;
pub use managed::{JobFacts, Managed, NamespaceFacts, Owner, managed};
pub use record::{Record, State};
pub use view::JobView;
