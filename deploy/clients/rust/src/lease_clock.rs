//! The clock by which a lease is measured: CLOCK_BOOTTIME, which counts the time in which the machine sleeps.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

/// A moment as the time since the boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootInstant(Duration);

impl BootInstant {
    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    pub(crate) fn since_boot(self) -> Duration {
        self.0
    }

    /// The time until `later`; zero if `later` has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// The source of the time. Tests use a clock that they move themselves.
pub(crate) trait LeaseClock: Send + Sync + 'static {
    fn now(&self) -> BootInstant;

    /// Completes at `moment`.
    ///
    /// # Cancellation
    /// Dropping the future changes nothing.
    fn reaches(&self, moment: BootInstant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

pub(crate) type SharedLeaseClock = Arc<dyn LeaseClock>;

/// CLOCK_BOOTTIME of the machine.
pub(crate) struct BootClock;

/// The longest single sleep. The runtime's timers stop while the machine is suspended, so after a suspension the end of
/// a lease is noticed at most this much later.
const LOOK: Duration = Duration::from_millis(100);

impl LeaseClock for BootClock {
    fn now(&self) -> BootInstant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanos = u32::try_from(time.tv_nsec).expect("below a second");
        BootInstant(Duration::new(time.tv_sec.cast_unsigned(), nanos))
    }

    fn reaches(&self, moment: BootInstant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let rest = self.now().until(moment);
                if rest.is_zero() {
                    return;
                }
                tokio::time::sleep(rest.min(LOOK)).await;
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::watch;

    use super::*;

    /// A clock that the test moves.
    pub(crate) struct ManualClock(watch::Sender<Duration>);

    impl Default for ManualClock {
        fn default() -> Self {
            Self(watch::Sender::new(Duration::from_secs(1)))
        }
    }

    impl ManualClock {
        pub(crate) fn goes(&self, by: Duration) {
            self.0.send_modify(|now| *now += by);
        }
    }

    impl LeaseClock for ManualClock {
        fn now(&self) -> BootInstant {
            BootInstant(*self.0.borrow())
        }

        fn reaches(&self, moment: BootInstant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            let mut time = self.0.subscribe();
            Box::pin(async move { drop(time.wait_for(|now| *now >= moment.0).await) })
        }
    }

    #[tokio::test]
    async fn boot_clock_waits_until_moment() {
        let clock = BootClock;
        let moment = clock.now().after(Duration::from_millis(20));
        clock.reaches(moment).await;
        assert!(clock.now() >= moment);
        assert_eq!(clock.now().until(moment), Duration::ZERO);
    }
}
