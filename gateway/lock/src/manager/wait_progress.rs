//! Reports why a request with a lock node of its own still waits: for another holder, or for a delay.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use fencegate_process::clock::BootInstant;

/// Written by the task of the lock node, and read by the request that waits.
#[derive(Debug, Default)]
pub struct LockWaitProgress {
    /// Whether another holder was ahead. A request whose wait ends is then refused as locked, otherwise because the
    /// lock service is unavailable.
    holder: AtomicBool,
    /// Nanoseconds of [`BootInstant`] at which a delay is over; 0 for none.
    delay: AtomicU64,
    /// Lock nodes that were ahead of the own one at the last check.
    nodes: AtomicUsize,
}

impl LockWaitProgress {
    /// Lock nodes ahead of the own one. Some may have gone since the last check.
    pub fn nodes_ahead(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(super) fn set_nodes_ahead(&self, nodes: usize) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    pub(super) fn set_blocked_by_holder(&self) {
        self.holder.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_delay(&self, until: BootInstant) {
        self.delay.store(until.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.holder.load(Ordering::Relaxed) || self.delay.load(Ordering::Relaxed) > 0
    }

    /// What is left of the delay; `None` if no delay was begun.
    pub(super) fn remaining_delay(&self, now: BootInstant) -> Option<Duration> {
        match self.delay.load(Ordering::Relaxed) {
            0 => None,
            until => Some(BootInstant::from_nanos(until).since(now)),
        }
    }
}
