//! All workers of a process: their shared state, their start and their end.

use std::thread;

use fencegate_http::network::sockets::OsNetwork;
use fencegate_peers as peers;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::{
    addresses,
    error::ProcessError,
    reload::ConfigUpdate,
    rlimit,
    worker::{self, DrainOutcome, WorkerHandle, WorkerRole},
    worker_context::WorkerContext,
};

/// The threads of the workers.
pub(super) struct WorkerPool {
    threads: Vec<thread::JoinHandle<DrainOutcome>>,
    /// The channels that switch the workers to another configuration, one for each worker.
    updates: Vec<mpsc::UnboundedSender<ConfigUpdate>>,
}

/// The default number of workers.
pub fn default_workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl WorkerPool {
    /// Starts the workers, and returns when all of them listen.
    ///
    /// # Errors
    /// Returns an error if an address belongs to another process.
    pub(super) fn start<R: WorkerRole<OsNetwork>>(shared: WorkerContext<R>) -> Result<Self, ProcessError> {
        let plan = shared.config.plan.clone();
        let workers = shared.workers;
        let listeners = 1 + usize::from(shared.local_peer.is_some());
        rlimit::warn_if_few_descriptors(plan.listener.limits.connections.saturating_mul(listeners));
        let mut address = addresses::bind_public(&plan.listener, shared.beside)?;
        let mut pool = Self { threads: Vec::new(), updates: Vec::new() };
        for _ in 0..workers {
            let WorkerHandle { address: bound, thread, updates } =
                worker::start(OsNetwork, address, shared.clone())?;
            // With port 0 the system chooses a port for the first worker, and the others listen at the same
            // one.
            address = bound;
            pool.threads.push(thread);
            pool.updates.push(updates);
        }
        info!(listener = %plan.listener.name, %address, workers, "listening");
        if let Some(local_peer) = &shared.local_peer {
            let address = local_peer.address;
            let advertised = &local_peer.reach.address;
            info!(listener = peers::NAME, %address, %advertised, workers, "listening");
        }
        Ok(pool)
    }

    pub(super) fn update_senders(&self) -> Vec<mpsc::UnboundedSender<ConfigUpdate>> {
        self.updates.clone()
    }

    /// Waits until all workers have ended. Returns how many exchanges were still running.
    pub(super) fn join_counting_exchanges(self) -> usize {
        self.threads.into_iter().map(|worker| exchanges_left(worker.join())).sum()
    }
}

fn exchanges_left(worker: thread::Result<DrainOutcome>) -> usize {
    match worker {
        Ok(DrainOutcome::Clean) => 0,
        Ok(DrainOutcome::TimedOut { exchanges }) => {
            warn!(exchanges, "requests were still running when the drain ended");
            // A connection without an exchange does not count: it holds no lock, and its client has only not
            // read the answer.
            exchanges
        }
        Err(_) => {
            error!("a worker thread panicked");
            1
        }
    }
}
