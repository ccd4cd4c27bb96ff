//! What both roles do as a process: listen, wait for the signal, drain.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use fencegate_guard::ticket::BadFile;
use fencegate_http::{
    listen::certificates::{BadCertificate, Certificates},
    network::{Tcp, reserved, shared_socket},
    upstream::tls::BadTls,
};
use fencegate_lock::state::NotOpened;
use fencegate_policies::plan::{self, Protocols};
use socket2::Socket;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
};
use tracing::{error, info, warn};

use super::{
    files,
    reload::Turn,
    worker::{self, Deaf, Drained, Shared, Staffed, Started},
};
use crate::{
    admin::{bearer::BadBearer, door::Door},
    metrics::Metrics,
    siblings::{self, BadPeerTls},
};

/// Why a process does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("listen on {address}, the {listener} listener: {source}")]
    Listen { listener: String, address: SocketAddr, source: io::Error },
    #[error("start a thread or runtime")]
    Start(#[from] io::Error),
    #[error("FG0510: speak TLS with clients")]
    ListenerTls(#[from] BadCertificate),
    #[error("FG0510: speak TLS with operators")]
    AdminTls(#[source] BadCertificate),
    #[error("FG0510: speak TLS with other gateways")]
    PeerTls(#[from] BadPeerTls),
    #[error("read the token of the admin listener")]
    AdminToken(#[from] BadBearer),
    #[error("read the key that tickets are signed with")]
    Key(#[from] BadFile),
    #[error(transparent)]
    State(#[from] NotOpened),
    #[error("prepare TLS with an upstream")]
    UpstreamTls(#[source] BadTls),
    #[error("the session's thread has panicked; locks go by the session timeout")]
    SessionEnded,
    #[error("{0} requests were still at work when the drain was over")]
    NotDrained(usize),
}

impl Trouble {
    fn of_listener(deaf: Deaf) -> Self {
        let Deaf { listener, address, source } = deaf;
        Self::Listen { listener, address, source }
    }
}

/// As many workers as a process has unless it is told otherwise.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// `beside`: another gateway may listen there, which is about to stop.
pub(super) fn bind_admin(address: SocketAddr, beside: bool) -> Result<TcpListener, Trouble> {
    let bound = if beside { Ok(()) } else { free(address) };
    let listener = bound
        .and_then(|()| shared_socket(address))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| Trouble::Listen { listener: "admin".into(), address, source })?;
    info!(listener = "admin", address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// Keeps the address at which other gateways reach us, before they are told of it: the workers listen there later.
pub(super) fn reserve(peer: &plan::Peer, beside: bool) -> Result<(Socket, SocketAddr), Trouble> {
    let address = peer.address;
    let kept = if beside { Ok(()) } else { free(address) };
    let kept = kept.and_then(|()| reserved(address));
    kept.map_err(|source| Trouble::Listen { listener: siblings::NAME.into(), address, source })
}

/// What the admin listener asks callers for.
pub(super) fn guarded(admin: &plan::Admin, metrics: &Metrics) -> Result<Guarded, Trouble> {
    let open = |tls| Certificates::shown(tls, Protocols::Http1, metrics.clients());
    let certificates = admin.tls.clone().map(open).transpose().map_err(Trouble::AdminTls)?;
    Ok((Door::of(admin)?, certificates))
}

pub(super) type Guarded = (Door, Option<Arc<Certificates>>);

/// All workers of a process.
pub(super) struct Workers {
    pub(super) threads: Vec<thread::JoinHandle<Drained>>,
    pub(super) turns: Vec<mpsc::UnboundedSender<Turn>>,
}

pub(super) fn start_workers<R: Staffed<Tcp>>(shared: Shared<R>) -> Result<Workers, Trouble> {
    let (plan, workers) = (shared.edition.plan.clone(), shared.workers);
    let mut address = plan.listener.address;
    let listeners = 1 + usize::from(shared.ours.is_some());
    files::suffice(plan.listener.limits.connections.saturating_mul(listeners));
    let bound = if shared.beside { Ok(()) } else { free(address) };
    bound.map_err(|source| Trouble::Listen { listener: plan.listener.name.clone(), address, source })?;
    let mut all = Workers { threads: Vec::new(), turns: Vec::new() };
    for _ in 0..workers {
        let started = worker::start(Tcp, address, shared.clone());
        let Started { address: bound, thread, turns } = started.map_err(Trouble::of_listener)?;
        // Port 0: the others listen on what the first one got.
        address = bound;
        all.threads.push(thread);
        all.turns.push(turns);
    }
    info!(listener = %plan.listener.name, %address, workers, "listening");
    if let Some(ours) = &shared.ours {
        let (address, advertised) = (ours.address, &ours.reach.address);
        info!(listener = siblings::NAME, %address, %advertised, workers, "listening");
    }
    Ok(all)
}

/// The workers share their address among each other, and would with another gateway of the same user: half of the
/// connections would go to the wrong process. So the address has to be nobody's first.
fn free(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    End,
    Reload,
}

/// SIGTERM and SIGINT, and SIGHUP. Until these are heard, each of them kills.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// To be called before anything listens: what has begun is to be ended in order.
    pub(super) fn heard_on(runtime: &Runtime) -> io::Result<Self> {
        let _context = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at the next one that asks for the end.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
        }
    }

    /// Returns at the next one that asks for the file to be read again, or for the end.
    pub(super) async fn next_of_all(&mut self) -> Wanted {
        tokio::select! {
            _ = self.terminate.recv() => Wanted::End,
            _ = self.interrupt.recv() => Wanted::End,
            _ = self.hangup.recv() => Wanted::Reload,
        }
    }

    pub(super) async fn give_up_at_the_second(mut self) {
        self.next().await;
        warn!("second signal: stopping at once; locks go by the session timeout");
        std::process::exit(1);
    }
}

pub(super) fn left_behind(worker: thread::Result<Drained>) -> usize {
    match worker {
        Ok(Drained::Clean) => 0,
        Ok(Drained::Left { exchanges }) => {
            warn!(exchanges, "drain took too long");
            // A connection without an exchange holds no lock; it only did not take its answer.
            exchanges
        }
        Err(_) => {
            error!("a worker panicked");
            1
        }
    }
}
