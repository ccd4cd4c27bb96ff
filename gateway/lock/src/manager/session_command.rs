//! What a worker asks of a session.

use std::sync::Arc;

use super::{key_slot::KeySlot, strict::StrictRequest};
use crate::idempotency::AdmissionRequest;
use crate::manager::admin_query::AdminQuery;

/// What a worker asks of a session.
pub enum SessionCommand {
    /// The lock of one key or of several, for one request only.
    AcquireStrict(StrictRequest),
    /// A key that requests wait for, and that has no task yet.
    ServeKey(Arc<KeySlot>),
    /// An operation that has to be recorded before it is sent.
    AdmitOperation(Box<AdmissionRequest>),
    /// A question or a command of an operator.
    Query(AdminQuery),
}
