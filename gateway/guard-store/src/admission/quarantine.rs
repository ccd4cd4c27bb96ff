//! The keys that are closed after an unclean stop, and the reason.

use std::fmt::{self, Display};

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::BootInstant;

use super::liveness::RequiredTargetUptime;

/// Some keys are closed until an instant.
#[derive(Debug)]
pub(super) struct RecoveryQuarantine {
    pub(super) until: BootInstant,
    /// Set if the endpoints have to be seen running. Then the clock does not end the quarantine.
    pub(super) unseen: Option<RequiredTargetUptime>,
    /// Why every key is closed; `None` if only the keys that were at work are.
    pub(super) every_key: Option<QuarantineReason>,
    pub(super) keys: Vec<ResourceKey>,
}

impl RecoveryQuarantine {
    /// The earliest instant at which the quarantine is over.
    pub(super) fn ends_at(&self, now: BootInstant) -> BootInstant {
        self.unseen.as_ref().map_or(self.until, |unseen| now + unseen.remaining())
    }
}

/// The reason for which the keys that may be at work are not known, so that every key is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineReason {
    /// The store is new, and dispatches of another guard may still run.
    NewStore,
    /// The store was made from a backup, and dispatches that were admitted since the backup may still run.
    Restored,
    /// The last build that used the store did not record the keys at work.
    OlderBuild,
    /// The database has lost commits, so dispatches may be forgotten and still run.
    RolledBack,
}

/// The closed keys, and the instant at which they open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuarantineStatus {
    pub until: BootInstant,
    pub scope: QuarantineScope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineScope {
    EveryKey(QuarantineReason),
    /// This many keys, which were at work when the previous process was killed.
    Keys(usize),
}

impl Display for QuarantineScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EveryKey(_) => f.write_str("every key"),
            Self::Keys(1) => f.write_str("1 key"),
            Self::Keys(keys) => write!(f, "{keys} keys"),
        }
    }
}
