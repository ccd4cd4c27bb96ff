//! A request that a service sends while it works under a lock. A request for the same key runs inside its caller's
//! dispatch, one for another key beside it. Neither waits: a request that waits for its own caller, directly or
//! through others, would never end.

use std::{borrow::Cow, rc::Rc, time::Duration};

use fencegate_guard_client::callback::{CallbackOrigin, CallbackTicket};
use fencegate_http::network::Network;
use fencegate_lock::manager::{
    admin_query::MemberLocation, call_chain::CallbackError, grant_guard::GrantGuard,
};
use fencegate_metrics::AcquireLabel;
use fencegate_policies::{
    key::ResourceKey,
    plan::{FenceRule, FencingLevel, LockMode, NestedRequestPolicy},
    token::FencingToken,
};
use fencegate_protocol::lease_id::LeaseId;
use fencegate_refusal::{Refusal, RefusalReason};

use super::{
    deps::FenceDeps,
    peer_forward::{PeerForwardOutcome, PeerForwardRequest},
    request_grant::RequestGrant,
    wait_or_forward::LockWaitOutcome,
};
use crate::steps::{
    client_liveness::ClientDisconnectWatch,
    key::{KeyedRequest, RequestLockSpec},
};

/// The relation of a request to the dispatch in which it was called.
pub(super) enum CallbackRelation {
    /// The request shows no caller.
    NoCaller,
    /// All keys of the request are held by its caller.
    SameKeys(Rc<CallbackOrigin>),
    /// None of its keys is held by its caller.
    OtherKeys,
    /// The request belongs to a client that holds a lease.
    UnderLease(Rc<LeaseId>),
}

/// The tenure of another request or of a lease, which a request has entered.
pub(super) struct JoinedTenure {
    /// All keys of the tenure, as its ticket has them.
    pub(super) keys: Rc<[ResourceKey]>,
    /// The dispatch in which the request was called.
    pub(super) from: Option<FencingToken>,
    pub(super) tenure: GrantGuard,
    pub(super) mode: LockMode,
}

/// The longest time to connect to the gateway that has the lock, and for the first exchange with it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

impl CallbackRelation {
    /// A called request never waits for a lock. So where a lock is busy, the refusal names the deadlock and not a
    /// wait.
    pub(super) fn as_deadlock(&self, refusal: Refusal) -> Refusal {
        match (self, refusal.reason) {
            (Self::SameKeys(_) | Self::OtherKeys, RefusalReason::Locked | RefusalReason::QueueFull) => {
                deadlock_refusal(refusal.detail)
            }
            _ => refusal,
        }
    }
}

impl<N: Network> FenceDeps<N> {
    /// # Errors
    /// A request that is called in this way can never run.
    pub(super) fn callback_relation(&self, request: &KeyedRequest) -> Result<CallbackRelation, Refusal> {
        let Some(fenced) = &request.fenced else { return Ok(CallbackRelation::NoCaller) };
        let fence = fenced.fence(&request.plan);
        let Some(shown) =
            request.source.callback.as_ref().filter(|_| fence.nested == NestedRequestPolicy::Allow)
        else {
            return self.lease_relation(request, fence);
        };
        let from = match shown {
            CallbackTicket::Valid(from) => from,
            CallbackTicket::Expired(error) => return Err(stale_refusal(error)),
        };
        request.context.update_lock(|lock| lock.called_from = Some(from.token));
        let held = fenced.keys.iter().filter(|key| from.keys.contains(key)).count();
        match held {
            0 => Ok(CallbackRelation::OtherKeys),
            all if all == fenced.keys.len() => Ok(CallbackRelation::SameKeys(from.clone())),
            _ => Err(deadlock_refusal("some of its keys are those of its caller, and others are not")),
        }
    }

