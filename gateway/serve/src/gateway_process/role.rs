//! The gateway's state of a worker: the lock manager, and the signer of its tickets.

use std::sync::Arc;

use fencegate_http::network::Network;
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_policies::plan::{GatewayPlan, NestedRequestPolicy, ServingPlan};

use fencegate_config::current_config::CurrentConfig;
use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_leases::{LeaseApi, LeaseTable, election_watch::ElectionWatches};
use fencegate_metrics::{hot_keys::HotKeys, request_tracker::RequestTracker};
use fencegate_peers::plan_compat::PlanCompat;
use fencegate_proxy::{
    frontend::{RawRequest, ServingRole},
    handler::Handler,
    pipeline,
    steps::{
        fence::{FenceDeps, TraceKeyIndex},
        lease_api::LeaseApiStep,
        route::RoutingTable,
    },
};
use fencegate_zookeeper::state::TokenHistory;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ProcessError,
    worker::{WorkerContext, WorkerDeps, WorkerRole},
};

/// The gateway's state of a worker.
#[derive(Clone)]
pub struct GatewayRole {
    pub(super) keeper: LockManager,
    pub(super) tickets: Option<Arc<TicketIssuer>>,
    pub(super) traces: Arc<TraceKeyIndex>,
    pub(super) hot: HotKeys,
    pub(super) stays: Arc<RequestTracker>,
    pub(super) agreement: Arc<PlanCompat>,
    pub(super) leases: Option<Arc<LeaseTable>>,
    elections: ElectionWatches,
    pub(super) in_force: CurrentConfig,
}

impl GatewayRole {
    /// # Errors
    /// The key that tickets are signed with cannot be read.
    pub(super) fn new(
        gateway: &GatewayPlan,
        name: &Arc<str>,
        lock_manager: LockManager,
        leases: Option<Arc<LeaseTable>>,
        memory: &Arc<TokenHistory>,
        compat: Arc<PlanCompat>,
        in_force: &CurrentConfig,
    ) -> Result<Self, ProcessError> {
        let tickets = gateway.tickets.as_ref();
        let tickets = tickets.map(|key| TicketIssuer::new(key, gateway, name, memory)).transpose()?;
        let traces = Arc::default();
        let hot = HotKeys::default();
        let tracker = Arc::default();
        let elections = ElectionWatches::default();
        let in_force = in_force.clone();
        Ok(Self {
            keeper: lock_manager,
            tickets,
            traces,
            hot,
            stays: tracker,
            agreement: compat,
            leases,
            elections,
            in_force,
        })
    }

    /// The lease interface; `None` if the process grants no leases.
    fn lease_api(&self, drain: &CancellationToken, plan: &ServingPlan) -> Option<LeaseApiStep> {
        let leases = self.leases.clone()?;
        let in_force = self.in_force.clone();
        let tickets = self.tickets.clone();
        let elections = self.elections.clone();
        let drain = drain.clone();
        let interface = LeaseApi { leases, in_force, tickets, elections, drain };
        Some(LeaseApiStep::new(interface, plan.listener.timeouts.request_body))
    }
}

/// True if a service may call back on some route.
fn allows_callbacks(plan: &ServingPlan) -> bool {
    let fences = plan.routes.routes().iter().filter_map(|route| route.fence.as_ref());
    fences.into_iter().any(|fence| fence.nested == NestedRequestPolicy::Allow)
}

impl<N: Network> WorkerRole<N> for GatewayRole {
    const ROLE: ServingRole = ServingRole::Gateway;

    fn pipeline(shared: &WorkerContext<Self>, deps: WorkerDeps<N>) -> impl Handler<RawRequest> + use<N> {
        let WorkerDeps { edition: config, mut parts, metrics, forward, courier, .. } = deps;
        parts.leases = shared.role.lease_api(&shared.drain, &config.plan);
        parts.callers = shared.role.tickets.clone().filter(|_| allows_callbacks(&config.plan));
        let fencing = FenceDeps {
            accord: shared.role.agreement.route_compat_cache(&config.plan),
            edition: config.clone(),
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
        let routing = RoutingTable::new(config, metrics);
        pipeline::gateway_pipeline(parts, routing, fencing, forward)
    }
}
