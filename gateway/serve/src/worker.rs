//! A worker: one thread, one current-thread runtime, its own share of the listener and its own upstream connections.

use std::{cell::Cell, io, rc::Rc, sync::Arc, thread, time::Duration};

use fencegate_config::active_config::ActiveConfig;
use fencegate_http::{
    listen::ConnectionAcceptor,
    network::{Accept, Network, listen_addr::ListenAddr},
};
use fencegate_http_client::upstream::pool::ConnectionPool;
use fencegate_metrics::WorkerMetrics;
use fencegate_peers as peers;
use fencegate_process::liveness::ThreadRole;
use fencegate_proxy::{
    concurrency_limit::ConcurrencyLimit,
    frontend::{PipelineInstance, RawRequest, ServingRole, WorkerFrontend},
    handler::Handler,
    pipeline::PipelineParts,
    plan_context::PlanContext,
    steps::{client_limit::ClientConcurrencyLimit, fence::peer_forward::PeerForwarder},
};
use futures_util::future::join;
use tokio::{
    sync::{mpsc, oneshot},
    task::LocalSet,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::{error::BindError, reload::ConfigUpdate, worker_context::WorkerContext};

/// What a worker gives to the pipeline of one plan.
pub struct WorkerParts<N> {
    pub parts: PipelineParts,
    pub pool: Rc<ConnectionPool<N>>,
    /// Forwards requests to other gateways, where these can reach this one as well.
    pub forwarder: Option<Rc<PeerForwarder<N>>>,
}

/// The role of the process: it decides which steps a request passes.
pub trait WorkerRole<N>: Clone + Send + Sized + 'static {
    const ROLE: ServingRole;

    /// By how much the clock of a sender may differ. Where there is such a limit, every answer shows our clock.
    fn clock_error(&self) -> Option<Duration> {
        None
    }

    fn pipeline(
        shared: &WorkerContext<Self>,
        worker: WorkerParts<N>,
    ) -> impl Handler<RawRequest> + use<N, Self>;
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Every exchange ended and every answer has left.
    Clean,
    /// The drain took too long; some fenced exchanges may still run upstream.
    TimedOut { exchanges: usize },
}

/// A worker that listens.
pub struct WorkerHandle {
    /// Its address, on which other workers can listen as well.
    pub place: ListenAddr,
    pub thread: thread::JoinHandle<DrainOutcome>,
    /// Receives other config generations.
    pub turns: mpsc::UnboundedSender<ConfigUpdate>,
}

/// Starts a worker and returns once it listens.
///
/// # Errors
/// The address cannot be listened on.
pub fn start<N: Network + Send, R: WorkerRole<N>>(
    network: N,
    place: ListenAddr,
    shared: WorkerContext<R>,
) -> Result<WorkerHandle, BindError> {
    let (listening, listens) = oneshot::channel();
    let public = shared.edition.plan.listener.name.clone();
    let address = place.to_string();
    let deaf = move |source| BindError { listener: public.clone(), address: address.clone(), source };
    let unable = deaf.clone();
    let (turns, updates) = mpsc::unbounded_channel();
    let thread = thread::Builder::new().name("worker".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                let tasks = LocalSet::new();
                let drained = tasks.block_on(&runtime, run(network, place, shared, updates, listening));
                if drained != DrainOutcome::Clean {
                    // Dropping an exchange releases its lock while its upstream may be at work. The process ends now;
                    // the lock goes with the session timeout. The kernel closes the sockets then. Each of them
                    // resets, so no byte arrives after the end of the process.
                    std::mem::forget(tasks);
                }
                drained
            }
            Err(error) => {
                drop(listening.send(Err(unable(error))));
                DrainOutcome::Clean
            }
        }
    });
    let thread = thread.map_err(&deaf)?;
    let place = listens.blocking_recv().map_err(|gone| deaf(io::Error::other(gone)))??;
    Ok(WorkerHandle { place, thread, turns })
}

