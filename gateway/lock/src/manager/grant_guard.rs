//! One request's part in a tenure: the source of tokens and of the send permission for its dispatches.

use std::{cell::Cell, fmt, sync::Arc};

use fencegate_policies::{permits::PermitIndex, plan::LockMode, token::FencingToken};
use fencegate_process::clock::SendPermission;
use fencegate_recipe::grant::LockGrant;
use fencegate_zookeeper::session::lock_validity::LockValidity;

use super::call_chain::NestedCallbackError;

/// A granted lock. Dropping it ends this request's part in the lock. So keep it until the last byte is written, and
/// call [`GrantGuard::mark_upstream_settled`] if nothing goes on upstream. Without that call nothing is ever dispatched
/// under the same lock node again.
#[derive(Debug)]
pub struct GrantGuard {
    grant: LockGrant,
    /// The number of this request's first dispatch, which identifies the request within the lock.
    first: u32,
    /// The number of this request's last dispatch, as the lock assigned it.
    number: Cell<u32>,
    /// Whether `number` was used for a dispatch.
    dispatched: Cell<bool>,
    known: Cell<bool>,
    kept: LockNodeReuse,
    lock: Arc<dyn MultiRequestLock>,
}

/// A lock that several requests use: one after the other, at the same time, or nested. Each request is identified by
/// its first dispatch number.
pub(super) trait MultiRequestLock: fmt::Debug + Send + Sync {
    /// Whether a request that was started may be sent for the first time.
    fn is_first_dispatch_allowed(&self) -> bool {
        true
    }

    /// The number of one more dispatch; `None` when the lock is closed or its numbers are used up.
    fn next_dispatch_number(&self, first: u32) -> Option<u32>;

    /// Starts a callback inside the dispatch of its caller. Returns also the mode in which the lock is held.
    fn start_callback(
        self: Arc<Self>,
        from: FencingToken,
        mode: LockMode,
    ) -> Result<(GrantGuard, LockMode), NestedCallbackError>;

    /// Stops the lock from starting anything more.
    fn retire(&self);

    /// Records that a request is over. `known`: all that it started upstream is over, too.
    fn finish_request(self: Arc<Self>, first: u32, known: bool);
}

/// Whether the lock node is kept after the end of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockNodeReuse {
    /// The node is only for this request and its callbacks.
    Never,
    /// The node stays for later requests.
    ForOthers,
}

/// One transmission of a request to the upstream under a tenure.
#[derive(Debug, Clone)]
pub struct UpstreamDispatch {
    pub token: FencingToken,
    pub validity: Arc<dyn SendPermission>,
}

impl GrantGuard {
    /// A tenure whose lock node is not kept after its request. `first`: the first dispatch number, already counted.
    pub(super) fn for_uncached(grant: LockGrant, first: u32, lock: Arc<dyn MultiRequestLock>) -> Self {
        Self::new(grant, first, LockNodeReuse::Never, lock)
    }

    /// A tenure whose lock node is kept for later requests.
    pub(super) fn for_cached(grant: LockGrant, first: u32, lock: Arc<dyn MultiRequestLock>) -> Self {
        Self::new(grant, first, LockNodeReuse::ForOthers, lock)
    }

    fn new(grant: LockGrant, first: u32, kept: LockNodeReuse, lock: Arc<dyn MultiRequestLock>) -> Self {
        let dispatched = Cell::new(false);
        let known = Cell::new(false);
        Self { grant, first, number: Cell::new(first), dispatched, known, kept, lock }
    }

    /// The next dispatch, with the next number. `None` when the tenure is closed or its numbers are used up.
    pub fn next_dispatch(&self) -> Option<UpstreamDispatch> {
        if !self.dispatched.get() && !self.lock.is_first_dispatch_allowed() {
            return None;
        }
        if self.dispatched.replace(true) {
            self.number.set(self.lock.next_dispatch_number(self.first)?);
        }
        Some(UpstreamDispatch { token: self.current_token()?, validity: self.grant.validity.clone() })
    }

    /// Paths of the lock nodes.
    pub fn node_paths(&self) -> Arc<[String]> {
        self.grant.nodes.clone()
    }

    /// The permit of the key that this tenure holds, which guards and services receive as [`ResourceKey::for_permit`].
    /// `None` if the key has one holder at a time.
    ///
    /// [`ResourceKey::for_permit`]: fencegate_policies::key::ResourceKey::for_permit
    pub fn permit(&self) -> Option<PermitIndex> {
        self.grant.permit
    }

    /// The token of the first dispatch; `None` after the first dispatch.
    pub fn predispatch_token(&self) -> Option<FencingToken> {
        let first = !self.dispatched.get();
        first.then(|| self.current_token()).flatten()
    }

    fn current_token(&self) -> Option<FencingToken> {
        FencingToken::new(self.grant.epoch, self.grant.sequence, self.number.get()).ok()
    }

    /// Records that nothing goes on upstream: the request was answered in full, or never sent.
    pub fn mark_upstream_settled(&self) {
        self.known.set(true);
    }

    /// Records that the outcome of a dispatch is unknown. From now on nothing is started under the same lock node, even
    /// before this tenure is dropped.
    pub fn retire(&self) {
        self.lock.retire();
    }

    pub fn validity(&self) -> &LockValidity {
        &self.grant.validity
    }

    pub(super) fn shared_validity(&self) -> Arc<LockValidity> {
        self.grant.validity.clone()
    }

    /// The ZooKeeper session that owns the lock.
    pub fn session_id(&self) -> i64 {
        self.grant.validity.session_id()
    }

    /// The validity of the lock, for the code that writes bytes under it.
    pub fn permission(&self) -> &dyn SendPermission {
        &*self.grant.validity
    }

    /// Whether another request of this gateway has used the lock node before.
    pub fn is_reused(&self) -> bool {
        self.kept == LockNodeReuse::ForOthers && self.number.get() > 1
    }

    /// Whether another holder was ahead in the queue.
    pub fn was_contended(&self) -> bool {
        self.grant.contended
    }
}

impl Drop for GrantGuard {
    fn drop(&mut self) {
        let known = self.known.get() || !self.dispatched.get();
        self.lock.clone().finish_request(self.first, known);
    }
}
