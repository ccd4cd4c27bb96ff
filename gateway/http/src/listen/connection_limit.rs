//! The connection slots of one worker. When all are taken, a quiet connection is closed to free a slot for a new one.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    rc::{Rc, Weak},
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::wake_gated::PollOnWake;
use crate::client_quota::ClientId;
use crate::connection_state::ServerConnectionState;

/// The connection slots of one worker.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    taken: RefCell<ConnectionSlotTable>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionSlotTable {
    /// The open connections by number of arrival.
    all: BTreeMap<u64, ConnectionSlotEntry>,
    /// The number of connections of each client.
    of: HashMap<ClientId, usize>,
    /// Connections that have lost their slots and are still being closed.
    leaving: usize,
    next: u64,
}

#[derive(Debug)]
struct ConnectionSlotEntry {
    client: ClientId,
    since: Instant,
    /// The state of the connection, once its protocol is known. Before that it counts as quiet.
    connection: Option<Weak<ServerConnectionState>>,
    leave: CancellationToken,
}

/// The slot of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Rc<ConnectionSlots>,
    number: u64,
    leave: CancellationToken,
    /// True once HTTP is spoken, so that the connection has to be closed in order.
    speaks: Cell<bool>,
}

/// The reason for which a new connection is closed at once.
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

    /// Takes a free slot.
    pub(super) fn try_acquire(self: &Rc<Self>, client: ClientId) -> Option<ConnectionSlot> {
        let mut taken = self.taken.borrow_mut();
        (taken.all.len() < self.most).then(|| {
            let number = taken.next;
            let leave = CancellationToken::new();
            taken.next += 1;
            let holder =
                ConnectionSlotEntry { client, since: Instant::now(), connection: None, leave: leave.clone() };
            taken.all.insert(number, holder);
            *taken.of.entry(client).or_default() += 1;
            ConnectionSlot { slots: self.clone(), number, leave, speaks: Cell::new(false) }
        })
    }

    /// Takes a free slot, or that of a quiet connection. `None` if every connection is busy or belongs to a client
    /// that has fewer connections than this one.
    pub(super) fn acquire(self: &Rc<Self>, client: ClientId) -> Option<ConnectionSlot> {
        self.acquire_or_evict(client, ConnectionAttribution::OwnClient)
    }

    /// Takes a slot for a connection of a proxy. It gets the slot of any quiet connection, because the connections of
    /// a proxy belong to many clients.
    pub(super) fn acquire_for_proxy(self: &Rc<Self>, proxy: ClientId) -> Option<ConnectionSlot> {
        self.acquire_or_evict(proxy, ConnectionAttribution::ProxiedClients)
    }

    fn acquire_or_evict(
        self: &Rc<Self>,
        client: ClientId,
        counted: ConnectionAttribution,
    ) -> Option<ConnectionSlot> {
        self.try_acquire(client).or_else(|| {
            // A connection that is being closed has given up its slot, so the number of such connections has a limit
            // of its own.
            if self.taken.borrow().leaving < self.most / 8 + FEW {
                self.taken.borrow_mut().evict_quiet(client, counted);
            }
            self.try_acquire(client)
        })
    }

    /// True if a new connection without a slot may wait for one. A client that already has a slot may not wait,
    /// because it would hold up clients that have none.
    pub(super) fn may_wait_for_slot(&self, client: ClientId) -> bool {
        !self.taken.borrow().of.contains_key(&client)
    }

    /// Returns when a connection has ended since the last call.
    pub(super) async fn wait_freed(&self) {
        self.freed.notified().await;
    }
}

/// The owner of a peer's connections: the peer itself, or many clients behind a proxy.
#[derive(Debug, Clone, Copy)]
enum ConnectionAttribution {
    OwnClient,
    ProxiedClients,
}

/// The number of connections that may always be closing at the same time, however few slots there are.
const FEW: usize = 8;

