//! What is counted about bodies that are here in full.

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
            "Bodies that found no room: a request was refused, an answer was passed on while it came.",
        );
        let metrics = Self {
            bytes: families.register(IntGauge::new(
                "buffered_bytes",
                "Memory that bodies above 4 KiB take which are here in full.",
            )),
            limit: families.register(IntGauge::new("buffered_limit_bytes", "Memory that they may take.")),
            without_room: families.register(IntCounterVec::new(without_room, &["kind"])),
        };
        for kind in [REQUEST, ANSWER] {
            metrics.without_room.with_label_values(&[kind]);
        }
        metrics
    }

    /// Of a process that nobody asks.
    pub fn nobodys() -> Self {
        Self::register(&Families::new())
    }

    /// How many bytes there are with these.
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
