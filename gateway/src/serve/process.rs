//! What both roles do as a process: listen, wait for the signal, drain.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    thread,
};

use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};
use tracing::{error, info, warn};

use super::worker::{self, Drained, Shared, Staffed};
use crate::{network::Tcp, ticket::BadFile, upstream::tls::BadTls};

/// Why a process does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("listen on {address}, the {listener} listener: {source}")]
    Listen { listener: String, address: SocketAddr, source: io::Error },
    #[error("start a thread or runtime")]
    Start(#[from] io::Error),
    #[error("read the key that tickets are signed with")]
    Key(#[from] BadFile),
    #[error("prepare TLS with an upstream")]
    UpstreamTls(#[source] BadTls),
    #[error("the session's thread has panicked; locks go by the session timeout")]
    SessionEnded,
    #[error("{0} requests were still at work when the drain was over")]
    NotDrained(usize),
}

pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub(super) fn bind_admin(address: SocketAddr) -> Result<TcpListener, Trouble> {
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| Trouble::Listen { listener: "admin".into(), address, source })?;
    info!(listener = "admin", address = %listener.local_addr()?, "listening");
    Ok(listener)
}

pub(super) fn start_workers<R: Staffed<Tcp>>(
    shared: Shared<R>,
) -> Result<Vec<thread::JoinHandle<Drained>>, Trouble> {
    let (plan, workers) = (shared.plan.clone(), shared.workers);
    let mut address = plan.listener.address;
    free(address).map_err(|source| Trouble::Listen {
        listener: plan.listener.name.clone(),
        address,
        source,
    })?;
    let mut threads = Vec::with_capacity(workers);
    for _ in 0..workers {
        let started = worker::start(Tcp, address, shared.clone());
        let (bound, thread) = started.map_err(|source| Trouble::Listen {
            listener: plan.listener.name.clone(),
            address,
            source,
        })?;
        // Port 0: the others listen on what the first one got.
        address = bound;
        threads.push(thread);
    }
    info!(listener = %plan.listener.name, %address, workers, "listening");
    Ok(threads)
}

/// The workers share their address among each other, and would with another gateway of the same user: half of the
/// connections would go to the wrong process. So the address has to be nobody's first.
fn free(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

/// SIGTERM and SIGINT. Until these are heard, either of them kills.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// To be called before anything listens: what has begun is to be ended in order.
    pub(super) fn heard_on(runtime: &Runtime) -> io::Result<Self> {
        let _context = runtime.enter();
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns at the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => (),
            _ = self.interrupt.recv() => (),
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