impl ConnectionSlotTable {
    /// Closes a quiet connection of the client that has the most connections, and of these the one that has been
    /// quiet for longest. Clients with fewer connections than the new client are spared, so that no client can drive
    /// out other clients by filling the slots. For a proxy no client is spared: otherwise the acceptor would wait for
    /// a slot for it, and keep out all connections that come later, while quiet connections hold slots.
    fn evict_quiet(&mut self, comes: ClientId, counted: ConnectionAttribution) {
        let of = |client: &ClientId| self.of.get(client).copied().unwrap_or_default();
        let has = match counted {
            ConnectionAttribution::OwnClient => of(&comes),
            ConnectionAttribution::ProxiedClients => 0,
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

    fn remove(&mut self, number: u64) -> Option<ConnectionSlotEntry> {
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

impl ConnectionSlotEntry {
    /// The moment since which the connection is quiet; `None` while it is busy.
    fn quiet_since(&self) -> Option<Instant> {
        match &self.connection {
            None => Some(self.since),
            // If `upgrade` fails, the connection is just ending, so it cannot be closed for another one.
            Some(state) => state.upgrade()?.quiet_since(),
        }
    }
}

impl ConnectionSlot {
    /// Sets the state of the connection, once its protocol is known.
    pub(super) fn set_connection_state(&self, state: &Rc<ServerConnectionState>) {
        self.speaks.set(true);
        if let Some(holder) = self.slots.taken.borrow_mut().all.get_mut(&self.number) {
            holder.connection = Some(Rc::downgrade(state));
        }
    }

    /// Returns when the slot was given to another connection, so that this connection has to be closed.
    pub(super) async fn wait_slot_reassigned(&self) {
        PollOnWake::new(self.leave.cancelled()).await;
    }

    /// True once HTTP is spoken: then the code that serves the connection notices the loss of the slot itself, and
    /// closes the connection in order.
    pub(super) fn is_serving_http(&self) -> bool {
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

    fn is_gone(slot: &ConnectionSlot) -> bool {
        slot.leave.is_cancelled()
    }

    /// A quiet connection is closed for a new client: one of the client with the most connections, and of these the
    /// one that was quiet for longest.
    #[tokio::test]
    async fn quiet_connection_of_largest_client_closes() {
        let slots = ConnectionSlots::new(4);
        let greedy: Vec<ConnectionSlot> = (0..3).map(|_| slots.acquire(client(1)).expect("free")).collect();
        let modest = slots.acquire(client(2)).expect("free");
        let third = slots.acquire(client(3)).expect("made room");
        assert!(is_gone(&greedy[0]) && !is_gone(&greedy[1]) && !is_gone(&modest));
        let fourth = slots.acquire(client(4)).expect("made room");
        assert!(is_gone(&greedy[1]) && !is_gone(&greedy[2]), "the one that lay idle for longest");
        drop(greedy);
        assert!(slots.try_acquire(client(1)).is_some(), "places that were lost are not given back twice");
        drop((modest, third, fourth));
        assert_eq!(slots.taken.borrow().of.len(), 0);
        assert!(slots.taken.borrow().all.is_empty());
    }

    /// A busy connection is not closed, and no connection is closed for a client that has more connections than its
    /// owner.
    #[tokio::test]
    async fn busy_connection_stays() {
        let slots = ConnectionSlots::new(3);
        let mut work = Vec::new();
        for _ in 0..2 {
            let slot = slots.acquire(client(1)).expect("free");
            let state = ServerConnectionState::new_http1(Instant::now());
            slot.set_connection_state(&state);
            let exchange = state.begin_exchange();
            work.push((slot, state, exchange));
        }
        let modest = slots.acquire(client(2)).expect("free");
        assert!(slots.acquire(client(1)).is_none(), "it has two, and the other one has one");
        assert!(!is_gone(&modest));
        let other = slots.acquire(client(3)).expect("made room");
        assert!(is_gone(&modest), "the only one that asks nothing");
        let (slot, state, exchange) = work.remove(0);
        drop(exchange);
        state.set_unwritten_response_bytes(0);
        assert!(slots.acquire(client(4)).is_some(), "its answer has left");
        assert!(is_gone(&slot) && !is_gone(&other));
    }

    /// A quiet connection is closed for a new connection of a trusted proxy, however many connections the proxy has.
    #[tokio::test]
    async fn quiet_connection_closes_for_proxy() {
        let slots = ConnectionSlots::new(4);
        let mut work = Vec::new();
        for _ in 0..3 {
            let slot = slots.acquire_for_proxy(client(1)).expect("free");
            let state = ServerConnectionState::new_http1(Instant::now());
            slot.set_connection_state(&state);
            let exchange = state.begin_exchange();
            work.push((slot, state, exchange));
        }
        let idle = slots.acquire_for_proxy(client(2)).expect("free");
        assert!(slots.acquire(client(1)).is_none(), "its own would not drive out those of others");
        let fourth = slots.acquire_for_proxy(client(1)).expect("a door that waits here takes nobody else in");
        assert!(is_gone(&idle));
        assert!(work.iter().all(|(slot, ..)| !is_gone(slot)));
        drop(fourth);
    }

    #[tokio::test]
    async fn upgraded_connection_counts_as_busy() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.acquire(client(1)).expect("free");
        let state = ServerConnectionState::new_http1(Instant::now());
        slot.set_connection_state(&state);
        let (sender, _taken) = tokio::sync::oneshot::channel();
        let (_, answering) = state.begin_exchange();
        answering.upgrade(sender);
        drop(answering);
        state.set_unwritten_response_bytes(0);
        assert!(state.take_upgrade_sender().is_some());
        assert!(slots.acquire(client(2)).is_none());
        assert!(!is_gone(&slot));
    }

    /// A client that already has a connection does not wait for a second one.
    #[tokio::test]
    async fn client_with_connection_does_not_wait() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.acquire(client(1)).expect("free");
        let state = ServerConnectionState::new_http1(Instant::now());
        slot.set_connection_state(&state);
        let _at_work = state.begin_exchange();
        assert!(slots.acquire(client(1)).is_none() && slots.acquire(client(2)).is_none());
        assert!(!slots.may_wait_for_slot(client(1)), "everybody behind it would wait as well");
        assert!(slots.may_wait_for_slot(client(2)));
        drop(slot);
        assert!(slots.may_wait_for_slot(client(1)));
    }

    /// Only a bounded number of connections is asked to close at the same time.
    #[tokio::test]
    async fn closing_connections_are_bounded() {
        let slots = ConnectionSlots::new(64);
        let all: Vec<ConnectionSlot> = (0..64).map(|_| slots.acquire(client(1)).expect("free")).collect();
        let come: Vec<ConnectionSlot> = (2..).map_while(|last| slots.acquire(client(last))).collect();
        assert_eq!(come.len(), 64 / 8 + FEW);
        drop(all);
        assert_eq!(slots.taken.borrow().leaving, 0);
        assert!(slots.acquire(client(1)).is_some());
    }

    #[tokio::test]
    async fn http2_connection_without_stream_is_quiet() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.acquire(client(1)).expect("free");
        let state = ServerConnectionState::new_http2();
        slot.set_connection_state(&state);
        let exchange = state.begin_exchange();
        assert!(slots.acquire(client(2)).is_none());
        drop(exchange);
        assert!(slots.acquire(client(2)).is_none(), "the end of its answer may be on its way");
        state.make_older(std::time::Duration::from_secs(3));
        assert!(slots.acquire(client(2)).is_some());
        assert!(is_gone(&slot));
    }
}
