//! What is asked of whoever gives out locks, and what is known of one that was had.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::Boot;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct WantedLock {
    pub key: ResourceKey,
    pub access: Access,
    /// So many may hold the key at once; all who ask for it say the same. That of the policy unless given.
    pub permits: Option<u16>,
    pub wait: LockWait,
}

/// Who else may hold the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Alone,
    /// Everybody who shares it too.
    Shared,
}

/// For how long others are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    For(Duration),
    AsLongAsItTakes,
}

/// What the command is told of its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLock {
    /// `Fencing-Token`.
    pub token: String,
    /// `Fencing-Number`.
    pub number: u64,
    /// What requests under it show; none where no gateway holds it.
    pub lease: Option<String>,
    /// Which of the holders that a key may have at once.
    pub permit: Option<u32>,
}

/// How a lock stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockStands {
    /// Until then it cannot be another's.
    Proven(Boot),
    /// The same, and its holder is asked to give it back.
    WantedBack(Boot),
    /// It may be another's now.
    Gone,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum NoLock {
    #[error("FG0621: `{0}` is held by another, and the wait is over; nothing was run")]
    HeldByAnother(ResourceKey),
    /// Another try may be better.
    #[error("FG0623: no lock of `{key}`: {why}; nothing was run")]
    Unavailable { key: ResourceKey, why: String },
    /// No other try is better.
    #[error("FG0623: no lock of `{key}`: {why}; nothing was run")]
    Never { key: ResourceKey, why: String },
}
