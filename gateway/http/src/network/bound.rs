//! A place to listen that this process has, for all of its workers.

use std::{
    fmt, io,
    net::{self, SocketAddr},
    os::unix::net::UnixListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use fencegate_policies::plan::{Bind, UNIX};

use super::taken_path::{TakenPath, Takeover};

/// Each worker listens there.
#[derive(Debug, Clone)]
pub enum Bound {
    Tcp(SocketAddr),
    Unix(Arc<Shared>),
}

/// A unix socket is one queue for all workers.
#[derive(Debug)]
pub struct Shared {
    taken: TakenPath,
    workers: AtomicUsize,
    accepted: AtomicUsize,
}

impl Bound {
    /// Takes the place, and refuses one that belongs to another process.
    ///
    /// The workers share an address among each other, and would share it with another gateway of the same user as well:
    /// half of the connections would go to the wrong process. So it has to be nobody's, unless the one that has it is
    /// about to stop.
    ///
    /// # Errors
    /// It is somebody else's, or not one of this machine's.
    pub fn take(bind: &Bind, takeover: Takeover) -> io::Result<Self> {
        match bind {
            Bind::Tcp(address) => {
                if takeover == Takeover::Never {
                    drop(net::TcpListener::bind(address)?);
                }
                Ok(Self::Tcp(*address))
            }
            Bind::Unix(file) => {
                let taken = TakenPath::take(file, takeover)?;
                let none = || AtomicUsize::new(0);
                Ok(Self::Unix(Arc::new(Shared { taken, workers: none(), accepted: none() })))
            }
        }
    }
}

impl From<SocketAddr> for Bound {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(shared) => write!(f, "{UNIX}{}", shared.taken.path().display()),
        }
    }
}

impl Shared {
    /// For one more worker.
    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        let listener = self.taken.listener()?;
        self.workers.fetch_add(1, Relaxed);
        Ok(listener)
    }

    pub(super) fn accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// Nobody finds it any more. From now on each worker takes what it finds: who leaves last must leave nobody in the queue.
    pub(super) fn closes(&self) {
        self.taken.leave();
        self.workers.store(0, Relaxed);
    }

    /// One that has accepted so many has more than its share. All workers are woken by each connection, and the first of them would take all that come at once.
    pub(super) fn has_enough(&self, mine: usize) -> bool {
        mine * self.workers.load(Relaxed) > self.accepted.load(Relaxed)
    }
}
