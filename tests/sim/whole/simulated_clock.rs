//! CLOCK_BOOTTIME of a machine in simulated time.

use std::{sync::Arc, time::Duration};

use fencegate_process::clock::{Boot, Clock, SharedClock};
use tokio::time::Instant;

#[derive(Debug)]
struct SimulatedClock {
    began: Instant,
    uptime: Duration,
}

impl Clock for SimulatedClock {
    fn now(&self) -> Boot {
        Boot::from_nanos(0) + self.uptime + self.began.elapsed()
    }
}

/// Of a machine that was booted some time ago.
pub(super) fn since_boot(uptime: Duration) -> SharedClock {
    Arc::new(SimulatedClock { began: Instant::now(), uptime })
}
