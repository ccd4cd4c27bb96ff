//! What the step works with.

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

/// Keeps the keys of requests, for one worker and one plan.
#[derive(Clone)]
pub struct Fencing<N> {
    pub keeper: Keeper,
    /// Sends requests on to the gateways that keep their keys.
    pub courier: Option<Rc<Courier<N>>>,
    pub edition: Arc<Edition>,
    /// Whether other gateways lock what we lock.
    pub accord: Accord,
    pub guards: Arc<Guards>,
    /// Where tickets are signed.
    pub tickets: Option<Arc<Ticketing>>,
    /// Which traces have which keys, on routes that may be called back.
    pub traces: Arc<Traces>,
    /// What each client waits for or holds.
    pub shares: Shares,
    pub clock: SharedClock,
    /// Answers too large to be taken in full, still on their way.
    pub running: TaskTracker,
    pub drain: CancellationToken,
    pub metrics: Rc<WorkerMetrics>,
    /// For answers that are here in full.
    pub budget: Budget,
    /// Which keys are waited for.
    pub hot: Hot,
    /// Which requests each key has.
    pub stays: Arc<Stays>,
    /// Locks that clients hold themselves.
    pub leases: Option<Arc<Leases>>,
}

impl<N> Fencing<N> {
    /// What signs the tickets of a dispatch that has to show one, or that may be called back from.
    pub(super) fn tickets_for(&self, guarded: bool, fence: &Fence) -> Option<Arc<Ticketing>> {
        self.tickets.clone().filter(|_| guarded || fence.nested == Nested::Allow)
    }

    /// Remembers the trace of a request that may be called back.
    pub(super) fn traced(&self, request: &Keyed, held: &HeldTenure, fence: &Fence) -> Option<Rc<Traced>> {
        // One that we have begun ourselves nobody else is of.
        let trace = request.notes.trace.get().filter(|_| fence.nested == Nested::Allow)?;
        Some(Rc::new(self.traces.hold(&held.keys, trace.id)))
    }

    /// Says of a wait that is over what its client can do, where it may have been for itself.
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

    /// A request that waits for a lock may go on for a part of the drain; then it is better told to go elsewhere.
    pub(super) async fn drained(&self, patience: Duration) {
        self.drain.cancelled().await;
        sleep(patience).await;
    }
}
