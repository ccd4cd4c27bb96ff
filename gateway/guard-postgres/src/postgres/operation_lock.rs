//! The right to decide over an operation.

use std::{mem, sync::Arc};

use fencegate_policies::operation::OperationId;
use fencegate_process::randomness::Guid;

use super::{
    admit_reply::ChangeFuture,
    name_registry::{OwnedRowHandle, OwnedRowRefCounts},
};

/// The right to decide over an operation, valid for all guards of the store. It is released when it is dropped.
pub struct PostgresOperationLock {
    pub(super) id: OperationLockIdentity,
    /// The queue of requests through which the lock is released; `None` if a statement of the caller releases
    /// it.
    releaser: Option<Arc<dyn OperationLockReleaser>>,
}

/// Releases locks, in the background.
pub(super) trait OperationLockReleaser: Send + Sync {
    fn release(&self, lock: OperationLockIdentity);
}

/// The identity of one lock: a later lock of the same operation has another one.
#[derive(Debug, Clone)]
pub(super) struct OperationLockIdentity {
    pub(super) id: OperationId,
    holder: Arc<OwnedRowHandle>,
}

/// The reply to a request for the lock.
pub enum OperationLockReply {
    Acquired(PostgresOperationLock),
    /// Another request holds the lock. Try again when notified.
    Held(ChangeFuture),
}

/// The result of a write under a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalWriteOutcome {
    Durable,
    /// Nothing was changed: another guard has declared this one dead, and has taken over the lock.
    NotHeld,
}

impl OperationLockIdentity {
    pub(super) fn new(id: OperationId, holder: Guid, names: &Arc<OwnedRowRefCounts>) -> Self {
        Self { id, holder: Arc::new(names.register_row_name(holder)) }
    }

    pub(super) fn holder(&self) -> Guid {
        self.holder.name()
    }
}

impl PostgresOperationLock {
    pub(super) fn new(lock: OperationLockIdentity, back: Arc<dyn OperationLockReleaser>) -> Self {
        Self { id: lock, releaser: Some(back) }
    }

    pub fn id(&self) -> OperationId {
        self.id.id
    }

    /// Gives up the lock without a release of its own, because the caller's next statement releases it.
    pub(super) fn into_id(mut self) -> OperationLockIdentity {
        drop(mem::take(&mut self.releaser));
        self.id.clone()
    }
}

impl Drop for PostgresOperationLock {
    fn drop(&mut self) {
        if let Some(back) = self.releaser.take() {
            back.release(self.id.clone());
        }
    }
}
