//! The state that all parts of a gateway, guard or filter share: clock, metrics, memory for bodies, drain.

use std::sync::Arc;

use fencegate_http::buffered::MemoryBudget;
use fencegate_metrics::AllMetricFamilies;
use fencegate_process::{clock::SharedClock, liveness::ThreadMonitor};
use tokio_util::sync::CancellationToken;

/// The state of the process. Creating it makes no system call, so it does not fail.
pub struct ProcessContext {
    pub clock: SharedClock,
    pub metrics: Arc<AllMetricFamilies>,
    /// The memory for bodies that are buffered in full.
    pub budget: MemoryBudget,
    /// Cancelled when the process drains: after that nothing new is started.
    pub drain: CancellationToken,
    /// The threads that are monitored for progress.
    pub threads: ThreadMonitor,
}

impl ProcessContext {
    pub fn new(clock: SharedClock, metrics: Arc<AllMetricFamilies>) -> Arc<Self> {
        let budget = MemoryBudget::for_process(metrics.buffered().clone());
        Self::with_budget(clock, metrics, budget)
    }

    /// Makes a context with this budget, and not with one that depends on the machine.
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
