//! Counts, per key, the requests of this gateway that wait for its lock or hold it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fencegate_policies::key::ResourceKey;

/// The counts of all workers, in shards so that they seldom meet.
#[derive(Debug, Default)]
pub struct Occupancy {
    shards: [Mutex<HashMap<ResourceKey, usize>>; SHARDS],
}

const SHARDS: usize = 16;

/// The key has as many requests as its route allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Occupancy {
    /// Takes a place behind at most `most` others; dropping it gives it up.
    pub fn enter(self: &Arc<Self>, key: &ResourceKey, most: usize) -> Result<Occupant, Full> {
        let mut counts = self.shard(key);
        let count = counts.entry(key.clone()).or_default();
        // `most` may wait behind the one that holds.
        if *count > most {
            return Err(Full);
        }
        *count += 1;
        Ok(Occupant { occupancy: self.clone(), key: key.clone() })
    }

    /// Keys with at least one request.
    pub fn keys(&self) -> usize {
        self.shards.iter().map(|shard| unpoisoned(shard).len()).sum()
    }

    fn shard(&self, key: &ResourceKey) -> MutexGuard<'_, HashMap<ResourceKey, usize>> {
        unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS])
    }
}

/// Nothing between lock and unlock can leave a count half changed.
fn unpoisoned<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the queue of a key.
#[derive(Debug)]
pub struct Occupant {
    occupancy: Arc<Occupancy>,
    key: ResourceKey,
}

impl Drop for Occupant {
    fn drop(&mut self) {
        let mut counts = self.occupancy.shard(&self.key);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}
