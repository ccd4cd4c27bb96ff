//! Requests that are sent to another gateway because that gateway holds their key.
//!
//! Only the gateway that the client has connected to forwards a request. So two gateways that take each other for the
//! holder send nothing in a circle: the second one answers that it is not the holder, and the request is back at the
//! first. From there it goes to the holder that ZooKeeper names next, but only a few times.

use std::{borrow::Cow, time::Duration};

use fencegate_http::network::Network;
use fencegate_lock::manager::{admin_query::GatewayLocation, lock_request::WaitGateway};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use fencegate_zookeeper::peer_endpoint::HolderRoute;
use tokio::time::Instant;

use super::{
    local::{self, LocalLockOutcome},
    lock_wait::{AcquisitionOutcome, RequestLockWaitContext},
    peer_forward::{PeerForwardOutcome, PeerForwardRequest, PeerForwarder},
    request::LockingRequest,
};

/// How often a request is forwarded before it queues here. The holder may be gone when the request arrives, and so
/// may the next one. To queue here at once would make every holder yield its key to this gateway, while the requests
/// that waited there come back one after another.
const MAX_FORWARDS: u32 = 3;

/// A wait that is shorter may have ended because the other gateway was busy, so it shows nothing about the gateway.
const MIN_FAIR_WAIT: Duration = Duration::from_millis(500);

/// Waits for the key, and forwards the request to the gateway that holds it.
///
/// # Errors
/// The lock is not granted in time, another gateway has refused the request, or its outcome is not known.
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
        // Boxed, so that a request that stays here does not carry this future along.
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
                place = WaitGateway::Here;
            }
            PeerForwardOutcome::Requeue(reason) => {
                fence.gateway.locks.forget_holder(key, &route);
                sendings += 1;
                let moved = reason == RefusalReason::NotHolder.word();
                // If the other gateway is in trouble, a third gateway is no better. Each sending takes time, so none
                // begins when no time is left.
                if !moved || sendings == MAX_FORWARDS || left().is_zero() {
                    place = WaitGateway::Here;
                }
            }
        }
    }
}

/// The words for another gateway in the refusals of a request that only that gateway can serve.
pub(super) struct SoleHolderRefusalTexts {
    /// The gateway, as the subject of a sentence.
    pub(super) gateway: &'static str,
    /// Its session is over, so no gateway can serve the request any more.
    pub(super) session_over: &'static str,
    /// This gateway has no `peer`, so it cannot forward.
    pub(super) no_forwarder: &'static str,
    /// The refusal with one of these details, while the gateway cannot be reached.
    pub(super) unavailable: fn(Cow<'static, str>) -> Refusal,
}

/// Forwards the request to the gateway whose session has this member node: no other gateway can serve the request.
/// `left`: how long the request may wait there, asked when that gateway is found.
///
/// # Errors
/// The session is over, the gateway cannot be reached or has refused the request, or the outcome is not known.
pub(super) async fn forward_to_member<N: Network>(
    wait: &mut RequestLockWaitContext<'_, N>,
    member: &str,
    left: impl FnOnce() -> Duration,
    holder: SoleHolderRefusalTexts,
) -> Result<AcquisitionOutcome, Refusal> {
    let SoleHolderRefusalTexts { gateway, session_over, no_forwarder, unavailable } = holder;
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

/// `left`: how long the request may wait for its key at the other gateway.
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
