//! The changing part of a lease: its state, its end, and the reason for the end.

use std::{sync::Arc, time::Duration};

use fencegate_lock::manager::leased_lock::LeasedLock;
use fencegate_metrics::END_REASONS;
use fencegate_process::clock::BootInstant;
use fencegate_refusal::Refusal;

/// The state of a lease between two changes.
pub(super) struct LeaseState {
    pub(super) stage: LeaseStage,
    pub(super) ttl: Duration,
    /// The lease ends then, unless it is renewed. Never later than its greatest age.
    pub(super) expires: BootInstant,
    /// The client was promised that no other client can hold the key until then.
    pub(super) promised: BootInstant,
    /// The reason for which an operator requests the client to release the lease.
    pub(super) revocation: Option<Arc<str>>,
    /// Whether its lock was granted to it.
    pub(super) was_held: bool,
    /// Whether its id is in an answer to a client. From then on a client may use it.
    pub(super) is_disclosed: bool,
    /// The requests whose answer is not made yet and may have the id: the first one, and repeats of it.
    pub(super) pending_requests: usize,
}

pub(super) enum LeaseStage {
    Waiting,
    Held {
        lock: Arc<LeasedLock>,
        since: BootInstant,
    },
    Over {
        why: LeaseEndReason,
        at: BootInstant,
        /// Held until the promise to the client is over.
        lock: Option<Arc<LeasedLock>>,
    },
}

/// The reason for which a lease is over.
#[derive(Debug, Clone)]
pub enum LeaseEndReason {
    /// Its client released it.
    Released,
    /// It was not renewed in time.
    Expired,
    /// Its wait timed out, or the last request that waited for it went away.
    GaveUp,
    /// An operator broke it.
    Broken,
    /// The session of its lock ended, or the lock node was removed.
    Lost,
    /// The outcome of a request under it is unknown, or a guard has a newer token.
    Retired,
    /// It reached the greatest age of a lease.
    TooOld,
    /// No lock could be granted.
    Refused(Box<Refusal>),
}

impl LeaseState {
    /// The reason for which the lease is over at `now` without an event. `ends`: when it reaches its greatest age.
    pub(super) fn lapse_reason(&self, now: BootInstant, ends: BootInstant) -> Option<LeaseEndReason> {
        let late = if now >= ends { LeaseEndReason::TooOld } else { LeaseEndReason::Expired };
        let expired = (now >= self.expires).then_some(late);
        match &self.stage {
            LeaseStage::Waiting => expired,
            LeaseStage::Held { lock, .. } if lock.is_lost() => Some(LeaseEndReason::Lost),
            LeaseStage::Held { lock, .. } if lock.is_grant_retired() => Some(LeaseEndReason::Retired),
            LeaseStage::Held { .. } => expired,
            LeaseStage::Over { .. } => None,
        }
    }
}

impl LeaseEndReason {
    /// The code of the reason, for programs.
    pub fn as_str(&self) -> &'static str {
        let [released, expired, gave_up, broken, lost, retired, too_old, refused] = END_REASONS;
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
