//! A request that a service sends while it works under a lock. A request for the same key runs inside its caller's
//! dispatch, one for another key beside it. Neither waits: a request that waits for its own caller, directly or
//! through others, would never end.

use std::time::Duration;

use fencegate_guard_client::callback::CallbackOrigin;
use fencegate_http::network::Network;
use fencegate_lock::manager::{admin_query::MemberLocation, call_chain::CallbackError};
use fencegate_refusal::{Refusal, RefusalReason};

use super::{
    acquisition::{AcquisitionOutcome, LockAcquisition},
    held_lock::{HeldLock, JoinedTenure},
    peer_forward::{PeerForwardOutcome, PeerForwardRequest},
    request::{FencedRequest, deadlock_refusal},
};

/// The longest time to connect to the gateway that has the lock, and for the first exchange with it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the request inside the dispatch in which it was called, here or at the gateway that holds the lock.
///
/// # Errors
/// The request cannot run there. It has not waited.
pub(super) async fn join_caller<N: Network>(
    acquisition: &mut LockAcquisition<'_, N>,
    from: &CallbackOrigin,
) -> Result<AcquisitionOutcome, Refusal> {
    let LockAcquisition { fence, request, rule, .. } = acquisition;
    match fence.keeper.start_callback(&from.keys, from.token, request.lock.mode) {
        Ok((tenure, mode)) => {
            let joined = JoinedTenure { keys: from.keys.clone(), from: Some(from.token), tenure, mode };
            Ok(AcquisitionOutcome::Held(HeldLock::joined(fence, request, rule, joined)))
        }
        Err(CallbackError::NotHeld) => forward_to_holder(acquisition, from).await,
        Err(error) => Err(Refusal::from_callback_error(error)),
    }
}

/// Another gateway has the tenure. Only that gateway has the list of dispatches in flight.
async fn forward_to_holder<N: Network>(
    acquisition: &mut LockAcquisition<'_, N>,
    from: &CallbackOrigin,
) -> Result<AcquisitionOutcome, Refusal> {
    let fence = acquisition.fence;
    let FencedRequest { keyed, lock, client, .. } = &mut *acquisition.request;
    let ours = |origin| fence.tickets.as_ref().is_some_and(|tickets| tickets.is_own(origin));
    let forwarded = keyed.source.forwarded.is_some();
    // A forwarded request is not forwarded again: the sender has queried ZooKeeper for the holder.
    let Some(origin) = from.origin.as_ref().filter(|origin| !forwarded && !ours(origin)) else {
        return Err(Refusal::from_callback_error(CallbackError::NotHeld));
    };
    let Some(forwarder) = &fence.courier else {
        return Err(deadlock_refusal(
            "its caller has come through another gateway, and the policy has no `peer`",
        ));
    };
    let route = match fence.keeper.locate_member(origin.member.clone()).await {
        Ok(MemberLocation::Elsewhere(route)) => route,
        Ok(MemberLocation::Gone | MemberLocation::Here) => {
            let detail = "the session of its caller's lock is over";
            return Err(Refusal::new(RefusalReason::StaleToken, detail));
        }
        Ok(MemberLocation::Unreachable) => {
            return Err(deadlock_refusal("the gateway of its caller has no `peer`"));
        }
        Err(untold) => return Err(Refusal::new(RefusalReason::LockService, untold.to_string())),
    };
    let outbound = PeerForwardRequest {
        way: &route,
        key: &lock.keys[0],
        request: keyed,
        certificate: lock.certificate.as_deref(),
        left: CONNECT_TIMEOUT,
        ended_sessions: fence.keeper.ended_sessions(),
    };
    match forwarder.forward_while_serving(outbound, client, &fence.drain).await {
        PeerForwardOutcome::Answered(reply) => Ok(AcquisitionOutcome::Answered(Box::new(reply))),
        PeerForwardOutcome::Refused(refusal) => Err(refusal),
        PeerForwardOutcome::Requeue(reason) | PeerForwardOutcome::Unreachable(reason) => {
            Err(deadlock_refusal(format!("the gateway of its caller: {reason}")))
        }
    }
}
