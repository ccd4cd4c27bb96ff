//! Metrics of delays: a new holder waits for one when the last holder left without recording that its requests are
//! over.

use std::time::Duration;

use fencegate_process::registry::MetricRegistry;
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts};

/// How the wait for a delay ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverDelayEnd {
    WaitedOut,
    /// The session ended, or the process stops. The next holder begins the wait anew.
    Interrupted,
}

impl HandoverDelayEnd {
    const ALL: [Self; 2] = [Self::WaitedOut, Self::Interrupted];

    fn label(self) -> &'static str {
        match self {
            Self::WaitedOut => "sat-out",
            Self::Interrupted => "cut-short",
        }
    }
}

#[derive(Clone)]
pub struct DelayedHandoverMetrics {
    sitting: IntGauge,
    ended: IntCounterVec,
    length: Histogram,
    removed: IntCounterVec,
}

/// The bucket bounds for delays, in seconds.
const DELAY_BUCKETS: &[f64] = &[0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];

/// Counts one key as waiting for its delay, until this is dropped.
pub struct HandoverDelayGuard(IntGauge);

impl Drop for HandoverDelayGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl DelayedHandoverMetrics {
    pub fn register(families: &MetricRegistry) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let metrics = Self {
            sitting: families.register(IntGauge::new(
                "delays_sitting",
                "Keys that wait until the requests of their last holder are surely over.",
            )),
            ended: counters(
                "delays_total",
                "Waits for a delay that have ended, by how they ended.",
                &["result"],
            ),
            length: families.register(Histogram::with_opts(
                HistogramOpts::new("delay_seconds", "Length of the delays that keys had to wait for.")
                    .buckets(DELAY_BUCKETS.to_vec()),
            )),
            removed: counters(
                "delay_leftovers_total",
                "Idle parents of keys with a grant record that were looked at, by what became of them.",
                &["result"],
            ),
        };
        for end in HandoverDelayEnd::ALL {
            metrics.ended.with_label_values(&[end.label()]);
        }
        for result in [REMOVED, KEPT] {
            metrics.removed.with_label_values(&[result]);
        }
        metrics
    }

    pub fn start_wait(&self, delay: Duration) -> HandoverDelayGuard {
        self.length.observe(delay.as_secs_f64());
        self.sitting.inc();
        HandoverDelayGuard(self.sitting.clone())
    }

    pub fn record_end(&self, end: HandoverDelayEnd) {
        self.ended.with_label_values(&[end.label()]).inc();
    }

    /// Counts a check of an idle key's parent, which was removed unless another attempt came.
    pub fn record_idle_parent_check(&self, removed: bool) {
        self.removed.with_label_values(&[if removed { REMOVED } else { KEPT }]).inc();
    }
}

const REMOVED: &str = "removed";
const KEPT: &str = "kept";
