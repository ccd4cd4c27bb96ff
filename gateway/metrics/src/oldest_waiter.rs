//! Since when the requests of one route have waited, to find the oldest.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fencegate_process::gauge_guard::GaugeGuard;

/// All requests of one route that wait for a lock, over all workers.
#[derive(Debug, Default)]
pub(super) struct RouteWaiters(Mutex<WaiterQueue>);

#[derive(Debug, Default)]
struct WaiterQueue {
    /// Numbered in the order of arrival: the first is the oldest.
    waiting: BTreeMap<u64, Instant>,
    next: u64,
}

/// One request while it waits.
pub struct RouteWaiterGuard {
    waits: Arc<RouteWaiters>,
    number: u64,
    _counted: GaugeGuard,
}

impl RouteWaiters {
    pub(super) fn enter(self: &Arc<Self>, counted: GaugeGuard) -> RouteWaiterGuard {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = since.next;
        since.next += 1;
        since.waiting.insert(number, Instant::now());
        RouteWaiterGuard { waits: self.clone(), number, _counted: counted }
    }

    /// How long the oldest has waited; zero when none waits.
    pub(super) fn oldest(&self) -> Duration {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.waiting.first_key_value().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
}

impl Drop for RouteWaiterGuard {
    fn drop(&mut self) {
        self.waits.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.number);
    }
}
