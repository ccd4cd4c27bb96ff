//! What the thread of the leases is given to do.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    authority::Authority,
    far_question::{Question, RemoteAnswer},
    lease::Lease,
};
use crate::refusal::Refusal;

/// One of them.
pub(super) enum Task {
    /// Waits for the lock of a lease.
    Take { lease: Arc<Lease>, wait: Duration },
    /// Asks the gateway whose session has this member node.
    Ask { member: String, question: Question, told: oneshot::Sender<Result<RemoteAnswer, Refusal>> },
    /// Looks after the files of those who may ask, instead of those before.
    Follow(Authority),
}
