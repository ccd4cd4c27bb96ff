//! The clocks of machines in simulated time.

use std::{sync::Arc, time::Duration};

use fencegate_process::clock::{BootInstant, Clock, SharedClock};
use tokio::time::Instant;

#[derive(Debug)]
struct SimulatedClock {
    began: Instant,
    uptime: Duration,
}

impl Clock for SimulatedClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(0) + self.uptime + self.began.elapsed()
    }
}

/// The clock of another machine, whose wall clock differs from that of the first.
#[derive(Debug)]
struct OtherMachineClock {
    clock: SharedClock,
    /// The wall clock is `ahead` less `behind` milliseconds ahead of the first one.
    ahead: u64,
    behind: u64,
}

impl Clock for OtherMachineClock {
    fn now(&self) -> BootInstant {
        self.clock.now()
    }

    fn unix_ms(&self) -> u64 {
        self.clock.unix_ms() + self.ahead - self.behind
    }
}

/// The clock of a machine whose wall clock is `ahead` less `behind` ahead of that of `clock`.
pub(super) fn other_machine(clock: SharedClock, ahead: Duration, behind: Duration) -> SharedClock {
    let [ahead, behind] = [ahead, behind].map(|time| u64::try_from(time.as_millis()).expect("a short time"));
    Arc::new(OtherMachineClock { clock, ahead, behind })
}

/// The clock of a machine that was booted `uptime` ago.
pub(super) fn since_boot(uptime: Duration) -> SharedClock {
    Arc::new(SimulatedClock { began: Instant::now(), uptime })
}
