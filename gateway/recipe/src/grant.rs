//! The result of a lock attempt, and the attempt's interface to its callers.

use std::{future::Future, sync::Arc};

use fencegate_policies::permits::PermitIndex;
use fencegate_process::clock::BootInstant;
use fencegate_zookeeper::{
    error::GrantError, peer_endpoint::HolderRoute, session::lock_validity::LockValidity,
};

/// A granted lock.
#[derive(Debug, Clone)]
pub struct LockGrant {
    /// The epoch of the token.
    pub epoch: u64,
    /// The sequence of the token; 0 for a set of keys, and for a node without a queue.
    pub sequence: u32,
    /// The permit that was granted, if the key has several.
    pub permit: Option<PermitIndex>,
    pub validity: Arc<LockValidity>,
    /// Paths of the lock nodes, one per key.
    pub nodes: Arc<[String]>,
    /// Whether another contender was ahead.
    pub contended: bool,
}

/// The reason for which an attempt ended without a grant.
#[derive(Debug)]
pub enum LockAttemptError {
    /// No caller wants the lock any more.
    CallerGone,
    NotGranted(GrantError),
}

impl From<GrantError> for LockAttemptError {
    fn from(error: GrantError) -> Self {
        Self::NotGranted(error)
    }
}

/// The callers that wait for an attempt.
pub trait LockAttemptObserver {
    fn is_closed(&self) -> bool;
    /// Returns when no caller wants the lock any more.
    fn closed(&mut self) -> impl Future<Output = ()>;
    /// Reports that another holder is ahead. Callers that do not wait leave here. Returns an error if no caller is
    /// left.
    fn on_waiting(&mut self) -> Result<(), LockAttemptError>;

    /// Reports the number of nodes ahead in the queue.
    fn on_position(&mut self, _nodes: usize) {}

    /// Reports that there is no other holder, but that the grant has to wait for a delay until `_until`. Callers that
    /// do not wait leave here; the attempt goes on.
    fn on_delay(&mut self, _until: BootInstant) {}

    /// Whether a caller may be forwarded to the holder's gateway, and has no route yet. Each call that returns true is
    /// answered once, by [`LockAttemptObserver::on_holder_route`].
    fn wants_forwarding(&mut self) -> bool {
        false
    }

    /// The answer to [`LockAttemptObserver::wants_forwarding`]; `None` if there is no gateway to forward the caller to.
    fn on_holder_route(&mut self, _: Option<HolderRoute>) -> Result<(), LockAttemptError> {
        Ok(())
    }

    /// Returns when a caller came or left.
    fn wait_callers_changed(&mut self) -> impl Future<Output = ()> {
        self.closed()
    }
}
