//! What all parts of a gateway, guard or filter share, whatever they do: clock, metrics, memory for bodies, drain.

use std::sync::Arc;

use fencegate_http::buffered::MemoryBudget;
use fencegate_metrics::AllMetricFamilies;
use fencegate_process::{clock::SharedClock, liveness::ThreadMonitor};
use tokio_util::sync::CancellationToken;

/// One for each process. Makes no system call, so creating it does not fail.
pub struct ProcessContext {
    pub clock: SharedClock,
    pub metrics: Arc<AllMetricFamilies>,
    /// The memory for bodies that are buffered in full.
    pub budget: MemoryBudget,
    /// Cancelled when the process drains: from then on nothing new is started.
    pub drain: CancellationToken,
    /// The threads that must make progress.
    pub threads: ThreadMonitor,
}

impl ProcessContext {
    pub fn new(clock: SharedClock, metrics: Arc<AllMetricFamilies>) -> Arc<Self> {
        let budget = MemoryBudget::for_process(metrics.buffered().clone());
        Self::with_budget(clock, metrics, budget)
    }

    /// With another budget than that of the machine.
    pub fn with_budget(
        clock: SharedClock,
        metrics: Arc<AllMetricFamilies>,
        budget: MemoryBudget,
    ) -> Arc<Self> {
        let drain = CancellationToken::new();
        let threads = ThreadMonitor::with_counter(metrics.hung_seconds());
        Arc::new(Self { clock, metrics, budget, drain, threads })
    }
}