/// Serves until the drain is over. The bound address is reported as soon as it listens. Call it on a current-thread
/// runtime inside a `LocalSet`.
pub async fn run<N: Network, R: WorkerRole<N>>(
    network: N,
    place: ListenAddr,
    shared: WorkerContext<R>,
    mut turns: mpsc::UnboundedReceiver<ConfigUpdate>,
    listening: oneshot::Sender<Result<ListenAddr, BindError>>,
) -> DrainOutcome {
    let (listener, gateways) = match listen(&network, &place, &shared) {
        Ok((place, listeners)) => {
            drop(listening.send(Ok(place)));
            listeners
        }
        Err(deaf) => {
            drop(listening.send(Err(deaf)));
            return DrainOutcome::Clean;
        }
    };
    let process = shared.process.clone();
    tokio::task::spawn_local(process.threads.register(ThreadRole::Requests));
    let idle = Rc::<peers::PeerPool>::default();
    let looked_through = idle.clone();
    tokio::task::spawn_local(async move { looked_through.evict_idle().await });
    let pool = Rc::new(ConnectionPool::new(network.clone(), process.clock.clone(), shared.guards.clone()));
    let tended = pool.clone();
    let bell = shared.edition.fleets.subscribe();
    tokio::task::spawn_local(async move { tended.run_sweeper(bell).await });
    let open = TaskTracker::new();
    let running = TaskTracker::new();
    let listens = &shared.edition.plan.listener;
    let share = listens.limits.connections / shared.workers;
    let clients = process.metrics.clients();
    let acceptor = Rc::new(ConnectionAcceptor::new(
        listens,
        shared.certificates.clone(),
        share,
        shared.shares.clone(),
        process.budget.clone(),
        process.drain.clone(),
        clients,
    ));
    let among = shared.ours.as_ref().map(|ours| {
        let listens = ours.listener(listens);
        let certificates = ours.certificates.clone();
        let acceptor = ConnectionAcceptor::new(
            &listens,
            certificates,
            share,
            shared.shares.clone(),
            process.budget.clone(),
            process.drain.clone(),
            clients,
        );
        Rc::new(acceptor.reject_when_full())
    });
    let factory = PipelineFactory {
        in_flight: ConcurrencyLimit::new(1),
        shared,
        network,
        idle,
        pool,
        running: running.clone(),
    };
    let config = factory.shared.edition.clone();
    let front = WorkerFrontend::new(factory.build(&config), R::ROLE, process.drain.clone());
    let patience = Rc::new(Cell::new(config.plan.listener.timeouts.drain));
    let running_frontend = front.clone();
    let running_patience = patience.clone();
    let running_acceptor = acceptor.clone();
    let ours = factory.shared.ours.clone();
    let also = among.clone();
    tokio::task::spawn_local(async move {
        while let Some(ConfigUpdate { edition: config, taken }) = turns.recv().await {
            let begun = running_frontend.replace_pipeline(factory.build(&config));
            running_acceptor.update_config(&config.plan.listener);
            if let (Some(ours), Some(also)) = (&ours, &also) {
                also.update_config(&ours.listener(&config.plan.listener));
            }
            running_patience.set(config.plan.listener.timeouts.drain);
            begun.await;
            // Fails when the receiver no longer waits for it.
            taken.send(()).ok();
        }
    });
    let to_gateways = async {
        if let (Some(among), Some(gateways)) = (among, gateways) {
            among.serve::<N>(gateways, Rc::new(front.for_peers()), &open).await;
        }
    };
    join(acceptor.serve::<N>(listener, Rc::new(front.clone()), &open), to_gateways).await;
    drain(patience.get(), &open, &running).await
}

type BoundListeners<N> = (ListenAddr, (<N as Network>::Listener, Option<<N as Network>::Listener>));

/// Listens on the public address, and on that for gateways where there is one.
fn listen<N: Network, R>(
    network: &N,
    place: &ListenAddr,
    shared: &WorkerContext<R>,
) -> Result<BoundListeners<N>, BindError> {
    let public = &shared.edition.plan.listener.name;
    let deaf = |listener: &str, place: &ListenAddr| {
        let listener = listener.to_owned();
        let address = place.to_string();
        move |source| BindError { listener, address, source }
    };
    let listener = network.listen(place).map_err(deaf(public, place))?;
    let place = listener.listen_addr().map_err(deaf(public, place))?;
    let gateways = shared.ours.as_ref().map(|ours| {
        let place = ListenAddr::from(ours.address);
        network.listen(&place).map_err(deaf(peers::NAME, &place))
    });
    Ok((place, (listener, gateways.transpose()?)))
}

/// Makes the steps of each config generation.
struct PipelineFactory<N, R> {
    shared: WorkerContext<R>,
    network: N,
    /// Connections to other gateways.
    idle: Rc<peers::PeerPool>,
    pool: Rc<ConnectionPool<N>>,
    running: TaskTracker,
    /// Continues from one config generation to the next.
    in_flight: ConcurrencyLimit,
}

impl<N: Network, R: WorkerRole<N>> PipelineFactory<N, R> {
    fn build(&self, config: &Arc<ActiveConfig>) -> PipelineInstance {
        let WorkerContext { process, guards, shares, hop, workers, ours, .. } = &self.shared;
        let metrics = Rc::new(WorkerMetrics::new(process.metrics.clone(), &config.plan));
        let limits = &config.plan.listener.limits;
        let share = (limits.in_flight / workers).max(1);
        process.budget.update(limits);
        let plan = Rc::new(PlanContext {
            process: process.clone(),
            config: config.clone(),
            metrics: metrics.clone(),
            guards: guards.clone(),
            clients: shares.clone(),
            running: self.running.clone(),
        });
        let forwarder = ours.clone().map(|ours| {
            let network = self.network.clone();
            Rc::new(PeerForwarder { network, ours, plan: plan.clone(), idle: self.idle.clone() })
        });
        let parts = PipelineParts {
            plan,
            in_flight: self.in_flight.with_limit(share),
            per_client: ClientConcurrencyLimit { shares: shares.clone(), most: limits.per_client },
            hop: hop.clone(),
            pass: ours.as_ref().map(|ours| ours.reach.pass.clone()),
            callers: None,
            leases: None,
        };
        let worker = WorkerParts { parts, pool: self.pool.clone(), forwarder };
        let sinks = self.shared.tellers.plan_sinks(&config.plan.log);
        let instance = PipelineInstance::new(R::pipeline(&self.shared, worker), metrics).with_sinks(sinks);
        match self.shared.role.clock_error() {
            Some(error) => instance.with_clock_header(process.clock.clone(), error),
            None => instance,
        }
    }
}

/// Waits for the connections first, because their requests start exchanges; then for exchanges that no connection
/// waits for any more.
async fn drain(patience: Duration, open: &TaskTracker, running: &TaskTracker) -> DrainOutcome {
    open.close();
    running.close();
    let ended = timeout(patience, async {
        open.wait().await;
        running.wait().await;
    });
    match ended.await {
        Ok(()) => DrainOutcome::Clean,
        Err(_elapsed) => DrainOutcome::TimedOut { exchanges: running.len() },
    }
}
