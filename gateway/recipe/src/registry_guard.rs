//! An entry of the registry: held from before a lock node is created until it is known to be gone.

use std::{cell::Cell, rc::Rc};

use fencegate_process::randomness::Guid;
use fencegate_zookeeper::{
    error::GrantError,
    limits::{MAX_SESSION_PATH_BYTES, RESERVED_PATH_BYTES},
    session::{active_session::ActiveSession, client::ZkClient},
};

/// An entry of the registry, for as long as a node of this GUID may exist.
pub(crate) struct LockNodeRegistryGuard<L: ZkClient> {
    live: Rc<ActiveSession<L>>,
    pub guid: Guid,
    /// Set if a node may be left when this is dropped. The entry then stays, so that the janitor does not remove the
    /// node.
    stays: Cell<bool>,
}

impl<L: ZkClient> LockNodeRegistryGuard<L> {
    /// Enters nodes whose paths have `bytes` in total. Waits for capacity while idle tenures are evicted to free some.
    pub(crate) async fn register(live: &Rc<ActiveSession<L>>, bytes: usize) -> Result<Self, GrantError> {
        let registry = &live.registry;
        while registry.bytes.get() + bytes > MAX_SESSION_PATH_BYTES - RESERVED_PATH_BYTES {
            let freed = registry.freed.notified();
            if registry.evict_longest_idle_tenures() == 0 {
                return Err(GrantError::KeyLimit("the session's lock paths have reached their bound"));
            }
            tokio::select! {
                () = freed => {}
                () = live.ended.cancelled() => return Err(GrantError::Lost),
            }
        }
        registry.bytes.set(registry.bytes.get() + bytes);
        Ok(Self::new(live, bytes))
    }

    /// Registers a node that replaces this one in one transaction, and so takes over its capacity.
    pub(crate) fn register_successor(&self) -> Self {
        let known = self.live.registry.guids.borrow_mut().insert(self.guid, 0);
        Self::new(&self.live, known.unwrap_or_default())
    }

    fn new(live: &Rc<ActiveSession<L>>, bytes: usize) -> Self {
        let guid = Guid::new(&*live.randomness);
        live.registry.guids.borrow_mut().insert(guid, bytes);
        Self { live: live.clone(), guid, stays: Cell::new(false) }
    }

    /// Marks that the node may still exist and hold when this is dropped, so it must not be removed before the session
    /// ends.
    pub(crate) fn retain_until_session_end(&self) {
        self.stays.set(true);
    }
}

impl<L: ZkClient> Drop for LockNodeRegistryGuard<L> {
    fn drop(&mut self) {
        let registry = &self.live.registry;
        registry.cached.borrow_mut().remove(&self.guid);
        if self.stays.get() || registry.is_closing() {
            return;
        }
        if let Some(bytes) = registry.guids.borrow_mut().remove(&self.guid) {
            registry.bytes.set(registry.bytes.get() - bytes);
            registry.freed.notify_waiters();
        }
    }
}
