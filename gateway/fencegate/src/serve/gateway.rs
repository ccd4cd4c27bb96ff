//! Starts everything, waits for the signal, and stops everything in the order that keeps locks safe.

use std::{convert::Infallible, io, path::PathBuf, rc::Rc, sync::Arc, thread};

use fencegate_http::{
    buffered::Budget,
    listen::certificates::Certificates,
    network::{Network, Tcp},
    share::Shares,
    upstream::{fleet::Fleets, health},
};
use fencegate_lock::{
    recipe::rotate::SEQUENCE_LIMIT,
    session::{
        complaints::Complaints, metered::Metered, nameplate::Nameplate, settings::Settings,
        zookeeper::Servers,
    },
    state::Memory,
    tenures::{
        desk::Desk,
        keeper::{Keeper, keeper},
    },
};
use fencegate_policies::plan::Gateway;
use fencegate_process::{
    clock::{MachineClock, SharedClock},
    randomness::{Guid, SystemRandomness},
    shown,
};
use futures_util::future::join_all;
use tokio::{sync::mpsc, task::LocalSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::{
    notify::Manager,
    process::{self, Signals, Trouble, Wanted, bind_admin, guarded, host_name, left_behind, reserve},
    reload::{self, Asked, Reloader, Watcher},
    worker::{Bench, Shared, Staffed},
};
use crate::{
    access::Tellers,
    admin::{self, Csrf, effective::InForce, trends::Trends},
    edition::Edition,
    front::{Arrived, Role},
    metrics::{Metrics, hot::Hot},
    siblings::Ours,
    stack,
    step::Serve,
    steps::{fence::Fencing, hop::HopName, route::Routing},
    ticketing::Ticketing,
    trust::Guards,
};

/// What `fencegate run` is told beside the policy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the policy was read from, and is read from again.
    pub file: PathBuf,
    /// Read it again when it changes.
    pub watch: bool,
    /// Make the installation's nodes in ZooKeeper, where missing.
    pub init: bool,
    /// Beside a gateway with the same addresses, which is about to stop.
    pub beside: bool,
    pub workers: usize,
}

/// The gateway's part of a worker.
#[derive(Clone)]
struct Gatekeeping {
    keeper: Keeper,
    tickets: Option<Arc<Ticketing>>,
    hot: Hot,
}

impl<N: Network> Staffed<N> for Gatekeeping {
    const ROLE: Role = Role::Gateway;

    fn stack(shared: &Shared<Self>, bench: Bench<N>) -> impl Serve<Arrived> + use<N> {
        let Bench { edition, parts, metrics, forward, courier, .. } = bench;
        let fencing = Fencing {
            edition: edition.clone(),
            keeper: shared.role.keeper.clone(),
            courier,
            guards: shared.guards.clone(),
            tickets: shared.role.tickets.clone(),
            hot: shared.role.hot.clone(),
            shares: shared.shares.clone(),
            clock: shared.clock.clone(),
            running: parts.running.clone(),
            drain: shared.drain.clone(),
            metrics: metrics.clone(),
            budget: shared.budget.clone(),
        };
        let routing = Routing::of(edition, metrics);
        stack::gateway(parts, routing, fencing, forward)
    }
}

