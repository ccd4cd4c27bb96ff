//! Turns the result of the pipeline into the response, and counts the request as in flight until the response is
//! sent.

use std::{fmt::Write as _, rc::Rc, time::Instant};

use fencegate_http::{body::Reply, listen::handler::ListenerTimeLimit};
use fencegate_metrics::{RouteMetrics, WorkerMetrics};
use fencegate_peers::outcome::announce_trailers;
use fencegate_process::{display::FormattedDuration, gauge_guard::GaugeGuard, key_redaction};
use fencegate_protocol::{
    clock_header::ClockHeader,
    headers::{FENCING_CLOCK, FENCING_NUMBER, FENCING_OUTCOME, FENCING_REFUSAL, FENCING_TOKEN, X_REQUEST_ID},
};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use hyper::header::{HeaderMap, HeaderValue};
use tracing::info;

use crate::{
    request_context::{RequestContext, ResponseReplayExtent},
    telemetry::RequestTelemetry,
};

/// The role in which this process responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalProcessRole {
    Gateway,
    /// A gateway that answers peers, which read the reason of a refusal.
    Peer,
    /// A guard. Its refusals carry a word that the gateway reads.
    Guard,
    /// A filter. Its refusals carry a word as those of [`LocalProcessRole::Guard`] do. It stamps no outcome: it
    /// does not know the outcome of an answer of the service.
    Filter,
}

impl LocalProcessRole {
    /// True if the sender of a request reads the words of refusals, as a gateway does.
    fn sends_refusal_reason(self) -> bool {
        matches!(self, Self::Guard | Self::Filter)
    }
}

/// A request whose response has no head yet. If it is dropped before [`Self::finish`], its client has disconnected.
pub(super) struct RequestInProgress {
    metrics: Rc<WorkerMetrics>,
    context: Rc<RequestContext>,
    role: LocalProcessRole,
    /// The clock that the answer to this request shows.
    clock: Option<Rc<ClockHeader>>,
    /// Counts the request as long as it has no route.
    unrouted: Option<GaugeGuard>,
    began: Instant,
    answered: bool,
    reporter: Option<RequestTelemetry>,
}

impl RequestInProgress {
    pub(super) fn begin(
        metrics: Rc<WorkerMetrics>,
        context: Rc<RequestContext>,
        role: LocalProcessRole,
        clock: Option<Rc<ClockHeader>>,
        entry: Option<RequestTelemetry>,
    ) -> Self {
        // A gateway waits for nothing before it knows the route of a request, and then counts the request with its
        // route.
        let unrouted = role.sends_refusal_reason().then(|| metrics.unrouted().track_in_flight());
        Self {
            metrics,
            context,
            role,
            clock,
            unrouted,
            began: Instant::now(),
            answered: false,
            reporter: entry,
        }
    }

    fn route(&self) -> &RouteMetrics {
        self.context.route().map_or(self.metrics.unrouted(), |id| self.metrics.route(id))
    }

    pub(super) fn finish(mut self, answer: Result<Reply, Refusal>) -> (Reply, Option<RequestTelemetry>) {
        self.answered = true;
        let refused = answer.as_ref().err().map(|refusal| refusal.reason);
        // A refusal replaces the answer of the upstream, so whether that answer was inconclusive no longer matters.
        let is_inconclusive = answer.is_ok() && self.context.is_answer_inconclusive();
        let answered = if is_inconclusive { DispatchOutcome::Unknown } else { DispatchOutcome::Done };
        let outcome = answer.as_ref().map_or_else(Refusal::outcome, |_| answered);
        // If a peer has answered, it has stamped the response already, and its report has the outcome.
        let report = self.context.peer_answer().map(|(_, report)| report).filter(|_| answer.is_ok());
        let (refused, outcome) = report.map_or((refused, outcome), |report| (report.reason, report.outcome));
        let reference = answer.as_ref().err().and_then(|refusal| refusal.reference().map(str::to_owned));
        let word = answer
            .as_ref()
            .err()
            .filter(|_| self.role.sends_refusal_reason())
            .and_then(Refusal::guard_refusal_word);
        let passed_on = self.context.source.get().filter(|_| answer.is_ok());
        let mut reply = answer.unwrap_or_else(|refusal| {
            self.log(&refusal);
            refusal.into_reply()
        });
        if let Some(source) = passed_on {
            let came = reply.version();
            source.via.add_via_entry(reply.headers_mut(), came);
        }
        let knows = self.context.is_fenced() || self.role != LocalProcessRole::Gateway;
        if report.is_none() && knows && self.role != LocalProcessRole::Filter {
            let reason = refused.filter(|_| self.role != LocalProcessRole::Gateway);
            stamp_headers(reply.headers_mut(), &self.context, outcome, is_inconclusive, reason);
        }
        if self.role == LocalProcessRole::Peer {
            announce_trailers(&mut reply);
        }
        if let (LocalProcessRole::Guard, Some(reference)) = (self.role, reference) {
            let mut value = reply.headers()[FENCING_OUTCOME].as_bytes().to_vec();
            value.extend(format!("; ref={reference}").bytes());
            let value = HeaderValue::from_bytes(&value).expect("a reference is a word");
            reply.headers_mut().insert(FENCING_OUTCOME, value);
        }
        if let Some(word) = word {
            reply.headers_mut().insert(FENCING_REFUSAL, HeaderValue::from_static(word));
        }
        if let Some(clock) = &self.clock {
            reply.headers_mut().insert(FENCING_CLOCK, clock.header_value());
        }
        if let Some(trace) = self.context.trace.get() {
            reply.headers_mut().entry(X_REQUEST_ID).or_insert_with(|| trace.request_id.clone());
        }
        self.record_outcome_metrics(refused, outcome);
        self.route().record_response(reply.status(), self.began.elapsed());
        // The request counts as in flight until its whole response has been sent, so the body keeps the count.
        let counted = self.context.take_route_count().or_else(|| self.unrouted.take());
        let in_flight = counted.unwrap_or_else(|| self.metrics.unrouted().track_in_flight());
        let in_flight = (in_flight, self.context.permit.get().cloned());
        let reply = reply.map(|body| body.keep_until_complete(in_flight));
        let mut entry = self.reporter.take();
        if let Some(entry) = &mut entry {
            entry.record_response(self.route().name(), reply.status(), outcome, refused);
        }
        (reply, entry)
    }

