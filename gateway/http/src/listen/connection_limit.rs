//! The places for connections of one worker. When all are taken, a quiet connection is closed to make room for a new
//! one.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    rc::{Rc, Weak},
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::wake_gated::WakeGated;
use crate::client_quota::ClientId;
use crate::connection_state::ConnectionState;

/// The places of one worker.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    taken: RefCell<SlotTable>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct SlotTable {
    /// By number of arrival.
    all: BTreeMap<u64, SlotEntry>,
    /// The number of connections of each client.
    of: HashMap<ClientId, usize>,
    /// Connections that have lost their places and are still being closed.
    leaving: usize,
    next: u64,
}

#[derive(Debug)]
struct SlotEntry {
    client: ClientId,
    since: Instant,
    /// The state of the connection, once its protocol is known. Before that it counts as quiet.
    connection: Option<Weak<ConnectionState>>,
    leave: CancellationToken,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Rc<ConnectionSlots>,
    number: u64,
    leave: CancellationToken,
    /// Whether HTTP is spoken, so that the connection has to be closed in order.
    speaks: Cell<bool>,
}

/// Why a new connection is closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRejection {
    ConnectionLimit,
    ClientLimit,
}

impl ConnectionRejection {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConnectionLimit => "no-place",
            Self::ClientLimit => "client-limit",
        }
    }
}

impl ConnectionSlots {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, taken: RefCell::default(), freed: Notify::new() })
    }

    /// Takes a free place.
    pub(super) fn try_acquire(self: &Rc<Self>, client: ClientId) -> Option<ConnectionSlot> {
        let mut taken = self.taken.borrow_mut();
        (taken.all.len() < self.most).then(|| {
            let (number, leave) = (taken.next, CancellationToken::new());
            taken.next += 1;
            let holder = SlotEntry { client, since: Instant::now(), connection: None, leave: leave.clone() };
            taken.all.insert(number, holder);
            *taken.of.entry(client).or_default() += 1;
            ConnectionSlot { slots: self.clone(), number, leave, speaks: Cell::new(false) }
        })
    }

    /// Takes a free place, or that of a quiet connection. `None`: all connections are at work, or belong to clients
    /// that have fewer than this one.
    pub(super) fn acquire(self: &Rc<Self>, client: ClientId) -> Option<ConnectionSlot> {
        self.acquire_or_evict(client, CountScope::OwnClient)
    }

    /// The same for a proxy, which gets any quiet connection's place, because its connections belong to many clients.
    pub(super) fn acquire_for_proxy(self: &Rc<Self>, proxy: ClientId) -> Option<ConnectionSlot> {
        self.acquire_or_evict(proxy, CountScope::ProxiedClients)
    }

    fn acquire_or_evict(self: &Rc<Self>, client: ClientId, counted: CountScope) -> Option<ConnectionSlot> {
        self.try_acquire(client).or_else(|| {
            // Connections that are being closed exist beside the places, so their number is bounded as well.
            if self.taken.borrow().leaving < self.most / 8 + FEW {
                self.taken.borrow_mut().evict_quiet(client, counted);
            }
            self.try_acquire(client)
        })
    }

    /// Whether a new connection without a place may wait for one. A client that already has a place may not, because it
    /// would hold up clients that have none.
    pub(super) fn may_wait(&self, client: ClientId) -> bool {
        !self.taken.borrow().of.contains_key(&client)
    }

    /// Returns when a connection has ended since the last call.
    pub(super) async fn wait_freed(&self) {
        self.freed.notified().await;
    }
}

/// Whether a peer's connections count as its own, or as those of many clients behind a proxy.
#[derive(Debug, Clone, Copy)]
enum CountScope {
    OwnClient,
    ProxiedClients,
}

/// Connections that may be closed at once, however few places there are.
const FEW: usize = 8;

