//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full.

mod abandoned;
mod acquire;
mod callback;
mod compat_gate;
mod deadlock_hints;
mod deps;
mod hold_guard;
mod operation;
pub mod peer_forward;
mod request_grant;
mod under_lease;
mod wait_or_forward;

use std::{
    rc::Rc,
    time::{Duration, SystemTime},
};

use fencegate_http::{
    body::Reply,
    client_quota::{ClientId as Who, QuotaPermit},
    network::Network,
};
use fencegate_idempotency::OperationPermit;
use fencegate_lock::manager::lock_request::WaitPlace;
use fencegate_metrics::request_tracker::{ActiveRequest, FinishedRequest, RequestTrackGuard};
use fencegate_policies::{
    plan::{self, CachedHoldLimits, Enforcement, FenceRule, FencingLevel},
    prefer,
};
use fencegate_process::key_redaction;
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use hyper::header::{HeaderName, HeaderValue};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::{
    abandoned::{AbandonedHoldPolicy, ExchangeEnd},
    callback::CallbackRelation,
    hold_guard::LockHoldGuard,
    wait_or_forward::LockWaitOutcome,
};
pub use self::{deadlock_hints::TraceKeyIndex, deps::FenceDeps, request_grant::RequestGrant};
use crate::{
    handler::Handler,
    request_context::{Exchange, RequestContext},
    steps::{
        answer::{self, ResponseRelayLimits},
        authorized::{DispatchRight, DispatchableRequest},
        client_liveness::ClientDisconnectWatch,
        detach::DetachedRequest,
        key::{KeyedRequest, RequestLockSpec},
    },
};

pub async fn run_under_fence<N: Network, S: Handler<DispatchableRequest<Rc<RequestGrant>>>>(
    fencing: &FenceDeps<N>,
    request: DetachedRequest<KeyedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    let DetachedRequest { mut request, client } = request;
    let called = fencing.callback_relation(&request);
    let waits = match called {
        Ok(CallbackRelation::SameKeys(_) | CallbackRelation::UnderLease(_)) | Err(_) => WaitPlace::Here,
        Ok(CallbackRelation::NoCaller | CallbackRelation::OtherKeys) => fencing.wait_location(&request)?,
    };
    match request.fenced.take() {
        None => {
            // Without keys a request passes on a fenced route only because that route observes.
            let is_observed = request.route_fences();
            let right = if is_observed { DispatchRight::Observed } else { DispatchRight::Unfenced };
            next.handle(into_dispatchable(request, right, Rc::default())).await
        }
        // Boxed, so that a request without a lock does not carry this future along.
        Some(fenced) => {
            let context = request.context.clone();
            let staying = active_request(&request, &fenced);
            let stay = Rc::new(fencing.stays.track(&fenced.keys, &staying));
            let tracked = LockingRequest { request, fenced, stay: stay.clone() };
            let came = Box::pin(with_lock(fencing, tracked, called, waits, client, next)).await;
            stay.record_finished(&finished_request(staying, &context, &came));
            came
        }
    }
}

/// A request that needs a lock, the lock, and its entry among the running requests.
struct LockingRequest {
    request: KeyedRequest,
    fenced: RequestLockSpec,
    stay: Rc<RequestTrackGuard>,
}

