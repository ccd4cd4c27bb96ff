//! Tells whether we may act as holder of one tenure: its session is proven, and its lock node was not taken away.

use std::sync::{Arc, atomic::Ordering};

use fencegate_process::{
    clock::{BootInstant, SendPermission},
    sync::AtomicBool,
};

use super::session_deadline::SessionDeadline;

/// The evidence of one tenure.
#[derive(Debug)]
pub struct LockValidity {
    session: Arc<SessionDeadline>,
    /// Whether a stranger has removed the lock node, so that the next holder may have begun.
    taken_away: AtomicBool,
}

impl LockValidity {
    pub fn new(session: Arc<SessionDeadline>) -> Self {
        Self { session, taken_away: AtomicBool::new(false) }
    }

    /// Whether we may act as holder at `now`.
    pub fn is_valid_at(&self, now: BootInstant) -> bool {
        !self.taken_away.load(Ordering::Acquire) && self.session.is_valid_at(now)
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

impl SendPermission for LockValidity {
    fn holds(&self, now: BootInstant) -> bool {
        Self::is_valid_at(self, now)
    }

    fn deadline(&self) -> BootInstant {
        self.session.expires_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    #[test]
    fn a_tenure_is_proven_as_long_as_its_session() {
        let session = Arc::new(SessionDeadline::new(0x7001, at(100)));
        let evidence = LockValidity::new(session.clone());
        assert_eq!((evidence.session(), SendPermission::deadline(&evidence)), (0x7001, at(100)));
        assert!(evidence.is_valid_at(at(99)) && SendPermission::holds(&evidence, at(99)));
        assert!(!evidence.is_valid_at(at(100)) && !SendPermission::holds(&evidence, at(100)));
        assert!(!evidence.is_revoked(), "the next heartbeat may still prove it");
        session.revoke();
        assert!(evidence.is_revoked() && !evidence.is_taken_away());
    }

    /// Its session lives on, and proves its other tenures.
    #[test]
    fn a_tenure_whose_node_was_taken_away_is_over_and_no_other_one_is() {
        let session = Arc::new(SessionDeadline::new(1, at(100)));
        let [taken, other] = [(), ()].map(|()| LockValidity::new(session.clone()));
        taken.revoke();
        assert!(taken.is_revoked() && taken.is_taken_away() && !taken.is_valid_at(at(1)));
        assert!(!other.is_revoked() && !other.is_taken_away() && other.is_valid_at(at(1)));
        session.extend(at(500));
        assert!(!taken.is_valid_at(at(1)) && !SendPermission::holds(&taken, at(1)));
    }
}
