//! May we act as holder of this one tenure? The session is proven, and nobody took the lock node away.

use std::sync::{Arc, atomic::Ordering};

use super::{
    clock::{Boot, SharedClock},
    proof::Proof,
};
use crate::sync::AtomicBool;

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

    /// At `now`; what decides is read from memory, so it can be asked before every write.
    pub fn holds(&self, now: Boot) -> bool {
        !self.taken_away.load(Ordering::Acquire) && self.session.holds(now)
    }

    /// For ever.
    pub fn revoke(&self) {
        self.taken_away.store(true, Ordering::Release);
    }

    /// Somebody else has removed the lock node.
    pub fn is_taken_away(&self) -> bool {
        self.taken_away.load(Ordering::Acquire)
    }

    /// Returns when it no longer holds. A node taken away is noticed within [`LOOK`].
    pub async fn lapsed(&self, clock: &SharedClock) {
        loop {
            let now = clock.now();
            if !self.holds(now) {
                return;
            }
            tokio::time::sleep(self.session.deadline().since(now).min(LOOK)).await;
        }
    }
}

/// How often a running exchange looks at its evidence.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);
