//! Counts the connections, requests and heads of each client, over all workers, so that no client exceeds its quota.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// One client: an IPv4 address, or an IPv6 network, because the owner of an IPv6 network has all its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(IpAddr);

/// The client for which a route counts a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuotaClientIdentity {
    Address(ClientId),
    /// The verified identity of the client.
    Name(Arc<str>),
}

/// The key of one count: a client, and the resource that is counted for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClientQuotaKey {
    client: QuotaClientIdentity,
    kind: ClientCounterKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ClientCounterKind {
    Connection,
    InFlight,
    /// Requests of the route with this name that wait for or hold keys.
    Route(Arc<str>),
    /// Bytes of heads of requests.
    Heads,
}

/// The counts of one process, shared by its workers. A client whose counts are zero has no entry.
#[derive(Debug, Clone, Default)]
pub struct ClientQuotas(Arc<ShardedQuotaCounters>);

/// The counts, in shards, so that workers that count different clients rarely wait for the same mutex.
#[derive(Debug, Default)]
struct ShardedQuotaCounters {
    /// The hasher has a random key, so that no client can choose addresses that collide.
    hasher: RandomState,
    shards: [Mutex<HashMap<ClientQuotaKey, usize, RandomState>>; 32],
}

/// Counts a connection, a request or some bytes for a client, until it is dropped.
#[derive(Debug)]
pub struct ClientQuotaPermit {
    counters: Arc<ShardedQuotaCounters>,
    key: ClientQuotaKey,
    count: usize,
}

impl ClientId {
    pub fn from_ip(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & (u128::MAX << 64);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            address => address,
        })
    }
}

impl ClientQuotas {
    /// Counts one more request in flight; `None` if the client already has `most`.
    pub fn acquire_request(&self, client: ClientId, most: usize) -> Option<ClientQuotaPermit> {
        self.acquire(ClientQuotaKey::for_address(client, ClientCounterKind::InFlight), most)
    }

    /// Counts one more connection; `None` if the client already has `most`.
    pub(crate) fn acquire_connection(&self, client: ClientId, most: usize) -> Option<ClientQuotaPermit> {
        self.acquire(ClientQuotaKey::for_address(client, ClientCounterKind::Connection), most)
    }

    /// Counts one more request that waits for or holds keys of a route; `None` if the client already has `most`.
    /// Routes are identified by their names, which stay the same when a plan is changed.
    pub fn acquire_route(
        &self,
        client: QuotaClientIdentity,
        route: Arc<str>,
        most: usize,
    ) -> Option<ClientQuotaPermit> {
        self.acquire(ClientQuotaKey { client, kind: ClientCounterKind::Route(route) }, most)
    }

    /// Makes a permit for the head bytes of a client, with a count of zero.
    pub(crate) fn acquire_heads(&self, client: ClientId) -> ClientQuotaPermit {
        ClientQuotaPermit {
            counters: self.0.clone(),
            key: ClientQuotaKey::for_address(client, ClientCounterKind::Heads),
            count: 0,
        }
    }

    fn acquire(&self, whose: ClientQuotaKey, most: usize) -> Option<ClientQuotaPermit> {
        let mut share = ClientQuotaPermit { counters: self.0.clone(), key: whose, count: 0 };
        share.resize(1, most).then_some(share)
    }
}

impl ClientQuotaKey {
    fn for_address(client: ClientId, kind: ClientCounterKind) -> Self {
        Self { client: QuotaClientIdentity::Address(client), kind }
    }
}

impl ClientQuotaPermit {
    /// Sets the count. Returns `false` and changes nothing if the client would then have more than `most`.
    #[must_use]
    pub(crate) fn resize(&mut self, count: usize, most: usize) -> bool {
        if count == self.count {
            return true;
        }
        let mut counts = self.counters.shard(&self.key);
        let mut all = counts.get(&self.key).copied().unwrap_or_default();
        all = all - self.count + count;
        if count > self.count && all > most {
            return false;
        }
        match counts.get_mut(&self.key) {
            _ if all == 0 => drop(counts.remove(&self.key)),
            Some(counted) => *counted = all,
            None => drop(counts.insert(self.key.clone(), all)),
        }
        drop(counts);
        self.count = count;
        true
    }
}

