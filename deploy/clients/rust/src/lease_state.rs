//! The deadline of a lease, by the answers of the gateway. A lease that is lost stays lost.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::lease_clock::{BootInstant, SharedLeaseClock};

/// The reason for which a lease is not held any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseLostError {
    /// Its holder has released or dropped it.
    #[error("the lease was given back by its holder")]
    Released,
    /// The gateway reports that the lease is over: it expired, an operator ended it, its session was lost, or the
    /// outcome of a request under it is unknown.
    #[error("the gateway has ended the lease")]
    Ended,
    /// No answer has extended it in time: the gateway does not answer, or gets no answer from its lock service.
    #[error("no renewal of the lease was confirmed in time")]
    NotRenewed,
}

/// The former names of two variants, usable in expressions and in patterns.
#[expect(non_upper_case_globals, reason = "they are spelled like the variants that they were")]
impl LeaseLostError {
    #[deprecated(since = "0.1.0", note = "renamed to `Ended`")]
    pub const Over: Self = Self::Ended;
    #[deprecated(since = "0.1.0", note = "renamed to `NotRenewed`")]
    pub const Unproven: Self = Self::NotRenewed;
}

/// The state of one lease, shared by the renewing task and the holder.
pub(crate) struct SharedLeaseState {
    clock: SharedLeaseClock,
    word: watch::Sender<LeaseState>,
}

struct LeaseState {
    /// The deadline: no other client can hold the lock before this moment. It only moves forward.
    until: BootInstant,
    lost: Option<LeaseLostError>,
    revocation: Option<Arc<str>>,
    ticket: Option<Arc<str>>,
}

/// The part of one answer of the gateway that changes the state.
pub(crate) struct LeaseUpdate {
    pub(crate) until: BootInstant,
    pub(crate) revocation: Option<Arc<str>>,
    pub(crate) ticket: Option<Arc<str>>,
}

impl SharedLeaseState {
    pub(crate) fn of(first: LeaseUpdate, clock: SharedLeaseClock) -> Self {
        let LeaseUpdate { until, revocation, ticket } = first;
        Self { clock, word: watch::Sender::new(LeaseState { until, lost: None, revocation, ticket }) }
    }

    /// Records an answer of the gateway. An answer after the deadline changes nothing, because the loss of the lease
    /// may have been reported to the holder already.
    pub(crate) fn record_renewal(&self, proven: LeaseUpdate) -> Result<(), LeaseLostError> {
        let mut outcome = Ok(());
        self.word.send_modify(|word| {
            word.lapse(self.clock.now());
            if let Some(lost) = word.lost {
                outcome = Err(lost);
                return;
            }
            word.until = word.until.max(proven.until);
            word.revocation = word.revocation.take().or(proven.revocation);
            word.ticket = proven.ticket.or(word.ticket.take());
        });
        outcome
    }

    /// Ends the lease. Later calls do not change the first reason.
    pub(crate) fn ends(&self, reason: LeaseLostError) {
        self.word.send_modify(|word| {
            word.lapse(self.clock.now());
            word.lost.get_or_insert(reason);
        });
    }

    /// The time in which no other client can hold the lock, by the latest answer; an error if the lease is lost.
    pub(crate) fn remaining(&self) -> Result<Duration, LeaseLostError> {
        let word = self.word.borrow();
        if let Some(lost) = word.lost {
            return Err(lost);
        }
        // The clock is read last, so that a pause before it cannot make the answer too long.
        let rest = self.clock.now().until(word.until);
        if rest.is_zero() { Err(LeaseLostError::NotRenewed) } else { Ok(rest) }
    }

    pub(crate) fn until(&self) -> BootInstant {
        self.word.borrow().until
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.word.borrow().revocation.is_some()
    }

    pub(crate) fn ticket(&self) -> Option<Arc<str>> {
        self.word.borrow().ticket.clone()
    }

    /// Returns when the lease is lost.
    pub(crate) async fn lost(&self) -> LeaseLostError {
        let mut word = self.word.subscribe();
        loop {
            // Marked as seen before the state is checked, so that a change after the check wakes us.
            word.mark_unchanged();
            if let Err(lost) = self.remaining() {
                self.ends(lost);
                return self.word.borrow().lost.expect("it has just ended");
            }
            tokio::select! {
                changed = word.changed() => changed.expect("we have its sender"),
                () = self.clock.reaches(self.until()) => {}
            }
        }
    }

