//! The settings and tools of the fence step.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_config::active_config::ActiveConfig;
use fencegate_guard_client::{guard_identity::GuardRegistry, ticket_issuer::TicketIssuer};
use fencegate_http::{buffered::MemoryBudget, client_quota::ClientQuotas};
use fencegate_leases::LeaseTable;
use fencegate_lock::manager::lock_manager::LockManager;
use fencegate_metrics::{WorkerMetrics, hot_keys::HotKeys, request_tracker::RequestTracker};
use fencegate_peers::plan_compat::RouteCompatCache;
use fencegate_policies::plan::{FenceRule, NestedRequestPolicy};
use fencegate_process::clock::SharedClock;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    deadlock_hints::{TraceKeyGuard, TraceKeyIndex},
    peer_forward::PeerForwarder,
    request_grant::RequestGrant,
};
use crate::steps::key::{KeyedRequest, RequestLockSpec};

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
    /// The signer for a dispatch that must carry a ticket, or whose service may call back.
    pub(super) fn ticket_issuer(&self, guarded: bool, fence: &FenceRule) -> Option<Arc<TicketIssuer>> {
        self.tickets.clone().filter(|_| guarded || fence.nested == NestedRequestPolicy::Allow)
    }

    /// Records the trace of a request that may be called back.
    pub(super) fn record_trace(
        &self,
        request: &KeyedRequest,
        held: &RequestGrant,
        fence: &FenceRule,
    ) -> Option<Rc<TraceKeyGuard>> {
        // No other request can be in a trace that has begun here.
        let trace = Some(request.trace.context).filter(|_| fence.nested == NestedRequestPolicy::Allow)?;
        Some(Rc::new(self.traces.insert(&held.keys, trace.id)))
    }

    /// After a wait in vain: adds what the client can do, if the request may have waited for itself.
    pub(super) fn add_deadlock_hint(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        refusal: Refusal,
    ) -> Refusal {
        let trace = Some(request.trace.context).filter(|trace| trace.parent.is_some());
        let waited =
            refusal.reason == RefusalReason::Locked && request.context.lock.get().called_from.is_none();
        match trace {
            Some(trace) if waited && self.traces.holds_any(&fenced.keys, trace.id) => refusal.with_advice(
                "a request of the same trace has the resource: a service that calls back under the lock that it holds \
                 sends along the Fencing-Ticket and the Fencing-Token that it was sent",
            ),
            _ => refusal,
        }
    }

    /// Returns when a draining gateway should send a waiting request elsewhere. A request may wait for a part of the
    /// drain.
    pub(super) async fn wait_drain(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }
}
