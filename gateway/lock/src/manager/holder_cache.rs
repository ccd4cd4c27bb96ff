//! Caches which gateway holds a key, so that the next request is forwarded there without a request to ZooKeeper.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::BootInstant;
use fencegate_zookeeper::peer_endpoint::HolderRoute;

/// The routes to the holders of all keys, in shards so that workers seldom contend.
#[derive(Debug, Default)]
pub struct HolderCache {
    shards: [Mutex<HashMap<ResourceKey, CachedHolderRoute>>; SHARDS],
    /// Routes from which no response came, each with the time of the failure; the oldest first.
    shut: Mutex<VecDeque<(HolderRoute, BootInstant)>>,
}

#[derive(Debug)]
struct CachedHolderRoute {
    way: HolderRoute,
    /// The time at which the route was read from ZooKeeper, or at which the last response came from there.
    good: BootInstant,
}

const SHARDS: usize = 16;

/// The most keys per shard. Further keys are looked up in ZooKeeper each time.
const MAX_KEYS_PER_SHARD: usize = 1024;

/// The time for which a route is used after the last response. It is longer than a tenure lingers by default, so the
/// next request for a key in use comes before the route expires.
///
/// Only responses prolong a route, not requests. A frozen gateway accepts requests and answers none; its peers have to
/// query ZooKeeper again, to find the next holder.
const ROUTE_TTL: Duration = Duration::from_secs(1);

/// The most unreachable routes that are remembered. Each start of a gateway makes a new route, but there are fewer
/// gateways than this.
const MAX_UNREACHABLE: usize = 64;

/// The time for which an unreachable route is not used: about as long as the session of a dead gateway lasts. A live
/// gateway that cannot be reached only gets fewer requests from its peers.
const UNREACHABLE_TTL: Duration = Duration::from_secs(5);

impl HolderCache {
    pub fn find(&self, key: &ResourceKey, now: BootInstant) -> Option<HolderRoute> {
        let mut shard = self.shard(key);
        let known = shard.get(key)?;
        if now.since(known.good) >= ROUTE_TTL {
            shard.remove(key);
            return None;
        }
        Some(known.way.clone())
    }

    /// Records that ZooKeeper names this route as the holder's, or that a response came from there.
    pub(crate) fn record_route(&self, key: &ResourceKey, route: &HolderRoute, now: BootInstant) {
        let mut shard = self.shard(key);
        if shard.len() >= MAX_KEYS_PER_SHARD && !shard.contains_key(key) {
            shard.retain(|_, known| now.since(known.good) < ROUTE_TTL);
        }
        if shard.len() < MAX_KEYS_PER_SHARD || shard.contains_key(key) {
            shard.insert(key.clone(), CachedHolderRoute { way: route.clone(), good: now });
        }
    }

    /// Removes a route that led to no holder. A newer route of the key stays.
    pub(crate) fn remove_route(&self, key: &ResourceKey, route: &HolderRoute) {
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(|known| known.way == *route) {
            shard.remove(key);
        }
    }

    /// Records that no gateway answers at this route, so no request uses it for a while, even if ZooKeeper names it. A
    /// dead gateway holds its keys until its session is over, and each request would have to find out anew that it does
    /// not answer.
    pub fn mark_unreachable(&self, route: &HolderRoute, now: BootInstant) {
        let mut shut = unpoisoned(&self.shut);
        shut.retain(|(known, since)| known != route && now.since(*since) < UNREACHABLE_TTL);
        if shut.len() >= MAX_UNREACHABLE {
            shut.pop_front();
        }
        shut.push_back((route.clone(), now));
        drop(shut);
        for shard in &self.shards {
            unpoisoned(shard).retain(|_, known| known.way != *route);
        }
    }

    pub(crate) fn is_unreachable(&self, route: &HolderRoute, now: BootInstant) -> bool {
        unpoisoned(&self.shut)
            .iter()
            .any(|(known, since)| known == route && now.since(*since) < UNREACHABLE_TTL)
    }

    /// Removes the route of a key that is held here.
    pub(crate) fn clear_holder_route(&self, key: &ResourceKey) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &ResourceKey) -> MutexGuard<'_, HashMap<ResourceKey, CachedHolderRoute>> {
        unpoisoned(&self.shards[usize::from(key.lock_shard()) % SHARDS])
    }
}

