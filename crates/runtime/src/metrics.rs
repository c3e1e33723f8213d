//! Typed metric families: labels are given by name in a struct, so their order cannot slip.
//!
//! ```
//! sluice_runtime::label_set! {
//!     /// Labels of everything counted per ClusterQueue.
//!     pub struct QueueLabels { cluster_queue, replica_role }
//! }
//! # fn main() -> prometheus::Result<()> {
//! use sluice_runtime::metrics::Counter;
//! let registry = prometheus::Registry::new();
//! let admitted = Counter::<QueueLabels<'static>>::register(&registry, "admitted_total", "Jobs admitted.")?;
//! admitted.inc(&QueueLabels { cluster_queue: "team-a", replica_role: "leader" });
//! admitted.forget(&[("cluster_queue", "team-a")]); // the queue was deleted
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::marker::PhantomData;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// The label names of a family, and how a struct of values is put in their order. Made by [`label_set!`](crate::label_set).
pub trait LabelSet {
    /// Label names, in the order of the struct's fields.
    const NAMES: &'static [&'static str];
    /// The same struct with borrowed values.
    type Of<'a>;

    /// Calls `f` with the values in the order of [`Self::NAMES`].
    fn with<R>(labels: &Self::Of<'_>, f: impl FnOnce(&[&str]) -> R) -> R;
}

/// Defines a struct of label values and its [`LabelSet`]; an empty pair of braces makes a family without labels.
#[macro_export]
macro_rules! label_set {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {}) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $name<'a>(::std::marker::PhantomData<&'a ()>);

        impl $crate::metrics::LabelSet for $name<'static> {
            const NAMES: &'static [&'static str] = &[];
            type Of<'a> = $name<'a>;

            fn with<R>(_: &$name<'_>, f: impl FnOnce(&[&str]) -> R) -> R {
                f(&[])
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($field:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name<'a> {
            $(#[doc = concat!("Value of the label `", stringify!($field), "`.")] pub $field: &'a str,)+
        }

        impl $crate::metrics::LabelSet for $name<'static> {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),+];
            type Of<'a> = $name<'a>;

            fn with<R>(labels: &$name<'_>, f: impl FnOnce(&[&str]) -> R) -> R {
                f(&[$(labels.$field),+])
            }
        }
    };
}

label_set! {
    /// No labels at all.
    pub struct NoLabels {}
}

