//! The membership of this instance in its store, and the state of the store at its last heartbeat.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fencegate_guard_store::{admission::QuarantineReason, store::JournalSize};
use fencegate_process::clock::BootInstant;

/// The state of the store at the last heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// A key without a watermark admits no token up to this epoch.
    pub floor: u64,
    pub era: u64,
    /// Whole seconds of the store's time.
    pub time: u64,
    pub closed: Option<StoreQuarantine>,
    pub journal: JournalSize,
    /// The number of other living instances.
    pub others: usize,
    /// Dispatches in flight, of all instances.
    pub in_flight: usize,
    pub in_doubt: usize,
    /// Keys with watermarks, as counted at the last sweep.
    pub keys: usize,
    /// The longest time for which any execution may go on after its last byte.
    pub longest_execution: Duration,
}

/// The quarantine of a store, in which every key is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreQuarantine {
    pub until: BootInstant,
    pub why: QuarantineReason,
}

/// The lease of an instance. While it holds, no other guard can have declared this one dead.
#[derive(Debug, Clone, Default)]
pub struct GuardMembershipLease(Arc<AtomicU64>);

/// This process has lost its membership in the store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardMembershipLostError {
    #[error(
        "the other guards of the store declared this guard dead, because it did not renew its lease in time"
    )]
    Dead,
    #[error("another build upgraded the store to format {0}, which this build does not read")]
    Newer(u32),
    #[error("the database holds the store {0} now, which this guard has not joined")]
    Another(String),
}

/// The numbers of keys and operations that one sweep forgot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepStats {
    pub keys: u64,
    pub operations: u64,
}

impl GuardMembershipLease {
    pub fn membership_expiry(&self) -> BootInstant {
        BootInstant::from_nanos(self.0.load(Ordering::SeqCst))
    }

    pub fn is_valid(&self, now: BootInstant) -> bool {
        now < self.membership_expiry()
    }

    /// Moves the end of the lease, forward only, because renewals may arrive out of order.
    pub(super) fn extend_membership(&self, until: BootInstant) {
        self.0.fetch_max(until.as_nanos(), Ordering::SeqCst);
    }

    pub(super) fn end_membership(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}
