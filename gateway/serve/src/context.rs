//! The base of every part of a gateway or guard: clock, metrics, memory for bodies.

use std::sync::Arc;

use fencegate_http::buffered::MemoryBudget;
use fencegate_metrics::ProcessMetricFamilies;
use fencegate_process::{clock::SharedClock, liveness::ThreadMonitor};
use tokio_util::sync::CancellationToken;

/// Makes no system call, so creating it does not fail.
pub struct ProcessContext {
    pub clock: SharedClock,
    pub metrics: Arc<ProcessMetricFamilies>,
    /// The memory for bodies that are buffered in full.
    pub budget: MemoryBudget,
    /// Cancelled when the process drains: from then on nothing new is started.
    pub drain: CancellationToken,
    /// The threads that must make progress.
    pub threads: ThreadMonitor,
}

impl ProcessContext {
    pub fn new(clock: SharedClock, metrics: Arc<ProcessMetricFamilies>) -> Self {
        let budget = MemoryBudget::for_process(metrics.buffered().clone());
        let drain = CancellationToken::new();
        let threads = ThreadMonitor::with_counter(metrics.hung_seconds());
        Self { clock, metrics, budget, drain, threads }
    }
}
