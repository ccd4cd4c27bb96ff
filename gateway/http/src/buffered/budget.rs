//! One budget for the bodies and heads of all workers, and the memory that each body reserves of it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicUsize, Ordering},
};

use fencegate_policies::plan::{
    ListenerLimits,
    buffer_limits::{self, FREE},
};
use tracing::{info, warn};

use super::{
    allowance::{DefaultMemoryLimit, memory_allowance},
    metrics::BufferMetrics,
};

/// The memory that all bodies and heads together may take. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<BudgetState>);

#[derive(Debug)]
struct BudgetState {
    /// The budget in bytes if the policy sets none.
    usual: usize,
    most: AtomicI64,
    /// The `max_body` that was last reported as too large for the budget; 0 for none.
    told: AtomicUsize,
    /// Counts the reserved bytes; the sums in these metrics are those that limits are compared with.
    metrics: BufferMetrics,
}

/// The memory reserved for one body or head, until it is dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: MemoryBudget,
    kind: ReservationKind,
    bytes: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReservationKind {
    Body,
    /// Memory of a head. It counts for the sum of all reservations and for the sum of all heads.
    Head,
}

/// The budget has no memory left for this reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffered bodies take all the memory that they may take")]
pub struct MemoryBudgetExceededError;

impl MemoryBudget {
    /// Makes a budget from the memory that this process may have. It must be called early, before other parts of
    /// the process have taken memory.
    pub fn for_process(metrics: BufferMetrics) -> Self {
        let DefaultMemoryLimit { bytes, source: of } = memory_allowance();
        info!(bytes, of, "buffered.allowance");
        Self::new(bytes, metrics)
    }

    /// `usual` is the budget in bytes if the policy sets none.
    pub fn new(usual: usize, metrics: BufferMetrics) -> Self {
        let told = AtomicUsize::default();
        let budget = Self(Arc::new(BudgetState { usual, most: AtomicI64::new(0), told, metrics }));
        budget.set_memory_limit(None);
        budget
    }

    /// Applies the budget of a new plan, which counts from the next chunk of a body on. Every worker calls this
    /// for every plan; a `max_body` that can never be reserved is logged once.
    pub fn update(&self, limits: &ListenerLimits) {
        self.set_memory_limit(limits.buffered);
        let largest = self.largest_body();
        let max_body = limits.max_body;
        let short = if largest < max_body { max_body } else { 0 };
        if self.0.told.swap(short, Ordering::Relaxed) != short && short > 0 {
            warn!(
                code = "FG0142",
                largest,
                max_body,
                "buffered.too_small: a body between these two sizes is refused for good, with 413"
            );
        }
    }

    fn set_memory_limit(&self, written: Option<usize>) {
        let most = i64::try_from(written.unwrap_or(self.0.usual)).unwrap_or(i64::MAX);
        self.0.most.store(most, Ordering::Relaxed);
        self.0.metrics.set_limit(most);
    }

    pub fn metrics(&self) -> &BufferMetrics {
        &self.0.metrics
    }

    /// The largest body that can be reserved when nothing else is reserved.
    pub fn largest_body(&self) -> usize {
        buffer_limits::max_body(self.limit())
    }

    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.0.most.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(super) fn reserve(&self) -> MemoryReservation {
        MemoryReservation { budget: self.clone(), kind: ReservationKind::Body, bytes: 0 }
    }

    pub(super) fn reserve_head(&self) -> MemoryReservation {
        MemoryReservation { budget: self.clone(), kind: ReservationKind::Head, bytes: 0 }
    }
}

impl MemoryReservation {
    /// Raises the reservation of this body to `bytes` in all.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), MemoryBudgetExceededError> {
        self.resize_within(bytes, buffer_limits::buffer_fill_limit(self.budget.limit(), bytes), usize::MAX)
    }

    /// Raises this reservation to `bytes` in all, if all reservations together then take at most `all` bytes, and
    /// those of heads at most `heads`. On an error the former reservation stays.
    pub(super) fn resize_within(
        &mut self,
        bytes: usize,
        all: usize,
        heads: usize,
    ) -> Result<(), MemoryBudgetExceededError> {
        let wanted = i64::try_from(bytes).map_err(|_| MemoryBudgetExceededError)?;
        let more = wanted - self.bytes;
        if bytes <= FREE || more <= 0 {
            return Ok(());
        }
        let within = |sum: i64, bound: usize| usize::try_from(sum).is_ok_and(|sum| sum <= bound);
        let (sum, of_heads) = self.add_to_totals(more);
        // If two threads reserve at the same time, both may be refused, but the limit is never exceeded.
        if !within(sum, all) || !within(of_heads, heads) {
            self.add_to_totals(-more);
            return Err(MemoryBudgetExceededError);
        }
        self.bytes = wanted;
        Ok(())
    }

    /// Lowers the reservation to `bytes`, and releases the rest.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let needed = if bytes <= FREE { 0 } else { i64::try_from(bytes).unwrap_or(i64::MAX) };
        if needed < self.bytes {
            self.add_to_totals(needed - self.bytes);
            self.bytes = needed;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(0)
    }

    pub(super) fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Adds to the sums, and returns the new sum of all reservations and that of heads.
    fn add_to_totals(&self, bytes: i64) -> (i64, i64) {
        let metrics = &self.budget.0.metrics;
        let of_heads = if self.kind == ReservationKind::Head { bytes } else { 0 };
        (metrics.add(bytes), metrics.add_to_heads(of_heads))
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.add_to_totals(-self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(most: usize) -> MemoryBudget {
        MemoryBudget::new(most, BufferMetrics::unexposed_metrics())
    }

    fn used(budget: &MemoryBudget) -> i64 {
        budget.metrics().add(0)
    }

    /// Large bodies leave a quarter of the memory for small ones, and all memory is released at the end.
    #[test]
    fn large_bodies_leave_memory_for_small() {
        let budget = budget(1 << 20);
        let mut large: Vec<MemoryReservation> = Vec::new();
        loop {
            let mut reservation = budget.reserve();
            if reservation.resize(128 << 10).is_err() {
                break;
            }
            large.push(reservation);
        }
        assert_eq!(large.len(), 6, "three quarters");
        let mut small: Vec<MemoryReservation> = Vec::new();
        loop {
            let mut reservation = budget.reserve();
            if reservation.resize(64 << 10).is_err() {
                break;
            }
            small.push(reservation);
        }
        assert_eq!(small.len(), 4);
        assert_eq!(used(&budget), 1 << 20);
        budget.reserve().resize(FREE).expect("what is tiny is not counted");
        large.pop();
        assert_eq!(budget.reserve().resize(64 << 10), Ok(()));
        drop((large, small));
        assert_eq!(used(&budget), 0);
    }

    /// When many threads reserve and release at the same time, nothing stays reserved.
    #[test]
    fn concurrent_reservations_release_all_memory() {
        let budget = budget(1 << 20);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..2000 {
                        let mut reservation = budget.reserve();
                        for step in 1..12 {
                            if reservation.resize(step * (60 << 10)).is_err() {
                                break;
                            }
                        }
                        reservation.shrink(10 << 10);
                    }
                });
            }
        });
        assert_eq!(used(&budget), 0);
    }
}
