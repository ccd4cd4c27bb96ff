//! The store's time: seconds that guards of this store have seen pass.
//!
//! It outlives the process, and no wall clock that is set, or wrong at boot, moves it: an operation that was done is
//! forgotten only when its `keep` has passed while a guard was there. It is written down now and then, so after an
//! unclean stop it goes on from a moment before, and things are kept for so much longer.

use std::time::Duration;

use fencegate_process::clock::Boot;

use crate::store::{Change, Remembered};

#[derive(Debug)]
pub(crate) struct Time {
    /// What was written down when this process began.
    before: u64,
    began: Boot,
    /// What runs was sent under this `max_execution` or under ours.
    inherited: Duration,
    ours: Duration,
}

impl Time {
    pub(crate) fn new(remembered: &Remembered, now: Boot, max_execution: Duration) -> Self {
        Self {
            before: remembered.time,
            began: now,
            inherited: remembered.max_execution.unwrap_or_default(),
            ours: max_execution,
        }
    }

    /// At `now`, in seconds of the store's time.
    pub(crate) fn at(&self, now: Boot) -> u64 {
        self.before.saturating_add(now.since(self.began).as_secs())
    }

    /// So long after its last byte, whatever may run at `now` is over.
    pub(crate) fn longest_execution(&self, now: Boot) -> Duration {
        if now < self.began + self.inherited { self.ours.max(self.inherited) } else { self.ours }
    }

    /// What is to be written down of the time.
    pub(crate) fn passed(&self, now: Boot) -> Vec<Change> {
        vec![Change::Time(self.at(now)), Change::MaxExecution(self.longest_execution(now))]
    }
}

/// None less than the time is long.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
