//! Requests that are sent to another gateway because that gateway holds their key.
//!
//! Only the gateway that the client has connected to forwards a request. So two gateways that take each other for the
//! holder send nothing in a circle: the second one answers that it is not the holder, and the request is back at the
//! first. From there it goes to the holder that ZooKeeper names next, but only a few times.

use std::{pin::pin, time::Duration};

use fencegate_http::{body::Reply, network::Network};
use fencegate_lock::manager::lock_request::WaitPlace;
use fencegate_policies::plan::{self, Enforcement, FenceRule, LockMode, PeerForwardPolicy};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use tokio::time::Instant;

use super::{
    acquire::AcquireOutcome,
    deps::FenceDeps,
    peer_forward::{PeerForwardOutcome, PeerForwardRequest, PeerForwarder},
    request_grant::RequestGrant,
};
use crate::steps::{
    client_liveness::{ClientDisconnectWatch, client_disconnect_channel},
    key::{KeyedRequest, RequestLockSpec},
    upgrade::OfferedUpgradeProtocols,
};

/// The result of waiting for a key.
pub(super) enum LockWaitOutcome {
    Held(RequestGrant),
    /// Another gateway has served it.
    Answered(Box<Reply>),
}

/// How often a request is forwarded before it queues here. The holder may be gone when the request arrives, and so
/// may the next one. To queue here at once would make every holder yield its key to this gateway, while the requests
/// that waited there come back one after another.
const MAX_FORWARDS: u32 = 3;

/// A wait that is shorter may have ended because the other gateway was busy, so it shows nothing about the gateway.
const MIN_FAIR_WAIT: Duration = Duration::from_millis(500);

impl<N: Network> FenceDeps<N> {
    /// Where a request may wait for its key.
    ///
    /// # Errors
    /// Another gateway has sent the request, but by our plan it needs other keys than the one that was sent with it.
    pub(super) fn wait_location(&self, request: &KeyedRequest) -> Result<WaitPlace, Refusal> {
        let alone = |fenced: &&RequestLockSpec| caches_key(fenced, fenced.fence(&request.plan));
        let kept = request.fenced.as_ref().filter(alone);
        match (request.source.forwarded.as_ref(), kept) {
            (Some(forwarded), Some(fenced)) if fenced.keys[0].as_str() == forwarded.key => {
                Ok(WaitPlace::AtHolder)
            }
            (Some(_), _) => {
                Err(Refusal::new(RefusalReason::NotHolder, "by our plan it does not wait for that key alone"))
            }
            (None, Some(fenced)) if self.courier.is_some() => Ok(allowed_location(request, fenced)),
            (None, _) => Ok(WaitPlace::Here),
        }
    }

    /// Waits for the key here, or sends the request to the gateway that holds the key.
    pub(super) async fn wait_or_forward(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
        deadline: Instant,
        mut waits: WaitPlace,
        client: &mut ClientDisconnectWatch,
    ) -> Result<LockWaitOutcome, Refusal> {
        let key = &fenced.keys[0];
        let mut sendings = 0;
        loop {
            let left = || deadline.saturating_duration_since(Instant::now());
            let route = match self.acquire(request, fenced, fence, left(), waits, client).await? {
                AcquireOutcome::Held(hold) => return Ok(LockWaitOutcome::Held(hold)),
                AcquireOutcome::ForwardTo(route) => route,
            };
            let Some(forwarder) = &self.courier else { continue };
            let given = left();
            let ended_sessions = self.keeper.ended_sessions();
            let certificate = fenced.certificate.as_deref();
            let outbound =
                PeerForwardRequest { way: &route, key, request, certificate, left: given, ended_sessions };
            match self.forward(forwarder, outbound, client).await {
                PeerForwardOutcome::Answered(reply) => {
                    self.keeper.record_holder(key, &route);
                    return Ok(LockWaitOutcome::Answered(Box::new(reply)));
                }
                PeerForwardOutcome::Refused(refusal) => {
                    let cut_off = client.is_disconnected() || self.drain.is_cancelled();
                    if refusal.outcome() == DispatchOutcome::Unknown && !cut_off {
                        self.keeper.mark_unreachable(&route);
                    }
                    return Err(refusal);
                }
                PeerForwardOutcome::Unreachable(_) => {
                    self.keeper.forget_holder(key, &route);
                    if given >= MIN_FAIR_WAIT {
                        self.keeper.mark_unreachable(&route);
                    }
                    waits = WaitPlace::Here;
                }
                PeerForwardOutcome::Requeue(reason) => {
                    self.keeper.forget_holder(key, &route);
                    sendings += 1;
                    let moved = reason == RefusalReason::NotHolder.word();
                    // If the other gateway is in trouble, a third gateway is no better. Each sending takes time, so
                    // none begins when no time is left.
                    if !moved || sendings == MAX_FORWARDS || left().is_zero() {
                        waits = WaitPlace::Here;
                    }
                }
            }
        }
    }

    /// Forwards the request. Waits as long as the client does, but not beyond half of our drain: an answer that is
    /// missing then could take longer than this process has left.
    pub(super) async fn forward(
        &self,
        forwarder: &PeerForwarder<N>,
        outbound: PeerForwardRequest<'_>,
        client: &mut ClientDisconnectWatch,
    ) -> PeerForwardOutcome {
        let (asking, mut asked) = client_disconnect_channel();
        let mut carrying = pin!(forwarder.forward(outbound, &mut asked));
        let drained = tokio::select! {
            carried = &mut carrying => return carried,
            () = client.wait_disconnected() => false,
            () = self.wait_drain(outbound.request.plan.listener.timeouts.drain / 2) => true,
        };
        // For the forwarder this looks like a client that disconnected. Only the forwarder can report whether
        // anything was written.
        drop(asking);
        match carrying.await {
            PeerForwardOutcome::Refused(refusal) if drained => {
                PeerForwardOutcome::Refused(stopped_refusal(refusal.outcome()))
            }
            carried => carried,
        }
    }
}

fn stopped_refusal(outcome: DispatchOutcome) -> Refusal {
    let reason = if outcome == DispatchOutcome::NotDispatched {
        RefusalReason::Draining
    } else {
        RefusalReason::OutcomeUnknown
    };
    Refusal::new(reason, "another gateway had not answered when this one stops")
}

/// The route locks one key exclusively, keeps it for later requests, and refuses requests without it.
fn caches_key(fenced: &RequestLockSpec, fence: &FenceRule) -> bool {
    let cached = matches!(fence.hold, plan::HoldPolicy::Cached(_)) && fenced.keys.len() == 1;
    cached && fenced.mode == LockMode::Exclusive && fence.enforce == Enforcement::Refuse
}

/// A forwarded request must be here in full, because it may come back and be served here. After a switch of protocols
/// the bytes are no request any more.
fn allowed_location(request: &KeyedRequest, fenced: &RequestLockSpec) -> WaitPlace {
    let sends = fenced.fence(&request.plan).forward == PeerForwardPolicy::Holder;
    let whole = request.http.body().try_clone().is_some();
    let switches = request.http.extensions().get::<OfferedUpgradeProtocols>().is_some();
    if sends && whole && !switches { WaitPlace::Anywhere } else { WaitPlace::Here }
}

/// A request from another gateway waits no longer than that gateway allows.
pub(super) fn wait_deadline(request: &KeyedRequest, ours: Instant) -> Instant {
    request.source.forwarded.as_ref().map_or(ours, |forwarded| ours.min(forwarded.until))
}
