//! The store's time: seconds that guards of this store have seen pass.
//!
//! The store's time outlives the process, and a wrong wall clock does not move it. So a finished operation is
//! forgotten only when its `keep` has passed while a guard was running. The time is written periodically. After
//! an unclean stop it goes on from the last write, and entries are kept a little longer.

use std::time::Duration;

use fencegate_process::clock::BootInstant;

use crate::store::{RecoveredState, StoreMutation};

#[derive(Debug)]
pub struct PersistedStoreClock {
    /// The written time when this process began.
    before: u64,
    began: BootInstant,
    /// The longest `max_execution` under which earlier processes sent executions.
    inherited: Duration,
    ours: Duration,
}

impl PersistedStoreClock {
    pub fn new(recovered: &RecoveredState, now: BootInstant, max_execution: Duration) -> Self {
        Self {
            before: recovered.time,
            began: now,
            inherited: recovered.max_execution.unwrap_or_default(),
            ours: max_execution,
        }
    }

    /// The store's time at the instant `now`, in seconds.
    pub fn store_seconds_at(&self, now: BootInstant) -> u64 {
        self.before.saturating_add(now.since(self.began).as_secs())
    }

    /// How long after its last byte any execution that may run at `now` is over.
    pub fn max_completion_delay(&self, now: BootInstant) -> Duration {
        if now < self.began + self.inherited { self.ours.max(self.inherited) } else { self.ours }
    }

    /// The store's time and the longest execution at `now`, as changes to be written.
    pub fn store_time_mutation(&self, now: BootInstant) -> Vec<StoreMutation> {
        vec![
            StoreMutation::Time(self.store_seconds_at(now)),
            StoreMutation::MaxExecution(self.max_completion_delay(now)),
        ]
    }
}

/// Whole seconds, rounded up.
pub fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
