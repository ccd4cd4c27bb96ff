//! What a guard must not forget, and the one place that makes it durable.

mod commit;
mod redb;
#[cfg(test)]
mod tests;

use fencegate_process::again;
use std::{collections::HashMap, time::Duration};

use fencegate_policies::{key::ResourceKey, operation::OperationId, plan::Mode, token::Token};
use serde::{Deserialize, Serialize};

pub use self::{
    commit::{Committer, Moment, NotDurable},
    redb::Redb,
};
use super::operation::Entry;

/// Keeps marks and journal over restarts. Called from one thread for changes, and from any for reading.
pub trait Store: Send + Sync + 'static {
    /// What was remembered. The marker of a clean stop is taken out for good before this returns: whoever starts after
    /// an unclean end must not find it. From then on the store remembers the longer of `max_execution` and what it
    /// remembered before.
    fn load(&self, max_execution: Duration) -> Result<Remembered, StoreError>;

    /// All of it is durable when this returns, or none of it is known to be.
    fn commit(&self, changes: &[Change]) -> Result<(), StoreError>;

    /// An operation as it was last committed.
    fn operation(&self, id: &OperationId) -> Result<Option<Entry>, StoreError>;

    /// Those with an unknown outcome, at most `most`.
    fn unfinished(&self, most: usize) -> Result<Vec<(OperationId, Entry)>, StoreError>;

    /// Only their ids.
    fn unfinished_ids(&self, most: usize) -> Result<Vec<OperationId>, StoreError>;

    /// By the beginning of its id, as [`OperationId::reference`] gives it.
    fn by_reference(&self, reference: &str) -> Result<Option<(OperationId, Entry)>, StoreError>;

    /// Finished ones that are kept no longer, at most `most`; `now` in seconds of the store's time.
    fn outlived(&self, now: u64, most: usize) -> Result<Vec<OperationId>, StoreError>;

    /// What the journal takes up, as it was last committed.
    fn journal(&self) -> Taken;
}

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

/// On which keys something may be at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtWork {
    /// The store is new; there may have been another guard.
    NewStore,
    /// A build kept it that does not write it down.
    NotListed,
    Keys(Vec<ResourceKey>),
}

/// What a part of the store takes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    pub entries: u64,
    pub bytes: u64,
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

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "{path} does not exist; make it once with `{}` (`fencegate era show` prints both)",
        again::command(again::Of::Guard, "guard --init --floor E --ensemble UUID")
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