async fn with_lock<N: Network, S: Handler<DispatchableRequest<Rc<RequestGrant>>>>(
    fencing: &FenceDeps<N>,
    LockingRequest { mut request, fenced, stay }: LockingRequest,
    called: Result<CallbackRelation, Refusal>,
    waits: WaitPlace,
    mut client: ClientDisconnectWatch,
    next: &S,
) -> Result<Reply, Refusal> {
    let plan = request.plan.clone();
    let fence = fenced.fence(&plan);
    let share = match fencing.acquire_client_share(&request, &fenced, fence) {
        Ok(share) => share.map(Rc::new),
        Err(refusal) => return pass_if_observing(fence.enforce, refusal, request, &mut client, next).await,
    };
    let called = match called {
        Ok(called) => called,
        Err(refusal) => return pass_if_observing(fence.enforce, refusal, request, &mut client, next).await,
    };
    let (patience, mut second) = match called {
        CallbackRelation::NoCaller => (max_wait(&request, fence), fencing.retry_copy(&request, fence)),
        // The request waits for its turn under the lease. It is not tried again under another lock.
        CallbackRelation::UnderLease(_) => (max_wait(&request, fence), None),
        // The caller waits for this request, and others wait for the caller, so it must not wait itself.
        CallbackRelation::SameKeys(_) | CallbackRelation::OtherKeys => (Duration::ZERO, None),
    };
    let deadline = wait_or_forward::wait_deadline(&request, Instant::now() + patience);
    let mut first: Option<Refusal> = None;
    if let Err(refusal) = fencing.wait_former_keys(&request, fence, deadline, &mut client).await {
        let refusal = called.as_deadlock(refusal);
        return pass_if_observing(fence.enforce, refusal, request, &mut client, next).await;
    }
    loop {
        if let Err(refusal) = fencing.wait_plan_compatible(&request, &fenced, deadline, &mut client).await {
            let refusal = called.as_deadlock(refusal);
            return pass_if_observing(fence.enforce, refusal, request, &mut client, next).await;
        }
        let waited = match &called {
            // Boxed, so that other requests do not carry this future along.
            CallbackRelation::SameKeys(from) => {
                Box::pin(fencing.run_in_caller_dispatch(&request, &fenced, fence, from, &mut client)).await
            }
            CallbackRelation::UnderLease(id) => {
                Box::pin(fencing.acquire_under_lease(&request, &fenced, fence, id, deadline, &mut client))
                    .await
            }
            CallbackRelation::NoCaller | CallbackRelation::OtherKeys => {
                fencing.wait_or_forward(&request, &fenced, fence, deadline, waits, &mut client).await
            }
        };
        let held = match waited.map_err(|refusal| called.as_deadlock(refusal)) {
            Ok(LockWaitOutcome::Held(held)) => {
                let traced = fencing.record_trace(&request, &held, fence);
                stay.mark_granted();
                Rc::new(RequestGrant {
                    share: share.clone(),
                    _traced: traced,
                    _stay: Some(stay.clone()),
                    ..held
                })
            }
            // The request is counted until its answer is through, as one that is served here.
            Ok(LockWaitOutcome::Answered(reply)) => {
                return Ok((*reply).map(|body| body.keep_until_dropped((share, fenced.running))));
            }
            Err(refusal) => {
                let refusal = fencing.add_deadlock_hint(&request, &fenced, refusal);
                return pass_if_observing(fence.enforce, refusal, request, &mut client, next).await;
            }
        };
        // The lock is held by another session than the one that was checked. That session has to be compatible with
        // other gateways as well.
        if !matches!(called, CallbackRelation::SameKeys(_) | CallbackRelation::UnderLease(_))
            && !fencing.is_session_compatible(&fenced, &held)
        {
            continue;
        }
        // The rest of its body will not come.
        if client.is_disconnected() && request.http.body().upload_exchange().is_some() {
            return Err(Refusal::new(RefusalReason::Locked, "the client went away while waiting"));
        }
        // A client that left during the second attempt may already have repeated the request elsewhere.
        if let Some(refusal) = first.take_if(|_| client.is_disconnected()) {
            return Err(refusal);
        }
        let once = fencing.admit_operation(&request, &fenced, fence, &held, &mut client).await?;
        let refusal = match fencing.exchange_under_grant(request, fence, held, once, next).await {
            Ok(reply) => return Ok(reply),
            Err(refusal) => refusal,
        };
        // Nothing was dispatched: a newer tenure came first, or the lock validity ended. So one more attempt is safe,
        // because no byte has left.
        match (refusal.reason, second.take()) {
            // A client that has left may have repeated the request elsewhere.
            (RefusalReason::Fenced, Some(again)) if !client.is_disconnected() => {
                let left = deadline.saturating_duration_since(Instant::now());
                fencing.keeper.wait_for_session(&fenced.keys[0], left).await;
                (request, first) = (again, Some(refusal));
            }
            (RefusalReason::Suspended, Some(again)) if fence.enforce == Enforcement::Observe => {
                return pass_if_observing(fence.enforce, refusal, again, &mut client, next).await;
            }
            _ => return Err(refusal),
        }
    }
}

