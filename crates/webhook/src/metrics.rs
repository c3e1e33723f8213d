//! What the webhook counts.

use std::time::Duration;

use prometheus::{IntGauge, Registry};
use sluice_runtime::label_set;
use sluice_runtime::metrics::{Counter, Gauge, Histogram, NoLabels};

/// Upper bounds in seconds: a review takes well under a millisecond, and the API server waits two seconds.
const BUCKETS: [f64; 12] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 2.0,
];

label_set! {
    /// Labels of the reviews answered.
    pub struct ReviewLabels { path, outcome }
}

label_set! {
    /// Labels of the time taken.
    pub struct PathLabels { path }
}

/// The metrics of the process.
#[derive(Debug, Clone)]
pub struct Metrics {
    reviews: Counter<ReviewLabels<'static>>,
    duration: Histogram<PathLabels<'static>>,
    in_work: IntGauge,
    connection_errors: Counter<NoLabels<'static>>,
    certificate_expiry: Gauge<NoLabels<'static>>,
    reload_failures: Counter<NoLabels<'static>>,
}

impl Metrics {
    /// Makes the metrics known to `registry`.
    ///
    /// # Errors
    ///
    /// When they were registered before.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let in_work = IntGauge::new("sluice_webhook_reviews_in_work", "Reviews that are not answered yet.")?;
        registry.register(Box::new(in_work.clone()))?;
        Ok(Self {
            in_work,
            reviews: Counter::register(
                registry,
                "sluice_webhook_reviews_total",
                "Reviews answered, by path and outcome: untouched, patched, converted, denied, unreadable, or why there \
                 was no answer in kind (too_large, timeout, not_ready, panic, other).",
            )?,
            duration: Histogram::register(
                registry,
                "sluice_webhook_review_duration_seconds",
                "Time from the head of a request to the head of its answer.",
                BUCKETS.to_vec(),
            )?,
            connection_errors: Counter::register(
                registry,
                "sluice_webhook_connection_errors_total",
                "Connections that failed before their first request: TLS errors, handshakes that took too long.",
            )?,
            certificate_expiry: Gauge::register(
                registry,
                "sluice_webhook_certificate_expiry_timestamp_seconds",
                "When the certificate that is served expires, in seconds since 1970.",
            )?,
            reload_failures: Counter::register(
                registry,
                "sluice_webhook_certificate_reload_failures_total",
                "Times the certificate files were looked at and could not be used.",
            )?,
        })
    }

    pub(crate) fn count_review(&self, path: &str, outcome: &str, took: Duration) {
        self.reviews.inc(&ReviewLabels { path, outcome });
        self.duration.observe(&PathLabels { path }, took.as_secs_f64());
    }

    /// Counts a review as in work until what is returned is dropped.
    pub(crate) fn in_work(&self) -> InWork {
        self.in_work.inc();
        InWork(self.in_work.clone())
    }

    pub(crate) fn count_connection_error(&self) {
        self.connection_errors.inc(&NoLabels::default());
    }

    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^52")]
    pub(crate) fn set_certificate_expiry(&self, unix_seconds: u64) {
        self.certificate_expiry.set(&NoLabels::default(), unix_seconds as f64);
    }

    pub(crate) fn count_reload_failure(&self) {
        self.reload_failures.inc(&NoLabels::default());
    }
}

/// A review in work; also one whose client goes away ends.
#[derive(Debug)]
pub(crate) struct InWork(IntGauge);

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.dec();
    }
}
