//! Where the lock of a command comes from: straight from ZooKeeper, or through a gateway.

use std::time::Duration;

use super::{
    asked_lock::{LockStands, NoLock, ShownLock, WantedLock},
    from_ensemble::{FromEnsemble, HeldHere},
};

/// Where locks come from.
pub enum LockSource {
    Ensemble(FromEnsemble),
}

/// A lock that is held.
#[derive(Debug)]
pub struct CommandLock {
    pub shown: ShownLock,
    held: By,
}

#[derive(Debug)]
enum By {
    Us(HeldHere),
}

impl LockSource {
    /// # Errors
    /// [`NoLock`]
    ///
    /// # Cancellation
    /// Dropping the future gives up the place in line.
    pub async fn take(&mut self, wanted: &WantedLock) -> Result<CommandLock, NoLock> {
        match self {
            Self::Ensemble(ensemble) => {
                let held = ensemble.take(wanted).await?;
                Ok(CommandLock { shown: held.shown(), held: By::Us(held) })
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

impl CommandLock {
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
