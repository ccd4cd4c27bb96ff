//! Whether this instance still belongs to its store, and what its last beat said of the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencegate_process::clock::Boot;

use crate::{register::Why, store::JournalSize};

/// As the database said at the last beat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// A token up to here is refused on a key of which nothing is known.
    pub floor: u64,
    pub era: u64,
    /// Whole seconds of the store's time.
    pub time: u64,
    pub closed: Option<Closed>,
    pub journal: JournalSize,
    /// Other instances that renew.
    pub others: usize,
    /// Of all instances.
    pub in_flight: usize,
    pub in_doubt: usize,
    /// Counted at the last sweep.
    pub keys: usize,
    /// The longest that anything in flight may go on after its last byte.
    pub longest_execution: Duration,
}

/// Nothing is let in on any key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    pub until: Boot,
    pub why: Why,
}

/// Holds while others cannot have taken this instance for dead.
#[derive(Debug, Clone, Default)]
pub struct Lease(Arc<AtomicU64>);

/// Why this process may let nothing in any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the other guards of the store have taken this one for dead: it did not renew its lease in time")]
    Dead,
    #[error("another build has made the store one of format {0}, which this one does not read")]
    Newer(u32),
    #[error("the database has another store than before: {0}")]
    Another(String),
}

/// What one sweep forgot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub keys: u64,
    pub operations: u64,
}

impl Lease {
    pub fn until(&self) -> Boot {
        Boot::from_nanos(self.0.load(Ordering::SeqCst))
    }

    pub fn holds(&self, now: Boot) -> bool {
        now < self.until()
    }

    /// Never back: renewals may be told out of order.
    pub(super) fn renew(&self, until: Boot) {
        self.0.fetch_max(until.as_nanos(), Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}
