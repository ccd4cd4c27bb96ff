//! The metrics of buffered bodies.

use prometheus::{IntCounterVec, IntGauge, Opts};

use fencegate_process::families::Families;

/// The families of buffered bodies; clones count into the same ones.
#[derive(Debug, Clone)]
pub struct BufferedMetrics {
    bytes: IntGauge,
    limit: IntGauge,
    without_room: IntCounterVec,
}

const REQUEST: &str = "request";
const ANSWER: &str = "answer";

impl BufferedMetrics {
    pub fn register(families: &Families) -> Self {
        let without_room = Opts::new(
            "buffered_without_room_total",
            "Bodies that could not be buffered: a request was refused, an answer was passed on unbuffered.",
        );
        let metrics = Self {
            bytes: families
                .register(IntGauge::new("buffered_bytes", "Memory of buffered bodies above 4 KiB.")),
            limit: families.register(IntGauge::new(
                "buffered_limit_bytes",
                "Most memory that buffered bodies may take.",
            )),
            without_room: families.register(IntCounterVec::new(without_room, &["kind"])),
        };
        for kind in [REQUEST, ANSWER] {
            metrics.without_room.with_label_values(&[kind]);
        }
        metrics
    }

    /// Metrics that no endpoint shows.
    pub fn nobodys() -> Self {
        Self::register(&Families::new())
    }

    /// Adds bytes, and returns the new sum.
    pub fn add(&self, bytes: i64) -> i64 {
        self.bytes.add(bytes);
        self.bytes.get()
    }

    pub fn limit(&self, bytes: i64) {
        self.limit.set(bytes);
    }

    pub fn request_refused(&self) {
        self.without_room.with_label_values(&[REQUEST]).inc();
    }

    pub fn answer_passed_on(&self) {
        self.without_room.with_label_values(&[ANSWER]).inc();
    }
}