/// A poisoned lock does no harm: no panic between lock and unlock can leave an entry half changed.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use fencegate_policies::key::KeyTemplate;

    use super::*;
    use fencegate_process::randomness::SystemRandomness;
    use fencegate_zookeeper::peer_secret::PeerSecret;

    fn key(name: &str) -> ResourceKey {
        KeyTemplate::parse(name).expect("a literal").expand(&()).expect("short")
    }

    fn holder_route() -> HolderRoute {
        let pass = PeerSecret::new(&SystemRandomness);
        HolderRoute {
            gateway: "gw-2".into(),
            member: "gw-2-02".into(),
            address: "gw-2:9910".into(),
            secret: pass,
        }
    }

    fn millis(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    /// A route to a holder is known until a second has passed without a response; a lookup does not prolong it.
    #[test]
    fn route_expires_one_second_after_response() {
        let cache = HolderCache::default();
        let key = key("one");
        let route = holder_route();
        cache.record_route(&key, &route, millis(0));
        assert_eq!(cache.find(&key, millis(900)), Some(route.clone()));
        assert_eq!(cache.find(&key, millis(1000)), None, "asking is no answer");
        cache.record_route(&key, &route, millis(1000));
        cache.record_route(&key, &route, millis(1900));
        assert_eq!(cache.find(&key, millis(2800)), Some(route));
        assert_eq!(cache.find(&key, millis(2900)), None);
        assert_eq!(cache.find(&key, millis(2901)), None);
    }

    /// A request that finds a route closed removes that route only, not a newer one for the key.
    #[test]
    fn forget_keeps_newer_route() {
        let cache = HolderCache::default();
        let key = key("one");
        let old = holder_route();
        let new = holder_route();
        cache.record_route(&key, &old, millis(0));
        cache.record_route(&key, &new, millis(1));
        cache.remove_route(&key, &old);
        assert_eq!(cache.find(&key, millis(2)), Some(new.clone()));
        cache.remove_route(&key, &new);
        assert_eq!(cache.find(&key, millis(3)), None);
    }

    /// A route without a response is not used for any key, for a limited time. Routes to another process of the same
    /// peer stay usable.
    #[test]
    fn unreachable_route_blocks_all_keys_temporarily() {
        let cache = HolderCache::default();
        let dead = holder_route();
        let good = holder_route();
        let [one, two, three] = ["one", "two", "three"].map(key);
        cache.record_route(&one, &dead, millis(0));
        cache.record_route(&two, &dead, millis(0));
        cache.record_route(&three, &good, millis(0));
        cache.mark_unreachable(&dead, millis(100));
        let found = [&one, &two, &three].map(|key| cache.find(key, millis(101)));
        assert_eq!(found, [None, None, Some(good.clone())]);
        assert!(cache.is_unreachable(&dead, millis(5099)) && !cache.is_unreachable(&dead, millis(5100)));
        assert!(!cache.is_unreachable(&good, millis(101)), "another pass is another process");
    }

    /// At most `MAX_UNREACHABLE` unreachable routes are remembered; the oldest is dropped first.
    #[test]
    fn unreachable_routes_are_bounded() {
        let cache = HolderCache::default();
        let dead: Vec<_> = (0..=MAX_UNREACHABLE).map(|_| holder_route()).collect();
        dead.iter().for_each(|route| cache.mark_unreachable(route, millis(0)));
        assert_eq!(
            dead.iter().filter(|route| cache.is_unreachable(route, millis(1))).count(),
            MAX_UNREACHABLE
        );
        assert!(!cache.is_unreachable(&dead[0], millis(1)));
    }

    #[test]
    fn locally_held_key_has_no_route() {
        let cache = HolderCache::default();
        let key = key("one");
        cache.record_route(&key, &holder_route(), millis(0));
        cache.clear_holder_route(&key);
        assert_eq!(cache.find(&key, millis(1)), None);
    }

    /// The cache is bounded; when it is full, a new route is stored only after routes that are not used any more have
    /// expired.
    #[test]
    fn full_cache_replaces_expired_routes() {
        let cache = HolderCache::default();
        let route = holder_route();
        let keys: Vec<_> =
            (0..2 * SHARDS * MAX_KEYS_PER_SHARD).map(|number| key(&format!("key-{number}"))).collect();
        let known = |now| keys.iter().filter(|key| cache.find(key, now).is_some()).count();
        keys.iter().for_each(|key| cache.record_route(key, &route, millis(0)));
        assert_eq!(known(millis(1)), SHARDS * MAX_KEYS_PER_SHARD);
        let late = key("late");
        cache.record_route(&late, &route, millis(2));
        assert_eq!(cache.find(&late, millis(3)), None, "no room");
        cache.record_route(&late, &route, millis(2000));
        assert_eq!(cache.find(&late, millis(2001)), Some(route));
    }
}
