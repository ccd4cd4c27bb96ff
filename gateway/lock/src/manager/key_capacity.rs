//! Counts, per key, the requests and the leases of this gateway that wait for its lock or hold it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencegate_policies::key::ResourceKey;

/// The counts of all workers, in shards so that they seldom contend.
#[derive(Debug, Default)]
pub(crate) struct KeyRequestLimiter {
    shards: [Mutex<HashMap<ResourceKey, KeyRequestCounts>>; SHARDS],
}

/// The kind of holder for which a lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderKind {
    /// A request that is sent; its service may call back.
    Request,
    /// A client with a lease. The lock is held for the client, and the lease itself sends nothing.
    Client,
}

/// The counts of one key.
#[derive(Debug, Default)]
struct KeyRequestCounts {
    requests: usize,
    /// The number of leases. They take no capacity from waiting requests; they have a bound of their
    /// own, for all keys together.
    leases: usize,
}

/// The number of requests of this gateway that a key may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyCapacityLimits {
    /// Requests that hold the key at once.
    pub hold: usize,
    /// Requests that wait behind them.
    pub wait: usize,
}

const SHARDS: usize = 16;

/// The key has as many requests as its route allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyRequestLimitError;

impl KeyRequestLimiter {
    /// Takes a slot, which is released on drop. A lease always gets a slot.
    pub(crate) fn take_slot(
        self: &Arc<Self>,
        key: &ResourceKey,
        of: HolderKind,
        capacity: KeyCapacityLimits,
    ) -> Result<KeyRequestSlot, KeyRequestLimitError> {
        let mut counts = self.shard(key);
        let count = counts.entry(key.clone()).or_default();
        match of {
            HolderKind::Client => count.leases += 1,
            HolderKind::Request => {
                // Leases may hold the key, and then only the capacity for waiting is left for requests.
                let holding = count.leases.min(capacity.hold);
                let most = capacity.wait.saturating_add(capacity.hold - holding);
                if count.requests >= most {
                    return Err(KeyRequestLimitError);
                }
                count.requests += 1;
            }
        }
        Ok(KeyRequestSlot { occupancy: self.clone(), key: key.clone(), of })
    }

    /// Keys with at least one request.
    pub(crate) fn key_count(&self) -> usize {
        self.shards.iter().map(|shard| unpoisoned(shard).len()).sum()
    }

    fn shard(&self, key: &ResourceKey) -> MutexGuard<'_, HashMap<ResourceKey, KeyRequestCounts>> {
        unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS])
    }
}

/// A poisoned lock does no harm: no panic between lock and unlock can leave a count half changed.
fn unpoisoned<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slot in the capacity of a key.
#[derive(Debug)]
pub struct KeyRequestSlot {
    occupancy: Arc<KeyRequestLimiter>,
    key: ResourceKey,
    of: HolderKind,
}

impl Drop for KeyRequestSlot {
    fn drop(&mut self) {
        let mut counts = self.occupancy.shard(&self.key);
        if let Some(count) = counts.get_mut(&self.key) {
            match self.of {
                HolderKind::Client => count.leases -= 1,
                HolderKind::Request => count.requests -= 1,
            }
            if (count.requests, count.leases) == (0, 0) {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fencegate_policies::key::KeyTemplate;

    use super::*;

    fn key() -> ResourceKey {
        KeyTemplate::parse("a").expect("a literal").expand(&()).expect("short")
    }

    /// The number of requests that are admitted beside so many leases.
    fn count_requests_beside(leases: usize, capacity: KeyCapacityLimits) -> usize {
        let occupancy = Arc::<KeyRequestLimiter>::default();
        let key = key();
        let enter = |of| occupancy.take_slot(&key, of, capacity);
        let leases: Vec<_> = (0..leases).map(|_| enter(HolderKind::Client).expect("always")).collect();
        let requests: Vec<_> = (0..20).map_while(|_| enter(HolderKind::Request).ok()).collect();
        let placed = requests.len();
        drop((leases, requests));
        assert_eq!(occupancy.key_count(), 0, "nobody is there any more");
        placed
    }

    /// Leases that wait take no capacity from requests; a lease that holds takes the place of one
    /// holder.
    #[test]
    fn waiting_leases_use_no_request_capacity() {
        let capacity = KeyCapacityLimits { hold: 1, wait: 3 };
        assert_eq!([0, 1, 2, 10].map(|leases| count_requests_beside(leases, capacity)), [4, 3, 3, 3]);
        let permits = KeyCapacityLimits { hold: 3, wait: 2 };
        assert_eq!([0, 1, 3, 10].map(|leases| count_requests_beside(leases, permits)), [5, 4, 2, 2]);
    }
}
