//! The result of an attempt for a lock, and what the attempt needs to know of its callers.

use std::{future::Future, sync::Arc};

use fencegate_policies::permits::Permit;
use fencegate_process::clock::BootInstant;

use crate::{error::GrantError, peer_endpoint::HolderRoute, session::lock_validity::LockValidity};

/// The lock, granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// E of the token.
    pub epoch: u64,
    /// S of the token; 0 for a set of keys, and for a node that does not stand in line.
    pub sequence: u32,
    /// The permit that was granted, where the key has several.
    pub permit: Option<Permit>,
    pub validity: Arc<LockValidity>,
    /// Paths of the lock nodes, one per key.
    pub nodes: Arc<[String]>,
    /// Whether another contender stood before us.
    pub contended: bool,
}

/// Why an attempt ended without a grant.
#[derive(Debug)]
pub enum LockAttemptError {
    /// Nobody wants the lock any more.
    CallerGone,
    NotGranted(GrantError),
}

impl From<GrantError> for LockAttemptError {
    fn from(why: GrantError) -> Self {
        Self::NotGranted(why)
    }
}

/// The callers that wait for an attempt.
pub trait AttemptObserver {
    fn is_closed(&self) -> bool;
    /// Returns when nobody wants the lock any more.
    fn closed(&mut self) -> impl Future<Output = ()>;
    /// Another holder is before us: callers that do not wait leave here.
    fn on_waiting(&mut self) -> Result<(), LockAttemptError>;

    /// So many nodes stand before ours.
    fn on_position(&mut self, _nodes: usize) {}

    /// Nobody else holds, but the grant has to wait for a delay until then. Callers that do not wait leave here; the
    /// attempt goes on.
    fn on_delay(&mut self, _until: BootInstant) {}

    /// Whether a caller may be sent on to the holder's gateway, and does not know it yet. Each question is answered
    /// once, by [`AttemptObserver::on_holder_route`].
    fn wants_forwarding(&mut self) -> bool {
        false
    }

    /// The answer to [`AttemptObserver::wants_forwarding`]; `None` if there is no gateway to send the caller to.
    fn on_holder_route(&mut self, _: Option<HolderRoute>) -> Result<(), LockAttemptError> {
        Ok(())
    }

    /// Returns when a caller came or went.
    fn changed(&mut self) -> impl Future<Output = ()> {
        self.closed()
    }
}
