//! The targets of connections, and sockets behind small traits, so that a simulation can use a network of its own.

pub mod listen_addr;
pub mod socket_path_lock;
pub mod socket_stream;
pub mod sockets;

use std::{fmt, future::Future, io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use fencegate_policies::plan::{UNIX, socket_path};
use tokio::io::{AsyncRead, AsyncWrite};

use self::listen_addr::ListenAddr;
use crate::connection_info::ConnectionInfo;

/// A network: connects and listens.
pub trait Network: Clone + 'static {
    type Stream: AsyncRead + AsyncWrite + ResetOnClose + Unpin + 'static;
    type Listener: Accept<Stream = Self::Stream>;

    /// Returns the addresses of `host:port`. The name may come from another gateway, so it never yields a socket path
    /// of this machine. The lookup has no time limit of its own.
    fn resolve(&self, authority: &str) -> impl Future<Output = io::Result<Vec<ConnectTarget>>>;

    /// Connects to `remote`, without a time limit of its own.
    fn dial(&self, remote: &ConnectTarget) -> impl Future<Output = io::Result<Self::Stream>>;

    /// Listens at an address. All workers listen at the same address, and each gets a share of the connections.
    fn listen(&self, local: &ListenAddr) -> io::Result<Self::Listener>;
}

/// A listening socket.
pub trait Accept: 'static {
    type Stream;

    /// Returns the next connection, and its two addresses.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, ConnectionInfo)>>;

    /// The address of this listener, at which further listeners can be opened.
    fn listen_addr(&self) -> io::Result<ListenAddr>;

    /// Accepts no new connections from now on. Queued ones are still accepted.
    fn stop_accepting(&self);
}

/// Decides how a connection is closed: with a reset, or in order.
pub trait ResetOnClose {
    /// From this call on, closing discards unsent bytes and resets the connection, if the socket can do that. The
    /// kernel does the same when the process ends or is killed.
    fn reset_on_close(&self);

    /// Takes [`Self::reset_on_close`] back: from this call on, closing sends the unsent bytes and then the end.
    fn flush_on_close(&self);

    /// Sets the longest time for which the kernel tries to deliver a byte that the peer does not acknowledge. After it
    /// the kernel closes the connection, even if this process is frozen. `None` is the kernel's default.
    fn set_unacknowledged_timeout(&self, _unacknowledged: Option<Duration>) {}

    /// True if both sides have closed, and the peer's kernel has acknowledged every byte of this side. False if this
    /// is not known.
    fn is_fully_closed(&self) -> bool {
        true
    }

    /// True if the peer has closed its side, even if its last bytes were not read. If the receive buffer is full, the
    /// close is not seen, because it comes after those bytes.
    fn has_hung_up(&self) -> bool {
        false
    }
}

/// A pipe in memory, for tests and simulations, where it does not matter how a connection is closed.
impl ResetOnClose for tokio::io::DuplexStream {
    fn reset_on_close(&self) {}

    fn flush_on_close(&self) {}
}

/// An address, or the path of a unix socket on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectTarget {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl ConnectTarget {
    /// The target of an endpoint that needs no lookup: `unix:/path`, or an address with a port.
    pub fn parse_literal(endpoint: &str) -> Option<Self> {
        match socket_path(endpoint) {
            Some(path) => Some(Self::Unix(path.into())),
            None => endpoint.parse().ok().map(Self::Tcp),
        }
    }
}

impl From<SocketAddr> for ConnectTarget {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ConnectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}
