//! A request that waits for its lock, and the two waits that precede every lock: until requests under former keys are
//! over, and until all gateways of the installation take the same lock for the route.

use std::time::Duration;

use fencegate_http::body::Reply;
use fencegate_lock::manager::lock_request::LockWaitPlace;
use fencegate_peers::plan_compat::RouteCompatibility;
use fencegate_policies::plan::FenceRule;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::{Instant, sleep_until};

use super::{
    context::WorkerFenceContext,
    held_lock::HeldLock,
    request::{CallerLockRelation, LockingRequest},
};

/// A request that waits for its lock.
pub(super) struct RequestLockWaitContext<'a, N> {
    pub(super) fence: &'a WorkerFenceContext<N>,
    pub(super) request: &'a mut LockingRequest,
    pub(super) rule: &'a FenceRule,
    pub(super) relation: &'a CallerLockRelation,
    pub(super) place: LockWaitPlace,
    pub(super) deadline: Instant,
}

/// The result of waiting for a lock.
pub(super) enum AcquisitionOutcome {
    Held(HeldLock),
    /// Another gateway has the lock, and has served the request.
    Answered(Box<Reply>),
}

/// The least time that a request waits for ZooKeeper to publish a changed plan, even if its own wait is shorter.
const MIN_COMPAT_WAIT: Duration = Duration::from_secs(1);

impl<N> RequestLockWaitContext<'_, N> {
    /// Waits until no request is running that may lock the same resource under a key of the former plan.
    pub(super) async fn wait_former_keys(&mut self) -> Result<(), Refusal> {
        let Self { fence, request, rule, deadline, .. } = self;
        let LockingRequest { keyed, client, .. } = &mut **request;
        if fence.plan.config.is_generation_open(keyed.upstream) {
            return Ok(());
        }
        let locked = |why| Refusal::new(RefusalReason::Locked, why).with_status(rule.locked_status);
        tokio::select! {
            () = fence.plan.config.wait_generation_open(keyed.upstream) => Ok(()),
            () = fence.wait_drain(&keyed.plan) => {
                Err(Refusal::new(RefusalReason::Draining, "still waiting for the last plan when the gateway stops"))
            }
            () = sleep_until(*deadline) => Err(locked("requests under the keys of the last plan still run")),
            () = client.wait_disconnected() => Err(locked("the client went away while waiting")),
        }
    }

    /// Returns when the session that would take the lock may serve the route. It also returns if there is no session:
    /// the lock request then fails for that reason.
    ///
    /// # Errors
    /// Returns an error if an older gateway locks the same resource in another way, or may do so.
    pub(super) async fn wait_plan_compatible(&mut self) -> Result<(), Refusal> {
        let Self { fence, request, .. } = self;
        let LockingRequest { keyed, lock, client, .. } = &mut **request;
        let deadline = self.deadline.max(Instant::now() + MIN_COMPAT_WAIT);
        let mut changes = None;
        loop {
            let Some(session) = fence.gateway.locks.session_id_for(&lock.keys[0]) else { return Ok(()) };
            match fence.compat.route_compatibility(session, lock.route) {
                RouteCompatibility::Compatible => return Ok(()),
                RouteCompatibility::Incompatible(by) => {
                    let detail = format!("FG0550: {by} is older, and locks the resource in another way");
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, detail));
                }
                RouteCompatibility::Unknown => {}
            }
            // Most requests need no subscription. After subscribing the check runs once more, because the plans may
            // have changed between the check and the subscription.
            let Some(changes) = &mut changes else {
                changes = Some(fence.compat.subscribe());
                continue;
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(deadline) => {
                    let detail = "FG0550: the route is new, and other gateways do not know of it yet";
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, detail));
                }
                () = fence.wait_drain(&keyed.plan) => {
                    let detail = "the other gateways did not know of the route yet when the gateway stops";
                    return Err(Refusal::new(RefusalReason::Draining, detail));
                }
                () = client.wait_disconnected() => {
                    return Err(Refusal::new(RefusalReason::Locked, "the client went away while waiting"));
                }
            }
        }
    }

    /// True if the session that got the lock may serve the route. It may be another session than the one that was
    /// checked before the lock was requested.
    pub(super) fn is_session_compatible(&self, held: &HeldLock) -> bool {
        let session = held.tenure.validity().session_id();
        self.fence.compat.route_compatibility(session, self.request.lock.route)
            == RouteCompatibility::Compatible
    }

    /// Adds to the refusal after a wait what the client can do if the request may have waited for its own caller.
    pub(super) fn add_deadlock_hint(&self, refusal: Refusal) -> Refusal {
        let LockingRequest { keyed, lock, .. } = &*self.request;
        let trace = keyed.trace.context;
        let waited = refusal.reason == RefusalReason::Locked && self.relation.called_from().is_none();
        if !waited || trace.parent.is_none() || !self.fence.gateway.traces.holds_any(&lock.keys, trace.id) {
            return refusal;
        }
        refusal.with_advice(
            "a request of the same trace has the resource: a service that calls back under the lock that it holds \
             sends along the Fencing-Ticket and the Fencing-Token that it was sent",
        )
    }
}
