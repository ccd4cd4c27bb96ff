//! The gateway's part of a worker: where its steps take a key, and what they sign tickets with.

use std::sync::Arc;

use fencegate_http::network::Network;
use fencegate_lock::{state::Memory, tenures::keeper::Keeper};
use fencegate_policies::plan::{Gateway, Nested, Plan};

use crate::{
    agreement::Agreement,
    front::{Arrived, Role},
    metrics::hot::Hot,
    serve::{
        not_serving::NotServing,
        worker::{Bench, Shared, Staffed},
    },
    stack,
    step::Serve,
    steps::{
        fence::{Fencing, Traces},
        route::Routing,
    },
    ticketing::Ticketing,
};

/// The gateway's part of a worker.
#[derive(Clone)]
pub(super) struct Gatekeeping {
    pub(super) keeper: Keeper,
    pub(super) tickets: Option<Arc<Ticketing>>,
    pub(super) traces: Arc<Traces>,
    pub(super) hot: Hot,
    pub(super) agreement: Arc<Agreement>,
}

impl Gatekeeping {
    /// # Errors
    /// The key that tickets are signed with cannot be read.
    pub(super) fn of(
        gateway: &Gateway,
        name: &Arc<str>,
        keeper: Keeper,
        memory: &Arc<Memory>,
        agreement: Arc<Agreement>,
    ) -> Result<Self, NotServing> {
        let tickets = gateway.tickets.as_ref();
        let tickets = tickets.map(|key| Ticketing::new(key, gateway, name, memory)).transpose()?;
        Ok(Self { keeper, tickets, traces: Arc::default(), hot: Hot::default(), agreement })
    }
}

/// Whether a service may call back on any of its routes.
fn listens(plan: &Plan) -> bool {
    let fences = plan.routes.routes().iter().filter_map(|route| route.fence.as_ref());
    fences.into_iter().any(|fence| fence.nested == Nested::Allow)
}

impl<N: Network> Staffed<N> for Gatekeeping {
    const ROLE: Role = Role::Gateway;

    fn stack(shared: &Shared<Self>, bench: Bench<N>) -> impl Serve<Arrived> + use<N> {
        let Bench { edition, mut parts, metrics, forward, courier, .. } = bench;
        parts.callers = shared.role.tickets.clone().filter(|_| listens(&edition.plan));
        let fencing = Fencing {
            accord: shared.role.agreement.accord(&edition.plan),
            edition: edition.clone(),
            keeper: shared.role.keeper.clone(),
            courier,
            guards: shared.guards.clone(),
            tickets: shared.role.tickets.clone(),
            traces: shared.role.traces.clone(),
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
