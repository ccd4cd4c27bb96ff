//! The gateway's part of a worker: the keeper of its keys, and the signer of its tickets.

use std::sync::Arc;

use fencegate_http::network::Network;
use fencegate_lock::{state::Memory, tenures::keeper::Keeper};
use fencegate_policies::plan::{Gateway, Nested, Plan};

use tokio_util::sync::CancellationToken;

use crate::{
    agreement::Agreement,
    front::{Arrived, Role},
    in_force::InForce,
    leases::{Interface, Leases, followed::Followed},
    metrics::hot::Hot,
    serve::{
        not_serving::NotServing,
        worker::{Bench, Shared, Staffed},
    },
    stack,
    stays::Stays,
    step::Serve,
    steps::{
        fence::{Fencing, Traces},
        lease_questions::LeaseQuestions,
        route::Routing,
    },
    ticketing::Ticketing,
};

/// The gateway's part of a worker.
#[derive(Clone)]
pub struct Gatekeeping {
    pub(super) keeper: Keeper,
    pub(super) tickets: Option<Arc<Ticketing>>,
    pub(super) traces: Arc<Traces>,
    pub(super) hot: Hot,
    pub(super) stays: Arc<Stays>,
    pub(super) agreement: Arc<Agreement>,
    pub(super) leases: Option<Arc<Leases>>,
    elections: Followed,
    pub(super) in_force: InForce,
}

impl Gatekeeping {
    /// # Errors
    /// The key that tickets are signed with cannot be read.
    pub(super) fn of(
        gateway: &Gateway,
        (name, keeper, leases): (&Arc<str>, Keeper, Option<Arc<Leases>>),
        memory: &Arc<Memory>,
        agreement: Arc<Agreement>,
        in_force: &InForce,
    ) -> Result<Self, NotServing> {
        let tickets = gateway.tickets.as_ref();
        let tickets = tickets.map(|key| Ticketing::new(key, gateway, name, memory)).transpose()?;
        let (traces, hot, stays) = (Arc::default(), Hot::default(), Arc::default());
        let (elections, in_force) = (Followed::default(), in_force.clone());
        Ok(Self { keeper, tickets, traces, hot, stays, agreement, leases, elections, in_force })
    }

    /// The lease interface; `None` if the process grants no leases.
    fn asking(&self, drain: &CancellationToken, plan: &Plan) -> Option<LeaseQuestions> {
        let leases = self.leases.clone()?;
        let (in_force, tickets) = (self.in_force.clone(), self.tickets.clone());
        let (elections, drain) = (self.elections.clone(), drain.clone());
        let interface = Interface { leases, in_force, tickets, elections, drain };
        Some(LeaseQuestions::of(interface, plan.listener.timeouts.request_body))
    }
}

/// True if a service may call back on some route.
fn listens(plan: &Plan) -> bool {
    let fences = plan.routes.routes().iter().filter_map(|route| route.fence.as_ref());
    fences.into_iter().any(|fence| fence.nested == Nested::Allow)
}

impl<N: Network> Staffed<N> for Gatekeeping {
    const ROLE: Role = Role::Gateway;

    fn stack(shared: &Shared<Self>, bench: Bench<N>) -> impl Serve<Arrived> + use<N> {
        let Bench { edition, mut parts, metrics, forward, courier, .. } = bench;
        parts.leases = shared.role.asking(&shared.drain, &edition.plan);
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
            stays: shared.role.stays.clone(),
            leases: shared.role.leases.clone(),
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