impl SlotTable {
    /// Closes a quiet connection of the client that has the most, and of these the one that has been quiet for longest.
    /// A client with fewer connections than the new one is spared, so that nobody can drive out others by filling the
    /// places. A proxy spares nobody: otherwise the door would wait for its place, and keep out all behind it, while
    /// quiet connections hold places.
    fn evict_quiet(&mut self, comes: ClientId, counted: CountScope) {
        let of = |client: &ClientId| self.of.get(client).copied().unwrap_or_default();
        let has = match counted {
            CountScope::OwnClient => of(&comes),
            CountScope::ProxiedClients => 0,
        };
        let quiet = self.all.iter().filter(|(_, holder)| of(&holder.client) >= has);
        let quiet = quiet.filter_map(|(number, holder)| Some((holder, *number, holder.quiet_since()?)));
        let goes = quiet.min_by_key(|(holder, _, since)| (usize::MAX - of(&holder.client), *since));
        if let Some(number) = goes.map(|(_, number, _)| number)
            && let Some(holder) = self.remove(number)
        {
            holder.leave.cancel();
            self.leaving += 1;
        }
    }

    fn remove(&mut self, number: u64) -> Option<SlotEntry> {
        let holder = self.all.remove(&number)?;
        if let Some(count) = self.of.get_mut(&holder.client) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&holder.client);
            }
        }
        Some(holder)
    }
}

impl SlotEntry {
    /// Since when the connection is quiet.
    fn quiet_since(&self) -> Option<Instant> {
        match &self.connection {
            None => Some(self.since),
            // `None` from `upgrade`: the connection is just ending.
            Some(course) => course.upgrade()?.quiet_since(),
        }
    }
}

impl ConnectionSlot {
    /// Sets the state of the connection, once its protocol is known.
    pub(super) fn set_connection_state(&self, course: &Rc<ConnectionState>) {
        self.speaks.set(true);
        if let Some(holder) = self.slots.taken.borrow_mut().all.get_mut(&self.number) {
            holder.connection = Some(Rc::downgrade(course));
        }
    }

    /// Returns when the place was given to another connection.
    pub(super) async fn wait_lost(&self) {
        WakeGated::new(self.leave.cancelled()).await;
    }

