//! A request under a client's lease: it waits for its turn at the gateway that holds the lease, and gets the next
//! token of the lease.

use fencegate_http::network::Network;
use fencegate_leases::{LeaseTable, lease::RunUnderLeaseError};
use fencegate_protocol::lease_id::LeaseId;
use fencegate_refusal::{Refusal, RefusalReason};
use tokio::time::{Instant, sleep_until};

use super::{
    forwarding::{RequiredPeerRefusalTexts, forward_to_member},
    held_lock::{HeldLock, JoinedTenure, keys_with_permit},
    lock_wait::{AcquisitionOutcome, RequestLockWaitContext},
    request::LockingRequest,
};

/// Waits for the request's turn under the lease, here or at the gateway that holds the lease.
///
/// # Errors
/// Returns an error if the lease is over, does not cover the request, or the turn does not come in time.
pub(super) async fn take_turn<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    id: &LeaseId,
) -> Result<AcquisitionOutcome, Refusal> {
    let RequestLockWaitContext { fence, request, rule, deadline, .. } = wait;
    let Some(leases) = &fence.gateway.leases else {
        return Err(lease_forbidden_refusal("the policy has no `leases`"));
    };
    if !leases.is_local(id) {
        return forward_to_lease_holder(wait, leases, id).await;
    }
    let LockingRequest { keyed, lock, client, .. } = &mut **request;
    let lease = leases.find(id)?;
    if !lock.keys.iter().all(|key| lease.keys.contains(key)) {
        return Err(lease_forbidden_refusal("its key is none of the lease's"));
    }
    if lease.is_rekeyed(&keyed.plan.routes.get(lock.route).name) {
        let detail = "the keys of the route have changed since the lease";
        return Err(Refusal::new(RefusalReason::StaleToken, detail));
    }
    let began = Instant::now();
    keyed.context.update_lock(|facts| facts.wait_began = Some(began));
    let locked = |why| Refusal::new(RefusalReason::Locked, why).with_status(rule.locked_status);
    let taken = tokio::select! {
        taken = lease.acquire_turn(lock.mode) => taken,
        () = sleep_until(*deadline) => return Err(locked("another request under its lease still runs")),
        () = fence.wait_drain(&keyed.plan) => {
            return Err(Refusal::new(RefusalReason::Draining, "still waiting for its turn when the gateway stops"));
        }
        () = client.wait_disconnected() => return Err(locked("the client went away while waiting")),
    };
    let (tenure, mode) = taken.map_err(unusable_refusal)?;
    let keys = keys_with_permit(&tenure, &(*lease.keys).into());
    let joined = JoinedTenure { keys, from: None, tenure, mode };
    let held = HeldLock::joined(fence, request, rule, joined);
    request.keyed.context.update_lock(|facts| facts.waited = Some(began.elapsed()));
    Ok(AcquisitionOutcome::Held(held))
}

/// Forwards the request to the gateway that has the lease: only that gateway has the queue of the lease's
/// requests.
async fn forward_to_lease_holder<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    leases: &LeaseTable,
    id: &LeaseId,
) -> Result<AcquisitionOutcome, Refusal> {
    let session_over = "the session of the lease is over";
    // A forwarded request is not forwarded again: the gateway that sent it has looked up the holder in ZooKeeper.
    if wait.request.keyed.source.forwarded.is_some() {
        return leases.find(id).and_then(|_| Err(Refusal::new(RefusalReason::StaleToken, session_over)));
    }
    let deadline = wait.deadline;
    let left = || deadline.saturating_duration_since(Instant::now());
    let issuer = RequiredPeerRefusalTexts {
        gateway: "the gateway that holds the lease",
        session_over,
        no_forwarder: "another gateway holds the lease, and the policy has no `peer`",
        unavailable: |detail| Refusal::new(RefusalReason::LeaseAway, detail),
    };
    forward_to_member(wait, id.lease_member_node(), left, issuer).await
}

fn unusable_refusal(error: RunUnderLeaseError) -> Refusal {
    match error {
        RunUnderLeaseError::Waiting => {
            Refusal::new(RefusalReason::Locked, "the lease waits for its lock yet")
        }
        RunUnderLeaseError::Over => Refusal::new(RefusalReason::StaleToken, "the lease is over"),
        RunUnderLeaseError::Unproven => {
            Refusal::new(RefusalReason::Suspended, "the session of the lease could not be proven")
        }
        RunUnderLeaseError::Upgrade => lease_forbidden_refusal("it wants to write, and the lease only reads"),
    }
}

fn lease_forbidden_refusal(detail: &'static str) -> Refusal {
    Refusal::new(RefusalReason::LeaseForbidden, detail)
}
