//! The lock of a client's lease. Requests under the lease take turns, each with a larger dispatch number.
//!
//! The client's hold is the first part of the tenure, with dispatch number 1, and never sends anything. Each request
//! under the lease is a further part. So the node stays until the client has released the lock *and* all its requests
//! are over.

use std::sync::{Arc, Mutex, PoisonError};

use fencegate_policies::{permits::PermitIndex, plan::LockMode, token::FencingToken};
use fencegate_process::clock::{BootInstant, SendPermission as _};
use fencegate_zookeeper::session::lock_validity::LockValidity;
use tokio::sync::Semaphore;

use super::{call_chain::NestedCallbackError, grant_guard::GrantGuard, uncached_lock::UncachedLock};

/// The lock of one lease. Dropping it releases it, as [`LeasedLock::release_when_idle`] does.
#[derive(Debug)]
pub struct LeasedLock {
    lock: Arc<UncachedLock>,
    /// The part of the client; `None` once the lock was released.
    held: Mutex<Option<GrantGuard>>,
    /// Orders exclusive requests: the one that has this semaphore's permit is next, first come, first served.
    turn: Semaphore,
    token: FencingToken,
    permit: Option<PermitIndex>,
    validity: Arc<LockValidity>,
    nodes: Arc<[String]>,
}

impl LeasedLock {
    pub(super) fn new(lock: Arc<UncachedLock>, held: GrantGuard) -> Self {
        let token = held.predispatch_token().expect("nothing was dispatched under it");
        let validity = held.shared_validity();
        let nodes = held.node_paths();
        let permit = held.permit();
        Self { lock, held: Mutex::new(Some(held)), turn: Semaphore::new(1), token, permit, validity, nodes }
    }

    /// The token of the lease itself. Requests under it have larger tokens with the same epoch.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The permit that the lease holds; see [`GrantGuard::permit`].
    pub fn permit(&self) -> Option<PermitIndex> {
        self.permit
    }

    /// The ZooKeeper session that owns the lock nodes.
    pub fn session_id(&self) -> i64 {
        self.validity.session_id()
    }

    /// Paths of the lock nodes.
    pub fn node_paths(&self) -> Arc<[String]> {
        self.nodes.clone()
    }

    /// Whether the session deadline has not passed and no lock node was removed.
    pub fn is_held_at(&self, now: BootInstant) -> bool {
        self.validity.is_valid_at(now)
    }

    /// The session deadline as of now. Until then no other process can hold the lock, whatever happens to this process.
    pub fn session_expires_at(&self) -> BootInstant {
        self.validity.valid_until()
    }

    /// Whether the lock is lost for good: the session is over, or a lock node was removed by another client.
    pub fn is_lost(&self) -> bool {
        self.validity.is_lock_validity_lost()
    }

    /// Whether nothing more is sent under the lease, because an outcome is unknown or a newer holder was seen.
    pub fn is_grant_retired(&self) -> bool {
        self.lock.is_grant_retired()
    }

    /// The number of requests that are at work under the lease.
    pub fn active_request_count(&self) -> usize {
        self.lock.active_request_count()
    }

    /// Starts one request under the lease. Returns its tenure, and the mode in which the lease holds. An exclusive
    /// request waits for its turn.
    ///
    /// # Errors
    /// Returns [`NestedCallbackError::Closed`], [`NestedCallbackError::Unproven`], or [`NestedCallbackError::Upgrade`]
    /// if the lease is shared.
    ///
    /// # Cancellation
    /// Dropping the future gives up the turn.
    pub async fn start_request(&self, mode: LockMode) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
        let _turn = self.turn.acquire().await.expect("nobody closes it");
        loop {
            match self.lock.start_request(mode) {
                // `Notify` stores a notification that comes between the check and the wait, so none is missed.
                Err(NestedCallbackError::NotInnermost) => self.lock.stirred.notified().await,
                done => return done,
            }
        }
    }

    /// Closes the lease: no request under it is started, or sent for the first time. The lock itself is still held.
    pub fn stop_new_requests(&self) {
        self.lock.stop_new_requests();
    }

    /// Releases the client's part. The nodes are removed when all requests under the lease are over.
    pub fn release_when_idle(&self) {
        self.stop_new_requests();
        // The guard is dropped after the mutex is released, because the drop wakes other tasks.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}

#[cfg(any(test, feature = "test-lock"))]
pub mod fixture;
#[cfg(test)]
mod tests;
