//! What a guard must not forget, and the one place that makes it durable.

mod commit;
mod redb;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, time::Duration};

use fencegate_policies::{key::ResourceKey, plan::Mode, token::Token};
use serde::{Deserialize, Serialize};

pub use self::{
    commit::{Committer, Moment, NotDurable},
    redb::Redb,
};
use super::operation::{Entry, OperationId};

/// Keeps marks and journal over restarts. Called from one thread for changes, and from any for reading.
pub trait Store: Send + Sync + 'static {
    /// What was remembered. The marker of a clean stop is taken out for good before this returns: whoever starts after
    /// an unclean end must not find it.
    fn load(&self) -> Result<Remembered, StoreError>;

    /// All of it is durable when this returns, or none of it is known to be.
    fn commit(&self, changes: &[Change]) -> Result<(), StoreError>;

    /// An operation as it was last committed.
    fn operation(&self, id: &OperationId) -> Result<Option<Entry>, StoreError>;

    /// Those with an unknown outcome, at most `most`.
    fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, StoreError>;

    /// A finished one by the beginning of its id, as [`OperationId::reference`] gives it.
    fn finished(&self, reference: &str) -> Result<Option<OperationId>, StoreError>;

    /// Finished ones that are kept no longer, at most `most`; `now` in seconds of the wall clock.
    fn outlived(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError>;
}

/// One thing to remember or to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Mark {
        key: ResourceKey,
        epochs: Epochs,
    },
    Forget {
        key: ResourceKey,
    },
    Floor(u64),
    /// The largest era that a ticket named.
    Era(u64),
    Operation {
        id: OperationId,
        entry: Entry,
    },
    ForgetOperation {
        id: OperationId,
    },
    /// Only if it is finished and would have been kept until `before`: it may have begun anew since somebody looked.
    ForgetFinished {
        id: OperationId,
        /// Seconds of the wall clock.
        before: u64,
    },
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

/// The newest written form that this build understands.
pub const FORMAT: u32 = 1;

/// Everything that a guard begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    pub identity: Identity,
    pub floor: u64,
    pub era: u64,
    pub marks: HashMap<ResourceKey, Epochs>,
    /// `None` after anything but an orderly end.
    pub clean_stop: Option<CleanStop>,
}

/// What only memory knows, written down at an orderly end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanStop {
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

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "{path} does not exist; make it once with `fencegate guard --init --floor E --ensemble UUID` (`fencegate era show` prints both)"
    )]
    Missing { path: String },
    #[error("{path} exists already")]
    Exists { path: String },
    #[error("{path} is of format {found}, this build reads up to {FORMAT}; upgrade the guard")]
    Newer { path: String, found: u32 },
    #[error("{path} cannot be read: {why}")]
    Unreadable { path: String, why: String },
    #[error("{0}")]
    Failed(String),
}
