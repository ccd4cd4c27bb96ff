//! The settings and tools of the fence step.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_http::{buffered::Budget, share::Shares};
use fencegate_lock::tenures::keeper::Keeper;
use fencegate_policies::plan::{Fence, Nested};
use fencegate_process::clock::SharedClock;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    courier::Courier,
    held_tenure::HeldTenure,
    traces::{Traced, Traces},
};
use crate::{
    agreement::Accord,
    edition::Edition,
    leases::Leases,
    metrics::{WorkerMetrics, hot::Hot},
    refusal::{Reason, Refusal},
    stays::Stays,
    steps::key::{Fenced, Keyed},
    ticketing::Ticketing,
    trust::Guards,
};

/// Takes and holds the keys of requests. Each worker has one for each plan.
#[derive(Clone)]
pub struct Fencing<N> {
    pub keeper: Keeper,
    /// Sends requests on to the gateways that keep their keys.
    pub courier: Option<Rc<Courier<N>>>,
    pub edition: Arc<Edition>,
    /// Tells whether other gateways take the same locks as this one.
    pub accord: Accord,
    pub guards: Arc<Guards>,
    /// Signs tickets, where the policy has a key for that.
    pub tickets: Option<Arc<Ticketing>>,
    /// The keys of each trace, on routes that may be called back.
    pub traces: Arc<Traces>,
    /// The number of requests of each client that wait for or hold keys.
    pub shares: Shares,
    pub clock: SharedClock,
    /// Tasks that pass on answers too large to be taken in full.
    pub running: TaskTracker,
    pub drain: CancellationToken,
    pub metrics: Rc<WorkerMetrics>,
    /// The memory for answers that are taken in full.
    pub budget: Budget,
    /// The keys that are waited for.
    pub hot: Hot,
    /// The requests of each key.
    pub stays: Arc<Stays>,
    /// The leases that clients hold.
    pub leases: Option<Arc<Leases>>,
}

impl<N> Fencing<N> {
    /// The signer for a dispatch that must carry a ticket, or whose service may call back.
    pub(super) fn tickets_for(&self, guarded: bool, fence: &Fence) -> Option<Arc<Ticketing>> {
        self.tickets.clone().filter(|_| guarded || fence.nested == Nested::Allow)
    }

    /// Remembers the trace of a request that may be called back.
    pub(super) fn traced(&self, request: &Keyed, held: &HeldTenure, fence: &Fence) -> Option<Rc<Traced>> {
        // Nobody else can have a request in a trace that has begun here.
        let trace = request.notes.trace.get().filter(|_| fence.nested == Nested::Allow)?;
        Some(Rc::new(self.traces.hold(&held.keys, trace.id)))
    }

    /// After a wait that ended in vain: adds what the client can do, if the request may have waited for itself.
    pub(super) fn in_vain(&self, request: &Keyed, fenced: &Fenced, refusal: Refusal) -> Refusal {
        let trace = request.notes.trace.get().filter(|trace| trace.parent.is_some());
        let waited = refusal.reason == Reason::Locked && request.notes.called_from.get().is_none();
        match trace {
            Some(trace) if waited && self.traces.have(&fenced.keys, trace.id) => refusal.advising(
                "a request of the same trace has the resource: a service that calls back under the lock that it holds \
                 sends along the Fencing-Ticket and the Fencing-Token that it was sent",
            ),
            _ => refusal,
        }
    }

    /// Returns when a draining gateway should tell a waiting request to go elsewhere. A request may wait for a part
    /// of the drain.
    pub(super) async fn drained(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }
}
