//! The interval at which the lock validity is renewed, and the time that this leaves for the grace of a command.

use std::time::Duration;

use super::termination::KILLED_BEFORE;

/// The interval at which the lock keeper reads the lock validity and sends it to the supervisor.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// The longest interval between two heartbeats of a gateway's session.
const GATEWAY_HEARTBEAT: Duration = Duration::from_secs(1);

/// The renewals of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRenewalSchedule {
    /// For how long one renewal makes the lock valid.
    pub proves: Duration,
    /// The time from one renewal to the next, when neither is late.
    pub interval: Duration,
}

impl LockRenewalSchedule {
    /// The renewals of a lease for which a gateway has just promised this time. A gateway does not report how
    /// often its session is renewed, but it renews the session at least twice within the lock validity of a
    /// heartbeat. The client requests a renewal when a sixth of the promised time is over.
    pub(super) fn renewals_for_lease(promised: Duration) -> Self {
        Self { proves: promised, interval: GATEWAY_HEARTBEAT.min(promised / 2) + promised / 12 }
    }

    /// The longest grace for a command: half of the lock validity at most, and so much less that the next renewal
    /// reaches the supervisor before it would end the command. `None` if even without a grace there is no time for
    /// that.
    pub fn longest_grace(&self) -> Option<Duration> {
        // A renewal that is an eighth of its interval late must not end a command.
        let next = self.interval + self.interval / 8 + LOOK;
        let left = self.proves.checked_sub(KILLED_BEFORE)?.checked_sub(next)?;
        Some(left.min(self.proves / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renewals(proves: u64, interval: u64) -> LockRenewalSchedule {
        LockRenewalSchedule {
            proves: Duration::from_millis(proves),
            interval: Duration::from_millis(interval),
        }
    }

    /// The longest grace leaves the time of a whole renewal, and is at most half of the lock validity.
    #[test]
    fn grace_leaves_time_for_renewal() {
        // A session of 4 s with a tick of 2 s: the shortest one that a gateway accepts at this tick.
        let short = renewals(1334, 667).longest_grace().expect("some time");
        assert!((Duration::from_millis(200)..Duration::from_millis(300)).contains(&short), "{short:?}");
        // A session of 12 s: half of the lock validity.
        assert_eq!(renewals(9000, 1000).longest_grace(), Some(Duration::from_millis(4500)));
    }

    /// A lock validity that ends before the next renewal leaves no time for a grace.
    #[test]
    fn short_lock_validity_leaves_no_stop_time() {
        assert_eq!(renewals(334, 167).longest_grace(), None);
        assert_eq!(renewals(100, 10).longest_grace(), None);
    }

    /// The renewal interval of a lease is that of its gateway's session plus that of its client.
    #[test]
    fn lease_interval_adds_gateway_and_client() {
        let lease = LockRenewalSchedule::renewals_for_lease(Duration::from_secs(9));
        assert_eq!(lease.interval, Duration::from_millis(1750));
        let short = LockRenewalSchedule::renewals_for_lease(Duration::from_millis(1200));
        assert_eq!(short.interval, Duration::from_millis(700));
    }
}
