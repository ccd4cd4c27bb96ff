//! The state that a guard begins with.

use std::{collections::HashMap, time::Duration};

use fencegate_policies::key::ResourceKey;
use fencegate_process::randomness::{Guid, Randomness};
use serde::{Deserialize, Serialize};

use super::change::{CleanShutdownState, DurableKeyWatermarks};

/// The identity of a store, made once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreIdentity {
    /// Version of the stored format.
    pub format: u32,
    /// Names the store: guards of one upstream announce the same.
    pub store: String,
    /// The installation whose tokens the store's guards compare.
    pub ensemble: String,
}

impl StoreIdentity {
    /// The identity of a new store.
    pub fn new(ensemble: &str, randomness: &dyn Randomness) -> Self {
        Self { format: FORMAT, store: Guid::new(randomness).to_string(), ensemble: ensemble.to_owned() }
    }
}

/// The newest format that this build understands. Format 2 has the list of keys at work. A build that does not keep the
/// list must not open such a store, because the list would then lack keys.
pub const FORMAT: u32 = 2;

/// The stored state with which a guard begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredState {
    pub identity: StoreIdentity,
    pub floor: u64,
    pub era: u64,
    /// The store's time at its last write, in seconds.
    pub time: u64,
    /// The longest `max_execution` of executions that may run; `None` if it was never written.
    pub max_execution: Option<Duration>,
    pub marks: HashMap<ResourceKey, DurableKeyWatermarks>,
    pub at_work: RecoveredActiveKeys,
    /// `None` unless the last stop was clean.
    pub clean_stop: Option<CleanShutdownState>,
}

impl RecoveredState {
    /// The length of the quarantine, on the keys of the list, or on every key if there is no list. `None` after a
    /// clean stop that left no quarantine.
    pub fn quarantine_length(&self, max_execution: Duration) -> Option<Duration> {
        match &self.clean_stop {
            // The longer one counts, because running executions may have been sent under the former setting.
            None => Some(max_execution.max(self.max_execution.unwrap_or_default())),
            Some(stop) => stop.quarantine,
        }
    }
}

/// The keys that may be at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveredActiveKeys {
    /// Not known: the store is new, and there may have been another guard.
    NewStore,
    /// Not known: the store was made from a backup.
    Restored,
    /// Not known: the last build that used the store kept no list.
    NotListed,
    Keys(Vec<ResourceKey>),
}

/// The size of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalSize {
    pub entries: u64,
    pub bytes: u64,
}
