//! Holds the lock of the request's key from before the dispatch until the upstream has answered in full. The modules,
//! in the order in which a request meets them:
//!
//! - `request`: a request that needs a lock, and the holder of that lock as far as the request shows it
//! - `acquisition`: takes the lock after a wait (`lock_wait`): at this gateway (`local`), at the gateway that holds it
//!   (`forwarding`, which sends by [`peer_forward`]), in the dispatch of its caller (`callback`), or under a lease
//!   (`lease_turn`)
//! - `held_lock`: the lock, and the fields with which its dispatches are stamped
//! - `operation`: the record of the operation, made before the request is sent
//! - `exchange`: sends the request, and takes its answer
//! - `release`: releases the lock, at once or later, by what is known of the end of the exchange

mod acquisition;
mod callback;
mod context;
mod deadlock_hints;
mod exchange;
mod forwarding;
mod held_lock;
mod lease_turn;
mod local;
mod lock_wait;
mod operation;
pub mod peer_forward;
mod release;
mod request;

use std::{rc::Rc, time::SystemTime};

use fencegate_http::{body::Reply, network::Network};
use fencegate_lock::manager::lock_request::LockWaitPlace;
use fencegate_metrics::request_tracker::{ActiveRequest, FinishedRequest, RequestTrackGuard};
use fencegate_policies::plan::Enforcement;
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use tokio::time::Instant;
use tracing::info;

pub use self::{
    context::{GatewayContext, WorkerFenceContext},
    deadlock_hints::TraceKeyIndex,
    held_lock::HeldLock,
    request::max_wait,
};
use self::{
    exchange::FencedExchange,
    lock_wait::{AcquisitionOutcome, RequestLockWaitContext},
    request::{CallerLockRelation, LockingRequest},
};
use crate::{
    handler::Handler,
    request_context::RequestContext,
    steps::{
        authorized::{DispatchRight, DispatchableRequest},
        detach::DetachedRequest,
        key::KeyedRequest,
    },
};

pub async fn run_under_fence<N: Network, S: Handler<DispatchableRequest<Rc<HeldLock>>>>(
    fence: &WorkerFenceContext<N>,
    request: DetachedRequest<KeyedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    let DetachedRequest { request: mut keyed, client } = request;
    let relation = CallerLockRelation::find(&keyed, fence.gateway.leases.is_some());
    let place = request::wait_place(&keyed, relation.as_ref().ok(), fence.forwarder.is_some())?;
    match keyed.fenced.take() {
        None => {
            // Without keys a request passes on a fenced route only because that route observes.
            let right =
                if keyed.is_route_fenced() { DispatchRight::Observed } else { DispatchRight::Unfenced };
            next.handle(keyed.into_dispatchable(right, Rc::default())).await
        }
        // The future is boxed, so that the future of a request without a lock does not contain it.
        Some(lock) => {
            let request = LockingRequest::new(keyed, lock, client, &fence.gateway.requests);
            let report = FencedRequestReporter::new(&request);
            let answered = Box::pin(run_with_lock(fence, request, relation, place, next)).await;
            report.finish(&answered);
            answered
        }
    }
}

/// Records the end of a request in the list of requests of its keys.
struct FencedRequestReporter {
    listed: ActiveRequest,
    entry: Rc<RequestTrackGuard>,
    context: Rc<RequestContext>,
}

impl FencedRequestReporter {
    fn new(request: &LockingRequest) -> Self {
        let listed = request.listed.clone();
        Self { listed, entry: request.entry.clone(), context: request.keyed.context.clone() }
    }

    fn finish(self, answer: &Result<Reply, Refusal>) {
        let Self { listed, entry, context } = self;
        let (status, outcome, reason) = match answer {
            Ok(reply) if context.is_answer_inconclusive() => (reply.status(), DispatchOutcome::Unknown, None),
            Ok(reply) => (reply.status(), DispatchOutcome::Done, None),
            Err(refusal) => (refusal.status(), refusal.outcome(), Some(refusal.reason)),
        };
        // If another gateway has answered, its report has the outcome.
        let report = context.peer_answer().map(|(_, report)| report);
        entry.record_finished(&FinishedRequest {
            request: listed.request,
            route: listed.route,
            at: SystemTime::now(),
            took: listed.came.elapsed(),
            status: status.as_u16(),
            outcome: report.map_or(outcome, |report| report.outcome),
            reason: report.map_or(reason, |report| report.reason),
            token: context.token(),
        });
    }
}

