//! All workers of a process, gateway or guard: what they share, their start and their end.

use std::{sync::Arc, thread};

use fencegate_config::{active_config::ActiveConfig, process_context::ProcessContext};
use fencegate_guard_client::guard_identity::GuardRegistry;
use fencegate_http::{
    client_quota::ClientQuotas, listen::certificates::ListenerCertificates, network::sockets::OsNetwork,
};
use fencegate_http_client::upstream::{endpoint_set::UpstreamSet, health};
use fencegate_peers as peers;
use fencegate_peers::LocalPeerIdentity;
use fencegate_policies::plan::ServingPlan;
use fencegate_process::{
    liveness::ThreadRole,
    randomness::{Guid, SystemRandomness},
};
use fencegate_proxy::{telemetry::TelemetrySinks, via::ViaName};
use fencegate_zookeeper::state::TokenHistory;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::{
    addresses,
    error::ProcessError,
    reload::ConfigUpdate,
    rlimit,
    worker::{self, DrainOutcome, WorkerContext, WorkerHandle, WorkerRole},
};

/// The parts of the workers beside the plan and the base of their process.
pub(super) struct WorkerPoolConfig<R> {
    pub(super) role: R,
    /// The number of workers.
    pub(super) workers: usize,
    /// Another process that is about to stop may have the same addresses.
    pub(super) beside: bool,
    /// The newest token so far, and the installation that the tokens belong to.
    pub(super) memory: Arc<TokenHistory>,
    /// The address and credentials of this process for other gateways, if they can reach it.
    pub(super) ours: Option<LocalPeerIdentity>,
}

/// The threads of the workers.
pub(super) struct WorkerPool {
    threads: Vec<thread::JoinHandle<DrainOutcome>>,
    /// One channel for each worker, to switch it to another plan.
    turns: Vec<mpsc::UnboundedSender<ConfigUpdate>>,
}

/// The default number of workers.
pub fn default_workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The parts that all workers share. From here on the endpoints of the upstreams are checked.
///
/// # Errors
/// A file of TLS cannot be used, or the machine has no thread.
pub(super) fn build_context<R>(
    plan: &ServingPlan,
    process: &Arc<ProcessContext>,
    equipment: WorkerPoolConfig<R>,
) -> Result<WorkerContext<R>, ProcessError> {
    let ProcessContext { clock, metrics, threads, .. } = &**process;
    let WorkerPoolConfig { role, workers, beside, memory, ours } = equipment;
    let plan = Arc::new(plan.clone());
    let fleets = UpstreamSet::new(&plan, metrics.endpoints()).map_err(ProcessError::UpstreamTls)?;
    let guards = Arc::new(GuardRegistry::new(memory));
    let turning = threads.register_until(ThreadRole::Endpoints, fleets.retirement_token().clone());
    health::start_health_checks(OsNetwork, &fleets, clock.clone(), guards.clone(), turning)?;
    let certificates =
        ListenerCertificates::open(&plan.listener, metrics.clients()).map_err(ProcessError::ListenerTls)?;
    let tellers = TelemetrySinks::start(metrics)?;
    Ok(WorkerContext {
        process: process.clone(),
        edition: ActiveConfig::initial(plan, fleets),
        tellers,
        hop: ViaName::new(Guid::new(&SystemRandomness)),
        guards,
        shares: ClientQuotas::default(),
        beside,
        workers: workers.max(1),
        certificates,
        ours,
        role,
    })
}

impl WorkerPool {
    /// Returns when all workers listen.
    ///
    /// # Errors
    /// An address belongs to another process.
    pub(super) fn start<R: WorkerRole<OsNetwork>>(shared: WorkerContext<R>) -> Result<Self, ProcessError> {
        let plan = shared.edition.plan.clone();
        let workers = shared.workers;
        let listeners = 1 + usize::from(shared.ours.is_some());
        rlimit::warn_if_few_descriptors(plan.listener.limits.connections.saturating_mul(listeners));
        let mut place = addresses::bind_public(&plan.listener, shared.beside)?;
        let mut staff = Self { threads: Vec::new(), turns: Vec::new() };
        for _ in 0..workers {
            let WorkerHandle { place: bound, thread, turns } =
                worker::start(OsNetwork, place, shared.clone())?;
            // With port 0 the first worker chooses the port, and the others listen on the same.
            place = bound;
            staff.threads.push(thread);
            staff.turns.push(turns);
        }
        info!(listener = %plan.listener.name, address = %place, workers, "listening");
        if let Some(ours) = &shared.ours {
            let address = ours.address;
            let advertised = &ours.reach.address;
            info!(listener = peers::NAME, %address, %advertised, workers, "listening");
        }
        Ok(staff)
    }

    pub(super) fn update_senders(&self) -> Vec<mpsc::UnboundedSender<ConfigUpdate>> {
        self.turns.clone()
    }

    /// Waits until all workers have ended. Returns how many exchanges were still running.
    pub(super) fn join(self) -> usize {
        self.threads.into_iter().map(|worker| exchanges_left(worker.join())).sum()
    }
}

fn exchanges_left(worker: thread::Result<DrainOutcome>) -> usize {
    match worker {
        Ok(DrainOutcome::Clean) => 0,
        Ok(DrainOutcome::TimedOut { exchanges }) => {
            warn!(exchanges, "drain took too long");
            // A connection without an exchange holds no lock: its client has only not read the answer.
            exchanges
        }
        Err(_) => {
            error!("a worker panicked");
            1
        }
    }
}
