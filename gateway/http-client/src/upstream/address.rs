//! The addresses behind an endpoint's name, from the last lookups.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use fencegate_http::network::ConnectTarget;
use tokio::{sync::watch, time::Instant};

use super::liveness::AddressLiveness;

/// All addresses of one endpoint. Shared by all workers, and by the plans that have the endpoint.
#[derive(Debug)]
pub struct EndpointAddresses {
    /// The name of the endpoint: `host:port`, or `unix:/path`.
    name: Arc<str>,
    /// `None` until the first lookup is over; empty as long as no lookup has found an address.
    known: watch::Sender<Option<Vec<Arc<ResolvedEndpoint>>>>,
    /// Addresses that lookups have found recently, with the moment of the last lookup that found them.
    lately: Mutex<Vec<(ConnectTarget, Instant)>>,
    literal: bool,
    turn: AtomicUsize,
    /// True if the last lookup found nothing.
    in_vain: AtomicBool,
}

/// One address of an endpoint.
#[derive(Debug)]
pub struct ResolvedEndpoint {
    pub socket: ConnectTarget,
    /// The name of the endpoint to which the address belongs.
    pub name: Arc<str>,
    /// True if the last lookup did not find this address any more.
    gone: AtomicBool,
    /// True if the last attempt to connect to this address failed.
    dead: AtomicBool,
    pub liveness: AddressLiveness,
}

/// Counts an exchange at an address, until it is dropped.
#[derive(Debug)]
pub struct OutstandingExchange(Arc<ResolvedEndpoint>);

impl Drop for OutstandingExchange {
    fn drop(&mut self) {
        self.0.liveness.end_exchange();
    }
}

impl ResolvedEndpoint {
    pub fn new(socket: impl Into<ConnectTarget>, name: Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            socket: socket.into(),
            name,
            gone: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            liveness: AddressLiveness::default(),
        })
    }

    /// Counts an exchange that begins at this address.
    pub fn begin_exchange(self: &Arc<Self>) -> OutstandingExchange {
        self.liveness.begin_exchange();
        OutstandingExchange(self.clone())
    }

    /// True if lookups do not find this address any more. Its connections are then not used again.
    pub fn is_gone_from_dns(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Records whether an attempt to connect to this address has succeeded.
    pub(crate) fn record_connect(&self, did: bool) {
        if self.dead.load(Relaxed) == did {
            self.dead.store(!did, Relaxed);
        }
    }
}

/// The most addresses of a name. More are probably a mistake, and each one costs connections.
const MOST: usize = 64;
/// For this long after a lookup has found it, an address counts as recent. A name server may answer with a few of its
/// addresses at a time; within this time it has returned each of them.
const LATELY: Duration = Duration::from_secs(600);
/// The most recent addresses that are remembered, from several lookups.
const MOST_LATELY: usize = 4 * MOST;

impl EndpointAddresses {
    pub fn new(name: Arc<str>) -> Self {
        let literal = ConnectTarget::parse_literal(&name)
            .map(|socket| vec![ResolvedEndpoint::new(socket, name.clone())]);
        Self {
            literal: literal.is_some(),
            name,
            known: watch::Sender::new(literal),
            lately: Mutex::default(),
            turn: AtomicUsize::new(0),
            in_vain: AtomicBool::new(false),
        }
    }

    /// True if the name is already an address, so that there is nothing to look up.
    pub(crate) fn is_literal(&self) -> bool {
        self.literal
    }

    /// The addresses that are known now.
    pub fn current_addresses(&self) -> Vec<Arc<ResolvedEndpoint>> {
        self.known.borrow().clone().unwrap_or_default()
    }

    /// True if all known addresses are silent, so that new requests should go to another endpoint.
    pub(crate) fn all_addresses_silent(&self) -> bool {
        let known = self.known.borrow();
        let mut known = known.iter().flatten().peekable();
        known.peek().is_some() && known.all(|address| address.liveness.is_silent())
    }

    /// Returns all addresses, in no particular order. Waits for the first lookup only; empty if that lookup found
    /// nothing.
    pub async fn all(&self) -> Vec<Arc<ResolvedEndpoint>> {
        let mut known = self.known.subscribe();
        // The sender is in `self`, so this wait cannot fail.
        let known = known.wait_for(Option::is_some).await.ok();
        known.and_then(|known| known.clone()).unwrap_or_default()
    }

    /// Returns all addresses in the order in which to try them. Each call begins with another address. Addresses that
    /// could not be reached come later, and silent ones last. Waits as [`EndpointAddresses::all`] does.
    pub(crate) async fn rotated_addresses(&self) -> Vec<Arc<ResolvedEndpoint>> {
        let mut all = self.all().await;
        if all.len() > 1 {
            let first = self.turn.fetch_add(1, Relaxed) % all.len();
            all.rotate_left(first);
            all.sort_by_key(|address| (address.liveness.is_silent(), address.dead.load(Relaxed)));
        }
        all
    }

    /// Returns the addresses, with those that lookups have found recently; `None` if no lookup has found an address.
    /// Waits as [`EndpointAddresses::all`] does.
    pub(crate) async fn known_and_recent_targets(&self) -> Option<Vec<ConnectTarget>> {
        let all = self.all().await;
        let lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = lately.iter().filter(|(_, at)| at.elapsed() < LATELY).map(|(socket, _)| socket.clone());
        (!all.is_empty()).then(|| all.iter().map(|address| address.socket.clone()).chain(lately).collect())
    }

    #[cfg(test)]
    pub fn make_older(&self, by: Duration) {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        lately.iter_mut().for_each(|(_, at)| *at -= by);
    }

