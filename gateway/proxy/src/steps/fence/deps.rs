//! The settings and tools of the fence step.

use std::{rc::Rc, sync::Arc};

use fencegate_config::active_config::ActiveConfig;
use fencegate_guard_client::{guard_identity::GuardRegistry, ticket_issuer::TicketIssuer};
use fencegate_http::{buffered::MemoryBudget, client_quota::ClientQuotas};
use fencegate_leases::LeaseTable;
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_metrics::{WorkerMetrics, hot_keys::HotKeys, request_tracker::RequestTracker};
use fencegate_peers::plan_compat::RouteCompatCache;
use fencegate_policies::plan::ServingPlan;
use fencegate_process::clock::SharedClock;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    deadlock_hints::TraceKeyIndex,
    peer_forward::{PeerForwarder, wait_drain},
};

/// Takes and holds the keys of requests. Each worker has one for each plan.
#[derive(Clone)]
pub struct FenceDeps<N> {
    pub keeper: LockManager,
    /// Forwards requests to the gateways that hold their keys.
    pub courier: Option<Rc<PeerForwarder<N>>>,
    pub edition: Arc<ActiveConfig>,
    /// Reports whether other gateways take the same locks as this one.
    pub accord: RouteCompatCache,
    pub guards: Arc<GuardRegistry>,
    /// Signs tickets, where the policy has a key for that.
    pub tickets: Option<Arc<TicketIssuer>>,
    /// The keys of each trace, on routes that may be called back.
    pub traces: Arc<TraceKeyIndex>,
    /// The number of requests of each client that wait for or hold keys.
    pub shares: ClientQuotas,
    pub clock: SharedClock,
    /// Tasks that pass on answers too large to be buffered in full.
    pub running: TaskTracker,
    pub drain: CancellationToken,
    pub metrics: Rc<WorkerMetrics>,
    /// The memory for answers that are buffered in full.
    pub budget: MemoryBudget,
    /// The keys that are waited for.
    pub hot: HotKeys,
    /// The requests of each key.
    pub stays: Arc<RequestTracker>,
    /// The leases that clients hold.
    pub leases: Option<Arc<LeaseTable>>,
}

impl<N> FenceDeps<N> {
    /// As [`wait_drain`].
    pub(super) async fn wait_drain(&self, plan: &ServingPlan) {
        wait_drain(&self.drain, plan).await;
    }
}
