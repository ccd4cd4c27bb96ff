//! The metrics of buffered bodies and heads.

use prometheus::{IntCounterVec, IntGauge, Opts};

use fencegate_process::registry::MetricRegistry;

/// The families of buffered bodies and heads. Clones count into the same families.
#[derive(Debug, Clone)]
pub struct BufferMetrics {
    bytes: IntGauge,
    heads: IntGauge,
    limit: IntGauge,
    without_room: IntCounterVec,
}

const REQUEST: &str = "request";
const ANSWER: &str = "answer";
const HEAD: &str = "head";

impl BufferMetrics {
    pub fn register(families: &MetricRegistry) -> Self {
        let without_room = Opts::new(
            "buffered_without_room_total",
            "Bodies and heads without room: a request was refused, an answer was passed on unbuffered.",
        );
        let metrics = Self {
            bytes: families.register(IntGauge::new(
                "buffered_bytes",
                "Memory of buffered bodies and of heads above 4 KiB.",
            )),
            heads: families.register(IntGauge::new(
                "buffered_head_bytes",
                "The part of the buffered bytes that heads of requests take.",
            )),
            limit: families.register(IntGauge::new(
                "buffered_limit_bytes",
                "Most memory that buffered bodies and heads may take.",
            )),
            without_room: families.register(IntCounterVec::new(without_room, &["kind"])),
        };
        for kind in [REQUEST, ANSWER, HEAD] {
            metrics.without_room.with_label_values(&[kind]);
        }
        metrics
    }

    /// Metrics that no endpoint shows.
    pub fn unexposed_metrics() -> Self {
        Self::register(&MetricRegistry::new())
    }

    /// Adds bytes, and returns the new sum.
    pub fn add(&self, bytes: i64) -> i64 {
        self.bytes.add(bytes);
        self.bytes.get()
    }

    /// Adds bytes of heads, and returns the new sum of heads. The caller adds them to the sum of all
    /// reservations as well.
    pub(crate) fn add_to_heads(&self, bytes: i64) -> i64 {
        self.heads.add(bytes);
        self.heads.get()
    }

    pub(crate) fn set_limit(&self, bytes: i64) {
        self.limit.set(bytes);
    }

    pub fn record_rejected_request(&self) {
        self.without_room.with_label_values(&[REQUEST]).inc();
    }

    pub(crate) fn record_rejected_head(&self) {
        self.without_room.with_label_values(&[HEAD]).inc();
    }

    pub fn record_unbuffered_response(&self) {
        self.without_room.with_label_values(&[ANSWER]).inc();
    }
}
