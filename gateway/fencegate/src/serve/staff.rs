//! All workers of a process, gateway or guard: what they share, their start and their end.

use std::{sync::Arc, thread};

use fencegate_http::{
    listen::certificates::Certificates,
    network::sockets::Sockets,
    share::Shares,
    upstream::{fleet::Fleets, health},
};
use fencegate_lock::state::Memory;
use fencegate_policies::plan::Plan;
use fencegate_process::randomness::{Guid, SystemRandomness};
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use super::{
    addresses,
    base::Base,
    not_serving::NotServing,
    reload::Turn,
    rlimit,
    worker::{self, Drained, Shared, Staffed, Started},
};
use crate::{
    access::Tellers,
    edition::Edition,
    hop_name::HopName,
    siblings::{self, Ours},
    threads::Work,
    trust::Guards,
};

/// What workers are given beside the plan and the base of their process.
pub(super) struct Equipment<R> {
    pub(super) role: R,
    /// The number of workers.
    pub(super) workers: usize,
    /// Another process that is about to stop may have the same addresses.
    pub(super) beside: bool,
    /// How far tokens have come, and which installation they belong to.
    pub(super) memory: Arc<Memory>,
    /// The address and credentials of this process for other gateways, if they reach it.
    pub(super) ours: Option<Ours>,
}

/// The threads of the workers.
pub(super) struct Staff {
    threads: Vec<thread::JoinHandle<Drained>>,
    /// One channel for each worker, to give it another plan.
    turns: Vec<mpsc::UnboundedSender<Turn>>,
}

/// The default number of workers.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The parts that all workers share. From here on the endpoints of the upstreams are checked.
///
/// # Errors
/// A file of TLS cannot be used, or the machine has no thread.
pub(super) fn shared<R>(plan: &Plan, base: &Base, equipment: Equipment<R>) -> Result<Shared<R>, NotServing> {
    let Base { clock, metrics, budget, drain, threads } = base;
    let Equipment { role, workers, beside, memory, ours } = equipment;
    let plan = Arc::new(plan.clone());
    let fleets = Fleets::of(&plan, metrics.endpoints()).map_err(NotServing::UpstreamTls)?;
    let guards = Arc::new(Guards::new(memory));
    let turning = threads.joined_until(Work::Endpoints, fleets.over().clone());
    health::start(Sockets, &fleets, clock.clone(), guards.clone(), turning)?;
    let certificates =
        Certificates::open(&plan.listener, metrics.clients()).map_err(NotServing::ListenerTls)?;
    let tellers = Tellers::start(metrics)?;
    Ok(Shared {
        edition: Edition::first(plan, fleets),
        metrics: metrics.clone(),
        clock: clock.clone(),
        tellers,
        hop: HopName::new(Guid::new(&SystemRandomness)),
        guards,
        shares: Shares::default(),
        budget: budget.clone(),
        beside,
        workers: workers.max(1),
        drain: drain.clone(),
        threads: threads.clone(),
        certificates,
        ours,
        role,
    })
}

impl Staff {
    /// Returns when all workers listen.
    ///
    /// # Errors
    /// An address belongs to another process.
    pub(super) fn start<R: Staffed<Sockets>>(shared: Shared<R>) -> Result<Self, NotServing> {
        let (plan, workers) = (shared.edition.plan.clone(), shared.workers);
        let listeners = 1 + usize::from(shared.ours.is_some());
        rlimit::suffice(plan.listener.limits.connections.saturating_mul(listeners));
        let mut place = addresses::public(&plan.listener, shared.beside)?;
        let mut staff = Self { threads: Vec::new(), turns: Vec::new() };
        for _ in 0..workers {
            let Started { place: bound, thread, turns } = worker::start(Sockets, place, shared.clone())?;
            // With port 0 the first worker chooses the port, and the others listen on the same.
            place = bound;
            staff.threads.push(thread);
            staff.turns.push(turns);
        }
        info!(listener = %plan.listener.name, address = %place, workers, "listening");
        if let Some(ours) = &shared.ours {
            let (address, advertised) = (ours.address, &ours.reach.address);
            info!(listener = siblings::NAME, %address, %advertised, workers, "listening");
        }
        Ok(staff)
    }

    pub(super) fn turns(&self) -> Vec<mpsc::UnboundedSender<Turn>> {
        self.turns.clone()
    }

    /// Waits until all workers have ended. Returns how many exchanges they have left at work.
    pub(super) fn ended(self) -> usize {
        self.threads.into_iter().map(|worker| left_behind(worker.join())).sum()
    }
}

fn left_behind(worker: thread::Result<Drained>) -> usize {
    match worker {
        Ok(Drained::Clean) => 0,
        Ok(Drained::Left { exchanges }) => {
            warn!(exchanges, "drain took too long");
            // A connection without an exchange holds no lock: its client only did not take the answer.
            exchanges
        }
        Err(_) => {
            error!("a worker panicked");
            1
        }
    }
}
