//! The outermost layer: gives each request to the pipeline in force, and turns the result into the response. Only
//! here do refusals become responses, and only here are responses stamped.

mod raw_request;

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    future::{Future, poll_fn},
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use fencegate_config::active_config::{PipelineEntryCounter, PipelineEntryGuard};
use fencegate_http::{
    body::Reply,
    listen::{
        handler::{HttpHandler, IncomingRequest, RequestRejection, ResponseFuture},
        time_limit::ListenerTimeLimit,
    },
};
use fencegate_metrics::{RouteMetrics, WorkerMetrics};
use fencegate_peers::outcome::announce_trailers;
use fencegate_process::{clock::SharedClock, display::HumanDuration, gauge_guard::GaugeGuard, key_redaction};
use fencegate_protocol::{
    clock_header::ClockHeader,
    headers::{FENCING_CLOCK, FENCING_NUMBER, FENCING_OUTCOME, FENCING_REFUSAL, FENCING_TOKEN, X_REQUEST_ID},
};
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use hyper::{
    StatusCode, Version,
    body::Body as _,
    header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue},
};
use tokio::task::spawn_local;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::raw_request::RawRequest;
use crate::{
    handler::Handler,
    request_context::{ReplayExtent, RequestArrival, RequestContext},
    telemetry::{PlanTelemetrySinks, RequestReporter},
};

/// Serves the connections of one worker.
#[derive(Clone)]
pub struct WorkerFrontend {
    /// Looked up for each request, so that a reload can replace it between two requests.
    pipeline: Rc<RefCell<PipelineInstance>>,
    role: ServingRole,
    /// The process drains. Every response checks this, so each worker has its own flag: the token has a lock that all
    /// workers share.
    drains: Rc<Cell<bool>>,
}

/// The steps of one plan, and the counts of its requests.
#[derive(Clone)]
pub struct PipelineInstance {
    handler: Rc<dyn Pipeline>,
    metrics: Rc<WorkerMetrics>,
    sinks: Option<Rc<PlanTelemetrySinks>>,
    clock: Option<Rc<ClockHeader>>,
    entries: Rc<PipelineEntryCounter>,
}

/// The role in which this process responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingRole {
    Gateway,
    /// To peers, which read the reason of a refusal.
    Peer,
    /// Its refusals carry a word for the gateway.
    Guard,
    /// As [`ServingRole::Guard`], but the outcome of a response of the service is not known.
    Filter,
}

impl ServingRole {
    /// True if the sender of a request reads the words of refusals.
    fn sends_refusal_reason(self) -> bool {
        matches!(self, Self::Guard | Self::Filter)
    }
}

impl PipelineInstance {
    pub fn new(steps: impl Handler<RawRequest>, metrics: Rc<WorkerMetrics>) -> Self {
        Self { handler: Rc::new(steps), metrics, sinks: None, clock: None, entries: Rc::default() }
    }

    /// Reports each request to `sinks`.
    #[must_use]
    pub fn with_sinks(self, sinks: Option<Rc<PlanTelemetrySinks>>) -> Self {
        Self { sinks, ..self }
    }

    /// Every answer shows this clock, a refusal as well.
    #[must_use]
    pub fn with_clock_header(self, clock: SharedClock, error: Duration) -> Self {
        Self { clock: Some(Rc::new(ClockHeader { clock, error })), ..self }
    }
}

impl WorkerFrontend {
    /// `drain`: from then on each response makes its client use another connection for the next request.
    pub fn new(pipeline: PipelineInstance, role: ServingRole, drain: CancellationToken) -> Self {
        let drains = Rc::new(Cell::new(drain.is_cancelled()));
        let noted = drains.clone();
        spawn_local(async move {
            drain.cancelled().await;
            noted.set(true);
        });
        Self { pipeline: Rc::new(RefCell::new(pipeline)), role, drains }
    }

    /// Uses `pipeline` from the next request on; requests that have begun keep the old pipeline. The returned future ends
    /// when every request that has looked up the old pipeline is counted under its plan.
    pub fn replace_pipeline(&self, pipeline: PipelineInstance) -> impl Future<Output = ()> + use<> {
        let PipelineInstance { entries, .. } = self.pipeline.replace(pipeline);
        async move { entries.wait_empty().await }
    }

    /// The same steps, for connections of peers.
    pub fn for_peers(&self) -> Self {
        Self { role: ServingRole::Peer, ..self.clone() }
    }
}

