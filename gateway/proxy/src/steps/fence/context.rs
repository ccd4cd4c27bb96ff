//! The parts that the fence step uses: those of the gateway process, and those of one plan at one worker.

use std::{rc::Rc, sync::Arc};

use fencegate_config::{current_config::CurrentConfig, process_context::ProcessContext};
use fencegate_guard_client::ticket_issuer::TicketIssuer;
use fencegate_leases::LeaseTable;
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_metrics::{hot_keys::HotKeys, request_tracker::RequestTracker};
use fencegate_peers::plan_compat::{PlanCompatRegistry, RouteCompatCache};
use fencegate_policies::plan::CommonServingPlan;

use super::{
    deadlock_hints::TraceKeyIndex,
    peer_forward::{PeerForwarder, wait_drain_handover},
};
use crate::plan_context::WorkerPlanContext;

/// The parts of a gateway process that have to do with locks. All workers share them.
pub struct GatewayContext {
    pub process: Arc<ProcessContext>,
    pub locks: LockManager,
    /// The plan in force.
    pub config: CurrentConfig,
    /// Reports whether other gateways take the same locks as this one.
    pub compat: Arc<PlanCompatRegistry>,
    /// Signs tickets, where the policy has a key for signing them.
    pub tickets: Option<Arc<TicketIssuer>>,
    /// The leases that clients hold; `None` if the process was started without any.
    pub leases: Option<Arc<LeaseTable>>,
    /// The keys that each trace holds, for routes that may be called back.
    pub traces: Arc<TraceKeyIndex>,
    /// The keys of the last minutes for which requests had to wait.
    pub hot_keys: HotKeys,
    /// The requests of each key, for display.
    pub requests: Arc<RequestTracker>,
}

/// The state with which a worker takes and holds the keys of requests of one plan.
pub struct WorkerFenceContext<N> {
    pub gateway: Arc<GatewayContext>,
    pub plan: Rc<WorkerPlanContext>,
    /// A cache of [`GatewayContext::compat`] for the routes of the plan.
    pub compat: RouteCompatCache,
    /// Forwards requests to the gateways that hold their keys. `None` where other gateways cannot reach this
    /// one.
    pub forwarder: Option<Rc<PeerForwarder<N>>>,
}

impl<N> Clone for WorkerFenceContext<N> {
    fn clone(&self) -> Self {
        let Self { gateway, plan, compat, forwarder } = self;
        Self {
            gateway: gateway.clone(),
            plan: plan.clone(),
            compat: compat.clone(),
            forwarder: forwarder.clone(),
        }
    }
}

impl<N> WorkerFenceContext<N> {
    /// Waits for the drain of the process as [`wait_drain`] does.
    pub(super) async fn wait_drain(&self, plan: &CommonServingPlan) {
        wait_drain_handover(&self.plan.process.drain, plan).await;
    }
}
