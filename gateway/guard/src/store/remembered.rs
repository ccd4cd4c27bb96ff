//! What a store still knows when a guard begins.

use std::{collections::HashMap, time::Duration};

use fencegate_policies::key::ResourceKey;
use fencegate_process::randomness::{Guid, Randomness};
use serde::{Deserialize, Serialize};

use super::change::{CleanStop, Epochs};

/// Who the store belongs to; made once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Of the written form.
    pub format: u32,
    /// Names the store: guards of one upstream announce the same.
    pub store: String,
    /// The installation whose tokens it compares.
    pub ensemble: String,
}

impl Identity {
    /// Of a new store.
    pub fn new(ensemble: &str, randomness: &dyn Randomness) -> Self {
        Self { format: FORMAT, store: Guid::new(randomness).to_string(), ensemble: ensemble.to_owned() }
    }
}

/// The newest written form that this build understands. From 2 on the keys at work are written down; a build that does
/// not do so must not open such a store, or the list would say less than is true.
pub const FORMAT: u32 = 2;

/// Everything that a guard begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub identity: Identity,
    pub floor: u64,
    pub era: u64,
    /// Seconds of the store's time when it was last written down.
    pub time: u64,
    /// The longest that what runs may take; `None` where nobody has written it down.
    pub max_execution: Option<Duration>,
    pub marks: HashMap<ResourceKey, Epochs>,
    pub at_work: AtWork,
    /// `None` after anything but an orderly end.
    pub clean_stop: Option<CleanStop>,
}

impl Remembered {
    /// So long nothing is let in on what may have been at work at the end: on the keys of the list, or on every key where
    /// there is none. `None` after an orderly end, which says what is left.
    pub(crate) fn closed_for(&self, max_execution: Duration) -> Option<Duration> {
        match &self.clean_stop {
            // Whichever is longer: what runs was sent under the old one.
            None => Some(max_execution.max(self.max_execution.unwrap_or_default())),
            Some(stop) => stop.quarantine,
        }
    }
}

/// On which keys something may be at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtWork {
    /// The store is new; there may have been another guard.
    NewStore,
    /// The store was made of a backup: what was let in since then is not known.
    Restored,
    /// A build kept it that does not write it down.
    NotListed,
    Keys(Vec<ResourceKey>),
}

/// What the journal takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalSize {
    pub entries: u64,
    pub bytes: u64,
}
