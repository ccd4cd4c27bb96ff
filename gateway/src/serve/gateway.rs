//! Starts everything, waits for the signal, and stops everything in the order that keeps locks safe.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{Arc, OnceLock},
    thread,
};

use fencegate_policies::plan::{Gateway, Plan};
use futures_util::future::join_all;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::worker::{self, Drained, Shared};
use crate::{
    admin::{self, metrics::Metrics},
    lock::{desk::Desk, keeper::keeper, rotate::SEQUENCE_LIMIT},
    network::Tcp,
    randomness::SystemRandomness,
    session::{
        clock::{MachineClock, SharedClock},
        era::{FORMAT, Member, Meta},
        supervise::Settings,
        zookeeper::Servers,
    },
};

/// What `fencegate run` is told beside the policy.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Make the installation's nodes in ZooKeeper, where missing.
    pub init: bool,
    pub workers: usize,
}

/// Why the gateway does not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("listen on {address}, the {listener} listener: {source}")]
    Listen { listener: String, address: SocketAddr, source: io::Error },
    #[error("start a thread or runtime")]
    Start(#[from] io::Error),
    #[error("the session's thread has panicked; locks go by the session timeout")]
    SessionEnded,
    #[error("{0} requests were still at work when the drain was over")]
    NotDrained(usize),
}

/// Runs until SIGTERM or SIGINT, then drains: no new connection, every request in progress answered, every lock given
/// back, the session closed. A second signal ends the process at once.
pub fn run(gateway: Gateway, options: Options) -> Result<(), Trouble> {
    let plan = Arc::new(gateway.serving.clone());
    let clock: SharedClock = Arc::new(MachineClock);
    let metrics = Metrics::new(&gateway);
    let (keeper, desks) = keeper(clock.clone(), gateway.zookeeper.sessions);
    let (drain, close) = (CancellationToken::new(), CancellationToken::new());
    let signals = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let admin = bind_admin(plan.admin.address)?;
    let installation = Arc::default();
    let settings = (0..desks.len())
        .map(|number| Settings {
            metrics: metrics.session(number),
            ..settings(&gateway, options, &clock, &metrics, &installation)
        })
        .collect();
    let (alive, session_ends) = tokio::sync::oneshot::channel::<Infallible>();
    let session = start_sessions(desks, settings, close.clone(), alive)?;
    let workers = options.workers.max(1);
    let shared = Shared {
        plan: plan.clone(),
        keeper: keeper.clone(),
        metrics: metrics.clone(),
        clock,
        workers,
        drain,
    };
    let drain = shared.drain.clone();
    let threads = start_workers(&plan, workers, shared)?;
    admin::start(admin, admin::Seen { keeper, metrics, drain: drain.clone() })?;
    signals.block_on(async {
        tokio::select! {
            stopped = stopped() => stopped.map_err(Trouble::Start),
            // Closed without a word when the thread unwinds.
            _ = session_ends => Err(Trouble::SessionEnded),
        }
    })?;
    info!("draining");
    drain.cancel();
    thread::spawn(move || signals.block_on(give_up_at_second_signal()));
    let left: usize = threads.into_iter().map(|worker| left_behind(worker.join())).sum();
    if left > 0 {
        // The session is not closed: its nodes stay until its timeout, so that nobody gets a key whose upstream may
        // still be at work.
        return Err(Trouble::NotDrained(left));
    }
    close.cancel();
    if session.join().is_err() {
        error!("the session's thread panicked; its nodes go by the session timeout");
    }
    info!("stopped");
    Ok(())
}

fn settings(
    gateway: &Gateway,
    options: Options,
    clock: &SharedClock,
    metrics: &Metrics,
    installation: &Arc<OnceLock<Meta>>,
) -> Settings {
    let member = Member {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: format!("{:016x}", gateway.fingerprint),
    };
    Settings {
        policy: gateway.zookeeper.clone(),
        gateway: gateway.serving.name.clone().unwrap_or_else(host_name),
        member: serde_json::to_vec(&member).expect("plain fields serialise"),
        init: options.init,
        clock: clock.clone(),
        randomness: Arc::new(SystemRandomness),
        installation: installation.clone(),
        sequence_limit: SEQUENCE_LIMIT,
        metrics: metrics.session(0),
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn bind_admin(address: SocketAddr) -> Result<TcpListener, Trouble> {
    let listener = TcpListener::bind(address)
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(|source| Trouble::Listen { listener: "admin".into(), address, source })?;
    info!(listener = "admin", address = %listener.local_addr()?, "listening");
    Ok(listener)
}

/// The sessions have a thread of their own: a worker that computes for long must not cost them their life.
fn start_sessions(
    desks: Vec<Desk>,
    settings: Vec<Settings>,
    close: CancellationToken,
    alive: tokio::sync::oneshot::Sender<Infallible>,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name("session".into()).spawn(move || {
        let _alive = alive;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime needs an epoll instance, and the process has just started");
        let all = desks.into_iter().zip(settings).map(|(desk, settings)| {
            desk.run(Servers::of(&settings.policy), Rc::new(settings), close.clone())
        });
        LocalSet::new().block_on(&runtime, join_all(all));
    })
}

fn start_workers(
    plan: &Plan,
    workers: usize,
    shared: Shared,
) -> Result<Vec<thread::JoinHandle<Drained>>, Trouble> {
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

async fn stopped() -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => (),
        _ = interrupt.recv() => (),
    }
    Ok(())
}

async fn give_up_at_second_signal() {
    match stopped().await {
        Ok(()) => {
            warn!("second signal: stopping at once; locks go by the session timeout");
            std::process::exit(1);
        }
        Err(error) => warn!(%error, "signals are not heard any more"),
    }
}

fn left_behind(worker: thread::Result<Drained>) -> usize {
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
