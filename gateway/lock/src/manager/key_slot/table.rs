//! All keys that requests of this gateway want or hold, in shards so that workers seldom contend.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fencegate_policies::{
    key::ResourceKey,
    plan::{LockLocation, LockMode},
    token::FencingToken,
};
use fencegate_process::{clock::SharedClock, sync::Mutex};
use fencegate_zookeeper::peer_endpoint::HolderRoute;

use super::{EnterLocalQueueOutcome, KeySlot, LocalLockRequest, unpoisoned};
use crate::manager::lock_request::LockWaitPlace;
use crate::manager::{
    call_chain::NestedCallbackError,
    ended_sessions::EndedPeerSessions,
    grant_guard::{GrantGuard, MultiRequestLock},
    holder_cache::HolderCache,
};

/// The slots of all keys that requests of this gateway want or hold.
pub(crate) struct KeySlotTable {
    shards: [Mutex<HashMap<ResourceKey, Arc<KeySlot>>>; SHARDS],
    /// Caches which peer holds a key.
    pub holder_cache: HolderCache,
    /// Sessions of peers that have ended.
    pub ended_sessions: Arc<EndedPeerSessions>,
    clock: SharedClock,
}

/// Many shards, so that workers seldom wait for one lock.
const SHARDS: usize = 64;

impl KeySlotTable {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self { shards, holder_cache: HolderCache::default(), ended_sessions: Arc::default(), clock }
    }

    /// Enters a request for `key`. If the key is held here and free, the request starts at once.
    pub(crate) fn enter_queue(
        &self,
        key: &ResourceKey,
        site: &LockLocation,
        wants: LocalLockRequest<'_>,
    ) -> EnterLocalQueueOutcome {
        let mut shard = unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS]);
        if shard.get(key).is_none_or(|slot| slot.site != *site) {
            if wants.waits == LockWaitPlace::AtHolder {
                return EnterLocalQueueOutcome::NotHolder;
            }
            let slot = Arc::new(KeySlot::new(key.clone(), site.clone(), self.clock.clone()));
            if let Some(moved) = shard.insert(key.clone(), slot) {
                // A new plan has the lock at another site. Requests under the old lock go on, but no new request
                // begins under it.
                moved.close_held_and_pending();
            }
        }
        let slot = shard.get(key).expect("just made where missing");
        slot.enter_queue(wants)
    }

    /// The route to another gateway that holds the key, if one is known.
    pub(crate) fn holder_route(&self, key: &ResourceKey) -> Option<HolderRoute> {
        self.holder_cache.find(key, self.clock.now())
    }

    pub(in crate::manager) fn mark_unreachable(&self, route: &HolderRoute) {
        self.holder_cache.mark_unreachable(route, self.clock.now());
    }

    pub(in crate::manager) fn is_unreachable(&self, route: &HolderRoute) -> bool {
        self.holder_cache.is_unreachable(route, self.clock.now())
    }

    pub(in crate::manager) fn record_holder(&self, key: &ResourceKey, route: &HolderRoute) {
        self.holder_cache.record_route(key, route, self.clock.now());
    }

    /// Starts a request under a key that is held here and free; creates nothing and never waits.
    pub(crate) fn start_if_free(
        &self,
        key: &ResourceKey,
        site: &LockLocation,
        mode: LockMode,
        route: &Arc<str>,
    ) -> Option<GrantGuard> {
        let shard = unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS]);
        let slot = shard.get(key).filter(|slot| slot.site == *site)?;
        let mut entry = slot.lock_state();
        let started = entry
            .queue
            .start_if_free(mode, self.clock.now(), |grant| grant.validity.is_valid_at(self.clock.now()))?;
        entry.set_policy_route(route);
        drop(entry);
        Some(slot.grant_guard(started))
    }

    /// Starts a callback inside the dispatch of its caller. Also returns the mode in which the key is held.
    pub(in crate::manager) fn start_callback(
        &self,
        key: &ResourceKey,
        from: FencingToken,
        mode: LockMode,
    ) -> Result<(GrantGuard, LockMode), NestedCallbackError> {
        self.slot(key).ok_or(NestedCallbackError::NotHeld)?.start_callback(from, mode)
    }

    /// The slots of all keys greater than `after`, in no order. Each shard is locked only while its keys are listed.
    pub(in crate::manager) fn slots(&self, after: Option<&ResourceKey>) -> Vec<Arc<KeySlot>> {
        let mut slots = Vec::new();
        for shard in &self.shards {
            let shard = unpoisoned(shard);
            slots.extend(shard.values().filter(|slot| after.is_none_or(|after| slot.key > *after)).cloned());
        }
        slots
    }

    pub(in crate::manager) fn slot(&self, key: &ResourceKey) -> Option<Arc<KeySlot>> {
        unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS]).get(key).cloned()
    }

    /// Whether the key is held, here or by another process, as far as is known.
    pub(crate) fn is_key_blocked(&self, key: &ResourceKey) -> bool {
        let shard = unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS]);
        shard.get(key).is_some_and(|slot| {
            let entry = slot.lock_state();
            let rests = entry.standing.remaining_grant_delay(self.clock.now()).is_some();
            rests || entry.standing.is_behind_remote() || entry.queue.in_flight_count() > 0
        })
    }

    /// The rest of a handover delay of the key; `None` if there is none.
    pub(in crate::manager) fn remaining_delay(&self, key: &ResourceKey) -> Option<Duration> {
        let shard = unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS]);
        let slot = shard.get(key)?;
        slot.lock_state().standing.remaining_grant_delay(self.clock.now())
    }

    /// Removes the slot of a key if no request wants it any more; then its task ends.
    pub(crate) fn remove_if_idle(&self, slot: &Arc<KeySlot>) -> bool {
        // The table is locked before the slot, as in all other places, so that a request cannot find a slot that is
        // half removed.
        let mut shard = unpoisoned(&self.shards[usize::from(slot.key.lock_shard()) % SHARDS]);
        let mut entry = slot.lock_state();
        let leaves = entry.queue.try_end_task();
        if leaves {
            entry.removed = true;
            if shard.get(&slot.key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
                shard.remove(&slot.key);
            }
        }
        leaves
    }

    /// Closes every tenure that is held now, and every one that a waiting node gets later: nothing more is started
    /// under them. The next request gets a newer token.
    pub(crate) fn close_all_tenures(&self) {
        for shard in &self.shards {
            for slot in unpoisoned(shard).values() {
                slot.close_held_and_pending();
            }
        }
    }

    /// The number of keys that requests of this gateway want or hold.
    pub(crate) fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| unpoisoned(shard).len()).sum()
    }
}
