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
use fencegate_lock::{idempotency::OperationPermit, manager::lock_request::WaitPlace};
use fencegate_policies::{
    plan::{self, CachedHold, Enforcement, Fence, FencingLevel},
    prefer,
};
use fencegate_process::key_redaction;
use hyper::header::{HeaderName, HeaderValue};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::{
    abandoned::AbandonPolicy, callback::CallContext, hold_guard::HoldGuard, wait_or_forward::WaitOutcome,
};
pub use self::{deadlock_hints::TraceIndex, deps::FenceDeps, request_grant::RequestGrant};
use crate::{
    handler::Handler,
    refusal::{Outcome, Reason, Refusal},
    request_context::RequestContext,
    request_tracker::{ActiveRequest, FinishedRequest, TrackGuard},
    steps::{
        answer::{self, ResponseLimits},
        authorized::AuthorizedRequest,
        client_liveness::ClientWatch,
        detach::Detached,
        key::{KeyedRequest, RequestLock},
    },
};

pub async fn fence<N: Network, S: Handler<AuthorizedRequest<Rc<RequestGrant>>>>(
    fencing: &FenceDeps<N>,
    request: Detached<KeyedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    let Detached { mut request, client } = request;
    let called = fencing.call_context(&request);
    let waits = match called {
        Ok(CallContext::SameKeys(_) | CallContext::UnderLease(_)) | Err(_) => WaitPlace::Here,
        Ok(CallContext::NoCaller | CallContext::OtherKeys) => fencing.wait_location(&request)?,
    };
    match request.fenced.take() {
        None => next.handle(authorize(request, None)).await,
        // Boxed, so that a request without a lock does not carry this future along.
        Some(fenced) => {
            let context = request.notes.clone();
            let staying = active_request(&request, &fenced);
            let stay = Rc::new(fencing.stays.track(&fenced.keys, &staying));
            let asked = (request, fenced, stay.clone());
            let came = Box::pin(with_lock(fencing, asked, (called, waits), client, next)).await;
            stay.record_finished(&finished_request(staying, &context, &came));
            came
        }
    }
}

