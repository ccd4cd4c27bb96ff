//! The commands of workers to a session.

use std::sync::Arc;

use fencegate_idempotency::OperationAdmissionRequest;

use super::{key_slot::KeySlot, uncached_task::UncachedLockRequest};
use crate::manager::admin_query::SessionAdminCommand;

/// The commands of workers to a session.
pub(crate) enum SessionCommand {
    /// A lock of one key or of several has to be acquired, for one request only.
    AcquireUncached(UncachedLockRequest),
    /// A task has to be started for a key that requests wait for.
    ServeKey(Arc<KeySlot>),
    /// An operation has to be recorded before it is sent.
    AdmitOperation(Box<OperationAdmissionRequest>),
    /// A query or a command of an operator.
    Query(SessionAdminCommand),
}
