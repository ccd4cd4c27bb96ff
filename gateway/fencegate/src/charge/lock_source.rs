//! Where the lock of a command comes from: straight from ZooKeeper, or through a gateway.

use std::time::Duration;

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::Boot;

use super::from_ensemble::{FromEnsemble, HeldHere};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct WantedLock {
    pub key: ResourceKey,
    pub access: Access,
    pub wait: Patience,
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
pub enum Patience {
    For(Duration),
    AsLongAsItTakes,
}

/// Where locks come from.
pub enum LockSource {
    Ensemble(FromEnsemble),
}

/// A lock that is held.
#[derive(Debug)]
pub struct TakenLock {
    pub shown: ShownLock,
    held: By,
}

#[derive(Debug)]
enum By {
    Us(HeldHere),
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

impl LockSource {
    /// # Errors
    /// [`NoLock`]
    ///
    /// # Cancellation
    /// Dropping the future gives up the place in line.
    pub async fn take(&mut self, wanted: &WantedLock) -> Result<TakenLock, NoLock> {
        match self {
            Self::Ensemble(ensemble) => {
                let held = ensemble.take(wanted).await?;
                Ok(TakenLock { shown: held.shown(), held: By::Us(held) })
            }
        }
    }

    /// For how long a renewal proves a lock, as far as it is known before there is one.
    pub fn proves(&self) -> Duration {
        match self {
            Self::Ensemble(ensemble) => ensemble.proves(),
        }
    }

    /// Says goodbye, so that what was held is free at once.
    ///
    /// # Cancellation
    /// Dropping the future leaves it to the timeout of the session.
    pub async fn close(self) {
        match self {
            Self::Ensemble(ensemble) => ensemble.close().await,
        }
    }
}

impl TakenLock {
    pub fn stands(&self) -> LockStands {
        match &self.held {
            By::Us(held) => held.stands(),
        }
    }

    /// Nothing goes on under it any more.
    pub async fn give_back(self) {
        match self.held {
            By::Us(held) => held.give_back(),
        }
    }
}