impl ShardedQuotaCounters {
    fn shard(&self, whose: &ClientQuotaKey) -> MutexGuard<'_, HashMap<ClientQuotaKey, usize, RandomState>> {
        let at = self.hasher.hash_one(whose) % self.shards.len() as u64;
        let at = usize::try_from(at).expect("less than the number of shards");
        // No code under the lock can panic, so a poisoned lock is still valid.
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ClientQuotaPermit {
    fn drop(&mut self) {
        // This is never refused, because the count does not grow.
        let _fits = self.resize(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(address: &str) -> ClientId {
        ClientId::from_ip(address.parse().expect("an address"))
    }

    fn counted(quotas: &ClientQuotas) -> usize {
        quotas.0.shards.iter().map(|shard| shard.lock().expect("no panic").len()).sum()
    }

    /// A client gets no more than its quota, in all and for each route, and no counter is left at the end.
    #[test]
    fn client_is_held_to_its_quota() {
        let quotas = ClientQuotas::default();
        let one = client("192.0.2.1");
        let other = client("192.0.2.2");
        let mut taken: Vec<_> =
            (0..2).map(|_| quotas.acquire_request(one, 2).expect("within its share")).collect();
        assert!(quotas.acquire_request(one, 2).is_none());
        let others = quotas.acquire_request(other, 2).expect("another client");
        let at = || QuotaClientIdentity::Address(one);
        let routes = quotas.acquire_route(at(), "pay".into(), 1).expect("counted apart");
        assert!(quotas.acquire_route(at(), "pay".into(), 1).is_none());
        let further = quotas.acquire_route(at(), "book".into(), 1).expect("another route");
        let named = || QuotaClientIdentity::Name("till-7".into());
        let by_name = quotas.acquire_route(named(), "pay".into(), 1).expect("counted by its name");
        assert!(quotas.acquire_route(named(), "pay".into(), 1).is_none());
        taken.pop();
        taken.push(quotas.acquire_request(one, 2).expect("a place is free again"));
        assert!(
            quotas.acquire_request(one, 1).is_none(),
            "a smaller share counts those that were there before"
        );
        assert_eq!(counted(&quotas), 5);
        drop((taken, others, routes, further, by_name));
        assert_eq!(counted(&quotas), 0);
    }

    /// The bytes of a client's heads grow within its quota; a refused growth changes nothing.
    #[test]
    fn head_bytes_grow_within_quota() {
        let quotas = ClientQuotas::default();
        let mut first = quotas.acquire_heads(client("192.0.2.1"));
        let mut second = quotas.acquire_heads(client("192.0.2.1"));
        assert!(first.resize(60, 100) && second.resize(40, 100));
        assert!(!second.resize(41, 100) && !first.resize(61, 100));
        assert!(first.resize(50, 10), "less is never refused");
        assert!(second.resize(50, 100));
        assert!(quotas.acquire_heads(client("192.0.2.2")).resize(100, 100), "another client");
        assert!(first.resize(0, 0));
        assert!(second.resize(100, 100));
        drop((first, second));
        assert_eq!(counted(&quotas), 0);
    }

    /// An IPv6 /64 network counts as one client. An IPv4 address is the same client as its IPv4-mapped form.
    #[test]
    fn ipv6_network_counts_as_one_client() {
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("::ffff:192.0.2.1"), client("::ffff:192.0.2.2"));
    }

    #[test]
    fn concurrent_counts_return_to_zero() {
        let quotas = ClientQuotas::default();
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for last in 0..100 {
                        let client = ClientId::from_ip(IpAddr::from([192, 0, 2, last % 4]));
                        drop((
                            quotas.acquire_request(client, 3),
                            quotas.acquire_route(QuotaClientIdentity::Address(client), "pay".into(), 3),
                        ));
                    }
                });
            }
        });
        assert_eq!(counted(&quotas), 0);
    }
}
