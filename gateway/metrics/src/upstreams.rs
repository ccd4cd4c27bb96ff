//! Metrics of exchanges with upstreams, by upstream.

use fencegate_policies::plan::Upstream;
use fencegate_process::{
    registry::{MetricRegistry, SHORT},
    sharded::ShardedMetric,
};
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts};

use super::labels::UPSTREAM_ERRORS;

/// The families by upstream.
pub(super) struct UpstreamMetricFamilies {
    /// Counted per thread, because each request touches it.
    pub(super) seconds: ShardedMetric<HistogramVec>,
    pub(super) errors: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) clock_offset: GaugeVec,
    pub(super) clock_error: GaugeVec,
}

impl UpstreamMetricFamilies {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let seconds = || {
            let opts = HistogramOpts::new("upstream_seconds", "From sending to the head of the answer.");
            HistogramVec::new(opts.buckets(SHORT.to_vec()), &["upstream", "code"])
        };
        let gauges =
            |name, help| families.register(GaugeVec::new(Opts::new(name, help), &["upstream", "endpoint"]));
        Self {
            clock_offset: gauges(
                "clock_offset_seconds",
                "How far the clock of a filter before the service is ahead of ours, by its last answer.",
            ),
            clock_error: gauges(
                "clock_error_seconds",
                "The largest offset with which that filter lets nothing in too late: its `clock_error`.",
            ),
            seconds: families.register(ShardedMetric::new(seconds)),
            errors: counters("upstream_errors_total", "Exchanges without an answer.", &["upstream", "kind"]),
            retries: counters(
                "retries_total",
                "Requests sent again: nothing of them had been sent, or they were reads without a fence whose pooled connection died.",
                &["upstream"],
            ),
        }
    }

    /// Makes the series that alerts look at, before they count.
    pub(super) fn init_series(&self, upstream: &Upstream) {
        self.retries.with_label_values(&[&*upstream.name]);
        for kind in UPSTREAM_ERRORS {
            self.errors.with_label_values(&[&*upstream.name, kind]);
        }
    }
}
