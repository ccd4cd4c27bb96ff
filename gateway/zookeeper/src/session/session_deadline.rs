//! The deadline until which one ZooKeeper session is surely alive; checked wherever bytes are sent to an upstream.

use std::{sync::atomic::Ordering, time::Duration};

use fencegate_process::clock::BootInstant;
use fencegate_process::sync::AtomicU64;

/// The deadline of one session. Each session has its own, so the heartbeat of a later session can never extend this
/// one. A check is one atomic load.
#[derive(Debug)]
pub struct SessionDeadline {
    session: i64,
    /// Nanoseconds of [`BootInstant`]; [`REVOKED`] once the session is over.
    deadline: AtomicU64,
}

/// The value of a revoked deadline. It is below every instant, so a revoked deadline is never valid.
const REVOKED: u64 = 0;

impl SessionDeadline {
    pub fn new(session: i64, deadline: BootInstant) -> Self {
        // An instant of zero would read as revoked, so it becomes one nanosecond. At boot no session can be proven
        // alive anyway.
        Self { session, deadline: AtomicU64::new(deadline.as_nanos().max(1)) }
    }

    /// The session of this deadline.
    pub fn session_id(&self) -> i64 {
        self.session
    }

    /// Whether the process may act as holder at `now`. At the deadline itself it may not.
    pub fn is_valid_at(&self, now: BootInstant) -> bool {
        now.as_nanos() < self.deadline.load(Ordering::Acquire)
    }

    pub fn expires_at(&self) -> BootInstant {
        BootInstant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Moves the deadline forward, never back, and never after [`SessionDeadline::revoke`].
    pub fn extend(&self, to: BootInstant) {
        let forward = |current| (current != REVOKED && to.as_nanos() > current).then(|| to.as_nanos());
        // An `Err` means that the deadline was not moved.
        self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, forward).ok();
    }

    /// Moves the deadline back, because the server keeps the session for less time than assumed.
    pub(crate) fn shorten(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let back = |current: u64| (current != REVOKED).then(|| current.saturating_sub(by).max(1));
        self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, back).ok();
    }

    /// Ends the session for ever.
    pub fn revoke(&self) {
        self.deadline.store(REVOKED, Ordering::Release);
    }

    pub fn is_revoked(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == REVOKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    #[test]
    fn validity_ends_exactly_at_deadline() {
        let deadline = SessionDeadline::new(1, at(100));
        assert!(deadline.is_valid_at(at(99)));
        assert!(!deadline.is_valid_at(at(100)));
    }

    /// A deadline carries the id of its session; a deadline of zero has passed, but is not revoked.
    #[test]
    fn deadline_belongs_to_one_session() {
        assert_eq!(SessionDeadline::new(0x7001, at(100)).session_id(), 0x7001);
        let of_boot = SessionDeadline::new(1, at(0));
        assert!(!of_boot.is_revoked() && !of_boot.is_valid_at(at(1)));
    }

    #[test]
    fn extend_never_moves_deadline_back() {
        let deadline = SessionDeadline::new(1, at(100));
        deadline.extend(at(200));
        deadline.extend(at(150));
        assert_eq!(deadline.expires_at(), at(200));
    }

    /// A shortened deadline can be extended again; shortening neither revokes a session nor revives a revoked one.
    #[test]
    fn shortened_deadline_can_be_extended() {
        let deadline = SessionDeadline::new(1, at(100));
        deadline.shorten(Duration::from_nanos(30));
        assert_eq!(deadline.expires_at(), at(70));
        deadline.extend(at(90));
        assert_eq!(deadline.expires_at(), at(90));
        deadline.shorten(Duration::MAX);
        assert!(!deadline.is_valid_at(at(1)) && !deadline.is_revoked());
        deadline.revoke();
        deadline.shorten(Duration::ZERO);
        assert!(deadline.is_revoked());
    }

    /// No extension makes a revoked session valid again.
    #[test]
    fn revoked_deadline_stays_revoked() {
        let deadline = SessionDeadline::new(1, at(100));
        deadline.revoke();
        deadline.extend(at(500));
        assert!(deadline.is_revoked());
        assert!(!deadline.is_valid_at(at(0)) && !deadline.is_valid_at(at(1)));
    }
}
