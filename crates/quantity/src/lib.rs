//! Exact `resource.Quantity`: parse, compare, add, round and print as Kubernetes does.
//!
//! ```text
//! "1.23Ki" --parse--> Quantity (an integer count of nano units) --Display--> "1259520m"
//!                          |--value()-------> 1260      (whole units, rounded away from zero)
//!                          '--milli_value()-> 1259520   (thousandths, rounded away from zero)
//! ```
//!
//! The grammar, the rounding and the printed form are those of `k8s.io/apimachinery` (`pkg/api/resource`), held by a
//! golden table that the Go package itself wrote (`tests/golden.tsv`). Where Go wraps, drops a suffix or rounds towards
//! zero, this crate saturates, keeps the value and rounds away from zero; `tests/suite/golden.rs` lists every such input.
//!
//! The crate never does I/O, never uses floating point, never panics and never wraps. Entry point: [`Quantity::parse`].
//!
//! ```
//! use sluice_quantity::Quantity;
//!
//! let memory = Quantity::parse("1.5Gi")?;
//! assert_eq!(memory.value(), 1_610_612_736);
//! assert_eq!(memory.to_string(), "1536Mi");
//! assert_eq!(Quantity::parse("0.1m")?.to_string(), "100u");
//! assert_eq!(Quantity::parse("1E")?.milli_value(), i64::MAX);
//! # Ok::<(), sluice_quantity::ParseError>(())
//! ```
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod amount;
mod parse;
mod print;
mod wire;

pub use amount::{Format, Quantity};
pub use parse::ParseError;