/// The entry of a running request in [`fencegate_metrics::request_tracker::RequestTracker`].
fn active_request(request: &KeyedRequest, fenced: &RequestLockSpec) -> ActiveRequest {
    ActiveRequest {
        request: Some(request.trace.request_id.clone()),
        route: request.plan.routes.get(fenced.route).name.clone(),
        mode: fenced.mode,
        came: std::time::Instant::now(),
        works: None,
    }
}

/// The entry of a finished request in [`fencegate_metrics::request_tracker::RequestTracker`].
fn finished_request(
    staying: ActiveRequest,
    context: &RequestContext,
    came: &Result<Reply, Refusal>,
) -> FinishedRequest {
    let (status, outcome, reason) = match came {
        Ok(reply) if context.is_answer_inconclusive() => (reply.status(), DispatchOutcome::Unknown, None),
        Ok(reply) => (reply.status(), DispatchOutcome::Done, None),
        Err(refusal) => (refusal.status(), refusal.outcome(), Some(refusal.reason)),
    };
    // Another gateway has answered, and it has the outcome.
    let report = context.peer_answer().map(|(_, report)| report);
    FinishedRequest {
        request: staying.request,
        route: staying.route,
        at: SystemTime::now(),
        took: staying.came.elapsed(),
        status: status.as_u16(),
        outcome: report.map_or(outcome, |report| report.outcome),
        reason: report.map_or(reason, |report| report.reason),
        token: context.token(),
    }
}

/// On a route that only observes, the request goes out without a token, and its refusal is only reported. A client
/// that left while it waited is refused all the same.
async fn pass_if_observing<S: Handler<DispatchableRequest<Rc<RequestGrant>>>>(
    enforce: Enforcement,
    refusal: Refusal,
    request: KeyedRequest,
    client: &mut ClientDisconnectWatch,
    next: &S,
) -> Result<Reply, Refusal> {
    if enforce == Enforcement::Refuse || refusal.reason == RefusalReason::Draining || client.is_disconnected()
    {
        return Err(refusal);
    }
    info!(reason = refusal.reason.word(), detail = %refusal.detail, "observed");
    request.context.update_lock(|lock| lock.observed = Some(refusal.reason));
    next.handle(into_dispatchable(request, DispatchRight::Observed, Rc::default())).await
}

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// `Prefer: wait=N` (RFC 7240): how long the client would wait; it can lower its route's wait, not raise it.
pub fn max_wait(request: &KeyedRequest, fence: &FenceRule) -> Duration {
    let preferred =
        prefer::parse_wait(request.http.headers().get_all(PREFER).iter().map(HeaderValue::as_bytes));
    preferred.map_or(fence.wait, |preferred| preferred.min(fence.wait))
}

fn into_dispatchable(
    request: KeyedRequest,
    right: DispatchRight<Rc<RequestGrant>>,
    exchange: Rc<Exchange>,
) -> DispatchableRequest<Rc<RequestGrant>> {
    let KeyedRequest { http, context, plan, upstream, route, source, unlocked, .. } = request;
    let has_override = Some(request.has_override);
    DispatchableRequest {
        http,
        context,
        plan,
        upstream,
        route,
        source,
        has_override,
        unlocked,
        right,
        exchange,
    }
}

impl<N: Network> FenceDeps<N> {
    /// A place in the client's share of the route; `None` where shares are not limited.
    fn acquire_client_share(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLockSpec,
        fence: &FenceRule,
    ) -> Result<Option<QuotaPermit>, Refusal> {
        let Some(most) = fence.client_share else { return Ok(None) };
        let client = Who::from_ip(request.source.client);
        let route = request.plan.routes.get(fenced.route).name.clone();
        let share = self.shares.acquire_route(client, route, most);
        share
            .map(Some)
            .ok_or_else(|| Refusal::new(RefusalReason::ClientLimit, "the client has its share of the route"))
    }

