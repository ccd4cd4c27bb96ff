//! The time that a request waits: for another holder as long as the request allows, for ZooKeeper's reply at least a
//! second.

use std::{future::Future, pin::pin, time::Duration};

use tokio::time::{Instant, timeout_at};

/// The times until which one request waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct LockWaitDeadline {
    /// The end of the wait for another holder.
    holder: Instant,
    /// The end of every wait.
    last: Instant,
}

/// Even a request that does not wait for another holder waits this long for ZooKeeper's reply.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// After its wait for another holder is over, a request checks this often whether there is one.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl LockWaitDeadline {
    pub(super) fn for_lock_wait(wait: Duration) -> Self {
        let now = Instant::now();
        Self { holder: now + wait, last: now + wait.max(MIN_WAIT) }
    }

    pub(super) fn latest_wait_end(self) -> Instant {
        self.last
    }

    /// Waits for `answer`; `None` when the time is up. `taken`: whether another holder is known.
    pub(super) async fn wait_until_deadline<T>(
        self,
        answer: impl Future<Output = T>,
        taken: impl Fn() -> bool,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        if let Ok(reply) = timeout_at(self.holder, &mut answer).await {
            return Some(reply);
        }
        // No holder is known yet, so the request still waits for ZooKeeper's reply.
        while !taken()
            && let Some(look) = self.next_holder_check(Instant::now())
        {
            if let Ok(reply) = timeout_at(look, &mut answer).await {
                return Some(reply);
            }
        }
        None
    }

    /// The time of the next check, never after the end of the wait. `None`: the time is up.
    fn next_holder_check(self, now: Instant) -> Option<Instant> {
        (now < self.last).then(|| self.last.min(now + CHECK_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending};

    use tokio::time::sleep;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    async fn measure_wait(wait: Duration, taken: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        assert_eq!(
            LockWaitDeadline::for_lock_wait(wait).wait_until_deadline(pending::<()>(), taken).await,
            None
        );
        began.elapsed()
    }

    /// A short wait is not prolonged to `MIN_WAIT` if the lock is known to be held.
    #[tokio::test]
    async fn short_wait_behind_holder_stays_short() {
        assert!(measure_wait(SHORT, || true).await < MIN_WAIT);
    }

    /// While it is unknown whether the lock is held, the wait lasts at least `MIN_WAIT`, however short the request's
    /// wait is.
    #[tokio::test]
    async fn unknown_holder_wait_has_minimum() {
        assert!(measure_wait(SHORT, || false).await >= MIN_WAIT);
    }

    /// The checks are `CHECK_INTERVAL` apart, the last one is at the deadline, and none follows it.
    #[test]
    fn last_check_is_at_deadline() {
        let began = Instant::now();
        let deadline = LockWaitDeadline::for_lock_wait(Duration::ZERO);
        assert_eq!(deadline.next_holder_check(began), Some(began + CHECK_INTERVAL));
        for before in [CHECK_INTERVAL, CHECK_INTERVAL / 2, Duration::from_nanos(1)] {
            assert_eq!(
                deadline.next_holder_check(deadline.last - before),
                Some(deadline.last),
                "{before:?} before"
            );
        }
        assert_eq!(deadline.next_holder_check(deadline.last), None);
    }

    /// A wait longer than requested ends as soon as the lock turns out to be held.
    #[tokio::test]
    async fn late_holder_report_ends_wait() {
        let taken = Cell::new(false);
        let learns = async {
            sleep(SHORT * 2).await;
            taken.set(true);
        };
        let (waited, ()) = tokio::join!(measure_wait(SHORT, || taken.get()), learns);
        assert!(waited >= SHORT * 2 && waited < MIN_WAIT, "{waited:?}");
    }
}
