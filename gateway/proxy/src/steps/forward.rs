//! The end of the request path: takes a connection, stamps and sends the request, and reports how much of it was
//! sent.

mod guard_report;
mod identity_headers;
mod reply;
mod retry;
mod send_result;
mod stamp;
mod timeouts;
mod tunnel;

use std::{future::poll_fn, mem, rc::Rc, sync::Arc, task::Poll, time::Duration};

use fencegate_http::{
    body::{Body, Reply},
    network::Network,
};
use fencegate_http_client::upstream::{
    checkout::CheckedOutConnection,
    gate::{CutOnBrokenBody, GateShutReason, WriteGate},
    pool::ConnectionPool,
};
use fencegate_lock::manager::grant_guard::UpstreamDispatch;
use fencegate_policies::{
    key::join_keys,
    load_balance,
    plan::{
        FencingLevel, LargeBodyPolicy, NotAfterEnforcement, ReservedHeaderNames, Route, RouteId, Upstream,
    },
    token::FencingToken,
};
use fencegate_process::{clock::SendPermission, failpoint};
use fencegate_protocol::{
    clock_header::ClockOffset,
    headers::{FENCING_CLOCK, FENCING_REFUSAL},
    intermediary,
};
use fencegate_refusal::{Refusal, RefusalReason};
use hyper::{
    HeaderMap, Request, StatusCode, Version,
    body::Body as _,
    header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use tokio::time::Instant;
use tracing::{error, info};

use self::{
    guard_report::GuardDispatchReport,
    reply::{
        UpstreamResponse, has_content_coding, is_expired_refusal, is_stale_refusal, record_endpoint_result,
    },
    retry::{RetryRequestHead, retry_copy},
    send_result::{
        RetryMaterial, UpstreamAttemptError, abandoned_refusal, classify_failure, connect_error_label,
        connect_refusal,
    },
    stamp::stamp_dispatch_headers,
    timeouts::{AttemptTimeoutKind, UpstreamAttemptTimeouts},
    tunnel::{PendingUpgrade, TunnelContext, TunnelCountGuard},
};
pub use self::{
    identity_headers::write_identity_headers, stamp::write_claim_headers, timeouts::wait_lock_lost,
};
use super::upgrade::{self, UpstreamUpgradeRequest};
use crate::{
    handler::Handler,
    plan_context::WorkerPlanContext,
    request_context::{
        GuardAnswerFacts, PlanHandle, RequestSource, UpstreamAttempt, UpstreamExchange, UpstreamResponseFlags,
    },
    steps::{
        authorized::{DispatchPermit, DispatchRight, DispatchableRequest},
        bufferable::copy_buffered,
    },
};

/// Sends requests to the upstreams of a plan.
pub struct UpstreamForwarder<N> {
    pool: Rc<ConnectionPool<N>>,
    plan: Rc<WorkerPlanContext>,
    /// The reserved fields of the plan. Each worker has an `Arc` of its own, so that workers share no reference
    /// count.
    fields: Arc<ReservedHeaderNames>,
}

impl<N> UpstreamForwarder<N> {
    pub fn new(pool: Rc<ConnectionPool<N>>, plan: Rc<WorkerPlanContext>) -> Self {
        let fields = Arc::new(plan.config.plan.fields.clone());
        Self { pool, plan, fields }
    }
}

impl<N: Network, H: DispatchPermit> Handler<DispatchableRequest<H>> for UpstreamForwarder<N> {
    async fn handle(&self, request: DispatchableRequest<H>) -> Result<Reply, Refusal> {
        let DispatchableRequest {
            mut http,
            context,
            plan,
            upstream,
            route,
            source,
            identity,
            right,
            exchange,
            ..
        } = request;
        let hold = right.held();
        let mut cursor = self.plan.config.fleets.get(upstream).cursor(|| endpoint_affinity_hash(&http, hold));
        let upstream = plan.upstream(upstream);
        if hold.is_none() {
            // An earlier attempt under a lock may have left its exchange here. Its token does not belong to this one,
            // which has none.
            context.exchange.take();
        }
        *http.version_mut() = Version::HTTP_11;
        write_identity_headers(http.headers_mut(), identity.as_deref(), upstream);
        set_body_framing(&mut http);
        if let Some(field) = &upstream.operation_field {
            rename_operation_header(http.headers_mut(), field);
        }
        let matched = route.map(|id| plan.routes.get(id));
        let upgrade = upgrade::request_upgrade(&mut http, matched);
        if let (Some(_), Some(LargeBodyPolicy::Stream { within })) =
            (hold, matched.and_then(large_body_policy))
        {
            http.body_mut().set_deadline(Instant::now() + within);
        }
        // A request is sent again at most once: a service may refuse it as unprocessed each time.
        let mut may_resend = upgrade.is_none();
        loop {
            let mut checkout = self.pool.checkout(&mut cursor).await.map_err(|error| {
                self.plan.metrics.record_upstream_error(&upstream.name, connect_error_label(&error));
                connect_refusal(&error, upstream.fencing)
            })?;
            let stamped = hold.map(|hold| {
                stamp_dispatch_headers(http.headers_mut(), hold, upstream, &*self.plan.process.clock)
            });
            let (dispatch, not_after) = stamped.transpose()?.unzip();
            // A fenced request has no spare copy: after one written byte it may have been executed.
            let spare = match right {
                DispatchRight::Unfenced if !cursor.fresh && checkout.pooled().reused && upgrade.is_none() => {
                    retry_copy(&http, request.has_override)
                }
                _ => None,
            };
            let resend = may_resend && checkout.pooled().can_refuse_unprocessed();
            let unprocessed = resend.then(|| copy_buffered(&http)).flatten();
            exchange.begin(UpstreamAttempt {
                began: Instant::now(),
                upstream: checkout.upstream().name.clone(),
                gate: checkout.gate().clone(),
                address: checkout.pooled().address().clone(),
                token: dispatch.as_ref().map(|dispatch| dispatch.token),
                not_after,
            });
            context.exchange.replace(Some(exchange.clone()));
            let attempt = UpstreamAttemptContext {
                requested: upgrade.clone(),
                spare,
                unprocessed,
                plan: &plan,
                route,
                permission: right.permission(),
                source: &source,
                exchange: &exchange,
                counts: TunnelCountGuard {
                    _permit: context.permit.get().cloned(),
                    _unlocked: request.unlocked.clone(),
                },
            };
            match self.exchange_once(checkout, http, dispatch, attempt).await {
                Ok(reply) => return Ok(reply),
                Err(UpstreamAttemptError::Refused(refusal)) => return Err(refusal),
                Err(UpstreamAttemptError::Retry { back, reused, unprocessed }) => {
                    self.plan.metrics.record_retry(&upstream.name);
                    if unprocessed {
                        may_resend = false;
                        cursor.advance_after_unprocessed();
                    } else {
                        cursor.record_dead_connection(reused);
                    }
                    http = back;
                }
            }
        }
    }
}

/// Refuses a request that came too late and was not started. A guard reports `expired` to its gateway; a gateway
/// reports to its client that its hold of the key is over.
fn expired_refusal(level: FencingLevel) -> Refusal {
    let detail = "the dispatch came after its `Fencing-Not-After`, or the clocks differ";
    let reason = if level == FencingLevel::Upstream { RefusalReason::Expired } else { RefusalReason::Fenced };
    Refusal::new(reason, detail).with_grant_retirement()
}

/// Returns the same number for requests that should go to the same endpoint.
fn endpoint_affinity_hash(http: &Request<Body>, hold: Option<&impl DispatchPermit>) -> u64 {
    load_balance::hash_name(&hold.map_or_else(|| http.uri().path().to_owned(), |hold| join_keys(hold.keys())))
}

/// Announces a body of unknown length: without such a field the HTTP library sends no body with a GET.
fn set_body_framing(http: &mut Request<Body>) {
    let announced = http.headers().contains_key(CONTENT_LENGTH);
    if !announced && !http.body().is_end_stream() && http.body().size_hint().exact().is_none() {
        http.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Writes the name of the operation into the field that the upstream expects, and removes the two fields by which
/// Go's HTTP client recognises a request that it may send again.
fn rename_operation_header(headers: &mut HeaderMap, field: &str) {
    let name = HeaderName::from_bytes(field.as_bytes()).expect("the plan holds field names");
    let lines: Vec<HeaderValue> = headers.get_all(IDEMPOTENCY_KEY).iter().cloned().collect();
    for known in [IDEMPOTENCY_KEY, X_IDEMPOTENCY_KEY] {
        headers.remove(known);
    }
    for line in lines {
        headers.append(name.clone(), line);
    }
}

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const X_IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("x-idempotency-key");

/// True if a complete answer with this status leaves open whether the execution is over.
fn is_inconclusive(upstream: &Upstream, status: StatusCode) -> bool {
    upstream.unfinished.contains(status.as_u16()) && !failpoint::is_disabled_by_test("rule_unfinished")
}

/// Shuts the gate as cut by the gateway if the body of a fenced request breaks off.
fn cut_on_broken_body(http: &mut Request<Body>, gate: &Rc<WriteGate>) {
    let body = mem::replace(http.body_mut(), Body::empty());
    *http.body_mut() = body.with_observer(Box::new(CutOnBrokenBody(gate.clone())));
}

fn large_body_policy(route: &Route) -> Option<LargeBodyPolicy> {
    route.fence.as_ref().map(|fence| fence.large_bodies)
}

/// The inputs of one attempt beside its request and its connection.
struct UpstreamAttemptContext<'a> {
    /// The switch to another protocol that the client requests.
    requested: Option<UpstreamUpgradeRequest>,
    /// A copy of the request, if it may be sent again over a connection that died without a response.
    spare: Option<RetryRequestHead>,
    /// A copy of the request, to be sent once more if the upstream says that it has processed nothing of it.
    unprocessed: Option<Box<Request<Body>>>,
    plan: &'a PlanHandle,
    route: Option<RouteId>,
    /// The permission under which a filter sends a request.
    permission: Option<&'a Arc<dyn SendPermission>>,
    source: &'a RequestSource,
    exchange: &'a UpstreamExchange,
    counts: TunnelCountGuard,
}

impl<N: Network> UpstreamForwarder<N> {
    async fn exchange_once(
        &self,
        mut checkout: CheckedOutConnection,
        mut http: Box<Request<Body>>,
        dispatch: Option<UpstreamDispatch>,
        attempt: UpstreamAttemptContext<'_>,
    ) -> Result<Reply, UpstreamAttemptError> {
        let UpstreamAttemptContext {
            requested: upgrade,
            spare,
            unprocessed,
            plan,
            route,
            permission,
            source,
            exchange,
            counts,
        } = attempt;
        let began = Instant::now();
        let validity = match &dispatch {
            Some(dispatch) => Some(dispatch.validity.clone()),
            None => permission.cloned(),
        };
        checkout.gate().arm(validity.clone());
        if validity.is_some() {
            checkout.gate().set_ack_timeout(checkout.upstream().deliver_within);
        }
        if checkout.upstream().fencing.compares_tokens() {
            checkout.gate().set_awaiting_response();
        }
        let switch = upgrade.and_then(|upgrade| {
            Some(PendingUpgrade { requested: upgrade, stream: checkout.pooled().upgraded_stream()? })
        });
        let timeouts = UpstreamAttemptTimeouts::new(http.body(), validity.is_some());
        if timeouts.fenced && timeouts.upload.is_some() {
            cut_on_broken_body(&mut http, checkout.gate());
        }
        if let Some(interims) = &source.arrival.interims {
            reply::forward_informational_responses(&mut http, interims.clone(), self.fields.clone());
        }
        let answer = checkout.pooled().send(*http);
        let limit = checkout.upstream().response_timeout;
        let level = checkout.upstream().fencing;
        let progress = checkout.pooled().last_write_tracker();
        let answered = tokio::select! {
            answered = answer => answered,
            late = timeouts.wait_elapsed(progress, limit) => return Err(self.timeout_error(&checkout, late, limit)),
            () = timeouts.wait_lock_validity_end(validity.as_deref(), level, &self.plan.process.clock) => {
                checkout.gate().shut(GateShutReason::ProofLost);
                let detail = "the session could not be proven any more".to_owned();
                return Err(self.abandoned_error(&checkout, "proof", RefusalReason::OutcomeUnknown, detail));
            }
        };
        let material = RetryMaterial { upload: timeouts.upload.as_deref(), spare, unprocessed };
        let response =
            answered.map_err(|error| classify_failure(error, &mut checkout, material, &self.plan.metrics))?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(switch) = switch.filter(|switch| switch.requested.is_accepted(&response)) else {
                return Err(self.protocol_error(&checkout, "switched protocols unasked"));
            };
            self.plan.metrics.record_upstream_response(
                &checkout.upstream().name,
                response.status(),
                began.elapsed(),
            );
            let tunnel = TunnelContext { plan: &self.plan, route };
            return Ok(switch.into_tunnel_reply(&tunnel, response, checkout, validity, plan, counts));
        }
        if has_content_coding(response.headers()) {
            return Err(self.protocol_error(&checkout, "answered in a transfer coding other than `chunked`"));
        }
        let took = began.elapsed();
        exchange.record_time_to_head(took);
        self.plan.metrics.record_upstream_response(&checkout.upstream().name, response.status(), took);
        record_endpoint_result(&checkout, &response);
        let shown = response.headers().get(FENCING_CLOCK);
        if let Some(offset) = shown.and_then(|shown| ClockOffset::parse(shown, &*self.plan.process.clock)) {
            self.plan.metrics.record_clock_offset(&checkout.upstream().name, checkout.endpoint(), offset);
        }
        let is_stale = permission.is_some() && is_stale_refusal(response.status(), response.headers());
        let answer = UpstreamResponse { response, checkout, plan };
        let Some(dispatch) = dispatch else {
            let mut reply = self.finish_unfenced(answer).await?;
            if is_stale {
                // Only a filter has a `permission`. The service behind it has refused a stale token, and the gateway
                // that sent the request has to learn that.
                reply.headers_mut().insert(FENCING_REFUSAL, HeaderValue::from_static("stale"));
            }
            return Ok(reply);
        };
        self.finish_fenced(answer, dispatch.token, route, exchange).await
    }

    /// Passes the answer to an unfenced request on. An answer that breaks off right after its head becomes a refusal:
    /// the client has seen nothing of it.
    async fn finish_unfenced(&self, answer: UpstreamResponse<'_>) -> Result<Reply, UpstreamAttemptError> {
        let endpoint = answer.checkout.endpoint().clone();
        let upstream = answer.checkout.upstream().name.clone();
        let mut reply = answer.into_reply(false);
        match poll_fn(|cx| Poll::Ready(reply.body_mut().prefetch(cx))).await {
            Ok(()) => Ok(reply),
            Err(error) => {
                self.plan.metrics.record_upstream_error(&upstream, "broken");
                let detail = format!("{endpoint}: the answer broke off: {error}");
                Err(UpstreamAttemptError::Refused(Refusal::new(RefusalReason::OutcomeUnknown, detail)))
            }
        }
    }

    /// Handles the answer to a dispatch: reads the report of a guard, or the refusal of an upstream that compares
    /// tokens.
    async fn finish_fenced(
        &self,
        answer: UpstreamResponse<'_>,
        token: FencingToken,
        route: Option<RouteId>,
        exchange: &UpstreamExchange,
    ) -> Result<Reply, UpstreamAttemptError> {
        let upstream = answer.checkout.upstream();
        let headers = answer.response.headers();
        let status = answer.response.status();
        let mut facts = UpstreamResponseFlags {
            is_inconclusive: is_inconclusive(upstream, status),
            ..UpstreamResponseFlags::default()
        };
        // `route` is `None` at a guard. If the service compares tokens, a proxy in front of it does no harm, so none
        // is looked for.
        let compares = upstream.fencing == FencingLevel::Upstream && route.is_some();
        if !compares && upstream.fencing != FencingLevel::Guard {
            self.detect_intermediary(&answer);
        }
        if upstream.expiry == NotAfterEnforcement::Enforced && is_expired_refusal(status, headers) {
            let direct = self.plan.guards.is_direct(upstream);
            let level = upstream.fencing;
            info!(upstream = %upstream.name, %token, direct, "upstream.expired");
            self.plan.metrics.record_guard_refusal(route, RefusalReason::Expired);
            if direct {
                answer.drain_body().await;
                return Err(UpstreamAttemptError::Refused(expired_refusal(level)));
            }
            // A proxy may have sent the request twice. This copy was refused, and the other one may be executed.
            answer.checkout.gate().shut(GateShutReason::Cut);
            let detail = "a copy of the request came after the moment until which it might be begun";
            return Err(UpstreamAttemptError::Refused(Refusal::new(RefusalReason::OutcomeRefused, detail)));
        }
        match upstream.fencing {
            FencingLevel::None | FencingLevel::Delay(_) => {
                exchange.record_answer(facts);
                return Ok(answer.into_reply(true));
            }
            FencingLevel::Upstream => {
                if is_stale_refusal(status, headers) {
                    facts.is_inconclusive = false;
                    info!(upstream = %upstream.name, %token, "upstream.refused_stale");
                    self.plan.metrics.record_stale_refusal(route);
                    self.plan.metrics.record_guard_refusal(route, RefusalReason::Stale);
                    facts.retires_grant = true;
                }
                exchange.record_answer(facts);
                return Ok(answer.into_reply(true));
            }
            FencingLevel::Guard => {}
        }
        let account = GuardDispatchReport::parse(headers);
        if !account.has_outcome_or_refusal() {
            error!(upstream = %upstream.name, %token, "an upstream answered a dispatch that no guard has seen");
            facts.retires_grant = true;
        }
        if account.hop_seen {
            self.plan.guards.record_intermediary(upstream);
        }
        facts.is_inconclusive = account.unfinished;
        let by_guard = GuardAnswerFacts { replayed: account.replayed, observed: account.observed };
        exchange.record_answer(UpstreamResponseFlags { by_guard: Some(by_guard), ..facts });
        let judged = account.check_outcome(answer.response.status(), self.plan.guards.is_direct(upstream));
        if let (true, Some((address, by))) = (account.has_admitted(), answer.checkout.verified_process()) {
            self.plan.guards.record_admitted(
                upstream,
                address,
                by,
                token.number(),
                self.plan.process.clock.now(),
            );
        }
        let Err(refusal) = judged else { return Ok(answer.into_reply(true)) };
        self.plan.metrics.record_guard_refusal(route, account.refusal_reason().unwrap_or(refusal.reason));
        if account.refusal_reason() == Some(RefusalReason::Store) {
            answer.checkout.avoid_endpoint_address();
        }
        answer.drain_body().await;
        Err(UpstreamAttemptError::Refused(refusal))
    }

    /// Logs once for each upstream that an intermediary answers. An intermediary may repeat requests, and may answer
    /// while the service is still at work.
    fn detect_intermediary(&self, answer: &UpstreamResponse<'_>) {
        let Some(shown) = intermediary::find_intermediary_field(answer.response.headers()) else { return };
        if answer.checkout.endpoint_set().note_intermediary() {
            let upstream = &answer.checkout.upstream().name;
            info!(%upstream, shown, "upstream.hop_seen: an intermediary answers, so its retries have to be off");
        }
    }

    /// The error after a time limit, of the upstream or of the client. A slow client does not count as a failure of
    /// the endpoint.
    fn timeout_error(
        &self,
        checkout: &CheckedOutConnection,
        late: AttemptTimeoutKind,
        limit: Duration,
    ) -> UpstreamAttemptError {
        let detail = match late {
            AttemptTimeoutKind::Response => {
                checkout.gate().shut(GateShutReason::Late);
                format!("no answer within {limit:?}")
            }
            AttemptTimeoutKind::UpstreamRead => {
                "the request was not taken within its `upload_timeout`".to_owned()
            }
            AttemptTimeoutKind::ClientUpload => {
                let detail = "the request did not come within its `upload_timeout`".to_owned();
                return UpstreamAttemptError::Refused(abandoned_refusal(
                    checkout.gate(),
                    RefusalReason::OutcomeLate,
                    detail,
                ));
            }
        };
        checkout.record_failure();
        self.abandoned_error(checkout, "timeout", RefusalReason::OutcomeLate, detail)
    }

    /// The error when the gateway does not wait for the answer any longer.
    fn abandoned_error(
        &self,
        checkout: &CheckedOutConnection,
        kind: &'static str,
        reason: RefusalReason,
        detail: String,
    ) -> UpstreamAttemptError {
        self.plan.metrics.record_upstream_error(&checkout.upstream().name, kind);
        UpstreamAttemptError::Refused(abandoned_refusal(checkout.gate(), reason, detail))
    }

    /// The error for an answer that HTTP does not allow in this place.
    fn protocol_error(&self, checkout: &CheckedOutConnection, what: &str) -> UpstreamAttemptError {
        checkout.gate().shut(GateShutReason::Cut);
        self.plan.metrics.record_upstream_error(&checkout.upstream().name, "protocol");
        UpstreamAttemptError::Refused(Refusal::new(
            RefusalReason::OutcomeUnknown,
            format!("{} {what}", checkout.endpoint()),
        ))
    }
}