macro_rules! family {
    ($(#[$meta:meta])* $name:ident, $vec:ty) => {
        $(#[$meta])*
        pub struct $name<L> {
            vec: $vec,
            labels: PhantomData<fn() -> L>,
        }

        impl<L> Clone for $name<L> {
            fn clone(&self) -> Self {
                Self { vec: self.vec.clone(), labels: PhantomData }
            }
        }

        impl<L> std::fmt::Debug for $name<L> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl<L: LabelSet> $name<L> {
            /// Drops the series of exactly these labels.
            pub fn remove(&self, labels: &L::Of<'_>) {
                // The only error says that there is no such series, which is what was asked for.
                let _absent = L::with(labels, |values| self.vec.remove_label_values(values));
            }

            /// Drops every series that has all of these labels, names and values: what is left of a deleted object.
            pub fn forget(&self, labels: &[(&str, &str)]) {
                forget(&self.vec, labels);
            }
        }
    };
}

family! {
    /// Counters that only rise, in whole steps.
    Counter, IntCounterVec
}
family! {
    /// Counters of seconds and other fractions.
    FloatCounter, CounterVec
}
family! {
    /// Values that go up and down.
    Gauge, GaugeVec
}
family! {
    /// Distributions over fixed buckets.
    Histogram, HistogramVec
}

impl<L: LabelSet> Counter<L> {
    /// Makes the family known to `registry`.
    ///
    /// # Errors
    ///
    /// A bad name, or a family of that name registered before.
    pub fn register(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Self> {
        let vec = IntCounterVec::new(Opts::new(name, help), L::NAMES)?;
        registry.register(Box::new(vec.clone()))?;
        Ok(Self {
            vec,
            labels: PhantomData,
        })
    }

    /// Adds one.
    pub fn inc(&self, labels: &L::Of<'_>) {
        self.add(labels, 1);
    }

    /// Adds `amount`.
    pub fn add(&self, labels: &L::Of<'_>, amount: u64) {
        L::with(labels, |values| self.vec.with_label_values(values).inc_by(amount));
    }

    /// The count so far; zero, and from now on present, when nothing was counted.
    pub fn get(&self, labels: &L::Of<'_>) -> u64 {
        L::with(labels, |values| self.vec.with_label_values(values).get())
    }
}

impl<L: LabelSet> FloatCounter<L> {
    /// Makes the family known to `registry`.
    ///
    /// # Errors
    ///
    /// A bad name, or a family of that name registered before.
    pub fn register(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Self> {
        let vec = CounterVec::new(Opts::new(name, help), L::NAMES)?;
        registry.register(Box::new(vec.clone()))?;
        Ok(Self {
            vec,
            labels: PhantomData,
        })
    }

    /// Adds `amount`; a negative amount is ignored, since a counter only rises.
    pub fn add(&self, labels: &L::Of<'_>, amount: f64) {
        if amount > 0.0 {
            L::with(labels, |values| self.vec.with_label_values(values).inc_by(amount));
        }
    }
}

impl<L: LabelSet> Gauge<L> {
    /// Makes the family known to `registry`.
    ///
    /// # Errors
    ///
    /// A bad name, or a family of that name registered before.
    pub fn register(registry: &Registry, name: &str, help: &str) -> prometheus::Result<Self> {
        let vec = GaugeVec::new(Opts::new(name, help), L::NAMES)?;
        registry.register(Box::new(vec.clone()))?;
        Ok(Self {
            vec,
            labels: PhantomData,
        })
    }

    /// Sets the value.
    pub fn set(&self, labels: &L::Of<'_>, value: f64) {
        L::with(labels, |values| self.vec.with_label_values(values).set(value));
    }

    /// The present value; zero, and from now on present, when nothing was set.
    pub fn get(&self, labels: &L::Of<'_>) -> f64 {
        L::with(labels, |values| self.vec.with_label_values(values).get())
    }
}

impl<L: LabelSet> Histogram<L> {
    /// Makes the family known to `registry`; `buckets` are upper bounds in rising order.
    ///
    /// # Errors
    ///
    /// A bad name, buckets out of order, or a family of that name registered before.
    pub fn register(registry: &Registry, name: &str, help: &str, buckets: Vec<f64>) -> prometheus::Result<Self> {
        let vec = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), L::NAMES)?;
        registry.register(Box::new(vec.clone()))?;
        Ok(Self {
            vec,
            labels: PhantomData,
        })
    }

    /// Counts one observation, in the unit that the family's name says.
    pub fn observe(&self, labels: &L::Of<'_>, value: f64) {
        L::with(labels, |values| self.vec.with_label_values(values).observe(value));
    }

    /// How many observations were counted.
    pub fn count(&self, labels: &L::Of<'_>) -> u64 {
        L::with(labels, |values| self.vec.with_label_values(values).get_sample_count())
    }
}

/// Registers the standard `process_*` metrics (memory, CPU time, open files, start time) of this process.
///
/// # Errors
///
/// When they were registered before.
pub fn register_process(registry: &Registry) -> prometheus::Result<()> {
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
}

fn forget<T: MetricVecBuilder>(vec: &MetricVec<T>, wanted: &[(&str, &str)]) {
    for family in vec.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> = metric
                .get_label()
                .iter()
                .map(|pair| (pair.name(), pair.value()))
                .collect();
            if wanted.iter().all(|(name, value)| labels.get(name) == Some(value)) {
                // Somebody may have removed the same series in the meantime.
                let _absent = vec.remove(&labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    label_set! {
        struct QueueLabels { cluster_queue, reason }
    }

    fn text(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn labels_land_under_their_names_whatever_the_order_in_which_they_are_written() {
        let registry = Registry::new();
        let evicted = Counter::<QueueLabels<'static>>::register(&registry, "evicted_total", "Evicted.").unwrap();
        evicted.add(
            &QueueLabels {
                reason: "Preempted",
                cluster_queue: "a",
            },
            2,
        );
        let text = text(&registry);
        assert!(
            text.contains(r#"evicted_total{cluster_queue="a",reason="Preempted"} 2"#),
            "{text}"
        );
    }

    #[test]
    fn what_is_left_of_a_deleted_queue_is_forgotten() {
        let registry = Registry::new();
        let usage = Gauge::<QueueLabels<'static>>::register(&registry, "usage", "Usage.").unwrap();
        let wait = Histogram::<QueueLabels<'static>>::register(&registry, "wait_seconds", "Wait.", vec![1.0]).unwrap();
        for (cluster_queue, reason) in [("a", "x"), ("a", "y"), ("b", "x")] {
            let labels = QueueLabels { cluster_queue, reason };
            usage.set(&labels, 0.5);
            wait.observe(&labels, 2.0);
        }
        usage.forget(&[("cluster_queue", "a")]);
        wait.forget(&[("cluster_queue", "a")]);
        let left = text(&registry);
        assert!(!left.contains(r#"cluster_queue="a""#), "{left}");
        let kept = QueueLabels {
            cluster_queue: "b",
            reason: "x",
        };
        assert!(left.contains(r#"usage{cluster_queue="b",reason="x"} 0.5"#), "{left}");
        assert_eq!(wait.count(&kept), 1);
        usage.remove(&kept);
        usage.remove(&kept);
        assert!(!text(&registry).contains("usage{"));
    }

    #[test]
    fn a_family_without_labels_has_one_series() {
        let registry = Registry::new();
        let cycles = FloatCounter::<NoLabels<'static>>::register(&registry, "busy_seconds_total", "Busy.").unwrap();
        cycles.add(&NoLabels::default(), 1.5);
        cycles.add(&NoLabels::default(), -4.0);
        assert!(text(&registry).contains("busy_seconds_total 1.5"));
    }

    #[test]
    fn a_family_is_registered_once() {
        let registry = Registry::new();
        let register = || Counter::<NoLabels<'static>>::register(&registry, "a_total", "A.");
        register().unwrap();
        register().unwrap_err();
    }

    #[test]
    fn the_process_shows_its_memory() {
        let registry = Registry::new();
        register_process(&registry).unwrap();
        assert!(text(&registry).contains("process_resident_memory_bytes"));
    }
}
