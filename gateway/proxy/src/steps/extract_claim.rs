//! Reads the claim of a request: token, key, mode, ticket, operation. Answers queries of gateways about the guard.

pub mod parse_headers;

use std::{rc::Rc, sync::Arc, time::SystemTime};

use bytes::Bytes;
use fencegate_guard::{Guard, identity::ANNOUNCEMENT};
use fencegate_guard_store::{
    admission::PresentedDispatch,
    error::{DispatchRefusedError, MalformedTokenError},
};
use fencegate_http::body::{Body, Reply};
use fencegate_metrics::request_tracker::{RejectedCallers, RejectedGuardCaller};
use fencegate_policies::{
    operation::FencingOperationHeader,
    plan::{Enforcement, MissingFencingTokenPolicy, UpstreamId},
};
use fencegate_process::key_redaction::KeyRedaction;
use fencegate_protocol::headers::FENCING_HOPS;
use fencegate_refusal::{Refusal, RefusalReason};
use fencegate_ticket::TicketVerifier;
use hyper::{
    HeaderMap, Method, Request, Response,
    header::{CONTENT_TYPE, HeaderValue},
};
use tracing::warn;

use super::route::{find_override, set_origin_form};
use crate::{
    handler::Handler,
    request_context::{
        FencingClaimFacts, PlanHandle, RequestContext, RequestSource, RequestTraceIds,
        RoleSpecificRequestFacts,
    },
    steps::{bufferable::BufferableRequest, hop::IdentifiedRequest, trace::TracedRequest},
};

/// A request at a guard whose claim was read. The guard may still refuse it.
pub struct UnadmittedGuardRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub plan: PlanHandle,
    pub upstream: UpstreamId,
    pub source: Rc<RequestSource>,
    pub claim: FencingClaimOutcome,
}

/// The result of reading the claim of a request that may go on.
pub enum FencingClaimOutcome {
    /// The method of the request needs no token.
    Unfenced,
    /// The request has no valid claim, and passes because the guard only observes.
    Observed(RefusalReason),
    Verified(Box<ValidatedDispatchClaim>),
}

/// A claim that has the right form and, where needed, a valid ticket.
pub struct ValidatedDispatchClaim {
    pub claim: PresentedDispatch,
    pub operation: Option<FencingOperationHeader>,
    /// The ticket for the service, where the service may call back.
    pub ticket: Option<HeaderValue>,
    /// True if the request arrived before the moment after which it must not be started.
    pub in_time: bool,
}

impl BufferableRequest for UnadmittedGuardRequest {
    fn http(&mut self) -> &mut Request<Body> {
        &mut self.http
    }

    fn needs_full_body(&self) -> bool {
        matches!(self.claim, FencingClaimOutcome::Verified(_))
    }
}

/// The settings and state of the step [`extract_claim`].
#[derive(Clone)]
pub struct DispatchClaimContext {
    pub guard: Arc<Guard>,
    pub plan: PlanHandle,
    /// Verifies tickets, where they are required.
    pub tickets: Option<Arc<TicketVerifier>>,
    pub bypass: Arc<FencingBypassPolicy>,
    /// The callers without a valid claim, for operators.
    pub rejected_callers: Arc<RejectedCallers>,
}

/// The requests that may pass without a token.
#[derive(Debug, Clone)]
pub struct FencingBypassPolicy {
    /// Methods that need no token.
    pub unfenced: Vec<String>,
    /// The treatment of requests without a token that have another method.
    pub missing: MissingFencingTokenPolicy,
}

/// Answers the query of a gateway about the guard, with which each of its connections begins. The query is not
/// counted as a request of a client.
pub async fn serve_guard_identity<S: Handler<TracedRequest>>(
    claims: &DispatchClaimContext,
    traced: TracedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let IdentifiedRequest { http, path, .. } = &traced.request;
    if path.as_str() == ANNOUNCEMENT && http.method() == Method::GET {
        return Ok(json_reply(&claims.guard.announcement().await?));
    }
    next.handle(traced).await
}

pub async fn extract_claim<S: Handler<UnadmittedGuardRequest>>(
    claims: &DispatchClaimContext,
    TracedRequest { request, trace }: TracedRequest,
    next: &S,
) -> Result<Reply, Refusal> {
    let IdentifiedRequest { mut http, context, path, presented, source, .. } = request;
    if let Some(ambiguity) = path.ambiguity() {
        return Err(Refusal::new(RefusalReason::AmbiguousPath, ambiguity.to_string()));
    }
    if http.method().as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(Refusal::new(RefusalReason::Method, "a method in lower case"));
    }
    let claim = match claims.verify_claim(&presented) {
        Ok(claimed) => Ok(FencingClaimOutcome::Verified(Box::new(claimed))),
        Err(refused) => claims.pass_or_refuse_unclaimed(&http, refused, &source, &trace),
    };
    let hop_seen = came_through_proxy(source.hops, &presented);
    context
        .subject
        .get_or_init(|| RoleSpecificRequestFacts::Claim(claim_facts(claim.as_ref().ok(), hop_seen)));
    let claim = claim?;
    if let FencingClaimOutcome::Verified(claimed) = &claim
        && claimed.claim.token.dispatch() == 0
    {
        let refused = DispatchRefusedError::TokenMalformed(MalformedTokenError::ZeroDispatch);
        return Err(claims.guard.record_refusal(refused, Some(&claimed.claim)).into());
    }
    set_origin_form(&mut http, path.as_str());
    let upstream = UpstreamId(0);
    let plan = claims.plan.clone();
    next.handle(UnadmittedGuardRequest { http, context, plan, upstream, source, claim }).await
}

