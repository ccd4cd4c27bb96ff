//! The base of every part of a gateway or guard: clock, metrics, memory for bodies.

use std::sync::Arc;

use fencegate_http::buffered::Budget;
use fencegate_process::clock::SharedClock;
use tokio_util::sync::CancellationToken;

use crate::{liveness::ThreadMonitor, metrics::Metrics};

/// Nothing of it asks the system for anything, so making it does not fail.
pub struct ProcessContext {
    pub clock: SharedClock,
    pub metrics: Arc<Metrics>,
    /// The memory for bodies that are here in full.
    pub budget: Budget,
    /// Cancelled when the process drains: from then on nothing new is begun.
    pub drain: CancellationToken,
    /// Those that have to turn.
    pub threads: ThreadMonitor,
}

impl ProcessContext {
    pub fn new(clock: SharedClock, metrics: Arc<Metrics>) -> Self {
        let budget = Budget::for_process(metrics.buffered().clone());
        let (drain, threads) =
            (CancellationToken::new(), ThreadMonitor::with_counter(metrics.hung_seconds()));
        Self { clock, metrics, budget, drain, threads }
    }
}
