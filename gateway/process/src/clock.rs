//! The clock for deadlines that safety depends on: CLOCK_BOOTTIME, which goes on while the machine sleeps.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::sleep;

/// An instant of CLOCK_BOOTTIME, in nanoseconds since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(u64);

impl Boot {
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Saturates at both ends, as the operators below do.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Boot {
    type Output = Self;
    fn add(self, rest: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl std::ops::Sub<Duration> for Boot {
    type Output = Self;
    fn sub(self, rest: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The source of the time; a simulation brings its own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    fn now(&self) -> Boot;
}

/// The machine's clock. CLOCK_MONOTONIC would not do: it stands still while the machine is suspended, and a session
/// expires meanwhile.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Boot {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        Boot(seconds * 1_000_000_000 + nanos)
    }
}

/// Seconds of the wall clock since 1970: for people, never for safety. A clock before 1970 gives 0.
pub fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A clock that is shared by several owners.
pub type SharedClock = Arc<dyn Clock>;

/// A permission to write bytes, which ends at some time.
pub trait Permission: fmt::Debug + Send + Sync {
    /// Whether it holds at `now`. The answer comes from memory, so ask before every write.
    fn holds(&self, now: Boot) -> bool;

    /// The end of the permission, as known now. It may move on later, and the permission may be taken away before.
    fn deadline(&self) -> Boot;
}

impl dyn Permission + '_ {
    /// Returns when it no longer holds. If it is taken away early, that is noticed within [`LOOK`].
    pub async fn lapsed(&self, clock: &SharedClock) {
        loop {
            let now = clock.now();
            if !self.holds(now) {
                return;
            }
            sleep(self.deadline().since(now).min(LOOK)).await;
        }
    }
}

/// How often a running exchange looks at its permission.
const LOOK: Duration = Duration::from_millis(100);

/// A clock that the caller moves, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn go(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Boot {
        Boot(self.0.load(Ordering::SeqCst))
    }
}