fn claim_facts(claim: Option<&FencingClaimOutcome>, hop_seen: bool) -> FencingClaimFacts {
    let (claimed, observed) = match claim {
        Some(FencingClaimOutcome::Verified(verified)) => {
            (Some((verified.claim.token, Rc::from(&*verified.claim.keys))), None)
        }
        Some(FencingClaimOutcome::Observed(reason)) => (None, Some(*reason)),
        Some(FencingClaimOutcome::Unfenced) | None => (None, None),
    };
    FencingClaimFacts { claimed, observed, hop_seen }
}

impl DispatchClaimContext {
    fn verify_claim(&self, presented: &HeaderMap) -> Result<ValidatedDispatchClaim, DispatchRefusedError> {
        let mut claim = parse_headers::parse_claim(presented)?;
        let operation = parse_headers::parse_operation(presented, self.guard.config.journal.keep.as_secs())?;
        let parent = parse_headers::parse_parent_token(presented)?;
        if self.tickets.is_none() && parent.is_some_and(|parent| parent.same_grant(claim.token)) {
            // Without tickets any caller could claim that a request runs inside another one.
            return Err(DispatchRefusedError::CallbackWithoutTickets);
        }
        claim.parent = parent;
        let not_after = parse_headers::parse_not_after(presented)?;
        let mut signed = None;
        if let Some(verifier) = &self.tickets {
            let ticket = parse_headers::parse_ticket(presented)?.as_bytes();
            let verified = self.guard.verify(verifier, ticket, &claim, not_after.as_ref())?;
            (claim.era, signed) = (Some(verified.claims.era), verified.not_after);
        }
        let in_time = self.guard.is_in_time(not_after.as_ref(), signed);
        if !in_time {
            let moment = not_after.map(|moment| moment.unix_ms()).or(signed).unwrap_or_default();
            let late_ms = self.guard.clock().unix_ms().saturating_sub(moment);
            warn!(token = %claim.token, late_ms, "guard.expired: the dispatch came too late, or the clocks differ");
        }
        Ok(ValidatedDispatchClaim {
            claim,
            operation,
            ticket: parse_headers::ticket_for_service(presented),
            in_time,
        })
    }

    /// Lets a request without a valid claim pass if its method needs no token or the guard only observes.
    fn pass_or_refuse_unclaimed(
        &self,
        http: &Request<Body>,
        refused: DispatchRefusedError,
        source: &RequestSource,
        trace: &RequestTraceIds,
    ) -> Result<FencingClaimOutcome, Refusal> {
        let missing = refused == DispatchRefusedError::TokenMissing;
        if missing && self.is_unfenced_method(http) {
            return Ok(FencingClaimOutcome::Unfenced);
        }
        if missing {
            self.guard.metrics.record_decision("bypass");
        }
        self.log_rejected(http, &refused, source, trace);
        if self.guard.config.enforce == Enforcement::Observe
            || (missing && self.bypass.missing == MissingFencingTokenPolicy::Observe)
        {
            return Ok(FencingClaimOutcome::Observed(RefusalReason::from(&refused)));
        }
        Err(self.guard.record_refusal(refused, None).into())
    }

    /// True if the method needs no token and no field of the request overrides its method or path.
    fn is_unfenced_method(&self, http: &Request<Body>) -> bool {
        let method = http.method().as_str();
        self.bypass.unfenced.iter().any(|unfenced| unfenced == method)
            && find_override(http.headers()).is_none()
    }

    /// Reports a caller without a valid claim, so that operators can find it. The path often contains a key, so it is
    /// logged only where the plan logs keys.
    fn log_rejected(
        &self,
        http: &Request<Body>,
        refused: &DispatchRefusedError,
        source: &RequestSource,
        trace: &RequestTraceIds,
    ) {
        let shown = KeyRedaction(self.plan.log.keys).shows_targets();
        let path = shown.then(|| http.uri().path().escape_debug());
        let path = path.map(tracing::field::display);
        let method = http.method();
        let peer = source.arrival.peer.address;
        let reason = refused.code().as_str();
        let client = Some(source.client).filter(|client| *client != peer.ip());
        let word = if *refused == DispatchRefusedError::TokenMissing { "bypass" } else { reason };
        self.rejected_callers.record(
            word,
            RejectedGuardCaller { at: SystemTime::now(), peer, client, method: method.clone() },
        );
        let client = client.map(tracing::field::display);
        let request_id = trace.request_id.to_str().ok();
        if *refused == DispatchRefusedError::TokenMissing {
            // A request without a token did not come from a gateway: its caller reaches the guard directly.
            warn!(%peer, client, request_id, %method, path, "guard.bypass");
        } else {
            warn!(%peer, client, request_id, %method, path, reason, "guard.not_believed");
        }
    }
}

/// True if a proxy stands between gateway and guard. The gateway reports in `Fencing-Hops` the entries that `Via`
/// then had; each proxy behind it adds one.
fn came_through_proxy(hops: u32, presented: &HeaderMap) -> bool {
    let before = presented.get(FENCING_HOPS).and_then(|value| value.to_str().ok()?.parse().ok());
    hops > before.unwrap_or(0)
}

fn json_reply(value: &impl serde::Serialize) -> Reply {
    let body = serde_json::to_vec(value).expect("plain fields serialise");
    let mut reply = Response::new(Body::from_bytes(Bytes::from(body)));
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}