impl HttpHandler for WorkerFrontend {
    fn handle(&self, incoming: IncomingRequest) -> ResponseFuture {
        // No await in here: a request that is not counted has not used this pipeline.
        let PipelineInstance { handler: steps, metrics, sinks, clock, entries } =
            self.pipeline.borrow().clone();
        let counted_entry = entries.enter();
        let role = self.role;
        let drains = self.drains.clone();
        steps.answer(PipelineRequest { incoming, metrics, sinks, clock, role, drains, counted_entry })
    }

    fn reject(&self, refused: RequestRejection, took: Duration) -> Reply {
        let pipeline = self.pipeline.borrow();
        let refusal = Refusal::from(refused);
        let route = pipeline.metrics.unrouted();
        route.record_rejection(refusal.reason);
        route.record_response(refusal.status(), took);
        info!(reason = refusal.reason.word(), detail = %refusal.detail, "refused before it was a request");
        refusal.into_reply()
    }
}

/// A request, and the pipeline that serves it.
struct PipelineRequest {
    incoming: IncomingRequest,
    metrics: Rc<WorkerMetrics>,
    sinks: Option<Rc<PlanTelemetrySinks>>,
    clock: Option<Rc<ClockHeader>>,
    role: ServingRole,
    drains: Rc<Cell<bool>>,
    counted_entry: PipelineEntryGuard,
}

/// All steps behind one pointer. Their type contains every step in the one before. Without the pointer, the code that
/// serves connections would be compiled once more for it, at several times the size of everything else.
trait Pipeline {
    fn answer(self: Rc<Self>, request: PipelineRequest) -> ResponseFuture;
}

impl<S: Handler<RawRequest>> Pipeline for S {
    fn answer(self: Rc<Self>, request: PipelineRequest) -> ResponseFuture {
        let PipelineRequest { incoming, metrics, sinks, clock, role, drains, counted_entry } = request;
        let IncomingRequest { http, peer, exchange, tracker: answering, head } = incoming;
        let version = http.version();
        // HTTP/1.0 has no interim responses, and peers do not wait for them.
        let allows_interim = http.version() == Version::HTTP_11 && role != ServingRole::Peer;
        Box::pin(async move {
            let context = Rc::<RequestContext>::default();
            let begin = |sinks| RequestReporter::begin(sinks, http.method(), http.uri(), &peer, &context);
            let entry = sinks.as_ref().map(begin);
            let in_progress = RequestInProgress::begin(metrics, context.clone(), role, clock, entry);
            let informational = allows_interim.then(|| exchange.informational().cloned()).flatten();
            let interims = match &informational {
                Some(interims) => Some(poll_fn(|cx| Poll::Ready(interims.open(cx.waker()))).await),
                None => None,
            };
            let arrival = RequestArrival { peer, from_gateways: role == ServingRole::Peer, interims, head };
            // A request without a route is not counted under its plan once it has an answer, which may still take long.
            let request = RawRequest { http, context: context.clone(), arrival, entry: Some(counted_entry) };
            let answer = self.handle(request).await;
            if let Some(interims) = &informational {
                poll_fn(|cx| interims.poll_close(cx)).await;
            }
            let answer =
                answer.map_err(
                    |refusal| if exchange.stalled.get() { slow_client_refusal(&refusal) } else { refusal },
                );
            let (mut reply, entry) = in_progress.finish(answer);
            let switches = reply.status() == StatusCode::SWITCHING_PROTOCOLS;
            if !switches && (drains.get() || !can_see_end(version, &reply)) {
                close_connection(version, &mut reply);
            }
            Ok(reply.map(|body| {
                let body = answering.observe(body);
                match entry {
                    Some(entry) => body.with_observer(Box::new(entry)),
                    None => body,
                }
            }))
        })
    }
}

/// Whether a client of this version can see where the body ends while the connection stays open. HTTP/1.0 has no chunks.
fn can_see_end(version: Version, reply: &Reply) -> bool {
    version != Version::HTTP_10
        || reply.body().size_hint().exact().is_some()
        || reply.headers().contains_key(CONTENT_LENGTH)
}

/// The connection ends with this response, and says so. In HTTP/2 a frame does this.
fn close_connection(version: Version, reply: &mut Reply) {
    if version == Version::HTTP_2 {
        return;
    }
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if version == Version::HTTP_10 {
        // To a client of HTTP/1.0 that asks to stay, the library writes `keep-alive` on each response of HTTP/1.1, whatever
        // stands there.
        *reply.version_mut() = Version::HTTP_10;
    }
}

