//! The commands of workers to a session.

use std::sync::Arc;

use fencegate_idempotency::OperationAdmissionRequest;

use super::{key_slot::KeySlot, uncached_task::UncachedLockRequest};
use crate::manager::admin_query::SessionAdminCommand;

/// The commands of workers to a session.
pub(crate) enum SessionCommand {
    /// The lock of one key or of several, for one request only.
    AcquireUncached(UncachedLockRequest),
    /// A key that requests wait for and that has no task yet.
    ServeKey(Arc<KeySlot>),
    /// An operation that has to be recorded before it is sent.
    AdmitOperation(Box<OperationAdmissionRequest>),
    /// A query or a command of an operator.
    Query(SessionAdminCommand),
}
