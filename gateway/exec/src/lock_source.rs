//! The source of a command's lock: ZooKeeper itself, or a gateway.

use super::{
    gateway_lease::{GatewayLeaseSource, LeasedCommandLock},
    lock_spec::{AcquireLockError, CommandLockInfo, CommandLockSpec, CommandLockStatus},
    renewals::LockRenewalSchedule,
    zookeeper_lock::{DirectCommandLock, ZooKeeperLockSource},
};

/// The source of locks.
pub enum CommandLockSource {
    Ensemble(Box<ZooKeeperLockSource>),
    Gateway(GatewayLeaseSource),
}

/// A lock that is held.
#[derive(Debug)]
pub struct CommandLock {
    pub info: CommandLockInfo,
    pub renewals: LockRenewalSchedule,
    backend: HeldCommandLock,
}

#[derive(Debug)]
enum HeldCommandLock {
    Direct(DirectCommandLock),
    Lease(LeasedCommandLock),
}

impl CommandLockSource {
    /// Acquires a lock.
    ///
    /// # Errors
    /// Returns an [`AcquireLockError`] if the lock was not acquired.
    ///
    /// # Cancellation
    /// Dropping the future gives up the place in the queue.
    pub async fn acquire(&mut self, wanted: &CommandLockSpec) -> Result<CommandLock, AcquireLockError> {
        match self {
            Self::Ensemble(ensemble) => {
                let held = ensemble.acquire(wanted).await?;
                Ok(CommandLock {
                    info: held.info(),
                    renewals: ensemble.renewals(),
                    backend: HeldCommandLock::Direct(held),
                })
            }
            Self::Gateway(gateway) => {
                let held = gateway.acquire(wanted).await?;
                Ok(CommandLock {
                    info: held.info(),
                    renewals: held.renewals(),
                    backend: HeldCommandLock::Lease(held),
                })
            }
        }
    }

    /// The renewals of a lock, if they are known before there is a lock.
    pub fn renewals_before_acquire(&self) -> Option<LockRenewalSchedule> {
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
            Self::Ensemble(ensemble) => ensemble.close_lock_client().await,
            Self::Gateway(gateway) => gateway.wait_abandoned_requests().await,
        }
    }
}

impl CommandLock {
    pub fn status(&self) -> CommandLockStatus {
        match &self.backend {
            HeldCommandLock::Direct(held) => held.status(),
            HeldCommandLock::Lease(held) => held.status(),
        }
    }

    /// Releases the lock. Nothing may run under it any more.
    pub async fn release(self) {
        match self.backend {
            HeldCommandLock::Direct(held) => held.release(),
            HeldCommandLock::Lease(held) => held.release().await,
        }
    }
}