    /// A copy of the request for a second attempt, in case a guard reports that a newer tenure came first. A streamed
    /// body cannot be sent again.
    fn retry_copy(&self, request: &KeyedRequest, fence: &FenceRule) -> Option<KeyedRequest> {
        let upstream = request.plan.upstream(request.upstream);
        let guarded = upstream.fencing == FencingLevel::Guard && self.guards.is_direct(upstream);
        (guarded || fence.enforce == Enforcement::Observe).then(|| request.try_clone())?
    }

    /// Waits until no request runs that may lock the same resource under a key of the former plan.
    async fn wait_former_keys(
        &self,
        request: &KeyedRequest,
        fence: &FenceRule,
        deadline: Instant,
        client: &mut ClientDisconnectWatch,
    ) -> Result<(), Refusal> {
        if self.edition.is_open(request.upstream) {
            return Ok(());
        }
        let locked = |why| Refusal::new(RefusalReason::Locked, why).with_status(fence.locked_status);
        tokio::select! {
            () = self.edition.wait_open(request.upstream) => Ok(()),
            () = self.wait_drain(request.plan.listener.timeouts.drain / 2) => {
                Err(Refusal::new(RefusalReason::Draining, "still waiting for the last plan when the gateway stops"))
            }
            () = sleep_until(deadline) => Err(locked("requests under the keys of the last plan still run")),
            () = client.wait_disconnected() => Err(locked("the client went away while waiting")),
        }
    }

    /// Sends the request under the tenure, and reads the answer.
    async fn exchange_under_grant<S: Handler<DispatchableRequest<Rc<RequestGrant>>>>(
        &self,
        request: KeyedRequest,
        fence: &FenceRule,
        hold: Rc<RequestGrant>,
        once: Option<OperationPermit>,
        next: &S,
    ) -> Result<Reply, Refusal> {
        let upstream = request.plan.upstream(request.upstream);
        let longest = match fence.hold {
            plan::HoldPolicy::Cached(caching) => caching.max_tenure,
            plan::HoldPolicy::Strict => CachedHoldLimits::default().max_tenure,
        };
        let bounds = ResponseRelayLimits {
            most: fence.max_response,
            idle: upstream.response_body_idle,
            total: upstream.response_body_total,
            tunnel: longest,
        };
        let context = request.context.clone();
        let terms = AbandonedHoldPolicy {
            level: upstream.fencing,
            response_timeout: upstream.response_timeout,
            expiry: upstream.expiry,
            running: self.running.clone(),
        };
        let exchange = Rc::<Exchange>::default();
        let kept = LockHoldGuard {
            hold: hold.clone(),
            terms,
            clock: self.clock.clone(),
            once,
            exchange: exchange.clone(),
            _context: context.clone(),
            end: ExchangeEnd::Abandoned,
        };
        let request = into_dispatchable(request, DispatchRight::Held(hold.clone()), exchange.clone());
        let taken = match next.handle(request).await {
            Ok(reply) => answer::receive_response(reply, kept, bounds, &self.budget, &self.running).await,
            Err(refusal) => {
                kept.on_refused(&refusal).await;
                Err(refusal)
            }
        };
        let is_validity_lost = !hold.tenure.validity().is_valid_at(self.clock.now());
        context.update_lock(|lock| lock.is_validity_lost = is_validity_lost);
        match &taken {
            Err(refusal) if refusal.retires_grant() => {
                // The upstream may still be at work under this token, or have a newer one. Dropping the tenure
                // without a report that the outcome is certain retires it: nothing more is dispatched under it, and
                // the next tenure has a larger token.
                let token = exchange.token().map(|token| token.to_string());
                hold.tenure.retire();
                warn!(
                    keys = key_redaction::redact_keys(&hold.keys),
                    token,
                    why = refusal.reason.word(),
                    "tenure.retired"
                );
            }
            Err(_) => hold.tenure.mark_settled(),
            // The reader of the answer reports its end.
            Ok(_) => {}
        }
        taken
    }
}
