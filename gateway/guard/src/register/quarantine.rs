//! What is closed after an unclean stop, and why.

use std::fmt::{self, Display};

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::Boot;

/// Nothing is admitted on some keys before an instant.
#[derive(Debug)]
pub(super) struct Quarantine {
    pub(super) until: Boot,
    /// `None`: on those that the store held to be at work.
    pub(super) every_key: Option<Why>,
    pub(super) keys: Vec<ResourceKey>,
}

/// Why nobody knows which keys may be at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its store is new: another guard may have sent what still runs.
    NewStore,
    /// Its store was made of a backup: what was let in since then may still run.
    Restored,
    /// A build kept its store that did not write it down.
    OlderBuild,
    /// Its database has lost what it had acknowledged: what was let in may be forgotten, and still run.
    RolledBack,
}

/// What is closed, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quarantined {
    pub until: Boot,
    pub scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    EveryKey(Why),
    /// So many keys: those that were at work when the process before us was killed.
    Keys(usize),
}

impl Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EveryKey(_) => f.write_str("every key"),
            Self::Keys(1) => f.write_str("1 key"),
            Self::Keys(keys) => write!(f, "{keys} keys"),
        }
    }
}
