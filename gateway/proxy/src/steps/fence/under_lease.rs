//! A request under a client's lease: it waits for its turn at the gateway that holds the lease, and gets the next
//! token of the lease.

use std::borrow::Cow;

use fencegate_http::network::Network;
use fencegate_leases::{LeaseTable, PresentedLease, lease::UseLeaseError};
use fencegate_lock::manager::admin_query::MemberLocation;
use fencegate_policies::plan::{FenceRule, LeasePolicy};
use fencegate_protocol::lease_id::LeaseId;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::{Instant, sleep_until};

use super::{
    acquire::visible_keys,
    callback::{CallbackRelation, JoinedTenure},
    deps::FenceDeps,
    peer_forward::{PeerForwardOutcome, PeerForwardRequest},
    wait_or_forward::LockWaitOutcome,
};
use crate::steps::{
    client_liveness::ClientDisconnectWatch,
    key::{KeyedRequest, RequestLockSpec},
};

impl<N: Network> FenceDeps<N> {
    /// # Errors
    /// The route requires a lease and the request has none, or the route accepts no lease.
    pub(super) fn lease_relation(
        &self,
        request: &KeyedRequest,
        fence: &FenceRule,
    ) -> Result<CallbackRelation, Refusal> {
        match (fence.lease, request.source.lease.as_ref()) {
            (LeasePolicy::Never | LeasePolicy::Optional, None) => Ok(CallbackRelation::NoCaller),
            (LeasePolicy::Required, None) => {
                Err(Refusal::new(RefusalReason::LeaseRequired, "no `Fencing-Lease`"))
            }
            // This installation grants no leases: the field is then like any other that a client must not write.
            (LeasePolicy::Never, Some(_)) if self.leases.is_none() => Ok(CallbackRelation::NoCaller),
            (LeasePolicy::Never, Some(_)) => {
                // It would wait for the lock that its own client holds.
                Err(lease_forbidden_refusal("its route takes no lease"))
            }
            (LeasePolicy::Optional | LeasePolicy::Required, Some(PresentedLease::Malformed)) => {
                Err(lease_forbidden_refusal("`Fencing-Lease` is no id of a lease"))
            }
            (LeasePolicy::Optional | LeasePolicy::Required, Some(PresentedLease::Valid(id, _))) => {
                Ok(CallbackRelation::UnderLease(id.clone()))
            }
        }
    }

    /// The request's turn under the lease, here or at the gateway that holds the lease.
    ///
    /// # Errors
    /// The lease is over, does not cover the request, or the turn does not come in time.
    pub(super) async fn acquire_under_lease(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
        id: &LeaseId,
        deadline: Instant,
        client: &mut ClientDisconnectWatch,
    ) -> Result<LockWaitOutcome, Refusal> {
        let Some(leases) = &self.leases else {
            return Err(lease_forbidden_refusal("the policy has no `leases`"));
        };
        if !leases.is_local(id) {
            return self.forward_to_issuer(leases, request, fenced, id, deadline, client).await;
        }
        let lease = leases.find(id)?;
        if !fenced.keys.iter().all(|key| lease.keys.contains(key)) {
            return Err(lease_forbidden_refusal("its key is none of the lease's"));
        }
        if lease.is_rekeyed(&request.plan.routes.get(fenced.route).name) {
            return Err(Refusal::new(
                RefusalReason::StaleToken,
                "the keys of the route have changed since the lease",
            ));
        }
        let asked = Instant::now();
        request.context.update_lock(|lock| lock.wait_began = Some(asked));
        let locked = |why| Refusal::new(RefusalReason::Locked, why).with_status(fence.locked_status);
        let entered = tokio::select! {
            entered = lease.acquire_turn(fenced.mode) => entered,
            () = sleep_until(deadline) => return Err(locked("another request under its lease still runs")),
            () = self.wait_drain(request.plan.listener.timeouts.drain / 2) => {
                return Err(Refusal::new(RefusalReason::Draining, "still waiting for its turn when the gateway stops"));
            }
            () = client.wait_disconnected() => return Err(locked("the client went away while waiting")),
        };
        let (tenure, mode) = entered.map_err(unusable_refusal)?;
        let keys = visible_keys(&tenure, &(*lease.keys).into());
        let entered = JoinedTenure { keys, from: None, tenure, mode };
        let held = self.build_request_grant(request, fenced, fence, entered);
        request.context.update_lock(|lock| lock.waited = Some(asked.elapsed()));
        Ok(LockWaitOutcome::Held(held))
    }

    /// Another process has the lease. Only that gateway has the queue of its requests.
    async fn forward_to_issuer(
        &self,
        leases: &LeaseTable,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        id: &LeaseId,
        deadline: Instant,
        client: &mut ClientDisconnectWatch,
    ) -> Result<LockWaitOutcome, Refusal> {
        let stale = || Refusal::new(RefusalReason::StaleToken, "the session of the lease is over");
        // A forwarded request is not forwarded again: the sender has queried ZooKeeper for the holder.
        if request.source.forwarded.is_some() {
            return leases.find(id).and_then(|_| Err(stale()));
        }
        let Some(forwarder) = &self.courier else {
            return Err(issuer_unavailable_refusal(
                "another gateway holds the lease, and the policy has no `peer`",
            ));
        };
        let route = match self.keeper.locate_member(id.member().to_owned()).await {
            Ok(MemberLocation::Elsewhere(route)) => route,
            Ok(MemberLocation::Gone | MemberLocation::Here) => return Err(stale()),
            Ok(MemberLocation::Unreachable) => {
                return Err(issuer_unavailable_refusal("the gateway that holds the lease has no `peer`"));
            }
            Err(untold) => return Err(Refusal::new(RefusalReason::LockService, untold.to_string())),
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let key = &fenced.keys[0];
        let ended_sessions = self.keeper.ended_sessions();
        let certificate = fenced.certificate.as_deref();
        let outbound = PeerForwardRequest { way: &route, key, request, certificate, left, ended_sessions };
        match self.forward(forwarder, outbound, client).await {
            PeerForwardOutcome::Answered(reply) => Ok(LockWaitOutcome::Answered(Box::new(reply))),
            PeerForwardOutcome::Refused(refusal) => Err(refusal),
            PeerForwardOutcome::Requeue(detail) | PeerForwardOutcome::Unreachable(detail) => {
                Err(issuer_unavailable_refusal(format!("the gateway that holds the lease: {detail}")))
            }
        }
    }
}

fn unusable_refusal(error: UseLeaseError) -> Refusal {
    match error {
        UseLeaseError::Waiting => Refusal::new(RefusalReason::Locked, "the lease waits for its lock yet"),
        UseLeaseError::Over => Refusal::new(RefusalReason::StaleToken, "the lease is over"),
        UseLeaseError::Unproven => {
            Refusal::new(RefusalReason::Suspended, "the session of the lease could not be proven")
        }
        UseLeaseError::Upgrade => lease_forbidden_refusal("it wants to write, and the lease only reads"),
    }
}

fn lease_forbidden_refusal(detail: &'static str) -> Refusal {
    Refusal::new(RefusalReason::LeaseForbidden, detail)
}

fn issuer_unavailable_refusal(detail: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(RefusalReason::LeaseAway, detail)
}