    /// Remembers addresses that a lookup has found. If there are too many, the oldest are forgotten first.
    fn record_recent_targets(&self, sockets: &[ConnectTarget]) {
        let now = Instant::now();
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        lately.retain(|(socket, at)| at.elapsed() < LATELY && !sockets.contains(socket));
        let many = (lately.len() + sockets.len()).saturating_sub(MOST_LATELY);
        lately.drain(..many);
        lately.extend(sockets.iter().map(|socket| (socket.clone(), now)));
    }

    /// Applies the result of a lookup that found at least one address. Returns true if the addresses have changed.
    pub fn update(&self, mut sockets: Vec<ConnectTarget>) -> bool {
        sockets.sort_unstable();
        sockets.dedup();
        sockets.truncate(MOST);
        self.in_vain.store(false, Relaxed);
        self.record_recent_targets(&sockets);
        self.known.send_if_modified(|known| {
            let old = known.take().unwrap_or_default();
            let same = |socket: &ConnectTarget| old.iter().find(|address| address.socket == *socket).cloned();
            let all: Vec<Arc<ResolvedEndpoint>> = sockets
                .iter()
                .map(|socket| {
                    same(socket).unwrap_or_else(|| ResolvedEndpoint::new(socket.clone(), self.name.clone()))
                })
                .collect();
            for address in &old {
                address.gone.store(!sockets.contains(&address.socket), Relaxed);
                // After each lookup an address that could not be reached is tried again like the others.
                address.dead.store(false, Relaxed);
            }
            // Both lists are sorted, so a comparison in order finds every change.
            let news = old.iter().map(|address| &address.socket).ne(&sockets);
            *known = Some(all);
            news
        })
    }

    /// Records that a lookup found nothing, so the old addresses stay. True if the lookup before it had found some.
    pub(crate) fn record_failed_lookup(&self) -> bool {
        self.known.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_default();
            first
        });
        !self.in_vain.swap(true, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn sockets(texts: &[&str]) -> Vec<ConnectTarget> {
        texts.iter().map(|text| ConnectTarget::parse_literal(text).expect("an address")).collect()
    }

    /// Returns the addresses that the next connection tries, in order.
    fn next(addresses: &EndpointAddresses) -> Vec<Arc<ResolvedEndpoint>> {
        addresses.rotated_addresses().now_or_never().expect("something is known")
    }

    #[test]
    fn literal_address_needs_no_lookup() {
        for name in ["127.0.0.1:80", "[::1]:443", "unix:/run/ledger.sock"] {
            let addresses = EndpointAddresses::new(name.into());
            assert!(addresses.is_literal());
            assert_eq!(next(&addresses)[0].socket.to_string(), name);
        }
        assert!(!EndpointAddresses::new("a.example:80".into()).is_literal());
    }

    /// No address is tried before the first lookup; the found addresses are then tried in turn.
    #[test]
    fn addresses_rotate_after_first_lookup() {
        let addresses = EndpointAddresses::new("a.example:80".into());
        assert!(addresses.rotated_addresses().now_or_never().is_none());
        assert!(addresses.update(sockets(&["10.0.0.2:80", "10.0.0.1:80", "10.0.0.2:80"])));
        let first = |_| next(&addresses)[0].socket.to_string();
        let firsts: Vec<String> = (0..3).map(first).collect();
        assert_eq!(firsts, ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.1:80"]);
        assert_eq!(next(&addresses).len(), 2);
    }

    /// An address that could not be reached comes last until the next lookup.
    #[test]
    fn unreachable_address_comes_last() {
        let addresses = EndpointAddresses::new("a.example:80".into());
        let both = sockets(&["10.0.0.1:80", "10.0.0.2:80"]);
        addresses.update(both.clone());
        let dead = next(&addresses)[0].clone();
        dead.record_connect(false);
        assert!((0..4).all(|_| next(&addresses)[1].socket == dead.socket));
        assert!(!addresses.update(both), "they are the same");
        assert!((0..4).any(|_| next(&addresses)[0].socket == dead.socket));
    }

    /// An address counts as gone only if a lookup succeeds without it; a failed lookup changes nothing.
    #[test]
    fn address_is_gone_only_after_lookup() {
        let addresses = EndpointAddresses::new("a.example:80".into());
        addresses.update(sockets(&["10.0.0.1:80", "10.0.0.2:80"]));
        let old = next(&addresses);
        assert!(addresses.record_failed_lookup() && !addresses.record_failed_lookup(), "told once");
        assert!(old.iter().all(|address| !address.is_gone_from_dns()), "nobody said that they are gone");
        assert!(addresses.update(sockets(&["10.0.0.2:80", "10.0.0.3:80"])));
        let gone: Vec<bool> = old.iter().map(|address| address.is_gone_from_dns()).collect();
        assert_eq!(gone, [true, false]);
        assert!(addresses.record_failed_lookup(), "and again, after it was found");
    }

    #[test]
    fn recent_addresses_are_bounded() {
        let addresses = EndpointAddresses::new("a.example:80".into());
        for n in 0..1000 {
            addresses.update(sockets(&[&format!("10.0.0.1:{n}"), &format!("10.0.0.2:{n}")]));
        }
        let all = addresses.known_and_recent_targets().now_or_never().flatten().expect("something is known");
        assert_eq!(all.len(), 2 + MOST_LATELY);
        assert!(all.contains(&sockets(&["10.0.0.1:899"])[0]));
    }

    /// A name whose first lookup failed has no address until a later lookup succeeds.
    #[test]
    fn failed_first_lookup_recovers() {
        let addresses = EndpointAddresses::new("a.example:80".into());
        addresses.record_failed_lookup();
        assert!(next(&addresses).is_empty());
        assert!(addresses.update(sockets(&["10.0.0.1:80"])));
        assert_eq!(next(&addresses).len(), 1);
    }
}
