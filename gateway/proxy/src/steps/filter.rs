//! The steps of a filter: refuse a request that comes after the moment until which it may be started, and send no
//! byte of a request after that moment. All other requests pass unchanged.

use std::{rc::Rc, sync::Arc, time::Duration};

use fencegate_guard_store::error::DispatchRefusedError;
use fencegate_http::body::{Body, Reply};
use fencegate_policies::{
    not_after::NotAfter,
    plan::{Enforcement, MissingFencingTokenPolicy, UpstreamId},
};
use fencegate_process::{
    clock::{BootInstant, Clock, SendPermission},
    failpoint,
};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use hyper::{HeaderMap, Request};
use tracing::warn;

use super::route::{find_override, set_origin_form};
use crate::{
    handler::Handler,
    plan_context::WorkerPlanContext,
    request_context::{
        DeadlineFacts, PlanHandle, RequestContext, RequestSource, RoleSpecificRequestFacts, UpstreamExchange,
    },
    steps::{
        authorized::{DispatchRight, DispatchableRequest},
        buffer::BufferedRequest,
        bufferable::BufferableRequest,
        extract_claim::{FencingBypassPolicy, parse_headers},
        guard_admission::GuardDispatchPermit,
        hop::IdentifiedRequest,
        trace::TracedRequest,
    },
};

/// The settings and state of the steps of a filter.
#[derive(Clone)]
pub struct DeadlineFilterContext {
    pub context: Rc<WorkerPlanContext>,
    /// The largest difference between the sender's wall clock and this machine's.
    pub clock_error: Duration,
    pub enforce: Enforcement,
    pub bypass: Arc<FencingBypassPolicy>,
    pub plan: PlanHandle,
}

/// A request, and the permission to start it, if it has a deadline.
pub(crate) struct DeadlineCheckedRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub upstream: UpstreamId,
    source: Rc<RequestSource>,
    /// `None` for a request that may pass at any time.
    permission: Option<Arc<StartPermission>>,
}

impl BufferableRequest for DeadlineCheckedRequest {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    /// A request with a deadline is buffered in full first, so that all of it is sent at once and in time.
    fn needs_full_body(&self) -> bool {
        self.permission.is_some()
    }
}

/// The permission to send a request until it must not be started any more.
#[derive(Debug)]
struct StartPermission(BootInstant);

impl SendPermission for StartPermission {
    fn may_send_at(&self, now: BootInstant) -> bool {
        now < self.0
    }

    fn valid_until(&self) -> BootInstant {
        self.0
    }
}

/// Checks the deadline as the request arrives.
pub(crate) async fn check_start_deadline<S: Handler<DeadlineCheckedRequest>>(
    filter: &DeadlineFilterContext,
    TracedRequest { request, .. }: TracedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let IdentifiedRequest { mut http, context, path, presented, source, .. } = request;
    if let Some(ambiguity) = path.ambiguity() {
        return Err(Refusal::new(RefusalReason::AmbiguousPath, ambiguity.to_string()));
    }
    let (permission, observed) = match filter.start_permission(&http, &presented) {
        Ok(permission) => (permission, None),
        Err(refused) => (None, Some(filter.pass_if_observing(refused)?)),
    };
    let facts = DeadlineFacts { has_deadline: permission.is_some(), observed };
    context.subject.get_or_init(|| RoleSpecificRequestFacts::Deadline(facts));
    set_origin_form(&mut http, path.as_str());
    for (name, value) in &presented {
        http.headers_mut().append(name, value.clone());
    }
    let plan = filter.plan.clone();
    let upstream = UpstreamId(0);
    next.handle(DeadlineCheckedRequest { http, context, plan, upstream, source, permission }).await
}