async fn run_with_lock<N: Network, S: Handler<DispatchableRequest<Rc<HeldLock>>>>(
    fence: &WorkerFenceContext<N>,
    mut request: LockingRequest,
    relation: Result<CallerLockRelation, Refusal>,
    place: LockWaitPlace,
    next: &S,
) -> Result<Reply, Refusal> {
    let plan = request.keyed.plan.clone();
    let rule = request.lock.fence(&plan);
    let share = match request.acquire_client_share(rule, &fence.plan.clients) {
        Ok(share) => share.map(Rc::new),
        Err(refusal) => return pass_if_observing(rule.enforce, refusal, request, next).await,
    };
    let relation = match relation {
        Ok(relation) => relation,
        Err(refusal) => return pass_if_observing(rule.enforce, refusal, request, next).await,
    };
    let deadline = request.wait_deadline(&relation, rule);
    let mut second = request.retry_copy(&relation, rule, &fence.plan.guards);
    let mut first: Option<Refusal> = None;
    loop {
        let wait = RequestLockWaitContext {
            fence,
            request: &mut request,
            rule,
            relation: &relation,
            place,
            deadline,
        };
        let held = match acquisition::acquire(wait).await {
            Ok(AcquisitionOutcome::Held(held)) => held.with_client_share(share.clone()),
            // As for a request that this gateway serves, the count lasts until the answer was sent in full.
            Ok(AcquisitionOutcome::Answered(reply)) => {
                let counted = (share, request.lock.running);
                return Ok((*reply).map(|body| body.keep_until_dropped(counted)));
            }
            Err(refusal) => return pass_if_observing(rule.enforce, refusal, request, next).await,
        };
        // The client has left before its body was read in full, so the rest of the body will not come.
        if request.client.is_disconnected() && request.keyed.http.body().upload_exchange().is_some() {
            return Err(Refusal::new(RefusalReason::Locked, "the client went away while waiting"));
        }
        // A client that left during the second attempt may already have repeated the request elsewhere.
        if let Some(refusal) = first.take_if(|_| request.client.is_disconnected()) {
            return Err(refusal);
        }
        let record = operation::record_operation(fence, &mut request, rule, &held).await?;
        let exchange = FencedExchange { fence, rule, held: Rc::new(held), record };
        let refusal = match exchange.run(request.keyed, next).await {
            Ok(reply) => return Ok(reply),
            Err(refusal) => refusal,
        };
        // `Fenced` (a newer tenure came first) and `Suspended` (the lock validity ended) mean that no byte has left, so
        // one more attempt is safe.
        match (refusal.reason, second.take()) {
            // A client that has left may have repeated the request elsewhere.
            (RefusalReason::Fenced, Some(again)) if !request.client.is_disconnected() => {
                let left = deadline.saturating_duration_since(Instant::now());
                fence.gateway.locks.wait_for_session(&request.lock.keys[0], left).await;
                request.keyed = again;
                first = Some(refusal);
            }
            (RefusalReason::Suspended, Some(again)) if rule.enforce == Enforcement::Observe => {
                request.keyed = again;
                return pass_if_observing(rule.enforce, refusal, request, next).await;
            }
            _ => return Err(refusal),
        }
    }
}

/// Sends the request without a token if its route only observes, and only reports the refusal. A request whose client
/// left while it waited is refused all the same.
async fn pass_if_observing<S: Handler<DispatchableRequest<Rc<HeldLock>>>>(
    enforce: Enforcement,
    refusal: Refusal,
    mut request: LockingRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let is_disconnected = request.client.is_disconnected();
    if enforce == Enforcement::Refuse || refusal.reason == RefusalReason::Draining || is_disconnected {
        return Err(refusal);
    }
    info!(reason = refusal.reason.word(), detail = %refusal.detail, "observed");
    request.keyed.context.update_lock(|facts| facts.observed = Some(refusal.reason));
    next.handle(request.keyed.into_dispatchable(DispatchRight::Observed, Rc::default())).await
}
