//! Evidence, with a deadline, that one ZooKeeper session is alive; checked where bytes leave for an upstream.

use std::{sync::atomic::Ordering, time::Duration};

use fencegate_process::clock::BootInstant;
use fencegate_process::sync::AtomicU64;

/// The proof of one session. A new session gets a new proof, so the heartbeat of a later session can never extend this
/// one. One atomic load decides.
#[derive(Debug)]
pub struct SessionDeadline {
    session: i64,
    /// Nanoseconds of [`BootInstant`]; [`REVOKED`] once the session is over.
    deadline: AtomicU64,
}

/// Below every instant: a revoked proof holds at no time.
const REVOKED: u64 = 0;

impl SessionDeadline {
    pub fn new(session: i64, deadline: BootInstant) -> Self {
        // An instant of zero would read as revoked. Nothing can be proven at boot anyway.
        Self { session, deadline: AtomicU64::new(deadline.as_nanos().max(1)) }
    }

    /// The session that this proof is about.
    pub fn session(&self) -> i64 {
        self.session
    }

    /// May we act as holder at `now`? At the deadline itself: no.
    pub fn is_valid_at(&self, now: BootInstant) -> bool {
        now.as_nanos() < self.deadline.load(Ordering::Acquire)
    }

    pub fn expires_at(&self) -> BootInstant {
        BootInstant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Moves the deadline forward, never back, and never after [`SessionDeadline::revoke`].
    pub fn extend(&self, to: BootInstant) {
        let forward = |current| (current != REVOKED && to.as_nanos() > current).then(|| to.as_nanos());
        // An `Err` says that the deadline was not moved.
        self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, forward).ok();
    }

    /// Moves the deadline back, because the server keeps the session for less time than we thought.
    pub(crate) fn shorten(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let back = |current: u64| (current != REVOKED).then(|| current.saturating_sub(by).max(1));
        self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, back).ok();
    }

    /// The session is over. For ever.
    pub(crate) fn revoke(&self) {
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
    fn a_proof_ends_at_its_deadline_exactly() {
        let proof = SessionDeadline::new(1, at(100));
        assert!(proof.is_valid_at(at(99)));
        assert!(!proof.is_valid_at(at(100)));
    }

    #[test]
    fn a_proof_is_about_one_session() {
        assert_eq!(SessionDeadline::new(0x7001, at(100)).session(), 0x7001);
        let of_boot = SessionDeadline::new(1, at(0));
        assert!(!of_boot.is_revoked() && !of_boot.is_valid_at(at(1)));
    }

    #[test]
    fn a_deadline_never_moves_back() {
        let proof = SessionDeadline::new(1, at(100));
        proof.extend(at(200));
        proof.extend(at(150));
        assert_eq!(proof.expires_at(), at(200));
    }

    #[test]
    fn a_proof_that_was_too_long_is_cut_and_goes_on() {
        let proof = SessionDeadline::new(1, at(100));
        proof.shorten(Duration::from_nanos(30));
        assert_eq!(proof.expires_at(), at(70));
        proof.extend(at(90));
        assert_eq!(proof.expires_at(), at(90));
        proof.shorten(Duration::MAX);
        assert!(!proof.is_valid_at(at(1)) && !proof.is_revoked());
        proof.revoke();
        proof.shorten(Duration::ZERO);
        assert!(proof.is_revoked());
    }

    #[test]
    fn nothing_revives_a_revoked_proof() {
        let proof = SessionDeadline::new(1, at(100));
        proof.revoke();
        proof.extend(at(500));
        assert!(proof.is_revoked());
        assert!(!proof.is_valid_at(at(0)) && !proof.is_valid_at(at(1)));
    }
}
