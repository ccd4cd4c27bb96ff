//! May we act as holder of this one tenure? The session is proven, and nobody took the lock node away.

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
    /// The lock node is gone although we did not remove it: whoever is next may have begun.
    taken_away: AtomicBool,
}

impl Evidence {
    pub fn of(session: Arc<Proof>) -> Self {
        Self { session, taken_away: AtomicBool::new(false) }
    }

    /// At `now`.
    pub fn holds(&self, now: Boot) -> bool {
        !self.taken_away.load(Ordering::Acquire) && self.session.holds(now)
    }

    /// The id of the session that owns the lock node.
    pub fn session(&self) -> i64 {
        self.session.session()
    }

    /// For ever.
    pub fn revoke(&self) {
        self.taken_away.store(true, Ordering::Release);
    }

    /// It never holds again.
    pub fn is_revoked(&self) -> bool {
        self.is_taken_away() || self.session.is_revoked()
    }

    /// Somebody else has removed the lock node.
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
