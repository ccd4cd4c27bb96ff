//! The validity of one tenure: the process may act as its holder until the session deadline, unless its lock node was
//! removed by another client.

use std::sync::{Arc, atomic::Ordering};

use fencegate_process::{
    clock::{BootInstant, SendPermission},
    sync::AtomicBool,
};

use super::session_deadline::SessionDeadline;

/// The validity of one tenure.
#[derive(Debug)]
pub struct LockValidity {
    session: Arc<SessionDeadline>,
    /// Whether another client has removed the lock node, so that the next holder may have begun.
    taken_away: AtomicBool,
}

impl LockValidity {
    pub fn new(session: Arc<SessionDeadline>) -> Self {
        Self { session, taken_away: AtomicBool::new(false) }
    }

    /// Whether the process may act as holder at `now`.
    pub fn is_valid_at(&self, now: BootInstant) -> bool {
        !self.taken_away.load(Ordering::Acquire) && self.session.is_valid_at(now)
    }

    /// The id of the session that owns the lock node.
    pub fn session_id(&self) -> i64 {
        self.session.session_id()
    }

    /// Ends the validity of this tenure for ever.
    pub fn revoke(&self) {
        self.taken_away.store(true, Ordering::Release);
    }

    /// Whether the validity is lost for ever: the lock node was removed, or the session was revoked.
    pub fn is_lock_validity_lost(&self) -> bool {
        self.is_lock_node_removed() || self.session.is_revoked()
    }

    /// Whether another client has removed the lock node.
    pub fn is_lock_node_removed(&self) -> bool {
        self.taken_away.load(Ordering::Acquire)
    }
}

impl SendPermission for LockValidity {
    fn may_send_at(&self, now: BootInstant) -> bool {
        Self::is_valid_at(self, now)
    }

    fn valid_until(&self) -> BootInstant {
        self.session.expires_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    /// The validity of a lock ends exactly at the session deadline, and for ever when the session is revoked.
    #[test]
    fn validity_ends_with_session_deadline() {
        let session = Arc::new(SessionDeadline::new(0x7001, at(100)));
        let validity = LockValidity::new(session.clone());
        assert_eq!((validity.session_id(), SendPermission::valid_until(&validity)), (0x7001, at(100)));
        assert!(validity.is_valid_at(at(99)) && SendPermission::may_send_at(&validity, at(99)));
        assert!(!validity.is_valid_at(at(100)) && !SendPermission::may_send_at(&validity, at(100)));
        assert!(!validity.is_lock_validity_lost(), "the next heartbeat may still prove it");
        session.revoke();
        assert!(validity.is_lock_validity_lost() && !validity.is_lock_node_removed());
    }

    /// A removed lock node ends only its own tenure: the session lives on, and its other tenures stay valid.
    #[test]
    fn removed_node_ends_only_its_grant() {
        let session = Arc::new(SessionDeadline::new(1, at(100)));
        let [taken, other] = [(), ()].map(|()| LockValidity::new(session.clone()));
        taken.revoke();
        assert!(taken.is_lock_validity_lost() && taken.is_lock_node_removed() && !taken.is_valid_at(at(1)));
        assert!(!other.is_lock_validity_lost() && !other.is_lock_node_removed() && other.is_valid_at(at(1)));
        session.extend(at(500));
        assert!(!taken.is_valid_at(at(1)) && !SendPermission::may_send_at(&taken, at(1)));
    }
}
