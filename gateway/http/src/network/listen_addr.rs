//! A listening address of this process, shared by all its workers.

use std::{
    fmt, io,
    net::{self, SocketAddr},
    os::unix::net::UnixListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use fencegate_policies::plan::{BindAddress, UNIX};

use super::socket_path_lock::{BoundUnixSocket, SocketTakeover};

/// An address at which every worker opens its own listener.
#[derive(Debug, Clone)]
pub enum ListenAddr {
    Tcp(SocketAddr),
    Unix(Arc<SharedUnixListener>),
}

/// A unix socket that all workers accept from: it has one queue of connections.
#[derive(Debug)]
pub struct SharedUnixListener {
    taken: BoundUnixSocket,
    workers: AtomicUsize,
    accepted: AtomicUsize,
}

impl ListenAddr {
    /// Reserves the address for this process, and refuses one at which another process listens.
    ///
    /// The workers share an address by `SO_REUSEPORT`. Another gateway of the same user could share it as well, and
    /// get half of the connections. So no other process may listen there, unless that process is about to stop.
    ///
    /// # Errors
    /// Returns an error if another process listens there, or if the address is not one of this machine's.
    pub fn bind(bind: &BindAddress, takeover: SocketTakeover) -> io::Result<Self> {
        match bind {
            BindAddress::Tcp(address) => {
                if takeover == SocketTakeover::Never {
                    drop(net::TcpListener::bind(address)?);
                }
                Ok(Self::Tcp(*address))
            }
            BindAddress::Unix(file) => {
                let taken = BoundUnixSocket::bind(file, takeover)?;
                let none = || AtomicUsize::new(0);
                Ok(Self::Unix(Arc::new(SharedUnixListener { taken, workers: none(), accepted: none() })))
            }
        }
    }
}

impl From<SocketAddr> for ListenAddr {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(shared) => write!(f, "{UNIX}{}", shared.taken.path().display()),
        }
    }
}

impl SharedUnixListener {
    /// Returns the listener for one more worker.
    pub(super) fn add_worker_listener(&self) -> io::Result<UnixListener> {
        let listener = self.taken.clone_listener()?;
        self.workers.fetch_add(1, Relaxed);
        Ok(listener)
    }

    pub(super) fn record_accept(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// Removes the socket's file. From this call on, each worker accepts all connections that it finds, so that none
    /// stays in the queue.
    pub(super) fn start_drain(&self) {
        self.taken.remove_own_socket();
        self.workers.store(0, Relaxed);
    }

    /// True if a worker that has accepted `mine` connections has more than its share. Each connection wakes all
    /// workers, and without this check the fastest one would take all connections that come at once.
    pub(super) fn is_worker_over_share(&self, mine: usize) -> bool {
        mine * self.workers.load(Relaxed) > self.accepted.load(Relaxed)
    }
}