async fn with_lock<N: Network, S: Handler<AuthorizedRequest<Rc<RequestGrant>>>>(
    fencing: &FenceDeps<N>,
    (mut request, fenced, stay): (KeyedRequest, RequestLock, Rc<TrackGuard>),
    (called, waits): (Result<CallContext, Refusal>, WaitPlace),
    mut client: ClientWatch,
    next: &S,
) -> Result<Reply, Refusal> {
    let plan = request.plan.clone();
    let fence = fenced.fence(&plan);
    let share = match fencing.share(&request, &fenced, fence) {
        Ok(share) => share.map(Rc::new),
        Err(refusal) => return observe(fence.enforce, refusal, request, &mut client, next).await,
    };
    let called = match called {
        Ok(called) => called,
        Err(refusal) => return observe(fence.enforce, refusal, request, &mut client, next).await,
    };
    let (patience, mut second) = match called {
        CallContext::NoCaller => (max_wait(&request, fence), fencing.retry_copy(&request, fence)),
        // The request waits for its turn under the lease. It is not tried again under another lock.
        CallContext::UnderLease(_) => (max_wait(&request, fence), None),
        // The caller waits for this request, and others wait for the caller, so it must not wait itself.
        CallContext::SameKeys(_) | CallContext::OtherKeys => (Duration::ZERO, None),
    };
    let deadline = wait_or_forward::deadline(&request, Instant::now() + patience);
    let mut first: Option<Refusal> = None;
    if let Err(refusal) = fencing.wait_former_keys(&request, fence, deadline, &mut client).await {
        let refusal = called.as_deadlock(refusal);
        return observe(fence.enforce, refusal, request, &mut client, next).await;
    }
    loop {
        if let Err(refusal) = fencing.wait_compatible(&request, &fenced, deadline, &mut client).await {
            let refusal = called.as_deadlock(refusal);
            return observe(fence.enforce, refusal, request, &mut client, next).await;
        }
        let waited = match &called {
            // Boxed, so that other requests do not carry this future along.
            CallContext::SameKeys(from) => {
                Box::pin(fencing.run_inside(&request, (&fenced, fence), from, &mut client)).await
            }
            CallContext::UnderLease(id) => {
                Box::pin(fencing.acquire_under_lease(&request, (&fenced, fence), id, (deadline, &mut client)))
                    .await
            }
            CallContext::NoCaller | CallContext::OtherKeys => {
                fencing.wait(&request, &fenced, fence, (deadline, waits), &mut client).await
            }
        };
        let held = match waited.map_err(|refusal| called.as_deadlock(refusal)) {
            Ok(WaitOutcome::Held(held)) => {
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
            Ok(WaitOutcome::Answered(reply)) => {
                return Ok((*reply).map(|body| body.keep_until_dropped((share, fenced.running))));
            }
            Err(refusal) => {
                let refusal = fencing.add_deadlock_hint(&request, &fenced, refusal);
                return observe(fence.enforce, refusal, request, &mut client, next).await;
            }
        };
        // The lock is held by another session than the one that was checked. That session has to be compatible with
        // other gateways as well.
        if !matches!(called, CallContext::SameKeys(_) | CallContext::UnderLease(_))
            && !fencing.is_compatible(&fenced, &held)
        {
            continue;
        }
        // The rest of its body will not come.
        if client.is_disconnected() && request.http.body().upload().is_some() {
            return Err(Refusal::new(Reason::Locked, "the client went away while waiting"));
        }
        // A client that left during the second attempt may already have repeated the request elsewhere.
        if let Some(refusal) = first.take_if(|_| client.is_disconnected()) {
            return Err(refusal);
        }
        let once = fencing.admit_operation(&request, &fenced, fence, &held, &mut client).await?;
        let context = request.notes.clone();
        let refusal = match fencing.exchange(request, fence, held, once, next).await {
            Ok(reply) => return Ok(reply),
            Err(refusal) => refusal,
        };
        // Nothing was dispatched: a newer tenure came first, or the lock validity ended. So one more attempt is safe,
        // because no byte has left.
        match (refusal.reason, second.take()) {
            // A client that has left may have repeated the request elsewhere.
            (Reason::Fenced, Some(again)) if !client.is_disconnected() => {
                let left = deadline.saturating_duration_since(Instant::now());
                fencing.keeper.wait_for_session(&fenced.keys[0], left).await;
                (request, first) = (again, Some(refusal));
            }
            (Reason::Suspended, Some(again)) if fence.enforce == Enforcement::Observe => {
                context.token.set(None);
                return observe(fence.enforce, refusal, again, &mut client, next).await;
            }
            _ => return Err(refusal),
        }
    }
}

/// The entry of a running request in [`crate::request_tracker::RequestTracker`].
fn active_request(request: &KeyedRequest, fenced: &RequestLock) -> ActiveRequest {
    ActiveRequest {
        request: request.notes.request_id.get().cloned(),
        route: request.plan.routes.get(fenced.route).name.clone(),
        mode: fenced.mode,
        came: std::time::Instant::now(),
        works: None,
    }
}

/// The entry of a finished request in [`crate::request_tracker::RequestTracker`].
fn finished_request(
    staying: ActiveRequest,
    context: &RequestContext,
    came: &Result<Reply, Refusal>,
) -> FinishedRequest {
    let (status, outcome, reason) = match came {
        Ok(reply) if context.unfinished.get() => (reply.status(), Outcome::Unknown, None),
        Ok(reply) => (reply.status(), Outcome::Done, None),
        Err(refusal) => (refusal.status(), refusal.outcome(), Some(refusal.reason)),
    };
    // Another gateway has answered, and it has the outcome.
    let report = context.told.get();
    FinishedRequest {
        request: staying.request,
        route: staying.route,
        at: SystemTime::now(),
        took: staying.came.elapsed(),
        status: status.as_u16(),
        outcome: report.map_or(outcome, |report| report.outcome),
        reason: report.map_or(reason, |report| report.reason),
        token: context.token.get(),
    }
}

/// On a route that only observes, the request goes out without a token, and its refusal is only reported. A client
/// that left while it waited is refused all the same.
async fn observe<S: Handler<AuthorizedRequest<Rc<RequestGrant>>>>(
    enforce: Enforcement,
    refusal: Refusal,
    request: KeyedRequest,
    client: &mut ClientWatch,
    next: &S,
) -> Result<Reply, Refusal> {
    if enforce == Enforcement::Refuse || refusal.reason == Reason::Draining || client.is_disconnected() {
        return Err(refusal);
    }
    info!(reason = refusal.reason.word(), detail = %refusal.detail, "observed");
    request.notes.observed.set(Some(refusal.reason));
    next.handle(authorize(request, None)).await
}

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// `Prefer: wait=N` (RFC 7240): how long the client would wait; it can lower its route's wait, not raise it.
pub fn max_wait(request: &KeyedRequest, fence: &Fence) -> Duration {
    let preferred =
        prefer::parse_wait(request.http.headers().get_all(PREFER).iter().map(HeaderValue::as_bytes));
    preferred.map_or(fence.wait, |preferred| preferred.min(fence.wait))
}

fn authorize(request: KeyedRequest, hold: Option<Rc<RequestGrant>>) -> AuthorizedRequest<Rc<RequestGrant>> {
    let KeyedRequest { http, notes: context, plan, upstream, .. } = request;
    AuthorizedRequest { http, notes: context, plan, upstream, hold }
}

impl<N: Network> FenceDeps<N> {
    /// A place in the client's share of the route; `None` where shares are not limited.
    fn share(
        &self,
        request: &KeyedRequest,
        fenced: &RequestLock,
        fence: &Fence,
    ) -> Result<Option<QuotaPermit>, Refusal> {
        let Some(most) = fence.client_share else { return Ok(None) };
        let client = Who::from_ip(request.notes.client.get().expect("set where the client is named"));
        let route = request.plan.routes.get(fenced.route).name.clone();
        let share = self.shares.acquire_route(client, route, most);
        share
            .map(Some)
            .ok_or_else(|| Refusal::new(Reason::ClientLimit, "the client has its share of the route"))
    }

    /// A copy of the request for a second attempt, in case a guard reports that a newer tenure came first. A streamed
    /// body cannot be sent again.
    fn retry_copy(&self, request: &KeyedRequest, fence: &Fence) -> Option<KeyedRequest> {
        let upstream = request.plan.upstream(request.upstream);
        let guarded = upstream.fencing == FencingLevel::Guard && self.guards.is_direct(upstream);
        (guarded || fence.enforce == Enforcement::Observe).then(|| request.try_clone())?
    }

    /// Waits until no request runs that may lock the same resource under a key of the former plan.
    async fn wait_former_keys(
        &self,
        request: &KeyedRequest,
        fence: &Fence,
        deadline: Instant,
        client: &mut ClientWatch,
    ) -> Result<(), Refusal> {
        if self.edition.is_open(request.upstream) {
            return Ok(());
        }
        let locked = |why| Refusal::new(Reason::Locked, why).with_status(fence.locked_status);
        tokio::select! {
            () = self.edition.wait_open(request.upstream) => Ok(()),
            () = self.wait_drain(request.plan.listener.timeouts.drain / 2) => {
                Err(Refusal::new(Reason::Draining, "still waiting for the last plan when the gateway stops"))
            }
            () = sleep_until(deadline) => Err(locked("requests under the keys of the last plan still run")),
            () = client.disconnected() => Err(locked("the client went away while waiting")),
        }
    }

    /// Sends the request under the tenure, and reads the answer.
    async fn exchange<S: Handler<AuthorizedRequest<Rc<RequestGrant>>>>(
        &self,
        request: KeyedRequest,
        fence: &Fence,
        hold: Rc<RequestGrant>,
        once: Option<OperationPermit>,
        next: &S,
    ) -> Result<Reply, Refusal> {
        let upstream = request.plan.upstream(request.upstream);
        let longest = match fence.hold {
            plan::Hold::Cached(caching) => caching.max_tenure,
            plan::Hold::Strict => CachedHold::default().max_tenure,
        };
        let bounds = ResponseLimits {
            most: fence.max_response,
            idle: upstream.response_body_idle,
            total: upstream.response_body_total,
            tunnel: longest,
        };
        let context = request.notes.clone();
        let terms = AbandonPolicy {
            level: upstream.fencing,
            response_timeout: upstream.response_timeout,
            expiry: upstream.expiry,
            running: self.running.clone(),
        };
        let kept = HoldGuard::new(hold.clone(), terms, self.clock.clone(), once, context.clone());
        let taken = match next.handle(authorize(request, Some(hold.clone()))).await {
            Ok(reply) => answer::receive(reply, kept, bounds, &self.budget, &self.running).await,
            Err(refusal) => {
                kept.on_refused(&refusal).await;
                Err(refusal)
            }
        };
        context.proof_lost.set(!hold.tenure.validity().is_valid_at(self.clock.now()));
        match &taken {
            Err(refusal) if refusal.retires() => {
                // The upstream may still be at work under this token, or have a newer one. Dropping the tenure
                // without a report that the outcome is certain retires it: nothing more is dispatched under it, and
                // the next tenure has a larger token.
                let token = context.token.get().map(|token| token.to_string());
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
