//! The part of a worker's state that only a guard has: the guard that admits requests, and the verifier of
//! tickets.

use std::{rc::Rc, sync::Arc};

use fencegate_guard::Guard;
use fencegate_http::network::Network;
use fencegate_metrics::request_tracker::RejectedCallers;
use fencegate_policies::plan::{self, UpstreamId};
use fencegate_proxy::{
    frontend::{LocalProcessRole, RawRequest},
    handler::Handler,
    pipeline,
    steps::{
        extract_claim::{DispatchClaimContext, FencingBypassPolicy},
        forward::UpstreamForwarder,
        guard_admission::GuardAdmissionContext,
    },
};
use fencegate_ticket::TicketVerifier;

use crate::{
    worker::{WorkerPipelineParts, WorkerRole},
    worker_context::WorkerContext,
};

/// The part of a worker's state that only a guard has.
#[derive(Clone)]
pub struct GuardWorkerRole {
    guard: Arc<Guard>,
    tickets: Option<Arc<TicketVerifier>>,
    bypass: Arc<FencingBypassPolicy>,
    pub(super) rejected_callers: Arc<RejectedCallers>,
}

impl GuardWorkerRole {
    pub(super) fn new(
        plan: &plan::GuardPlan,
        guard: Arc<Guard>,
        tickets: Option<Arc<TicketVerifier>>,
    ) -> Self {
        let bypass = Arc::new(FencingBypassPolicy { unfenced: plan.unfenced.clone(), missing: plan.missing });
        Self { guard, tickets, bypass, rejected_callers: Arc::default() }
    }
}

impl<N: Network> WorkerRole<N> for GuardWorkerRole {
    const ROLE: LocalProcessRole = LocalProcessRole::Guard;

    fn pipeline(
        shared: &WorkerContext<Self>,
        worker: WorkerPipelineParts<N>,
    ) -> impl Handler<RawRequest> + use<N> {
        let WorkerPipelineParts { parts, pool, .. } = worker;
        let context = parts.plan.clone();
        let GuardWorkerRole { guard, tickets, bypass, rejected_callers } = shared.role.clone();
        let plan = Rc::new(context.config.plan.clone());
        let claims = DispatchClaimContext { guard: guard.clone(), plan, tickets, bypass, rejected_callers };
        let endpoints = context.config.fleets.get(UpstreamId(0)).clone();
        let admission = GuardAdmissionContext { guard, plan: context.clone(), pool: pool.clone(), endpoints };
        pipeline::guard_pipeline(parts, claims, admission, UpstreamForwarder::new(pool, context))
    }
}
