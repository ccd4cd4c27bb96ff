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
    frontend::{LocalProcessRole, PipelineInstance, RawRequest, WorkerHttpHandler},
    handler::Handler,
    pipeline::PipelineParts,
    plan_context::WorkerPlanContext,
    steps::{
        authenticate::AccessTokenSource, client_limit::ClientConcurrencyLimit,
        fence::peer_forward::PeerForwarder,
    },
};
use futures_util::future::join;
use tokio::{
    sync::{mpsc, oneshot},
    task::LocalSet,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use super::{error::BindError, reload::ConfigUpdate, worker_context::WorkerContext};

/// The parts that a worker passes to the pipeline of one plan.
pub struct WorkerPipelineParts<N> {
    pub parts: PipelineParts,
    pub pool: Rc<ConnectionPool<N>>,
    /// Forwards requests to other gateways; `None` if other gateways cannot reach this one.
    pub forwarder: Option<Rc<PeerForwarder<N>>>,
}

/// The role of the process: it decides which steps a request passes.
pub trait WorkerRole<N>: Clone + Send + Sized + 'static {
    const ROLE: LocalProcessRole;

    /// The largest difference between the clocks of a sender and of this process. If there is one, every answer shows
    /// the clock of this process.
    fn clock_error(&self) -> Option<Duration> {
        None
    }

    fn pipeline(
        shared: &WorkerContext<Self>,
        worker: WorkerPipelineParts<N>,
    ) -> impl Handler<RawRequest> + use<N, Self>;
}

/// The way in which a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// Every exchange has ended and every answer was sent.
    Clean,
    /// The drain took too long; some fenced exchanges may still run upstream.
    TimedOut { exchanges: usize },
}

/// A worker that is listening.
pub struct WorkerHandle {
    /// The address of the worker, at which other workers can listen as well.
    pub address: ListenAddr,
    pub thread: thread::JoinHandle<DrainOutcome>,
    /// Switches the worker to another configuration.
    pub updates: mpsc::UnboundedSender<ConfigUpdate>,
}

/// Starts a worker, and returns once it listens.
///
/// # Errors
/// Returns an error if the worker cannot listen at the address.
pub fn start<N: Network + Send, R: WorkerRole<N>>(
    network: N,
    address: ListenAddr,
    shared: WorkerContext<R>,
) -> Result<WorkerHandle, BindError> {
    let (listening, bound) = oneshot::channel();
    let listener = shared.config.plan.listener.name.clone();
    let wanted = address.to_string();
    let bind_error = move |source| BindError { listener: listener.clone(), address: wanted.clone(), source };
    let runtime_error = bind_error.clone();
    let (sender, updates) = mpsc::unbounded_channel();
    let thread = thread::Builder::new().name("worker".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                let tasks = LocalSet::new();
                let drained = tasks.block_on(&runtime, run(network, address, shared, updates, listening));
                if drained != DrainOutcome::Clean {
                    // The tasks are not dropped: that would release locks while upstreams may be at work. The process
                    // ends now, and the locks are released by the session timeout. The kernel then closes the sockets
                    // with a reset, so no byte arrives after the end of the process.
                    std::mem::forget(tasks);
                }
                drained
            }
            Err(error) => {
                drop(listening.send(Err(runtime_error(error))));
                DrainOutcome::Clean
            }
        }
    });
    let thread = thread.map_err(&bind_error)?;
    let address = bound.blocking_recv().map_err(|gone| bind_error(io::Error::other(gone)))??;
    Ok(WorkerHandle { address, thread, updates: sender })
}