    /// Runs the request inside the dispatch in which it was called, here or at the gateway that holds the lock.
    ///
    /// # Errors
    /// The request cannot run there. It has not waited.
    pub(super) async fn run_in_caller_dispatch(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
        from: &CallbackOrigin,
        client: &mut ClientDisconnectWatch,
    ) -> Result<LockWaitOutcome, Refusal> {
        match self.keeper.start_callback(&from.keys, from.token, fenced.mode) {
            Ok((tenure, mode)) => {
                let keys = from.keys.clone();
                let entered = JoinedTenure { keys, from: Some(from.token), tenure, mode };
                Ok(LockWaitOutcome::Held(self.build_request_grant(request, fenced, fence, entered)))
            }
            Err(CallbackError::NotHeld) => self.forward_to_holder(request, fenced, from, client).await,
            Err(error) => Err(Refusal::from_callback_error(error)),
        }
    }

    /// The grant for a request that runs under a lock that another request or a lease has acquired.
    pub(super) fn build_request_grant(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
        JoinedTenure { keys, from, tenure, mode }: JoinedTenure,
    ) -> RequestGrant {
        let metrics = self.metrics.route(fenced.route);
        request.context.update_lock(|lock| lock.waited = Some(Duration::ZERO));
        metrics.record_acquire(AcquireLabel::Nested, mode, Duration::ZERO);
        let guarded = request.plan.upstream(request.upstream).fencing == FencingLevel::Guard;
        RequestGrant {
            tenure,
            // The keys of the whole tenure, as its ticket names them.
            keys,
            mode,
            counted: metrics.start_hold(mode),
            tickets: self.ticket_issuer(guarded, fence),
            operation: fenced.operation.clone().filter(|_| guarded),
            nested: if guarded { fence.nested } else { NestedRequestPolicy::Ignore },
            called_from: from.filter(|_| guarded),
            running: fenced.running.clone(),
            _traced: None,
            _stay: None,
            share: None,
        }
    }

    /// Another gateway has the tenure. Only that gateway has the list of dispatches in flight.
    async fn forward_to_holder(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        from: &CallbackOrigin,
        client: &mut ClientDisconnectWatch,
    ) -> Result<LockWaitOutcome, Refusal> {
        let ours = |origin| self.tickets.as_ref().is_some_and(|tickets| tickets.is_own(origin));
        let forwarded = request.source.forwarded.is_some();
        // A forwarded request is not forwarded again: the sender has queried ZooKeeper for the holder.
        let Some(origin) = from.origin.as_ref().filter(|origin| !forwarded && !ours(origin)) else {
            return Err(Refusal::from_callback_error(CallbackError::NotHeld));
        };
        let Some(forwarder) = &self.courier else {
            return Err(deadlock_refusal(
                "its caller has come through another gateway, and the policy has no `peer`",
            ));
        };
        let route = match self.keeper.locate_member(origin.member.clone()).await {
            Ok(MemberLocation::Elsewhere(route)) => route,
            Ok(MemberLocation::Gone | MemberLocation::Here) => {
                return Err(stale_refusal("the session of its caller's lock is over"));
            }
            Ok(MemberLocation::Unreachable) => {
                return Err(deadlock_refusal("the gateway of its caller has no `peer`"));
            }
            Err(untold) => return Err(Refusal::new(RefusalReason::LockService, untold.to_string())),
        };
        let key = &fenced.keys[0];
        let ended_sessions = self.keeper.ended_sessions();
        let certificate = fenced.certificate.as_deref();
        let left = CONNECT_TIMEOUT;
        let outbound = PeerForwardRequest { way: &route, key, request, certificate, left, ended_sessions };
        match self.forward(forwarder, outbound, client).await {
            PeerForwardOutcome::Answered(reply) => Ok(LockWaitOutcome::Answered(Box::new(reply))),
            PeerForwardOutcome::Refused(refusal) => Err(refusal),
            PeerForwardOutcome::Requeue(reason) | PeerForwardOutcome::Unreachable(reason) => {
                Err(deadlock_refusal(format!("the gateway of its caller: {reason}")))
            }
        }
    }
}

fn stale_refusal(reason: &'static str) -> Refusal {
    Refusal::new(RefusalReason::StaleToken, reason)
}

fn deadlock_refusal(reason: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(RefusalReason::DeadlockAvoided, reason)
}
