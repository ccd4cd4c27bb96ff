//! The commands to the thread of the leases.

use std::{sync::Arc, time::Duration};

use fencegate_refusal::Refusal;
use tokio::sync::oneshot;

use super::{
    auth::LeaseAuth,
    lease::Lease,
    peer_client::{PeerRequest, PeerResponse},
};

/// A command to the thread of the leases.
pub(super) enum LeaseThreadCommand {
    /// Waits for the lock of a lease.
    Acquire { lease: Arc<Lease>, wait: Duration },
    /// Queries the gateway whose session has this member node.
    AskPeer { member: String, request: PeerRequest, reply: oneshot::Sender<Result<PeerResponse, Refusal>> },
    /// Watches the credential files of these principals, in place of the former ones.
    FollowCredentials(LeaseAuth),
}
