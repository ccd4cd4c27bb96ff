//! The errors that lead to a refusal: those of the crates below, and those of the gateway's own check of guards.

use fencegate_guard_client::guard_identity::GuardIdentityError;
use fencegate_guard_store::error as guard;
use fencegate_http::listen::handler;
use fencegate_http_client::upstream::pool::ConnectError;
use fencegate_idempotency::error as once;
use fencegate_lock::manager::{call_chain::NestedCallbackError, lock_manager};
use fencegate_policies::key::ExtractKeyError;

/// An error as its origin reports it. The table of reasons has a row for each of them.
#[derive(Debug, Clone, Copy)]
pub enum RefusalSourceError<'a> {
    /// A request has no key.
    Key(&'a ExtractKeyError),
    /// A request has no valid name for its operation.
    Name(&'a ExtractKeyError),
    /// A request does not validly name the principal whose operation it is.
    Principal(&'a ExtractKeyError),
    /// The input of a listener did not become a request.
    Listener(handler::RequestRejection),
    Lock(&'a lock_manager::AcquireError),
    /// The request is a callback that cannot run inside the dispatch in which it was called.
    Call(NestedCallbackError),
    /// ZooKeeper's record of operations does not admit the operation.
    Once(&'a once::AdmitOperationError),
    Guard(guard::RefusalCode),
    /// There is no connection to the upstream.
    Pool(&'a ConnectError),
    /// There is a connection, but the guard at its other end is not trusted.
    Trust(&'a GuardIdentityError),
}

impl<'a> From<&'a ConnectError> for RefusalSourceError<'a> {
    fn from(error: &'a ConnectError) -> Self {
        match error {
            ConnectError::Distrusted { why, .. } => why.downcast_ref().map_or(Self::Pool(error), Self::Trust),
            _ => Self::Pool(error),
        }
    }
}
