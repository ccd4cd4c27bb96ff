//! What a store is told to remember or to forget.

use std::time::Duration;

use fencegate_policies::{key::ResourceKey, operation::OperationId, plan::Mode, token::Token};
use serde::{Deserialize, Serialize};

use crate::operation::Entry;

/// One thing to remember or to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Mark {
        key: ResourceKey,
        epochs: Epochs,
    },
    /// Its marks, and that anything may be at work on it.
    Forget {
        key: ResourceKey,
    },
    /// Something may be at work on the key.
    AtWork {
        key: ResourceKey,
    },
    /// Nothing is.
    AtRest {
        key: ResourceKey,
    },
    /// From now on, nothing is at work on a key that is not written down as such.
    AtWorkListed,
    /// What runs was sent under a time that was no longer than this.
    MaxExecution(Duration),
    /// Seconds of the store's time.
    Time(u64),
    Floor(u64),
    /// The largest era that a ticket named.
    Era(u64),
    Operation {
        id: OperationId,
        entry: Box<Entry>,
    },
    ForgetOperation {
        id: OperationId,
    },
    /// Only if it is finished and would have been kept until `before`: it may have begun anew since somebody looked.
    ForgetFinished {
        id: OperationId,
        /// Seconds of the store's time.
        before: u64,
    },
    /// Of a clean stop that is about to be written: nothing without its marker.
    Whole(WholeMarks),
    CleanStop(CleanStop),
}

/// The durable part of a key's marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Epochs {
    pub write: Option<u64>,
    pub read: Option<u64>,
}

impl Epochs {
    pub fn highest(&self) -> u64 {
        self.write.max(self.read).unwrap_or_default()
    }
}

/// What only memory knows, written down at an orderly end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanStop {
    /// Read only: written one by one before, see [`Change::Whole`]. A store of format 1 has them in here.
    #[serde(default, skip_serializing)]
    pub marks: Vec<WholeMarks>,
    pub doubts: Vec<OpenDoubt>,
    /// What was left of the quarantine after the stop before.
    pub quarantine: Option<Duration>,
}

/// The marks of a key with their whole tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeMarks {
    pub key: ResourceKey,
    pub write: Option<Token>,
    pub read: Option<Token>,
}

/// A dispatch whose end was not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDoubt {
    pub keys: Vec<ResourceKey>,
    pub token: Token,
    pub mode: Mode,
    /// Counted anew from the next start: the time in between is nobody's.
    pub remaining: Duration,
}
