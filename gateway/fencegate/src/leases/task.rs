//! The tasks for the thread of the leases.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    authority::Authority,
    far_question::{Question, RemoteAnswer},
    lease::Lease,
};
use crate::refusal::Refusal;

/// A task for the thread of the leases.
pub(super) enum Task {
    /// Waits for the lock of a lease.
    Take { lease: Arc<Lease>, wait: Duration },
    /// Asks the gateway whose session has this member node.
    Ask { member: String, question: Question, told: oneshot::Sender<Result<RemoteAnswer, Refusal>> },
    /// Follow the credential files of these principals, in place of the former ones.
    Follow(Authority),
}
