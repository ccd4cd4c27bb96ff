//! The part of a worker's state that only a gateway has: locks and leases.

use std::sync::Arc;

use fencegate_http::network::Network;
use fencegate_leases::LeaseApiState;
use fencegate_policies::plan::{CommonServingPlan, NestedRequestPolicy};
use fencegate_proxy::{
    frontend::{LocalProcessRole, RawRequest},
    handler::Handler,
    pipeline,
    steps::{
        fence::{GatewayContext, WorkerFenceContext},
        forward::UpstreamForwarder,
        lease_api::LeaseApiRouter,
    },
};

use crate::{
    worker::{WorkerPipelineParts, WorkerRole},
    worker_context::WorkerContext,
};

/// The part of a worker's state that only a gateway has.
#[derive(Clone)]
pub struct GatewayRole {
    pub(super) gateway: Arc<GatewayContext>,
}

impl GatewayRole {
    /// The lease interface; `None` if the process grants no leases.
    fn lease_api(&self, plan: &CommonServingPlan) -> Option<LeaseApiRouter> {
        let GatewayContext { leases, tickets, .. } = &*self.gateway;
        let interface = LeaseApiState { leases: leases.clone()?, tickets: tickets.clone() };
        Some(LeaseApiRouter::new(interface, plan.listener.timeouts.request_body))
    }
}

/// True if a service may call back on some route.
fn allows_callbacks(plan: &CommonServingPlan) -> bool {
    let fences = plan.routes.routes().iter().filter_map(|route| route.fence.as_ref());
    fences.into_iter().any(|fence| fence.nested == NestedRequestPolicy::Allow)
}

impl<N: Network> WorkerRole<N> for GatewayRole {
    const ROLE: LocalProcessRole = LocalProcessRole::Gateway;

    fn pipeline(
        shared: &WorkerContext<Self>,
        worker: WorkerPipelineParts<N>,
    ) -> impl Handler<RawRequest> + use<N> {
        let WorkerPipelineParts { mut parts, pool, forwarder } = worker;
        let gateway = shared.role.gateway.clone();
        let plan = parts.plan.clone();
        let serving = &plan.config.plan;
        parts.leases = shared.role.lease_api(serving);
        parts.tickets = gateway.tickets.clone().filter(|_| allows_callbacks(serving));
        let compat = gateway.compat.route_compat_cache(serving);
        let fence = WorkerFenceContext { gateway, plan: plan.clone(), compat, forwarder };
        pipeline::gateway_pipeline(parts, fence, UpstreamForwarder::new(pool, plan))
    }
}
