//! What is before a request that waits with a lock node of its own: another holder, or a delay.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use fencegate_process::clock::Boot;

/// As far as is known. Told by the task of the node, and looked at by whoever waits.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Another holder was before us: then a wait that ends was for the lock, else for the lock service.
    holder: AtomicBool,
    /// Nanoseconds of [`Boot`] at which a delay is over; 0 for none.
    delay: AtomicU64,
    /// Lock nodes that stood before ours when it was last looked.
    nodes: AtomicUsize,
}

impl Ahead {
    /// Lock nodes that stand before ours. No more than these: some may have gone since it was looked.
    pub fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(super) fn stands_behind(&self, nodes: usize) {
        self.nodes.store(nodes, Ordering::Relaxed);
    }

    pub(super) fn holder(&self) {
        self.holder.store(true, Ordering::Relaxed);
    }

    pub(super) fn delay(&self, until: Boot) {
        self.delay.store(until.as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn is_anything(&self) -> bool {
        self.holder.load(Ordering::Relaxed) || self.delay.load(Ordering::Relaxed) > 0
    }

    /// How long a delay lasts yet that is sat out; `None` where none was begun.
    pub(super) fn rest(&self, now: Boot) -> Option<Duration> {
        match self.delay.load(Ordering::Relaxed) {
            0 => None,
            until => Some(Boot::from_nanos(until).since(now)),
        }
    }
}