    fn record_outcome_metrics(&self, refused: Option<RefusalReason>, outcome: DispatchOutcome) {
        if let Some(reason) = refused {
            self.route().record_rejection(reason);
            if matches!(reason, RefusalReason::SlowRequest | RefusalReason::SlowUpload) {
                self.metrics.clients().record_timeout(ListenerTimeLimit::RequestBody);
            }
        }
        if outcome == DispatchOutcome::Unknown {
            self.route().record_unknown_outcome();
        }
    }

    fn log(&self, refusal: &Refusal) {
        info!(
            route = self.route().name(),
            keys = self.context.keys().map(|keys| key_redaction::redact_keys(keys)),
            reason = refusal.reason.word(),
            outcome = refusal.outcome().as_str(),
            detail = %refusal.detail.escape_debug(),
            waited = self.context.lock.get().waited.map(|waited| tracing::field::display(FormattedDuration(waited))),
            "refused"
        );
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        drop(self.context.take_route_count());
        if !self.answered {
            self.route().record_client_disconnect(self.began.elapsed());
        }
    }
}

/// Stamps the token and the outcome. It runs last, after the fencing fields of the upstream have been removed.
fn stamp_headers(
    headers: &mut HeaderMap,
    context: &RequestContext,
    outcome: DispatchOutcome,
    is_inconclusive: bool,
    refused: Option<RefusalReason>,
) {
    let ascii = |text: &[u8]| HeaderValue::from_bytes(text).expect("words and numbers are visible ASCII");
    if let Some(token) = context.token() {
        headers.insert(FENCING_TOKEN, ascii(&token.to_ascii()));
        headers.insert(FENCING_NUMBER, HeaderValue::from(token.number()));
    }
    let replayed = context.replayed();
    let observed = context.shadow_refusal();
    let lock = context.lock.get();
    let waited = lock.waited.map(|waited| u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    let says_more = replayed.is_some()
        || refused.is_some()
        || observed.is_some()
        || context.has_proxy_hop()
        || lock.is_validity_lost;
    if outcome == DispatchOutcome::Done && waited == Some(0) && !says_more {
        // Most responses under a cached key have this value. It is constant, so that it is not formatted for each
        // of them.
        headers.insert(FENCING_OUTCOME, HeaderValue::from_static(DONE_AT_ONCE));
        return;
    }
    let mut value = replayed.map_or(outcome, |_| DispatchOutcome::Replayed).as_str().to_owned();
    if replayed == Some(ResponseReplayExtent::WithoutBody) {
        value.push_str("; body=omitted");
    }
    if let Some(reason) = refused {
        value.push_str("; reason=");
        value.push_str(reason.word());
    }
    if let Some(reason) = observed {
        value.push_str("; observe=");
        value.push_str(reason.word());
    }
    if context.has_proxy_hop() {
        value.push_str("; hop=seen");
    }
    if lock.is_validity_lost {
        value.push_str("; proof=lost");
    }
    if is_inconclusive {
        value.push_str("; end=unseen");
    }
    if let Some(waited) = waited {
        write!(value, "; waited={waited}").expect("a string takes what it is given");
    }
    headers.insert(FENCING_OUTCOME, ascii(value.as_bytes()));
}

/// The value of `Fencing-Outcome` for a request that the service has answered, and whose lock was granted without a
/// wait.
const DONE_AT_ONCE: &str = "done; waited=0";
