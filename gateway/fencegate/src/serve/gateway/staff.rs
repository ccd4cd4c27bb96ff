//! The gateway's part of a worker, and what all of its workers begin with.

use std::sync::Arc;

use fencegate_http::{
    listen::certificates::Certificates,
    network::{Network, Tcp},
    share::Shares,
    upstream::{fleet::Fleets, health},
};
use fencegate_lock::{state::Memory, tenures::keeper::Keeper};
use fencegate_policies::plan::Gateway;
use fencegate_process::randomness::{Guid, SystemRandomness};

use super::{base::Base, options::Options};
use crate::{
    access::Tellers,
    edition::Edition,
    front::{Arrived, Role},
    metrics::hot::Hot,
    serve::{
        process::Trouble,
        worker::{Bench, Shared, Staffed},
    },
    siblings::Ours,
    stack,
    step::Serve,
    steps::{fence::Fencing, hop::HopName, route::Routing},
    ticketing::Ticketing,
    trust::Guards,
};

/// The gateway's part of a worker.
#[derive(Clone)]
pub(super) struct Gatekeeping {
    pub(super) keeper: Keeper,
    pub(super) tickets: Option<Arc<Ticketing>>,
    pub(super) hot: Hot,
}

impl Gatekeeping {
    /// # Errors
    /// The key that tickets are signed with cannot be read.
    pub(super) fn of(gateway: &Gateway, base: &Base, memory: &Arc<Memory>) -> Result<Self, Trouble> {
        let tickets = gateway.tickets.as_ref().map(|key| Ticketing::new(key, gateway, memory)).transpose()?;
        Ok(Self { keeper: base.keeper.clone(), tickets, hot: Hot::default() })
    }
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

/// What all workers share. From here on the endpoints are looked after.
///
/// # Errors
/// A file of TLS cannot be used, or the machine has no thread.
pub(super) fn shared(
    gateway: &Gateway,
    options: &Options,
    base: &Base,
    memory: Arc<Memory>,
    ours: Option<Ours>,
    role: Gatekeeping,
) -> Result<Shared<Gatekeeping>, Trouble> {
    let Base { clock, metrics, budget, drain, .. } = base;
    let plan = Arc::new(gateway.serving.clone());
    let guards = Arc::new(Guards::new(memory));
    let hop = HopName::new(Guid::new(&SystemRandomness));
    let fleets = Fleets::of(&plan, metrics.endpoints()).map_err(Trouble::UpstreamTls)?;
    health::start(Tcp, &fleets)?;
    let edition = Edition::first(plan.clone(), fleets);
    let certificates = Certificates::open(&plan.listener, metrics.clients()).map_err(Trouble::ListenerTls)?;
    let tellers = Tellers::start(metrics)?;
    Ok(Shared {
        tellers,
        edition,
        metrics: metrics.clone(),
        clock: clock.clone(),
        hop,
        guards,
        shares: Shares::default(),
        budget: budget.clone(),
        beside: options.beside,
        workers: options.workers.max(1),
        drain: drain.clone(),
        certificates,
        ours,
        role,
    })
}
