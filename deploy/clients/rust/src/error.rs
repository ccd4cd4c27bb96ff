//! The errors of requesting and releasing a lease. None of them means that a request was sent to a service.

use std::time::Duration;

use crate::{gateway_connection::Unanswered, lease_state::LeaseLostError};

/// The error of [`Client::lease`](crate::Client::lease). No request was dispatched to any service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Another holder has a key. Try again later, or with a longer wait.
    #[error("another holder has a key of {keys:?}, and the wait for it is over; nothing was dispatched")]
    Locked { keys: Vec<String> },
    /// The gateway has refused the request. `reason`: one of the reasons in `deploy/docs/PROBLEMS.md`; `detail`: a
    /// sentence for people. With the reason `in-progress` an earlier request of the same name still waited when the
    /// time for this one was over; a lease that it may be granted ends after its ttl.
    #[error("the gateway refused the lease with {status} `{reason}`: {detail}; nothing was dispatched")]
    Refused { status: u16, reason: String, detail: String, retry_after: Option<Duration> },
    /// There was no answer, but the gateway may have granted a lease. Such a lease holds its keys until it ends after
    /// its ttl.
    #[error(
        "no gateway answered the request for a lease; nothing was dispatched, and a lease granted without an \
         answer ends after its ttl"
    )]
    Unanswered(#[source] Unanswered),
    /// The lease ended while it waited in the queue. `why`: the reason that the gateway gives.
    #[error("the lease was over before it was granted: {why}; nothing was dispatched")]
    Over { why: String },
    /// The lease was granted, but its time ended before it could be renewed. It was released.
    #[error("the lease was over before it could be used; nothing was dispatched")]
    TooLate(#[source] LeaseLostError),
}

/// The release of a lease was not confirmed. If the lease was not released, it ends by itself after its ttl. Its holder
/// has stopped already.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    #[error("no gateway answered the release of the lease; it ends by itself after its ttl")]
    Unanswered(#[source] Unanswered),
    #[error(
        "the gateway refused the release of the lease with {status} `{reason}`; it ends by itself after its ttl"
    )]
    Refused { status: u16, reason: String },
    /// The tokio runtime whose task renews the lease has ended.
    #[error("the client had ended before the lease was released; it ends by itself after its ttl")]
    Abandoned,
}
