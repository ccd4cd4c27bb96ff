//! Counts leases, and the reasons why they ended.

use fencegate_process::registry::MetricRegistry;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

/// The lease counters of one gateway. Clones count together.
#[derive(Clone)]
pub struct LeaseMetrics {
    leases: IntGaugeVec,
    ended: IntCounterVec,
}

/// The reasons why leases end.
pub const END_REASONS: [&str; 8] =
    ["released", "expired", "gave-up", "broken", "session-lost", "retired", "too-old", "refused"];

const WAITING: &str = "waiting";
const HELD: &str = "held";

impl LeaseMetrics {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        let leases =
            Opts::new("leases", "Leases of this gateway that wait for their lock, and that hold it.");
        let ended = Opts::new("leases_ended_total", "Leases that are over, by why.");
        let metrics = Self {
            leases: families.register(IntGaugeVec::new(leases, &["state"])),
            ended: families.register(IntCounterVec::new(ended, &["why"])),
        };
        metrics.set_counts(0, 0);
        for reason in END_REASONS {
            metrics.ended.with_label_values(&[reason]);
        }
        metrics
    }

    pub fn set_counts(&self, waiting: i64, held: i64) {
        self.leases.with_label_values(&[WAITING]).set(waiting);
        self.leases.with_label_values(&[HELD]).set(held);
    }

    pub fn record_end(&self, reason: &'static str) {
        self.ended.with_label_values(&[reason]).inc();
    }
}