/// The client caused this refusal: it did not send the rest of its body in time.
fn slow_client_refusal(refusal: &Refusal) -> Refusal {
    let reason = match refusal.outcome() {
        DispatchOutcome::NotDispatched => RefusalReason::SlowRequest,
        DispatchOutcome::Done | DispatchOutcome::Replayed | DispatchOutcome::Unknown => {
            RefusalReason::SlowUpload
        }
    };
    Refusal::new(reason, format!("the rest of the body did not come; {}", refusal.detail))
}

/// One request, up to the head of its response. If it is dropped before that, its client has disconnected.
struct RequestInProgress {
    metrics: Rc<WorkerMetrics>,
    context: Rc<RequestContext>,
    role: ServingRole,
    /// The clock that its answer shows.
    clock: Option<Rc<ClockHeader>>,
    /// Counts the request as long as it has no route.
    unrouted: Option<GaugeGuard>,
    began: Instant,
    answered: bool,
    reporter: Option<RequestReporter>,
}

impl RequestInProgress {
    fn begin(
        metrics: Rc<WorkerMetrics>,
        context: Rc<RequestContext>,
        role: ServingRole,
        clock: Option<Rc<ClockHeader>>,
        entry: Option<RequestReporter>,
    ) -> Self {
        // In a gateway nothing waits before the route is known, and the request is counted with its route.
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

    fn finish(mut self, answer: Result<Reply, Refusal>) -> (Reply, Option<RequestReporter>) {
        self.answered = true;
        let refused = answer.as_ref().err().map(|refusal| refusal.reason);
        // With a refusal the upstream's response that was to be passed on has been lost as well.
        let is_inconclusive = answer.is_ok() && self.context.is_answer_inconclusive();
        let answered = if is_inconclusive { DispatchOutcome::Unknown } else { DispatchOutcome::Done };
        let outcome = answer.as_ref().map_or_else(Refusal::outcome, |_| answered);
        // A peer has stamped this response, and recorded the outcome.
        let told = self.context.peer_answer().map(|(_, report)| report).filter(|_| answer.is_ok());
        let (refused, outcome) = told.map_or((refused, outcome), |told| (told.reason, told.outcome));
        let reference = answer.as_ref().err().and_then(|refusal| refusal.reference().map(str::to_owned));
        let word =
            answer.as_ref().err().filter(|_| self.role.sends_refusal_reason()).and_then(Refusal::guard_word);
        let passed_on = self.context.source.get().filter(|_| answer.is_ok());
        let mut reply = answer.unwrap_or_else(|refusal| {
            self.log(&refusal);
            refusal.into_reply()
        });
        if let Some(source) = passed_on {
            let came = reply.version();
            source.via.stamp(reply.headers_mut(), came);
        }
        let knows = self.context.is_fenced() || self.role != ServingRole::Gateway;
        if told.is_none() && knows && self.role != ServingRole::Filter {
            let told = refused.filter(|_| self.role != ServingRole::Gateway);
            stamp_headers(reply.headers_mut(), &self.context, outcome, is_inconclusive, told);
        }
        if self.role == ServingRole::Peer {
            announce_trailers(&mut reply);
        }
        if let (ServingRole::Guard, Some(reference)) = (self.role, reference) {
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
        self.count(refused, outcome);
        self.route().record_response(reply.status(), self.began.elapsed());
        // The request is in flight until its whole response has been sent.
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

    fn count(&self, refused: Option<RefusalReason>, outcome: DispatchOutcome) {
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
            waited = self.context.lock.get().waited.map(|waited| tracing::field::display(HumanDuration(waited))),
            "refused"
        );
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        drop(self.context.take_route_count());
        if !self.answered {
            self.route().record_abandoned(self.began.elapsed());
        }
    }
}

/// Stamps the token and the outcome. This is the last step, after the fields of the upstream were cleaned.
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
    let observed = context.observed();
    let lock = context.lock.get();
    let waited = lock.waited.map(|waited| u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    let says_more = replayed.is_some()
        || refused.is_some()
        || observed.is_some()
        || context.hop_seen()
        || lock.is_validity_lost;
    if outcome == DispatchOutcome::Done && waited == Some(0) && !says_more {
        // The value of most responses under a cached key is constant, so that it is not formatted for each of them.
        headers.insert(FENCING_OUTCOME, HeaderValue::from_static(DONE_AT_ONCE));
        return;
    }
    let mut value = replayed.map_or(outcome, |_| DispatchOutcome::Replayed).as_str().to_owned();
    if replayed == Some(ReplayExtent::WithoutBody) {
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
    if context.hop_seen() {
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

/// The outcome of a request that was answered, and whose key was free.
const DONE_AT_ONCE: &str = "done; waited=0";

#[cfg(test)]
mod tests;
