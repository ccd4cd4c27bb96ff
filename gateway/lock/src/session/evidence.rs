//! Tells whether we may act as holder of one tenure: its session is proven, and its lock node was not taken away.

use std::sync::{Arc, atomic::Ordering};

use fencegate_process::{
    clock::{Boot, Permission},
    sync::AtomicBool,
};

use super::proof::Proof;

/// The evidence of one tenure.
#[derive(Debug)]
pub struct Evidence {
    session: Arc<Proof>,
    /// Whether a stranger has removed the lock node, so that the next holder may have begun.
    taken_away: AtomicBool,
}

impl Evidence {
    pub fn of(session: Arc<Proof>) -> Self {
        Self { session, taken_away: AtomicBool::new(false) }
    }

    /// Whether we may act as holder at `now`.
    pub fn holds(&self, now: Boot) -> bool {
        !self.taken_away.load(Ordering::Acquire) && self.session.holds(now)
    }

    /// The id of the session that owns the lock node.
    pub fn session(&self) -> i64 {
        self.session.session()
    }

    /// Ends the evidence for ever.
    pub fn revoke(&self) {
        self.taken_away.store(true, Ordering::Release);
    }

    /// Whether it is lost for ever.
    pub fn is_revoked(&self) -> bool {
        self.is_taken_away() || self.session.is_revoked()
    }

    /// Whether a stranger has removed the lock node.
    pub fn is_taken_away(&self) -> bool {
        self.taken_away.load(Ordering::Acquire)
    }
}

impl Permission for Evidence {
    fn holds(&self, now: Boot) -> bool {
        Self::holds(self, now)
    }

    fn deadline(&self) -> Boot {
        self.session.deadline()
    }
}
