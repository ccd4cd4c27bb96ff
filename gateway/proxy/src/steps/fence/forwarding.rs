//! Requests that are sent to another gateway because that gateway holds their key.
//!
//! Only the gateway to which the client is connected forwards a request. So two gateways that take each other for the
//! holder send nothing in a circle: the second one answers that it is not the holder, and the first one forwards the
//! request to the holder that ZooKeeper names next, but only a few times.

use std::{borrow::Cow, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::manager::{admin_query::GatewayLocation, lock_request::LockWaitPlace};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use fencegate_zookeeper::peer_endpoint::HolderRoute;
use tokio::time::Instant;

use super::{
    local::{self, LocalLockOutcome},
    lock_wait::{AcquisitionOutcome, RequestLockWaitContext},
    peer_forward::{PeerForwardOutcome, PeerForwardRequest, PeerForwarder},
    request::LockingRequest,
};

/// The most times that a request is forwarded before it queues here. When the request arrives, the holder may have
/// released the key, and so may the next one. To queue here after the first time would make every holder yield its
/// key to this gateway while the requests that waited there come back one after another.
const MAX_FORWARDS: u32 = 3;

/// A shorter wait may have ended because the other gateway was busy, so it says nothing about the gateway.
const MIN_FAIR_WAIT: Duration = Duration::from_millis(500);

/// Waits for the key, and forwards the request to the gateway that holds it.
///
/// # Errors
/// Returns an error if the lock is not granted in time, another gateway has refused the request, or its outcome is
/// not known.
pub(super) async fn wait_or_forward<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
) -> Result<AcquisitionOutcome, Refusal> {
    let fence = wait.fence;
    let deadline = wait.deadline;
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut place = wait.place;
    let mut sendings = 0;
    loop {
        let route = match local::acquire(wait, left(), place).await? {
            LocalLockOutcome::Held(held) => return Ok(AcquisitionOutcome::Held(held)),
            LocalLockOutcome::ForwardTo(route) => route,
        };
        let Some(forwarder) = &fence.forwarder else { continue };
        let given = left();
        // The future is boxed, so that the future of a request that stays here does not contain it.
        let outcome = Box::pin(send(wait, forwarder, &route, given)).await;
        let LockingRequest { lock, client, .. } = &mut *wait.request;
        let key = &lock.keys[0];
        match outcome {
            PeerForwardOutcome::Answered(reply) => {
                fence.gateway.locks.record_holder(key, &route);
                return Ok(AcquisitionOutcome::Answered(Box::new(reply)));
            }
            PeerForwardOutcome::Refused(refusal) => {
                let cut_off = client.is_disconnected() || fence.plan.process.drain.is_cancelled();
                if refusal.outcome() == DispatchOutcome::Unknown && !cut_off {
                    fence.gateway.locks.mark_unreachable(&route);
                }
                return Err(refusal);
            }
            PeerForwardOutcome::Unreachable(_) => {
                fence.gateway.locks.forget_holder(key, &route);
                if given >= MIN_FAIR_WAIT {
                    fence.gateway.locks.mark_unreachable(&route);
                }
                place = LockWaitPlace::Here;
            }
            PeerForwardOutcome::Requeue(reason) => {
                fence.gateway.locks.forget_holder(key, &route);
                sendings += 1;
                let moved = reason == RefusalReason::NotHolder.word();
                // If the other gateway has failed and not only lost the key, a third gateway would fail as well. Each
                // sending takes time, so none begins when no time is left.
                if !moved || sendings == MAX_FORWARDS || left().is_zero() {
                    place = LockWaitPlace::Here;
                }
            }
        }
    }
}

/// The words for another gateway in the refusals of a request that only that gateway can serve.
pub(super) struct RequiredPeerRefusalTexts {
    /// The gateway, as the subject of a sentence.
    pub(super) gateway: &'static str,
    /// The detail when the session of that gateway is over, so that no gateway can serve the request any more.
    pub(super) session_over: &'static str,
    /// The detail when this gateway has no `peer`, so that it cannot forward.
    pub(super) no_forwarder: &'static str,
    /// Makes the refusal with one of these details.
    pub(super) unavailable: fn(Cow<'static, str>) -> Refusal,
}

/// Forwards the request to the gateway whose session has this member node: no other gateway can serve the request.
/// `left` returns how long the request may wait there; it is called once the route to that gateway is found.
///
/// # Errors
/// Returns an error if the session is over, if the gateway cannot be reached or has refused the request, or if the
/// outcome is not known.
pub(super) async fn forward_to_member<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    member: &str,
    left: impl FnOnce() -> Duration,
    holder: RequiredPeerRefusalTexts,
) -> Result<AcquisitionOutcome, Refusal> {
    let RequiredPeerRefusalTexts { gateway, session_over, no_forwarder, unavailable } = holder;
    let fence = wait.fence;
    let Some(forwarder) = &fence.forwarder else { return Err(unavailable(no_forwarder.into())) };
    let route = match fence.gateway.locks.locate_member(member.to_owned()).await {
        Ok(GatewayLocation::Elsewhere(route)) => route,
        Ok(GatewayLocation::Gone | GatewayLocation::Here) => {
            return Err(Refusal::new(RefusalReason::StaleToken, session_over));
        }
        Ok(GatewayLocation::Unreachable) => {
            return Err(unavailable(format!("{gateway} has no `peer`").into()));
        }
        Err(untold) => return Err(Refusal::new(RefusalReason::LockService, untold.to_string())),
    };
    match send(wait, forwarder, &route, left()).await {
        PeerForwardOutcome::Answered(reply) => Ok(AcquisitionOutcome::Answered(Box::new(reply))),
        PeerForwardOutcome::Refused(refusal) => Err(refusal),
        PeerForwardOutcome::Requeue(detail) | PeerForwardOutcome::Unreachable(detail) => {
            Err(unavailable(format!("{gateway}: {detail}").into()))
        }
    }
}

/// Sends the request over `route`. It may wait for its key at the other gateway for `left`.
async fn send<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    forwarder: &PeerForwarder<N>,
    route: &HolderRoute,
    left: Duration,
) -> PeerForwardOutcome {
    let fence = wait.fence;
    let LockingRequest { keyed, lock, client, .. } = &mut *wait.request;
    let outbound = PeerForwardRequest {
        route,
        key: &lock.keys[0],
        request: keyed,
        certificate: lock.certificate.as_deref(),
        left,
        ended_sessions: fence.gateway.locks.ended_sessions(),
    };
    forwarder.forward_while_serving(outbound, client, &fence.plan.process.drain).await
}