/// Checks the deadline once more after the body has come, and sends the request under its permission.
pub(crate) async fn recheck_deadline<S: Handler<DispatchableRequest<GuardDispatchPermit>>>(
    filter: &DeadlineFilterContext,
    BufferedRequest(request): BufferedRequest<DeadlineCheckedRequest>,
    next: &S,
) -> Result<Reply, Refusal> {
    let DeadlineCheckedRequest { http, context, plan, upstream, source, permission } = request;
    if permission
        .as_ref()
        .is_some_and(|permission| !permission.may_send_at(filter.context.process.clock.now()))
    {
        return Err(DispatchRefusedError::Expired.into());
    }
    // `Until` and not `Unfenced` also keeps `forward` from sending a request with a deadline twice.
    let right = permission.map_or(DispatchRight::Unfenced, |permission| DispatchRight::Until(permission));
    let exchange = Rc::<UpstreamExchange>::default();
    let request =
        DispatchableRequest::without_route(http, context, plan, upstream, source, right, exchange.clone());
    match next.handle(request).await {
        Err(refusal)
            if refusal.outcome() == DispatchOutcome::NotDispatched && has_expired_before_send(&exchange) =>
        {
            Err(DispatchRefusedError::Expired.into())
        }
        answered => answered,
    }
}

/// True if the permission ended before the first byte was written.
fn has_expired_before_send(exchange: &UpstreamExchange) -> bool {
    let attempt = exchange.attempt();
    attempt.as_ref().is_some_and(|sent| sent.gate.is_permission_lost() && sent.gate.written_bytes() == 0)
}

impl DeadlineFilterContext {
    /// The permission of a request; `None` for one that needs none.
    fn start_permission(
        &self,
        http: &Request<Body>,
        presented: &HeaderMap,
    ) -> Result<Option<Arc<StartPermission>>, DispatchRefusedError> {
        match start_deadline(presented, &*self.context.process.clock, self.clock_error)? {
            Some(end) => Ok(Some(Arc::new(StartPermission(end)))),
            None if self.is_unfenced_method(http) => Ok(None),
            None => Err(DispatchRefusedError::NotAfterMissing),
        }
    }

    /// True if the method needs no deadline and no field of the request overrides its method or path.
    fn is_unfenced_method(&self, http: &Request<Body>) -> bool {
        let method = http.method().as_str();
        self.bypass.unfenced.iter().any(|unfenced| unfenced == method)
            && find_override(http.headers()).is_none()
    }

    /// Lets a request pass that would be refused for the returned reason, where the filter only observes.
    fn pass_if_observing(&self, refused: DispatchRefusedError) -> Result<RefusalReason, Refusal> {
        let missing = refused == DispatchRefusedError::NotAfterMissing;
        if self.enforce == Enforcement::Refuse
            && !(missing && self.bypass.missing == MissingFencingTokenPolicy::Observe)
        {
            return Err(refused.into());
        }
        let reason = RefusalReason::from(&refused);
        warn!(reason = reason.word(), "filter.observed");
        Ok(reason)
    }
}

/// The moment, on this machine's clock, from which on a request must not be started; `None` if its fields name none.
///
/// # Errors
/// Returns [`DispatchRefusedError::Expired`] if that moment has come.
pub fn start_deadline(
    presented: &HeaderMap,
    clock: &dyn Clock,
    clock_error: Duration,
) -> Result<Option<BootInstant>, DispatchRefusedError> {
    let Some(not_after) = parse_headers::parse_not_after(presented)? else { return Ok(None) };
    let end = clock.deadline_of(&not_after, clock_error);
    if end <= clock.now() && !failpoint::is_disabled_by_test("rule_filter") {
        log_expired(clock, &not_after);
        return Err(DispatchRefusedError::Expired);
    }
    Ok(Some(end))
}

fn log_expired(clock: &dyn Clock, not_after: &NotAfter) {
    let late_ms = clock.unix_ms().saturating_sub(not_after.unix_ms());
    warn!(late_ms, "filter.expired: the dispatch came too late, or the clocks differ");
}
