//! The network of a simulation: hosts, connections between them, and their faults.
//!
//! It implements the traits of real sockets, [`Network`] and [`Accept`]. As with TCP, a connection loses no bytes
//! while it lives, but they may be late. A connection that breaks loses all bytes in flight.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    rc::{Rc, Weak},
    time::Duration,
};

use fencegate_http::{
    connection_info::ConnectionInfo,
    network::{Accept, ConnectTarget, Network, listen_addr::ListenAddr},
};
use tokio::{
    sync::mpsc,
    time::{sleep, sleep_until},
};

use super::{
    connection::{SimConnection, SimSocket},
    delays::NetworkDelays,
};

/// All hosts and the connections between them.
#[derive(Clone)]
pub(super) struct SimNetwork(Rc<NetworkState>);

struct NetworkState {
    listeners: RefCell<BTreeMap<SocketAddr, mpsc::UnboundedSender<(SimSocket, ConnectionInfo)>>>,
    distances: Rc<NetworkDelays>,
    wires: RefCell<Vec<Weak<SimConnection>>>,
    next_port: Cell<u16>,
    /// The host before which a relay stands, if there is one.
    behind_relay: Cell<Option<IpAddr>>,
}

/// The network as seen from one host.
#[derive(Clone)]
pub(super) struct SimHost {
    cables: SimNetwork,
    address: IpAddr,
}

pub(super) struct SimListener {
    cables: SimNetwork,
    address: SocketAddr,
    come: RefCell<mpsc::UnboundedReceiver<(SimSocket, ConnectionInfo)>>,
}

impl SimNetwork {
    pub(super) fn new(seed: u64) -> Self {
        Self(Rc::new(NetworkState {
            listeners: RefCell::default(),
            distances: Rc::new(NetworkDelays::new(seed)),
            wires: RefCell::default(),
            next_port: Cell::new(20_000),
            behind_relay: Cell::default(),
        }))
    }

    pub(super) fn host(&self, address: IpAddr) -> SimHost {
        SimHost { cables: self.clone(), address }
    }

    /// Puts a relay before this host. It acknowledges what is sent to the host, and delivers it even if the sender
    /// has gone or the connection has broken.
    pub(super) fn set_relay(&self, address: IpAddr) {
        self.0.behind_relay.set(Some(address));
    }

    pub(super) fn delays(&self) -> &NetworkDelays {
        &self.0.distances
    }

    /// Breaks all connections between two hosts. Both ends are notified, and bytes in flight are lost.
    pub(super) fn reset(&self, one: IpAddr, other: IpAddr) {
        for wire in self.connections().filter(|wire| wire.connects(one, other)) {
            wire.break_off();
        }
    }

    /// Removes a host: its connections break, and no process listens there.
    pub(super) fn remove_host(&self, address: IpAddr) {
        self.0.listeners.borrow_mut().retain(|listens, _| listens.ip() != address);
        for wire in self.connections().filter(|wire| wire.has_host(address)) {
            wire.break_off();
        }
    }

    fn connections(&self) -> impl Iterator<Item = Rc<SimConnection>> {
        self.0.wires.borrow_mut().retain(|wire| wire.strong_count() > 0);
        let wires: Vec<_> = self.0.wires.borrow().iter().filter_map(Weak::upgrade).collect();
        wires.into_iter()
    }

    fn port(&self) -> u16 {
        let port = self.0.next_port.get();
        self.0.next_port.set(if port == u16::MAX { 20_000 } else { port + 1 });
        port
    }

    fn connect(&self, from: IpAddr, to: SocketAddr) -> io::Result<SimSocket> {
        let listeners = self.0.listeners.borrow();
        let listens = listeners.get(&to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let client = SocketAddr::new(from, self.port());
        let relayed = self.0.behind_relay.get() == Some(to.ip());
        let (wire, [ours, theirs]) =
            SimConnection::new(self.0.distances.clone(), [client.ip(), to.ip()], relayed);
        self.0.wires.borrow_mut().push(Rc::downgrade(&wire));
        let peer = ConnectionInfo::new(client, to);
        listens.send((theirs, peer)).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(ours)
    }
}

impl SimHost {
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn bind_port(&self, port: u16) -> SimListener {
        let address = SocketAddr::new(self.address, port);
        let (sender, come) = mpsc::unbounded_channel();
        self.cables.0.listeners.borrow_mut().insert(address, sender);
        SimListener { cables: self.cables.clone(), address, come: RefCell::new(come) }
    }
}

impl Network for SimHost {
    type Stream = SimSocket;
    type Listener = SimListener;

    async fn resolve(&self, _: &str) -> io::Result<Vec<ConnectTarget>> {
        Err(io::ErrorKind::NotFound.into())
    }

    /// Connects after a round trip. If a direction is blocked, it waits until it is free.
    async fn dial(&self, remote: &ConnectTarget) -> io::Result<SimSocket> {
        let ConnectTarget::Tcp(to) = *remote else { return Err(io::ErrorKind::Unsupported.into()) };
        sleep_until(self.cables.0.distances.arrival(self.address, to.ip())).await;
        let connected = self.cables.connect(self.address, to);
        sleep_until(self.cables.0.distances.arrival(to.ip(), self.address)).await;
        connected
    }

    fn listen(&self, place: &ListenAddr) -> io::Result<SimListener> {
        match place {
            ListenAddr::Tcp(address) => Ok(self.bind_port(address.port())),
            ListenAddr::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Accept for SimListener {
    type Stream = SimSocket;

    async fn accept(&self) -> io::Result<(SimSocket, ConnectionInfo)> {
        match poll_fn(|cx| self.come.borrow_mut().poll_recv(cx)).await {
            Some(come) => Ok(come),
            // The listener was closed, so no further connection comes.
            None => {
                sleep(Duration::from_secs(3600)).await;
                Err(io::ErrorKind::NotConnected.into())
            }
        }
    }

    fn listen_addr(&self) -> io::Result<ListenAddr> {
        Ok(ListenAddr::Tcp(self.address))
    }

    fn stop_accepting(&self) {
        self.cables.0.listeners.borrow_mut().remove(&self.address);
    }
}
