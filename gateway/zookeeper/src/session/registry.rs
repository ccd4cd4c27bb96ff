//! Registers every lock node that one session has or may have, and how many bytes their paths take.
//!
//! Closing a session is one transaction that names all its nodes. If that outgrows the server's buffer, the whole
//! ensemble fails to start again (ZOOKEEPER-4306). So the sum of the paths is bounded.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{Arc, Weak},
};

use fencegate_process::{clock::BootInstant, randomness::Guid};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::parent_cache::ParentNodeCache;

/// A cached tenure, which can be ended while it is idle.
pub trait Evictable {
    /// The time since which the tenure is idle; `None` while it is in use.
    fn idle_since(&self) -> Option<BootInstant>;

    /// Ends the tenure unless it is in use. True if it ends.
    fn evict_if_idle(&self) -> bool;
}

/// The lock nodes that one session has or may have.
#[derive(Default)]
pub struct LockNodeRegistry {
    /// The path bytes of each attempt, by its GUID. An attempt enters here before its create is sent, and leaves after
    /// its delete is settled. The janitor removes every node whose GUID is not here.
    pub guids: RefCell<HashMap<Guid, usize>>,
    pub bytes: Cell<usize>,
    /// Cached tenures, which can be ended to free capacity.
    pub cached: RefCell<HashMap<Guid, Weak<dyn Evictable>>>,
    /// Notified when bytes were released.
    pub freed: Notify,
    /// The parents of the nodes.
    pub parents: ParentNodeCache,
    /// Cancelled when the session is about to be closed. The server then removes all its nodes in one transaction.
    pub closing: CancellationToken,
}

impl LockNodeRegistry {
    pub fn contains(&self, guid: &Guid) -> bool {
        self.guids.borrow().contains_key(guid)
    }

    pub fn path_bytes(&self) -> usize {
        self.bytes.get()
    }

    pub fn node_count(&self) -> usize {
        self.guids.borrow().len()
    }

    /// Registers a tenure that may be ended to free capacity, while it is idle.
    pub fn register_evictable(&self, guid: Guid, kept: &Arc<impl Evictable + 'static>) {
        let kept = Arc::downgrade(kept);
        self.cached.borrow_mut().insert(guid, kept);
    }

    /// Ends every idle tenure without removing its node: the session is about to be closed, and all nodes go with it at
    /// once.
    pub fn end_tenures_before_close(&self) {
        self.closing.cancel();
        self.evict_idle_tenures();
    }

    /// Ends every idle tenure.
    pub fn evict_idle_tenures(&self) {
        for slot in self.cached.borrow().values().filter_map(Weak::upgrade) {
            slot.evict_if_idle();
        }
    }

    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Returns when the session is about to be closed.
    pub async fn wait_closing(&self) {
        self.closing.cancelled().await;
    }

    /// Requests the end of the tenures that have been idle longest. Returns their number.
    pub fn evict_longest_idle_tenures(&self) -> usize {
        let slots: Vec<_> = self.cached.borrow().values().filter_map(Weak::upgrade).collect();
        let mut idle: Vec<_> = slots.iter().filter_map(|slot| Some((slot.idle_since()?, slot))).collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        // Several tenures are ended at a time, because a scan of all tenures for each new node would be too slow.
        let enough = idle.len().div_ceil(8);
        idle.into_iter().take(enough).filter(|(_, slot)| slot.evict_if_idle()).count()
    }
}
