//! The changes that a store can make, and the rows that it exports when it is moved elsewhere.

use std::time::Duration;

use fencegate_policies::{key::ResourceKey, operation::OperationId, plan::LockMode, token::FencingToken};
use serde::{Deserialize, Serialize};

use crate::{dispatch_target::DispatchTarget, operation::OperationJournalEntry};

/// One change of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreMutation {
    Mark {
        key: ResourceKey,
        epochs: DurableKeyWatermarks,
    },
    /// Forgets the watermarks of a key, and removes it from the list of keys at work.
    Forget {
        key: ResourceKey,
    },
    /// The key enters the list of keys at work.
    AtWork {
        key: ResourceKey,
    },
    /// The key leaves the list of keys at work.
    AtRest {
        key: ResourceKey,
    },
    /// The list of keys at work is complete from now on.
    AtWorkListed,
    /// The longest `max_execution` of the executions that may run now.
    MaxExecution(Duration),
    /// Seconds of the store's time.
    Time(u64),
    Floor(u64),
    /// The largest era that a ticket named.
    Era(u64),
    Operation {
        id: OperationId,
        entry: Box<OperationJournalEntry>,
    },
    ForgetOperation {
        id: OperationId,
    },
    /// Forgets an operation, but only if it is finished and its time ended before `before`. It may have begun anew
    /// since the caller's check.
    ForgetFinished {
        id: OperationId,
        /// Seconds of the store's time.
        before: u64,
    },
    /// Whole watermarks for a clean stop. They count only with the marker that is written after them.
    Watermarks(KeyWatermarks),
    CleanShutdown(CleanShutdownState),
}

/// The durable part of a key's watermarks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurableKeyWatermarks {
    pub write: Option<u64>,
    pub read: Option<u64>,
}

impl DurableKeyWatermarks {
    pub fn highest(&self) -> u64 {
        self.write.max(self.read).unwrap_or_default()
    }
}

/// The state that only memory had, written at a clean stop.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanShutdownState {
    /// Only read. A store of format 1 has the watermarks here; later formats write them one by one before this
    /// state, see [`StoreMutation::Watermarks`].
    #[serde(default, skip_serializing)]
    pub marks: Vec<KeyWatermarks>,
    pub doubts: Vec<InDoubtExecutionRecord>,
    /// The remaining time of an earlier quarantine.
    pub quarantine: Option<Duration>,
}

/// The watermarks of a key with their whole tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyWatermarks {
    pub key: ResourceKey,
    pub write: Option<FencingToken>,
    pub read: Option<FencingToken>,
}

/// A dispatch whose end was not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubtExecutionRecord {
    pub keys: Vec<ResourceKey>,
    pub token: FencingToken,
    pub mode: LockMode,
    /// How long it stays in doubt, counted from the next start, because the time in between is not measured.
    pub remaining: Duration,
    /// The target to which the dispatch was sent, if known. Older builds did not write it.
    #[serde(default)]
    pub place: Option<DispatchTarget>,
}

/// The mark in a file that its store was moved elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreMovedMarker {
    /// Names the move; the copy has the same id.
    pub id: String,
    /// The new location, for display only.
    pub to: String,
}

/// The stored state of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub key: ResourceKey,
    pub epochs: DurableKeyWatermarks,
    /// Present after a clean stop.
    pub whole: Option<KeyWatermarks>,
}