/// Runs until SIGTERM or SIGINT, then drains: no new connection, every request in progress answered, every lock given
/// back, the session closed. A second signal ends the process at once.
pub fn run(gateway: Gateway, options: Options) -> Result<(), Trouble> {
    shown::keys_are(gateway.serving.log.keys);
    let plan = Arc::new(gateway.serving.clone());
    let clock: SharedClock = Arc::new(MachineClock);
    let metrics = Metrics::of_gateway(&gateway);
    let budget = Budget::of_this_process(metrics.buffered().clone());
    let (keeper, desks) = keeper(clock.clone(), gateway.zookeeper.sessions);
    let counted = keeper.clone();
    metrics.count_keys(move || counted.keys());
    let (drain, close) = (CancellationToken::new(), CancellationToken::new());
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = Signals::heard_on(&waiting)?;
    let door = guarded(&plan.admin, &metrics)?;
    let admin = bind_admin(plan.admin.address, options.beside)?;
    let memory = match &gateway.state_dir {
        Some(folder) => {
            let counted = metrics.session(0);
            Memory::open(folder, &SystemRandomness, move || counted.state_failed())?
        }
        None => Arc::default(),
    };
    let name: Arc<str> = gateway.serving.name.clone().unwrap_or_else(host_name).into();
    let kept = gateway.peer.as_ref().map(|peer| reserve(peer, options.beside)).transpose()?;
    let ours =
        gateway.peer.as_ref().zip(kept.as_ref()).map(|(peer, (_, bound))| {
            Ours::of(peer, name.clone(), *bound, metrics.clients(), &SystemRandomness)
        });
    let ours = ours.transpose()?;
    let nameplate = Nameplate::reached_at(gateway.fingerprint, ours.as_ref().map(|ours| ours.reach.clone()));
    let complaints = Arc::new(Complaints::default());
    let census = Arc::default();
    let settings = (0..desks.len())
        .map(|number| Settings {
            metrics: metrics.session(number),
            complaints: complaints.clone(),
            census: Arc::clone(&census),
            ..settings(&gateway, &options, &clock, &metrics, &nameplate, &memory)
        })
        .collect();
    let (alive, session_ends) = tokio::sync::oneshot::channel::<Infallible>();
    let session = start_sessions(desks, settings, close.clone(), alive)?;
    let workers = options.workers.max(1);
    let tickets = gateway.tickets.as_ref().map(|key| Ticketing::new(key, &gateway, &memory)).transpose()?;
    let (hot, in_force) = (Hot::default(), InForce::new(gateway.clone()));
    let role = Gatekeeping { keeper: keeper.clone(), tickets: tickets.clone(), hot: hot.clone() };
    let remembered = memory.clone();
    let guards = Arc::new(Guards::new(memory));
    let hop = HopName::new(Guid::new(&SystemRandomness));
    let fleets = Fleets::of(&plan, metrics.endpoints()).map_err(Trouble::UpstreamTls)?;
    health::start(Tcp, &fleets)?;
    let edition = Edition::first(plan.clone(), fleets);
    let (known, seen) = (guards.clone(), metrics.clone());
    let certificates = Certificates::open(&plan.listener, metrics.clients()).map_err(Trouble::ListenerTls)?;
    let tellers = Tellers::start(&metrics)?;
    let shared = Shared {
        tellers: tellers.clone(),
        edition: edition.clone(),
        metrics: seen,
        clock,
        hop,
        guards: known,
        shares: Shares::default(),
        budget,
        beside: options.beside,
        workers,
        drain,
        certificates: certificates.clone(),
        ours: ours.clone(),
        role,
    };
    let drain = shared.drain.clone();
    let workers = process::start_workers(shared)?;
    drop(kept);
    let (asking, asked) = reload::asking();
    let jwks = tickets.and_then(|tickets| tickets.jwks());
    let trends = Trends::default();
    let seen = admin::Seen {
        name,
        keeper: keeper.clone(),
        metrics: metrics.clone(),
        in_force: in_force.clone(),
        hot,
        trends: trends.clone(),
        jwks,
        drain: drain.clone(),
        asking,
        csrf: Csrf::new(&SystemRandomness),
    };
    admin::listen::start(admin, admin::routes(seen), door, trends.follow(metrics.clone()))?;
    let file = options.file.clone();
    let mut watcher = options.watch.then(|| Watcher::of(file.clone()));
    let turns = workers.turns;
    let (manager, starting) = (Manager::found(), keeper.clone());
    let mut reloader = Reloader {
        file,
        started: gateway.clone(),
        gateway,
        edition,
        workers: turns,
        metrics,
        guards,
        certificates: certificates.into_iter().chain(ours.and_then(|ours| ours.certificates)).collect(),
        keeper,
        nameplate,
        in_force,
    };
    waiting.block_on(async {
        tokio::select! {
            () = serve_reloads(&mut signals, asked, &mut watcher, &mut reloader) => Ok(()),
            () = manager.told_when(|| starting.is_ready()) => Ok(()),
            // Closed without a word when the thread unwinds.
            _ = session_ends => Err(Trouble::SessionEnded),
        }
    })?;
    info!("draining");
    manager.stopping();
    drain.cancel();
    thread::spawn(move || waiting.block_on(signals.give_up_at_the_second()));
    let left: usize = workers.threads.into_iter().map(|worker| left_behind(worker.join())).sum();
    if left > 0 {
        // The session is not closed: its nodes stay until its timeout, so that nobody gets a key whose upstream may
        // still be at work.
        return Err(Trouble::NotDrained(left));
    }
    tellers.finish();
    close.cancel();
    let ended = session.join();
    remembered.close();
    if ended.is_err() {
        error!("the session's thread panicked; its nodes go by the session timeout");
    }
    info!("stopped");
    Ok(())
}

/// Reads the file again when a signal, the admin listener or the file itself asks for it; returns when a signal or the
/// admin listener asks for the end.
async fn serve_reloads(
    signals: &mut Signals,
    mut asked: mpsc::UnboundedReceiver<Asked>,
    watcher: &mut Option<Watcher>,
    reloader: &mut Reloader,
) {
    let changed = async |watcher: &mut Option<Watcher>| match watcher {
        Some(watcher) => watcher.changed().await,
        None => std::future::pending().await,
    };
    loop {
        let (dry, told) = tokio::select! {
            wanted = signals.next_of_all() => match wanted {
                Wanted::End => return,
                Wanted::Reload => (false, None),
            },
            Some(asked) = asked.recv() => match asked {
                Asked::Reload { dry, told } => (dry, Some(told)),
                Asked::Drain => return,
            },
            () = changed(watcher) => (false, None),
        };
        let report = reloader.reload(dry).await;
        if let Some(told) = told {
            // Who asked has gone.
            told.send(report).ok();
        }
    }
}

fn settings(
    gateway: &Gateway,
    options: &Options,
    clock: &SharedClock,
    metrics: &Metrics,
    nameplate: &Nameplate,
    memory: &Arc<Memory>,
) -> Settings {
    Settings {
        policy: gateway.zookeeper.clone(),
        gateway: gateway.serving.name.clone().unwrap_or_else(host_name),
        member: nameplate.clone(),
        init: options.init,
        clock: clock.clone(),
        randomness: Arc::new(SystemRandomness),
        memory: memory.clone(),
        census: Arc::default(),
        sequence_limit: SEQUENCE_LIMIT,
        metrics: metrics.session(0),
        complaints: Arc::default(),
    }
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
            desk.run(
                Metered::new(Servers::of(&settings.policy), &settings.metrics),
                Rc::new(settings),
                close.clone(),
            )
        });
        LocalSet::new().block_on(&runtime, join_all(all));
    })
}