    /// Completes when an operator has revoked the lease, with the reason; with `None` if the lease is lost before.
    pub(crate) async fn revoked(&self) -> Option<Arc<str>> {
        let mut word = self.word.subscribe();
        tokio::select! {
            biased;
            asked = word.wait_for(|word| word.revocation.is_some()) => {
                asked.expect("we have its sender").revocation.clone()
            }
            _ = self.lost() => None,
        }
    }
}

impl LeaseState {
    fn lapse(&mut self, now: BootInstant) {
        if now >= self.until {
            self.lost.get_or_insert(LeaseLostError::NotRenewed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease_clock::{LeaseClock, tests::ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    fn proven(until: BootInstant) -> LeaseUpdate {
        LeaseUpdate { until, revocation: None, ticket: None }
    }

    fn held_for(time: Duration) -> (Arc<ManualClock>, Arc<SharedLeaseState>) {
        let clock = Arc::new(ManualClock::default());
        let word = SharedLeaseState::of(proven(clock.now().after(time)), clock.clone());
        (clock, Arc::new(word))
    }

    /// A lease holds until its deadline, and its loss is reported at that moment.
    #[tokio::test]
    async fn lease_is_lost_at_deadline() {
        let (clock, word) = held_for(SECOND);
        let told = tokio::spawn({
            let word = word.clone();
            async move { word.lost().await }
        });
        clock.goes(SECOND - Duration::from_nanos(1));
        assert_eq!(word.remaining(), Ok(Duration::from_nanos(1)));
        clock.goes(Duration::from_nanos(1));
        assert_eq!(word.remaining(), Err(LeaseLostError::NotRenewed));
        assert_eq!(told.await.expect("no panic"), LeaseLostError::NotRenewed);
    }

    /// A lease whose deadline has passed stays lost, also if a late answer states a later deadline.
    #[tokio::test]
    async fn late_renewal_revives_no_lease() {
        let (clock, word) = held_for(SECOND);
        clock.goes(60 * SECOND);
        // This answer was on its way for a minute. It states a deadline that has not passed, and is refused all the
        // same.
        let late = word.record_renewal(proven(clock.now().after(SECOND)));
        assert_eq!(late, Err(LeaseLostError::NotRenewed));
        assert_eq!(word.remaining(), Err(LeaseLostError::NotRenewed));
        assert_eq!(word.lost().await, LeaseLostError::NotRenewed);
    }

    /// A renewal extends the deadline, and one with an earlier deadline changes nothing.
    #[tokio::test]
    async fn renewal_never_shortens_deadline() {
        let (clock, word) = held_for(SECOND);
        assert_eq!(word.record_renewal(proven(clock.now().after(3 * SECOND))), Ok(()));
        assert_eq!(word.record_renewal(proven(clock.now().after(2 * SECOND))), Ok(()));
        clock.goes(2 * SECOND);
        assert_eq!(word.remaining(), Ok(SECOND));
    }

    /// An answer that arrives late takes back neither a later deadline nor a revocation nor the loss of the lease.
    #[tokio::test]
    async fn late_answer_reverts_no_state() {
        let (clock, word) = held_for(9 * SECOND);
        let start = clock.now();
        let at = |seconds| start.after(seconds * SECOND);
        assert_eq!(word.record_renewal(proven(at(5))), Ok(()));
        assert_eq!(word.until(), at(9));
        let revoked = LeaseUpdate { until: at(10), revocation: Some("wanted back".into()), ticket: None };
        assert_eq!(word.record_renewal(revoked), Ok(()));
        assert_eq!(word.record_renewal(proven(at(11))), Ok(()));
        assert!(word.is_revoked() && word.until() == at(11));
        word.ends(LeaseLostError::Ended);
        assert_eq!(word.record_renewal(proven(at(20))), Err(LeaseLostError::Ended));
        assert_eq!(word.remaining(), Err(LeaseLostError::Ended));
    }

    #[tokio::test]
    async fn first_loss_reason_is_kept() {
        let (clock, word) = held_for(SECOND);
        word.ends(LeaseLostError::Ended);
        word.ends(LeaseLostError::Released);
        clock.goes(60 * SECOND);
        assert_eq!(word.lost().await, LeaseLostError::Ended);
        assert_eq!(word.revoked().await, None);
    }

    #[tokio::test]
    async fn first_revocation_is_kept() {
        let (clock, word) = held_for(SECOND);
        for reason in ["the first", "the second"] {
            let until = clock.now().after(SECOND);
            let told = LeaseUpdate { until, revocation: Some(reason.into()), ticket: None };
            assert_eq!(word.record_renewal(told), Ok(()));
        }
        assert_eq!(word.revoked().await.as_deref(), Some("the first"));
        assert!(word.remaining().is_ok());
    }
}