/// Serves until the drain is over. Sends the bound address as soon as it listens. Must be called on a current-thread
/// runtime inside a `LocalSet`.
pub async fn run<N: Network, R: WorkerRole<N>>(
    network: N,
    address: ListenAddr,
    shared: WorkerContext<R>,
    mut updates: mpsc::UnboundedReceiver<ConfigUpdate>,
    listening: oneshot::Sender<Result<ListenAddr, BindError>>,
) -> DrainOutcome {
    let (listener, peer_listener) = match listen(&network, &address, &shared) {
        Ok((address, listeners)) => {
            drop(listening.send(Ok(address)));
            listeners
        }
        Err(bind_error) => {
            drop(listening.send(Err(bind_error)));
            return DrainOutcome::Clean;
        }
    };
    let process = shared.process.clone();
    tokio::task::spawn_local(process.threads.register(ThreadRole::Requests));
    let idle = Rc::<peers::PeerPool>::default();
    let evicted = idle.clone();
    tokio::task::spawn_local(async move { evicted.run_connection_sweeper().await });
    let pool = Rc::new(ConnectionPool::new(network.clone(), process.clock.clone(), shared.guards.clone()));
    let swept = pool.clone();
    let endpoint_changes = shared.config.fleets.subscribe_to_waits();
    tokio::task::spawn_local(async move { swept.run_sweeper(endpoint_changes).await });
    let connections = TaskTracker::new();
    let exchanges = TaskTracker::new();
    let settings = &shared.config.plan.listener;
    let share = settings.limits.connections / shared.workers;
    let clients = process.metrics.clients();
    let acceptor = Rc::new(ConnectionAcceptor::new(
        settings,
        shared.certificates.clone(),
        share,
        shared.shares.clone(),
        process.budget.clone(),
        process.drain.clone(),
        clients,
    ));
    let peer_acceptor = shared.local_peer.as_ref().map(|local_peer| {
        let settings = local_peer.peer_listener_settings(settings);
        let certificates = local_peer.certificates.clone();
        let acceptor = ConnectionAcceptor::new(
            &settings,
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
        exchanges: exchanges.clone(),
    };
    let config = factory.shared.config.clone();
    let frontend = WorkerHttpHandler::new(factory.build(&config), R::ROLE, process.drain.clone());
    let drain_timeout = Rc::new(Cell::new(config.plan.listener.timeouts.drain));
    let running_frontend = frontend.clone();
    let running_drain_timeout = drain_timeout.clone();
    let running_acceptor = acceptor.clone();
    let local_peer = factory.shared.local_peer.clone();
    let running_peer_acceptor = peer_acceptor.clone();
    tokio::task::spawn_local(async move {
        while let Some(ConfigUpdate { config, taken }) = updates.recv().await {
            let begun = running_frontend.replace_pipeline(factory.build(&config));
            running_acceptor.update_config(&config.plan.listener);
            if let (Some(local_peer), Some(running_peer_acceptor)) = (&local_peer, &running_peer_acceptor) {
                running_peer_acceptor
                    .update_config(&local_peer.peer_listener_settings(&config.plan.listener));
            }
            running_drain_timeout.set(config.plan.listener.timeouts.drain);
            begun.await;
            // The send fails if the reload no longer waits for this worker.
            taken.send(()).ok();
        }
    });
    let serve_peers = async {
        if let (Some(peer_acceptor), Some(peer_listener)) = (peer_acceptor, peer_listener) {
            peer_acceptor.serve::<N>(peer_listener, Rc::new(frontend.for_peers()), &connections).await;
        }
    };
    join(acceptor.serve::<N>(listener, Rc::new(frontend.clone()), &connections), serve_peers).await;
    drain(drain_timeout.get(), &connections, &exchanges).await
}

type BoundListeners<N> = (ListenAddr, (<N as Network>::Listener, Option<<N as Network>::Listener>));

/// Listens on the public address, and on the address for gateways if there is one.
fn listen<N: Network, R>(
    network: &N,
    address: &ListenAddr,
    shared: &WorkerContext<R>,
) -> Result<BoundListeners<N>, BindError> {
    let public = &shared.config.plan.listener.name;
    let bind_error = |listener: &str, address: &ListenAddr| {
        let listener = listener.to_owned();
        let address = address.to_string();
        move |source| BindError { listener, address, source }
    };
    let listener = network.listen(address).map_err(bind_error(public, address))?;
    let address = listener.listen_addr().map_err(bind_error(public, address))?;
    let peer_listener = shared.local_peer.as_ref().map(|local_peer| {
        let address = ListenAddr::from(local_peer.address);
        network.listen(&address).map_err(bind_error(peers::NAME, &address))
    });
    Ok((address, (listener, peer_listener.transpose()?)))
}

/// Makes the pipeline of each configuration.
struct PipelineFactory<N, R> {
    shared: WorkerContext<R>,
    network: N,
    /// Idle connections to other gateways, kept over reloads.
    idle: Rc<peers::PeerPool>,
    pool: Rc<ConnectionPool<N>>,
    exchanges: TaskTracker,
    /// Counts requests in flight over all configurations.
    in_flight: ConcurrencyLimit,
}

impl<N: Network, R: WorkerRole<N>> PipelineFactory<N, R> {
    fn build(&self, config: &Arc<ActiveConfig>) -> PipelineInstance {
        let WorkerContext { process, guards, shares, via, workers, local_peer, .. } = &self.shared;
        let metrics = Rc::new(WorkerMetrics::new(process.metrics.clone(), &config.plan));
        let limits = &config.plan.listener.limits;
        let share = (limits.in_flight / workers).max(1);
        process.budget.update(limits);
        let plan = Rc::new(WorkerPlanContext {
            process: process.clone(),
            config: config.clone(),
            metrics: metrics.clone(),
            guards: guards.clone(),
            clients: shares.clone(),
            running: self.exchanges.clone(),
        });
        let forwarder = local_peer.clone().map(|local_peer| {
            let network = self.network.clone();
            Rc::new(PeerForwarder { network, local_peer, plan: plan.clone(), idle: self.idle.clone() })
        });
        let parts = PipelineParts {
            plan,
            in_flight: self.in_flight.with_max_requests(share),
            per_client: ClientConcurrencyLimit { shares: shares.clone(), most: limits.per_client },
            via: via.clone(),
            peer_secret: local_peer.as_ref().map(|local_peer| local_peer.reach.pass.clone()),
            tickets: None,
            leases: None,
            tokens: AccessTokenSource::Verified(config.tokens.clone()),
        };
        let worker = WorkerPipelineParts { parts, pool: self.pool.clone(), forwarder };
        let sinks = self.shared.telemetry.plan_sinks(&config.plan.log);
        let instance = PipelineInstance::new(R::pipeline(&self.shared, worker), metrics)
            .with_sinks(sinks)
            .with_cors(config.plan.listener.cors.as_ref());
        match self.shared.role.clock_error() {
            Some(error) => instance.with_clock_header(process.clock.clone(), error),
            None => instance,
        }
    }
}

/// Waits for the connections first, because their requests start exchanges, and then for exchanges whose connections
/// have ended.
async fn drain(within: Duration, connections: &TaskTracker, exchanges: &TaskTracker) -> DrainOutcome {
    connections.close();
    exchanges.close();
    let ended = timeout(within, async {
        connections.wait().await;
        exchanges.wait().await;
    });
    match ended.await {
        Ok(()) => DrainOutcome::Clean,
        Err(_elapsed) => DrainOutcome::TimedOut { exchanges: exchanges.len() },
    }
}
