//! Knows every lock node that one session has or may have, and how many bytes their paths take.
//!
//! Closing a session is one transaction that names all its nodes; where that grows past the server's buffer the whole
//! ensemble fails to start again (ZOOKEEPER-4306). So the sum of the paths is bounded.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::{Arc, Weak},
};

use fencegate_process::randomness::Guid;
use tokio::sync::Notify;

use super::{grant::NotGranted, parents::Parents};
use crate::session::{link::Link, live::Live};
use crate::tenures::slot::Slot;

/// Bytes of lock paths in one session. ZooKeeper's default buffer is 1 MiB; 1.4 MB of paths was survived.
pub const MOST_BYTES: usize = 512 * 1024;

/// Name, mark, and number of a lock node below its parent, with the slash.
const NAME_BYTES: usize = 46;

/// The nodes of one session.
#[derive(Default)]
pub struct Registry {
    /// Entered before a create is sent, left after the delete is settled. The janitor removes every other node.
    guids: RefCell<HashMap<Guid, usize>>,
    bytes: Cell<usize>,
    /// Slots with a cached tenure, to make room from.
    cached: RefCell<HashMap<Guid, Weak<Slot>>>,
    /// Some bytes were given back.
    freed: Notify,
    /// What stands above the nodes.
    pub parents: Parents,
    /// The session is about to be closed, and all its nodes go with it in one transaction.
    closing: Cell<bool>,
}

impl Registry {
    pub fn contains(&self, guid: &Guid) -> bool {
        self.guids.borrow().contains_key(guid)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub fn nodes(&self) -> usize {
        self.guids.borrow().len()
    }

    /// A tenure that may be ended to make room, while it is idle.
    pub fn cached(&self, guid: Guid, slot: &Arc<Slot>) {
        self.cached.borrow_mut().insert(guid, Arc::downgrade(slot));
    }

    /// From here on nodes are left to the end of the session, which is about to be closed: every idle tenure ends, and
    /// nobody waits for one removal after the other.
    pub fn leave_to_close(&self) {
        self.closing.set(true);
        for slot in self.cached.borrow().values().filter_map(Weak::upgrade) {
            slot.evict();
        }
    }

    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Asks the tenures that have been idle longest to end; how many were asked.
    fn make_room(&self) -> usize {
        let slots: Vec<_> = self.cached.borrow().values().filter_map(Weak::upgrade).collect();
        let mut idle: Vec<_> = slots.iter().filter_map(|slot| Some((slot.idle_since()?, slot))).collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        // Some at a time: looking through all of them for each new node would cost more than the nodes.
        let enough = idle.len().div_ceil(8);
        idle.into_iter().take(enough).filter(|(_, slot)| slot.evict()).count()
    }
}

/// An entry of the registry, for as long as a node of this GUID may exist.
pub struct Registered<L: Link> {
    live: Rc<Live<L>>,
    pub guid: Guid,
    /// A node may be left when this is dropped: then nobody else is to remove it, as when the session is about to go.
    stays: Cell<bool>,
}

impl<L: Link> Registered<L> {
    /// For a node below each of `parents`, which are so many bytes long. Waits for room while idle tenures make some.
    pub async fn enter(
        live: &Rc<Live<L>>,
        parents: impl IntoIterator<Item = usize>,
    ) -> Result<Self, NotGranted> {
        let bytes = parents.into_iter().map(|parent| parent + NAME_BYTES).sum::<usize>();
        let registry = &live.registry;
        while registry.bytes.get() + bytes > MOST_BYTES {
            let freed = registry.freed.notified();
            if registry.make_room() == 0 {
                return Err(NotGranted::KeyLimit("the session's lock paths have reached their bound"));
            }
            tokio::select! {
                () = freed => {}
                () = live.over.cancelled() => return Err(NotGranted::Lost),
            }
        }
        registry.bytes.set(registry.bytes.get() + bytes);
        Ok(Self::with(live, bytes))
    }

    /// For a node that takes the place of this one in one transaction, and its bytes as well: there is room for it.
    pub fn succeed(&self) -> Self {
        let known = self.live.registry.guids.borrow_mut().insert(self.guid, 0);
        Self::with(&self.live, known.unwrap_or_default())
    }

    fn with(live: &Rc<Live<L>>, bytes: usize) -> Self {
        let guid = Guid::new(&*live.randomness);
        live.registry.guids.borrow_mut().insert(guid, bytes);
        Self { live: live.clone(), guid, stays: Cell::new(false) }
    }

    /// Whatever becomes of this, its node may be there and may hold: it is nobody's to remove before the session ends.
    pub fn stays(&self) {
        self.stays.set(true);
    }
}

impl<L: Link> Drop for Registered<L> {
    fn drop(&mut self) {
        let registry = &self.live.registry;
        registry.cached.borrow_mut().remove(&self.guid);
        if self.stays.get() || registry.closing.get() {
            return;
        }
        if let Some(bytes) = registry.guids.borrow_mut().remove(&self.guid) {
            registry.bytes.set(registry.bytes.get() - bytes);
            registry.freed.notify_waiters();
        }
    }
}
