//! All keys that anybody here wants or holds, in shards so that workers seldom meet.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockSite, Mode},
    token::Token,
};
use fencegate_process::{clock::SharedClock, sync::Mutex};

use super::{Entered, Slot, Wants, unpoisoned};
use crate::tenures::wish::Waits;
use crate::{
    reach::Way,
    tenures::{
        chain::NotInside,
        tenure::{Shared, Tenure},
        ways::Ways,
    },
};

/// All keys that anybody here wants or holds.
pub struct Table {
    shards: [Mutex<HashMap<ResourceKey, Arc<Slot>>>; SHARDS],
    /// Which other gateway keeps a key.
    pub ways: Ways,
    clock: SharedClock,
}

/// So that workers seldom meet at one lock.
const SHARDS: usize = 64;

impl Table {
    pub fn new(clock: SharedClock) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), ways: Ways::default(), clock }
    }

    /// A request wants `key`. Where the key is held here and free, this is all that it takes.
    pub fn enter(&self, key: &ResourceKey, site: &LockSite, wants: Wants<'_>) -> Entered {
        let mut shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        if shard.get(key).is_none_or(|slot| slot.site != *site) {
            if wants.waits == Waits::AtHolder {
                return Entered::NotHere;
            }
            let slot = Arc::new(Slot::new(key.clone(), site.clone(), self.clock.clone()));
            if let Some(moved) = shard.insert(key.clone(), slot) {
                // Another plan has the lock elsewhere. What runs under the old one ends with it, and nothing more begins.
                moved.outdate();
            }
        }
        let slot = shard.get(key).expect("just made where missing");
        slot.enter(wants)
    }

    /// The gateway that keeps the key, as far as is known, if that is another one.
    pub fn way(&self, key: &ResourceKey) -> Option<Way> {
        self.ways.find(key, self.clock.now())
    }

    pub(in crate::tenures) fn shut(&self, way: &Way) {
        self.ways.shut(way, self.clock.now());
    }

    pub(in crate::tenures) fn is_shut(&self, way: &Way) -> bool {
        self.ways.is_shut(way, self.clock.now())
    }

    pub(in crate::tenures) fn learn(&self, key: &ResourceKey, way: &Way) {
        self.ways.learn(key, way, self.clock.now());
    }

    /// The tenure of a key that is held here and free; nothing is made and nobody waits.
    pub fn take_free(
        &self,
        key: &ResourceKey,
        site: &LockSite,
        mode: Mode,
        route: &Arc<str>,
    ) -> Option<Tenure> {
        let shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        let slot = shard.get(key).filter(|slot| slot.site == *site)?;
        let mut entry = slot.entry();
        let started =
            entry.queue.start_free(mode, self.clock.now(), |grant| grant.evidence.holds(self.clock.now()))?;
        entry.is_of(route);
        drop(entry);
        Some(slot.tenure(started))
    }

    /// Starts a request inside the dispatch that has called it, and says how that holds the key.
    pub(in crate::tenures) fn call(
        &self,
        key: &ResourceKey,
        from: Token,
        mode: Mode,
    ) -> Result<(Tenure, Mode), NotInside> {
        self.slot(key).ok_or(NotInside::NotHere)?.call(from, mode)
    }

    /// Every key that comes after `after`, in no order; each shard is held for as long as it takes to count its keys.
    pub(in crate::tenures) fn slots(&self, after: Option<&ResourceKey>) -> Vec<Arc<Slot>> {
        let mut slots = Vec::new();
        for shard in &self.shards {
            let shard = unpoisoned(shard);
            slots.extend(shard.values().filter(|slot| after.is_none_or(|after| slot.key > *after)).cloned());
        }
        slots
    }

    pub(in crate::tenures) fn slot(&self, key: &ResourceKey) -> Option<Arc<Slot>> {
        unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]).get(key).cloned()
    }

    /// Somebody holds the key, here or elsewhere, as far as is known.
    pub fn is_taken(&self, key: &ResourceKey) -> bool {
        let shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        shard.get(key).is_some_and(|slot| {
            let entry = slot.entry();
            let rests = entry.standing.rest(self.clock.now()).is_some();
            rests || entry.standing.is_behind() || entry.queue.in_flight() > 0
        })
    }

    /// For so long a delay is sat out here yet; `None` where none is.
    pub(in crate::tenures) fn rest(&self, key: &ResourceKey) -> Option<Duration> {
        let shard = unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS]);
        let slot = shard.get(key)?;
        slot.entry().standing.rest(self.clock.now())
    }

    /// Forgets the key if nobody wants it any more; then its task ends.
    pub fn leave(&self, slot: &Arc<Slot>) -> bool {
        // The table first, as everywhere: a request that finds the slot must not find it half gone.
        let mut shard = unpoisoned(&self.shards[usize::from(slot.key.shard()) % SHARDS]);
        let mut entry = slot.entry();
        let leaves = entry.queue.leave();
        if leaves {
            entry.removed = true;
            if shard.get(&slot.key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
                shard.remove(&slot.key);
            }
        }
        leaves
    }

    /// Nothing more is started under any tenure that is held now, or comes of a node that waits now: whoever comes next
    /// gets a newer token.
    pub fn close_all(&self) {
        for shard in &self.shards {
            for slot in unpoisoned(shard).values() {
                slot.outdate();
            }
        }
    }

    /// Keys that somebody here wants or holds.
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|shard| unpoisoned(shard).len()).sum()
    }
}
