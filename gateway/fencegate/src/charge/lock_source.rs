//! Where the lock of a command comes from: straight from ZooKeeper, or through a gateway.

use super::{
    asked_lock::{LockStands, NoLock, ShownLock, WantedLock},
    from_ensemble::{FromEnsemble, HeldHere},
    from_gateway::{FromGateway, HeldThere},
    renewals::Renewals,
};

/// Where locks come from.
pub enum LockSource {
    Ensemble(FromEnsemble),
    Gateway(FromGateway),
}

/// A lock that is held.
#[derive(Debug)]
pub struct CommandLock {
    pub shown: ShownLock,
    pub renewals: Renewals,
    held: By,
}

#[derive(Debug)]
enum By {
    Us(HeldHere),
    AGateway(HeldThere),
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
                Ok(CommandLock { shown: held.shown(), renewals: ensemble.renewals(), held: By::Us(held) })
            }
            Self::Gateway(gateway) => {
                let held = gateway.take(wanted).await?;
                Ok(CommandLock { shown: held.shown(), renewals: held.renewals(), held: By::AGateway(held) })
            }
        }
    }

    /// The renewals of a lock, if they are known before there is a lock.
    pub fn renewals(&self) -> Option<Renewals> {
        match self {
            Self::Ensemble(ensemble) => Some(ensemble.renewals()),
            Self::Gateway(_) => None,
        }
    }

    /// Ends the session, so that its locks are free at once.
    ///
    /// # Cancellation
    /// If the future is dropped, the session ends by its timeout.
    pub async fn close(self) {
        match self {
            Self::Ensemble(ensemble) => ensemble.close().await,
            Self::Gateway(gateway) => gateway.close().await,
        }
    }
}

impl CommandLock {
    pub fn stands(&self) -> LockStands {
        match &self.held {
            By::Us(held) => held.stands(),
            By::AGateway(held) => held.stands(),
        }
    }

    /// Releases the lock. Nothing may run under it any more.
    pub async fn give_back(self) {
        match self.held {
            By::Us(held) => held.give_back(),
            By::AGateway(held) => held.give_back().await,
        }
    }
}
