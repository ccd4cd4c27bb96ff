//! Remembers which gateway keeps a key, so that the next request is sent on there without asking ZooKeeper.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fencegate_policies::key::ResourceKey;
use fencegate_process::clock::BootInstant;

use crate::peer_endpoint::HolderRoute;

/// The ways of all keys, in shards so that workers seldom meet.
#[derive(Debug, Default)]
pub struct HolderCache {
    shards: [Mutex<HashMap<ResourceKey, CachedRoute>>; SHARDS],
    /// Ways from which no answer came, with the time; the oldest first.
    shut: Mutex<VecDeque<(HolderRoute, BootInstant)>>,
}

#[derive(Debug)]
struct CachedRoute {
    way: HolderRoute,
    /// When ZooKeeper named it, or an answer last came from there.
    good: BootInstant,
}

const SHARDS: usize = 16;

/// Keys per shard. Further keys are looked up in ZooKeeper each time.
const MAX_KEYS_PER_SHARD: usize = 1024;

/// How long a way is used after the last answer. That is longer than a tenure lingers by default, so a key in use is
/// asked for again before.
///
/// Answers count, not questions. A frozen gateway takes requests and answers none; its peers have to ask ZooKeeper
/// again, to find the next holder.
const ROUTE_TTL: Duration = Duration::from_secs(1);

/// The most shut ways that are remembered. Each start of a gateway makes a new way, but there are fewer gateways than
/// this.
const MAX_UNREACHABLE: usize = 64;

/// About as long as the session of a dead gateway lasts. A living gateway that cannot be reached only gets fewer
/// requests from others.
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

    /// ZooKeeper names it, or an answer came from there.
    pub fn learn(&self, key: &ResourceKey, way: &HolderRoute, now: BootInstant) {
        let mut shard = self.shard(key);
        if shard.len() >= MAX_KEYS_PER_SHARD && !shard.contains_key(key) {
            shard.retain(|_, known| now.since(known.good) < ROUTE_TTL);
        }
        if shard.len() < MAX_KEYS_PER_SHARD || shard.contains_key(key) {
            shard.insert(key.clone(), CachedRoute { way: way.clone(), good: now });
        }
    }

    /// The way is of no use. A newer way of the key stays.
    pub fn forget(&self, key: &ResourceKey, way: &HolderRoute) {
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(|known| known.way == *way) {
            shard.remove(key);
        }
    }

    /// No gateway answers there, so no request is sent that way for a while, whatever ZooKeeper says. A dead gateway
    /// keeps its keys until its session is over, and each request would find that out anew.
    pub fn mark_unreachable(&self, way: &HolderRoute, now: BootInstant) {
        let mut shut = unpoisoned(&self.shut);
        shut.retain(|(known, since)| known != way && now.since(*since) < UNREACHABLE_TTL);
        if shut.len() >= MAX_UNREACHABLE {
            shut.pop_front();
        }
        shut.push_back((way.clone(), now));
        drop(shut);
        for shard in &self.shards {
            unpoisoned(shard).retain(|_, known| known.way != *way);
        }
    }

    pub fn is_unreachable(&self, way: &HolderRoute, now: BootInstant) -> bool {
        unpoisoned(&self.shut)
            .iter()
            .any(|(known, since)| known == way && now.since(*since) < UNREACHABLE_TTL)
    }

    /// The key is held here.
    pub fn remove(&self, key: &ResourceKey) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &ResourceKey) -> MutexGuard<'_, HashMap<ResourceKey, CachedRoute>> {
        unpoisoned(&self.shards[usize::from(key.shard()) % SHARDS])
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
    use crate::peer_secret::PeerSecret;
    use fencegate_process::randomness::SystemRandomness;

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

    #[test]
    fn a_way_is_known_until_no_answer_came_from_there_for_a_second() {
        let (ways, key, way) = (HolderCache::default(), key("one"), holder_route());
        ways.learn(&key, &way, millis(0));
        assert_eq!(ways.find(&key, millis(900)), Some(way.clone()));
        assert_eq!(ways.find(&key, millis(1000)), None, "asking is no answer");
        ways.learn(&key, &way, millis(1000));
        ways.learn(&key, &way, millis(1900));
        assert_eq!(ways.find(&key, millis(2800)), Some(way));
        assert_eq!(ways.find(&key, millis(2900)), None);
        assert_eq!(ways.find(&key, millis(2901)), None);
    }

    #[test]
    fn who_finds_a_way_closed_does_not_forget_a_newer_one() {
        let (ways, key, old, new) = (HolderCache::default(), key("one"), holder_route(), holder_route());
        ways.learn(&key, &old, millis(0));
        ways.learn(&key, &new, millis(1));
        ways.forget(&key, &old);
        assert_eq!(ways.find(&key, millis(2)), Some(new.clone()));
        ways.forget(&key, &new);
        assert_eq!(ways.find(&key, millis(3)), None);
    }

    #[test]
    fn a_way_without_an_answer_is_shut_for_all_keys_and_not_for_ever() {
        let (ways, dead, good) = (HolderCache::default(), holder_route(), holder_route());
        let [one, two, three] = ["one", "two", "three"].map(key);
        ways.learn(&one, &dead, millis(0));
        ways.learn(&two, &dead, millis(0));
        ways.learn(&three, &good, millis(0));
        ways.mark_unreachable(&dead, millis(100));
        let found = [&one, &two, &three].map(|key| ways.find(key, millis(101)));
        assert_eq!(found, [None, None, Some(good.clone())]);
        assert!(ways.is_unreachable(&dead, millis(5099)) && !ways.is_unreachable(&dead, millis(5100)));
        assert!(!ways.is_unreachable(&good, millis(101)), "another pass is another process");
    }

    #[test]
    fn how_many_ways_are_known_to_be_shut_is_bounded_and_the_oldest_opens_first() {
        let ways = HolderCache::default();
        let dead: Vec<_> = (0..=MAX_UNREACHABLE).map(|_| holder_route()).collect();
        dead.iter().for_each(|way| ways.mark_unreachable(way, millis(0)));
        assert_eq!(dead.iter().filter(|way| ways.is_unreachable(way, millis(1))).count(), MAX_UNREACHABLE);
        assert!(!ways.is_unreachable(&dead[0], millis(1)));
    }

    #[test]
    fn a_key_that_is_held_here_leads_nowhere_else() {
        let (ways, key) = (HolderCache::default(), key("one"));
        ways.learn(&key, &holder_route(), millis(0));
        ways.remove(&key);
        assert_eq!(ways.find(&key, millis(1)), None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_room_is_made_by_what_is_not_used() {
        let (ways, way) = (HolderCache::default(), holder_route());
        let keys: Vec<_> =
            (0..2 * SHARDS * MAX_KEYS_PER_SHARD).map(|number| key(&format!("key-{number}"))).collect();
        let known = |now| keys.iter().filter(|key| ways.find(key, now).is_some()).count();
        keys.iter().for_each(|key| ways.learn(key, &way, millis(0)));
        assert_eq!(known(millis(1)), SHARDS * MAX_KEYS_PER_SHARD);
        let late = key("late");
        ways.learn(&late, &way, millis(2));
        assert_eq!(ways.find(&late, millis(3)), None, "no room");
        ways.learn(&late, &way, millis(2000));
        assert_eq!(ways.find(&late, millis(2001)), Some(way));
    }
}
