//! The wait for a lock: until requests under former keys are over and other gateways take the same lock, then at the
//! place where the lock is, or comes to.

use std::time::Duration;

use fencegate_http::{body::Reply, network::Network};
use fencegate_lock::manager::lock_request::WaitPlace;
use fencegate_peers::plan_compat::RouteCompatibility;
use fencegate_policies::plan::FenceRule;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::{Instant, sleep_until};

use super::{
    callback,
    deps::FenceDeps,
    forwarding,
    held_lock::HeldLock,
    lease_turn,
    request::{FencedRequest, LockRelation},
};

/// A request that waits for its lock.
pub(super) struct LockAcquisition<'a, N> {
    pub(super) fence: &'a FenceDeps<N>,
    pub(super) request: &'a mut FencedRequest,
    pub(super) rule: &'a FenceRule,
    pub(super) relation: &'a LockRelation,
    pub(super) place: WaitPlace,
    pub(super) deadline: Instant,
}

/// The result of waiting for a lock.
pub(super) enum AcquisitionOutcome {
    Held(HeldLock),
    /// Another gateway has the lock, and has served the request.
    Answered(Box<Reply>),
}

/// However short the wait of the request, ZooKeeper has this long to publish a changed plan.
const MIN_COMPAT_WAIT: Duration = Duration::from_secs(1);

impl<N: Network> LockAcquisition<'_, N> {
    /// # Errors
    /// The lock is not granted in time, the gateway stops, or the client has left.
    ///
    /// # Cancellation
    /// Nothing is held. Must not be dropped while another gateway has the request: its outcome would not be known.
    pub(super) async fn run(mut self) -> Result<AcquisitionOutcome, Refusal> {
        let relation = self.relation;
        self.acquire().await.map_err(|refusal| relation.as_deadlock(refusal))
    }

    async fn acquire(&mut self) -> Result<AcquisitionOutcome, Refusal> {
        self.wait_former_keys().await?;
        loop {
            self.wait_plan_compatible().await?;
            let acquired = match self.relation {
                // Boxed, so that other requests do not carry these futures along.
                LockRelation::SameKeys(from) => Box::pin(callback::join_caller(self, from)).await,
                LockRelation::UnderLease(id) => Box::pin(lease_turn::take_turn(self, id)).await,
                LockRelation::NoCaller | LockRelation::OtherKeys(_) => {
                    forwarding::wait_or_forward(self).await
                }
            };
            let acquired = acquired.map_err(|refusal| self.add_deadlock_hint(refusal))?;
            let AcquisitionOutcome::Held(held) = acquired else { return Ok(acquired) };
            // The lock is held by another session than the one that was checked. That session has to be compatible
            // with other gateways as well.
            if matches!(self.relation, LockRelation::NoCaller | LockRelation::OtherKeys(_))
                && !self.is_session_compatible(&held)
            {
                continue;
            }
            return Ok(AcquisitionOutcome::Held(held.for_request(self.fence, self.request, self.rule)));
        }
    }

    /// Waits until no request runs that may lock the same resource under a key of the former plan.
    async fn wait_former_keys(&mut self) -> Result<(), Refusal> {
        let Self { fence, request, rule, deadline, .. } = self;
        let FencedRequest { keyed, client, .. } = &mut **request;
        if fence.edition.is_open(keyed.upstream) {
            return Ok(());
        }
        let locked = |why| Refusal::new(RefusalReason::Locked, why).with_status(rule.locked_status);
        tokio::select! {
            () = fence.edition.wait_open(keyed.upstream) => Ok(()),
            () = fence.wait_drain(&keyed.plan) => {
                Err(Refusal::new(RefusalReason::Draining, "still waiting for the last plan when the gateway stops"))
            }
            () = sleep_until(*deadline) => Err(locked("requests under the keys of the last plan still run")),
            () = client.wait_disconnected() => Err(locked("the client went away while waiting")),
        }
    }

    /// Returns when the session that would take the lock may serve the route. Without a session it returns as well:
    /// the lock request then fails with that reason.
    ///
    /// # Errors
    /// An older gateway locks the same resource in another way, or may do so.
    async fn wait_plan_compatible(&mut self) -> Result<(), Refusal> {
        let Self { fence, request, .. } = self;
        let FencedRequest { keyed, lock, client, .. } = &mut **request;
        let deadline = self.deadline.max(Instant::now() + MIN_COMPAT_WAIT);
        let mut news = None;
        loop {
            let Some(session) = fence.keeper.session_id_for(&lock.keys[0]) else { return Ok(()) };
            match fence.accord.route_compatibility(session, lock.route) {
                RouteCompatibility::Compatible => return Ok(()),
                RouteCompatibility::Incompatible(by) => {
                    let detail = format!("FG0550: {by} is older, and locks the resource in another way");
                    return Err(Refusal::new(RefusalReason::ConfigMismatch, detail));
                }
                RouteCompatibility::Unknown => {}
            }
            // Most requests need not subscribe. One that does checks once more, because a change may have come
            // before.
            let Some(news) = &mut news else {
                news = Some(fence.accord.subscribe());
                continue;
            };
            tokio::select! {
                _ = news.changed() => {}
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

    /// Whether the session that got the lock may serve the route. It may be another session than the one that was
    /// checked before.
    fn is_session_compatible(&self, held: &HeldLock) -> bool {
        let session = held.tenure.validity().session_id();
        self.fence.accord.route_compatibility(session, self.request.lock.route)
            == RouteCompatibility::Compatible
    }

    /// After a wait in vain: adds what the client can do, if the request may have waited for itself.
    fn add_deadlock_hint(&self, refusal: Refusal) -> Refusal {
        let FencedRequest { keyed, lock, .. } = &*self.request;
        let trace = keyed.trace.context;
        let waited = refusal.reason == RefusalReason::Locked && self.relation.called_from().is_none();
        if !waited || trace.parent.is_none() || !self.fence.traces.holds_any(&lock.keys, trace.id) {
            return refusal;
        }
        refusal.with_advice(
            "a request of the same trace has the resource: a service that calls back under the lock that it holds \
             sends along the Fencing-Ticket and the Fencing-Token that it was sent",
        )
    }
}
