//! Metrics of exchanges with upstreams, by upstream.

use fencegate_policies::plan::Upstream;
use fencegate_process::{
    families::{Families, SHORT},
    sharded::Sharded,
};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

use super::words::UPSTREAM_ERRORS;

/// The families by upstream.
pub(super) struct UpstreamFamilies {
    /// Counted per thread, because each request touches it.
    pub(super) seconds: Sharded<HistogramVec>,
    pub(super) errors: IntCounterVec,
    pub(super) retries: IntCounterVec,
}

impl UpstreamFamilies {
    pub(super) fn register(families: &Families) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let seconds = || {
            let opts = HistogramOpts::new("upstream_seconds", "From sending to the head of the answer.");
            HistogramVec::new(opts.buckets(SHORT.to_vec()), &["upstream", "code"])
        };
        Self {
            seconds: families.register(Sharded::of(seconds)),
            errors: counters("upstream_errors_total", "Exchanges without an answer.", &["upstream", "kind"]),
            retries: counters(
                "retries_total",
                "Requests sent again: nothing of them had been sent, or they were reads without a fence whose pooled connection died.",
                &["upstream"],
            ),
        }
    }

    /// Makes the series that alerts look at, before they count.
    pub(super) fn begin(&self, upstream: &Upstream) {
        self.retries.with_label_values(&[&*upstream.name]);
        for kind in UPSTREAM_ERRORS {
            self.errors.with_label_values(&[&*upstream.name, kind]);
        }
    }
}
