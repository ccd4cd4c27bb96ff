//! What of a lease changes: how far it has come, until when, and why it is over.

use std::{sync::Arc, time::Duration};

use fencegate_lock::tenures::leased_lock::LeasedLock;
use fencegate_process::clock::Boot;

use crate::{metrics::WHY, refusal::Refusal};

/// Between two changes.
pub(super) struct Life {
    pub(super) stage: LifeStage,
    pub(super) ttl: Duration,
    /// Nobody has renewed it by then, or it is as old as it may become.
    pub(super) expires: Boot,
    /// Until then its client has been told that nobody else can hold.
    pub(super) promised: Boot,
    /// Why somebody asks for it back.
    pub(super) revocation: Option<Arc<str>>,
}

pub(super) enum LifeStage {
    Waiting,
    Held {
        lock: Arc<LeasedLock>,
        since: Boot,
    },
    Over {
        why: Why,
        at: Boot,
        /// Held until what was promised is over.
        lock: Option<Arc<LeasedLock>>,
    },
}

/// Why a lease is over.
#[derive(Debug, Clone)]
pub enum Why {
    /// By its client.
    Released,
    /// Nobody has renewed it in time.
    Expired,
    /// It waited for as long as it was to wait.
    GaveUp,
    /// By an operator.
    Broken,
    /// The session of its lock ended, or somebody removed the lock node.
    Lost,
    /// What came of a request under it is not known, or a guard has seen a newer token.
    Retired,
    /// It was as old as a lease may become.
    TooOld,
    /// There was no lock to be had.
    Refused(Box<Refusal>),
}

impl Life {
    /// Why it is over at `now` and nobody has said so yet. `ends`: when it is as old as it may become.
    pub(super) fn lapses(&self, now: Boot, ends: Boot) -> Option<Why> {
        let late = if now >= ends { Why::TooOld } else { Why::Expired };
        let expired = (now >= self.expires).then_some(late);
        match &self.stage {
            LifeStage::Waiting => expired,
            LifeStage::Held { lock, .. } if lock.is_lost() => Some(Why::Lost),
            LifeStage::Held { lock, .. } if lock.is_retired() => Some(Why::Retired),
            LifeStage::Held { .. } => expired,
            LifeStage::Over { .. } => None,
        }
    }
}

impl Why {
    /// For programs.
    pub fn word(&self) -> &'static str {
        let [released, expired, gave_up, broken, lost, retired, too_old, refused] = WHY;
        match self {
            Self::Released => released,
            Self::Expired => expired,
            Self::GaveUp => gave_up,
            Self::Broken => broken,
            Self::Lost => lost,
            Self::Retired => retired,
            Self::TooOld => too_old,
            Self::Refused(_) => refused,
        }
    }
}
