//! Requests that a service sends while it works under a lock. A request for the same key runs inside its caller's
//! dispatch, one for another key beside it. Neither waits for its caller: a request that waits for its own caller,
//! directly or through others, would never end.

use std::time::Duration;

use fencegate_guard_client::callback::ParentDispatch;
use fencegate_http::network::Network;
use fencegate_lock::manager::call_chain::NestedCallbackError;
use fencegate_refusal::Refusal;

use super::{
    forwarding::{RequiredPeerRefusalTexts, forward_to_member},
    held_lock::{HeldLock, JoinedTenure},
    lock_wait::{AcquisitionOutcome, RequestLockWaitContext},
    request::deadlock_refusal,
};

/// The longest time to connect to the gateway that has the lock, and for the first exchange with it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the request inside the dispatch in which it was called, here or at the gateway that holds the lock.
///
/// # Errors
/// Returns an error, without a wait, if the request cannot run inside that dispatch.
pub(super) async fn join_caller<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    from: &ParentDispatch,
) -> Result<AcquisitionOutcome, Refusal> {
    let RequestLockWaitContext { fence, request, rule, .. } = wait;
    match fence.gateway.locks.start_callback(&from.keys, from.token, request.lock.mode) {
        Ok((tenure, mode)) => {
            let joined = JoinedTenure { keys: from.keys.clone(), from: Some(from.token), tenure, mode };
            Ok(AcquisitionOutcome::Held(HeldLock::joined(fence, request, rule, joined)))
        }
        Err(NestedCallbackError::NotHeld) => forward_to_holder(wait, from).await,
        Err(error) => Err(Refusal::from_callback_error(error)),
    }
}

/// Forwards the request to the gateway that has the tenure: only that gateway has the list of dispatches in
/// flight.
async fn forward_to_holder<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    from: &ParentDispatch,
) -> Result<AcquisitionOutcome, Refusal> {
    let fence = wait.fence;
    let ours = |origin| fence.gateway.tickets.as_ref().is_some_and(|tickets| tickets.is_own(origin));
    let forwarded = wait.request.keyed.source.forwarded.is_some();
    // A forwarded request is not forwarded again: the sender has queried ZooKeeper for the holder.
    let Some(origin) = from.origin.as_ref().filter(|origin| !forwarded && !ours(origin)) else {
        return Err(Refusal::from_callback_error(NestedCallbackError::NotHeld));
    };
    let holder = RequiredPeerRefusalTexts {
        gateway: "the gateway of its caller",
        session_over: "the session of its caller's lock is over",
        no_forwarder: "its caller has come through another gateway, and the policy has no `peer`",
        unavailable: deadlock_refusal,
    };
    forward_to_member(wait, &origin.member, || CONNECT_TIMEOUT, holder).await
}