    /// Says that HTTP is spoken: the code that serves the connection sees the loss of the place, and closes in order.
    pub(super) fn mark_http(&self) -> bool {
        self.speaks.get()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.borrow_mut();
        if taken.remove(self.number).is_none() {
            taken.leaving -= 1;
        }
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(last: u8) -> ClientId {
        ClientId::from_ip(IpAddr::from([192, 0, 2, last]))
    }

    fn is_gone(place: &ConnectionSlot) -> bool {
        place.leave.is_cancelled()
    }

    #[tokio::test]
    async fn who_asks_nothing_makes_room_and_who_has_most_first() {
        let places = ConnectionSlots::new(4);
        let greedy: Vec<ConnectionSlot> = (0..3).map(|_| places.acquire(client(1)).expect("free")).collect();
        let modest = places.acquire(client(2)).expect("free");
        let third = places.acquire(client(3)).expect("made room");
        assert!(is_gone(&greedy[0]) && !is_gone(&greedy[1]) && !is_gone(&modest));
        let fourth = places.acquire(client(4)).expect("made room");
        assert!(is_gone(&greedy[1]) && !is_gone(&greedy[2]), "the one that lay idle for longest");
        drop(greedy);
        assert!(places.try_acquire(client(1)).is_some(), "places that were lost are not given back twice");
        drop((modest, third, fourth));
        assert_eq!(places.taken.borrow().of.len(), 0);
        assert!(places.taken.borrow().all.is_empty());
    }

    #[tokio::test]
    async fn who_is_at_work_stays_and_nobody_makes_room_for_who_has_more() {
        let places = ConnectionSlots::new(3);
        let mut work = Vec::new();
        for _ in 0..2 {
            let place = places.acquire(client(1)).expect("free");
            let course = ConnectionState::new_http1(Instant::now());
            place.set_connection_state(&course);
            let exchange = course.begin();
            work.push((place, course, exchange));
        }
        let modest = places.acquire(client(2)).expect("free");
        assert!(places.acquire(client(1)).is_none(), "it has two, and the other one has one");
        assert!(!is_gone(&modest));
        let other = places.acquire(client(3)).expect("made room");
        assert!(is_gone(&modest), "the only one that asks nothing");
        let (place, course, exchange) = work.remove(0);
        drop(exchange);
        course.set_owed(0);
        assert!(places.acquire(client(4)).is_some(), "its answer has left");
        assert!(is_gone(&place) && !is_gone(&other));
    }

    #[tokio::test]
    async fn whoever_asks_nothing_makes_room_for_a_proxy_however_many_it_has() {
        let places = ConnectionSlots::new(4);
        let mut work = Vec::new();
        for _ in 0..3 {
            let place = places.acquire_for_proxy(client(1)).expect("free");
            let course = ConnectionState::new_http1(Instant::now());
            place.set_connection_state(&course);
            let exchange = course.begin();
            work.push((place, course, exchange));
        }
        let idle = places.acquire_for_proxy(client(2)).expect("free");
        assert!(places.acquire(client(1)).is_none(), "its own would not drive out those of others");
        let fourth =
            places.acquire_for_proxy(client(1)).expect("a door that waits here takes nobody else in");
        assert!(is_gone(&idle));
        assert!(work.iter().all(|(place, ..)| !is_gone(place)));
        drop(fourth);
    }

    #[tokio::test]
    async fn one_that_has_parted_from_http_is_at_work() {
        let places = ConnectionSlots::new(1);
        let place = places.acquire(client(1)).expect("free");
        let course = ConnectionState::new_http1(Instant::now());
        place.set_connection_state(&course);
        let (taker, _taken) = tokio::sync::oneshot::channel();
        let (_, answering) = course.begin();
        answering.upgrade(taker);
        drop(answering);
        course.set_owed(0);
        assert!(course.take_upgrade_sender().is_some());
        assert!(places.acquire(client(2)).is_none());
        assert!(!is_gone(&place));
    }

    #[tokio::test]
    async fn who_has_a_place_does_not_wait_for_another_one() {
        let places = ConnectionSlots::new(1);
        let place = places.acquire(client(1)).expect("free");
        let course = ConnectionState::new_http1(Instant::now());
        place.set_connection_state(&course);
        let _at_work = course.begin();
        assert!(places.acquire(client(1)).is_none() && places.acquire(client(2)).is_none());
        assert!(!places.may_wait(client(1)), "everybody behind it would wait as well");
        assert!(places.may_wait(client(2)));
        drop(place);
        assert!(places.may_wait(client(1)));
    }

    #[tokio::test]
    async fn not_everybody_leaves_at_once() {
        let places = ConnectionSlots::new(64);
        let all: Vec<ConnectionSlot> = (0..64).map(|_| places.acquire(client(1)).expect("free")).collect();
        let come: Vec<ConnectionSlot> = (2..).map_while(|last| places.acquire(client(last))).collect();
        assert_eq!(come.len(), 64 / 8 + FEW);
        drop(all);
        assert_eq!(places.taken.borrow().leaving, 0);
        assert!(places.acquire(client(1)).is_some());
    }

    #[tokio::test]
    async fn a_connection_of_http2_is_quiet_without_a_stream() {
        let places = ConnectionSlots::new(1);
        let place = places.acquire(client(1)).expect("free");
        let course = ConnectionState::new_http2();
        place.set_connection_state(&course);
        let exchange = course.begin();
        assert!(places.acquire(client(2)).is_none());
        drop(exchange);
        assert!(places.acquire(client(2)).is_none(), "the end of its answer may be on its way");
        course.age(std::time::Duration::from_secs(3));
        assert!(places.acquire(client(2)).is_some());
        assert!(is_gone(&place));
    }
}
