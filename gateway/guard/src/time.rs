//! The store's time: seconds that guards of this store have seen pass.
//!
//! It outlives the process, and no wall clock that is set, or wrong at boot, moves it: an operation that was done is
//! forgotten only when its `keep` has passed while a guard was there. It is written down now and then, so after an
//! unclean stop it goes on from a moment before, and things are kept for so much longer.

use std::time::Duration;

use fencegate_process::clock::Boot;

use super::{
    Guard,
    store::{Change, Remembered},
};

#[derive(Debug)]
pub(super) struct Time {
    /// What was written down when this process began.
    before: u64,
    began: Boot,
    /// What runs was sent under this `max_execution` or under ours.
    inherited: Duration,
    ours: Duration,
}

impl Time {
    pub(super) fn new(remembered: &Remembered, now: Boot, max_execution: Duration) -> Self {
        Self {
            before: remembered.time,
            began: now,
            inherited: remembered.max_execution.unwrap_or_default(),
            ours: max_execution,
        }
    }
}

impl Guard {
    /// Now, in seconds of the store's time.
    pub(super) fn time(&self) -> u64 {
        self.time.before.saturating_add(self.now().since(self.time.began).as_secs())
    }

    /// So long after its last byte, whatever may run now is over.
    pub(super) fn longest_execution(&self) -> Duration {
        let Time { began, inherited, ours, .. } = self.time;
        if self.now() < began + inherited { ours.max(inherited) } else { ours }
    }

    /// What is to be written down of the time.
    pub(super) fn passed(&self) -> Vec<Change> {
        vec![Change::Time(self.time()), Change::MaxExecution(self.longest_execution())]
    }
}

/// Seconds of the wall clock: for people, never for safety.
pub(crate) fn wall_clock() -> u64 {
    #[cfg(test)]
    let ahead = AHEAD.get();
    #[cfg(not(test))]
    let ahead = Duration::ZERO;
    fencegate_process::clock::wall_clock() + ahead.as_secs()
}

#[cfg(test)]
thread_local! {
    /// How far the wall clock of a test has been set ahead.
    pub(crate) static AHEAD: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}
