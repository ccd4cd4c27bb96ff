//! The guard's state of a worker: the guard that admits requests, and the verifier of tickets.

use std::{rc::Rc, sync::Arc};

use fencegate_guard::Guard;
use fencegate_http::network::Network;
use fencegate_metrics::rejected_callers::RejectedCallers;
use fencegate_policies::plan::{self, UpstreamId};
use fencegate_proxy::{
    frontend::{RawRequest, ServingRole},
    handler::Handler,
    pipeline,
    steps::{
        extract_claim::{ClaimDeps, TokenBypassPolicy},
        guard_admission::GuardAdmissionDeps,
    },
};
use fencegate_ticket::TicketVerifier;

use crate::worker::{WorkerContext, WorkerDeps, WorkerRole};

/// The guard's state of a worker.
#[derive(Clone)]
pub struct GuardRole {
    guard: Arc<Guard>,
    tickets: Option<Arc<TicketVerifier>>,
    bypass: Arc<TokenBypassPolicy>,
    pub(super) unbelieved: Arc<RejectedCallers>,
}

impl GuardRole {
    pub(super) fn new(
        plan: &plan::GuardPlan,
        guard: Arc<Guard>,
        tickets: Option<Arc<TicketVerifier>>,
    ) -> Self {
        let bypass = Arc::new(TokenBypassPolicy { unfenced: plan.unfenced.clone(), missing: plan.missing });
        Self { guard, tickets, bypass, unbelieved: Arc::default() }
    }
}

impl<N: Network> WorkerRole<N> for GuardRole {
    const ROLE: ServingRole = ServingRole::Guard;

    fn pipeline(shared: &WorkerContext<Self>, deps: WorkerDeps<N>) -> impl Handler<RawRequest> + use<N> {
        let WorkerDeps { edition: config, parts, pool, forward, .. } = deps;
        let GuardRole { guard, tickets, bypass, unbelieved } = shared.role.clone();
        let plan = Rc::new(config.plan.clone());
        let claiming = ClaimDeps { guard: guard.clone(), plan, tickets, bypass, unbelieved };
        let fleet = config.fleets.get(UpstreamId(0)).clone();
        let checking = GuardAdmissionDeps {
            guard,
            running: parts.running.clone(),
            pool,
            fleet,
            budget: shared.budget.clone(),
        };
        pipeline::guard_pipeline(parts, claiming, checking, forward)
    }
}
