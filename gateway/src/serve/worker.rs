//! A worker: one thread, one current-thread runtime, its own share of the listener and its own upstream connections.

use std::{io, net::SocketAddr, rc::Rc, sync::Arc, thread};

use fencegate_policies::plan::Plan;
use tokio::{sync::oneshot, task::LocalSet, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admin::metrics::{Metrics, WorkerMetrics},
    front::{Front, Role},
    listen::Door,
    network::{Accept, Network},
    session::clock::SharedClock,
    stack::Parts,
    stage::Arrived,
    step::Serve,
    steps::{forward::Forward, hop::HopName, limit::InFlight},
    upstream::{fleet::Fleets, guards::Guards, pool::Pool},
};

/// What all workers share.
#[derive(Clone)]
pub struct Shared<R> {
    pub plan: Arc<Plan>,
    pub metrics: Arc<Metrics>,
    pub clock: SharedClock,
    /// What this process is called by other hops.
    pub hop: HopName,
    /// What is known of the guards among the upstreams.
    pub guards: Arc<Guards>,
    /// The endpoints of the upstreams.
    pub fleets: Arc<Fleets>,
    /// How many they are.
    pub workers: usize,
    pub drain: CancellationToken,
    pub role: R,
}

/// What a worker has for itself.
pub struct Bench<N> {
    pub parts: Parts,
    pub metrics: Rc<WorkerMetrics>,
    pub pool: Rc<Pool<N>>,
    pub forward: Forward<N>,
}

/// Gateway or guard: which steps a request walks through.
pub trait Staffed<N>: Clone + Send + Sized + 'static {
    const ROLE: Role;

    fn stack(shared: &Shared<Self>, bench: Bench<N>) -> impl Serve<Arrived>;
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every exchange ended and every answer has left.
    Clean,
    /// The drain took too long; some fenced exchanges may still run upstream.
    Left { exchanges: usize },
}

/// Starts a worker and returns once it listens.
///
/// # Errors
/// The address cannot be listened on.
pub fn start<N: Network + Send, R: Staffed<N>>(
    network: N,
    address: SocketAddr,
    shared: Shared<R>,
) -> io::Result<(SocketAddr, thread::JoinHandle<Drained>)> {
    let (listening, listens) = oneshot::channel();
    let thread = thread::Builder::new().name("worker".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                let tasks = LocalSet::new();
                let drained = tasks.block_on(&runtime, run(network, address, shared, listening));
                if drained != Drained::Clean {
                    // Dropping an exchange gives its lock back, and its upstream may be at work. The process ends
                    // now; the lock goes by the session timeout.
                    std::mem::forget(tasks);
                }
                drained
            }
            Err(error) => {
                drop(listening.send(Err(error)));
                Drained::Clean
            }
        }
    })?;
    let address = listens.blocking_recv().map_err(io::Error::other)??;
    Ok((address, thread))
}

async fn run<N: Network, R: Staffed<N>>(
    network: N,
    address: SocketAddr,
    shared: Shared<R>,
    listening: oneshot::Sender<io::Result<SocketAddr>>,
) -> Drained {
    let listener = match network.listen(address) {
        Ok(listener) => listener,
        Err(error) => {
            drop(listening.send(Err(error)));
            return Drained::Clean;
        }
    };
    drop(listening.send(listener.address()));
    let pool = Rc::new(Pool::new(network, shared.clock.clone(), shared.guards.clone()));
    let (tended, bell) = (pool.clone(), shared.fleets.bell());
    tokio::task::spawn_local(async move { tended.tend(bell).await });
    let (open, running) = (TaskTracker::new(), TaskTracker::new());
    let front = front(&shared, pool, running.clone());
    let limits = &shared.plan.listener.limits;
    let door = Door::new(&shared.plan.listener, limits.connections / shared.workers, shared.drain.clone());
    door.serve::<N, _>(listener, front, &open).await;
    drain(&shared.plan, &open, &running).await
}

fn front<N: Network, R: Staffed<N>>(
    shared: &Shared<R>,
    pool: Rc<Pool<N>>,
    running: TaskTracker,
) -> Front<impl Serve<Arrived>> {
    let metrics = Rc::new(WorkerMetrics::new(shared.metrics.clone()));
    let share = (shared.plan.listener.limits.in_flight / shared.workers).max(1);
    let (hop, plan) = (shared.hop.clone(), shared.plan.clone());
    let parts = Parts { in_flight: InFlight::at_most(share), hop, plan, running };
    let forward = Forward {
        pool: pool.clone(),
        clock: shared.clock.clone(),
        metrics: metrics.clone(),
        guards: shared.guards.clone(),
        fleets: shared.fleets.clone(),
    };
    let bench = Bench { parts, metrics: metrics.clone(), pool, forward };
    Front::new(R::stack(shared, bench), metrics, R::ROLE)
}

/// The connections first, because their requests start exchanges; then what no connection waits for any more.
async fn drain(plan: &Plan, open: &TaskTracker, running: &TaskTracker) -> Drained {
    open.close();
    running.close();
    let ended = timeout(plan.listener.timeouts.drain, async {
        open.wait().await;
        running.wait().await;
    });
    match ended.await {
        Ok(()) => Drained::Clean,
        Err(_elapsed) => Drained::Left { exchanges: running.len() },
    }
}
