//! The outermost layer: gives each request to the pipeline in force. Its module `in_progress` turns the result into the
//! response: only there do refusals become responses, and only there are responses stamped.

mod in_progress;

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    rc::Rc,
    task::Poll,
    time::Duration,
};

use fencegate_config::active_config::{PipelineEntryCounter, PipelineEntryGuard};
use fencegate_http::{
    body::{Body, Reply},
    listen::handler::{HttpHandler, IncomingRequest, RequestRejection, ResponseFuture},
};
use fencegate_metrics::WorkerMetrics;
use fencegate_policies::plan::CorsSettings;
use fencegate_process::clock::SharedClock;
use fencegate_protocol::clock_header::ClockHeader;
use fencegate_refusal::{DispatchOutcome, Refusal, RefusalReason};
use hyper::{
    Request, StatusCode, Version,
    body::Body as _,
    header::{CONNECTION, CONTENT_LENGTH, HeaderValue},
};
use tokio::task::spawn_local;
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use self::in_progress::LocalProcessRole;
use self::in_progress::RequestInProgress;
use crate::{
    cors::CorsHeaders,
    handler::Handler,
    request_context::{RequestArrival, RequestContext},
    telemetry::{PlanTelemetrySinks, RequestTelemetry},
};

/// A request as the HTTP library delivered it, before the first step.
pub struct RawRequest {
    pub http: Box<Request<Body>>,
    pub context: Rc<RequestContext>,
    pub arrival: RequestArrival,
    /// Counts the request as one that has looked up the pipeline, until the request is counted under its plan.
    pub entry: Option<PipelineEntryGuard>,
}

/// Serves the connections of one worker.
#[derive(Clone)]
pub struct WorkerHttpHandler {
    /// The pipeline in force. Each request looks it up here, so that a reload can replace it between two requests.
    pipeline: Rc<RefCell<PipelineInstance>>,
    role: LocalProcessRole,
    /// True once the process drains. Every response reads it, so each worker has its own flag: the state of the
    /// `CancellationToken` is behind a lock that all workers share.
    draining: Rc<Cell<bool>>,
}

/// The steps of one plan, and the counts of its requests.
#[derive(Clone)]
pub struct PipelineInstance {
    handler: Rc<dyn Pipeline>,
    metrics: Rc<WorkerMetrics>,
    sinks: Option<Rc<PlanTelemetrySinks>>,
    clock: Option<Rc<ClockHeader>>,
    cors: Option<Rc<CorsHeaders>>,
    entries: Rc<PipelineEntryCounter>,
}

impl PipelineInstance {
    pub fn new(steps: impl Handler<RawRequest>, metrics: Rc<WorkerMetrics>) -> Self {
        Self {
            handler: Rc::new(steps),
            metrics,
            sinks: None,
            clock: None,
            cors: None,
            entries: Rc::default(),
        }
    }

    /// Reports each request to `sinks`.
    #[must_use]
    pub fn with_sinks(self, sinks: Option<Rc<PlanTelemetrySinks>>) -> Self {
        Self { sinks, ..self }
    }

    /// Shows this clock in the field `Fencing-Clock` of every answer, also of refusals.
    #[must_use]
    pub fn with_clock_header(self, clock: SharedClock, error: Duration) -> Self {
        Self { clock: Some(Rc::new(ClockHeader { clock, error })), ..self }
    }

    /// Lets pages of other origins read every answer, also refusals.
    #[must_use]
    pub fn with_cors(self, cors: Option<&CorsSettings>) -> Self {
        Self { cors: cors.map(|cors| Rc::new(CorsHeaders::new(cors))), ..self }
    }
}

impl WorkerHttpHandler {
    /// Once `drain` is cancelled, each response makes its client use another connection for the next request.
    pub fn new(pipeline: PipelineInstance, role: LocalProcessRole, drain: CancellationToken) -> Self {
        let draining = Rc::new(Cell::new(drain.is_cancelled()));
        let flag = draining.clone();
        spawn_local(async move {
            drain.cancelled().await;
            flag.set(true);
        });
        Self { pipeline: Rc::new(RefCell::new(pipeline)), role, draining }
    }

    /// Uses `pipeline` from the next request on; requests that have begun keep the old pipeline. The returned future ends
    /// when every request that has looked up the old pipeline is counted under its plan.
    pub fn replace_pipeline(&self, pipeline: PipelineInstance) -> impl Future<Output = ()> + use<> {
        let PipelineInstance { entries, .. } = self.pipeline.replace(pipeline);
        async move { entries.wait_no_entering_requests().await }
    }

    /// Returns a handler with the same pipeline that serves connections of peers.
    pub fn for_peers(&self) -> Self {
        Self { role: LocalProcessRole::Peer, ..self.clone() }
    }
}

impl HttpHandler for WorkerHttpHandler {
    fn handle(&self, incoming: IncomingRequest) -> ResponseFuture {
        // There is no await between the lookup of the pipeline and the count: a reload must see every request that uses
        // it.
        let PipelineInstance { handler: steps, metrics, sinks, clock, cors, entries } =
            self.pipeline.borrow().clone();
        let counted_entry = entries.enter();
        let role = self.role;
        let draining = self.draining.clone();
        // A peer sends its answer to the gateway that the page has asked. That gateway adds the CORS fields.
        let cors = cors.filter(|_| role != LocalProcessRole::Peer);
        steps.answer(PipelineRequest { incoming, metrics, sinks, clock, cors, role, draining, counted_entry })
    }

    fn reject(&self, refused: RequestRejection, took: Duration) -> Reply {
        let pipeline = self.pipeline.borrow();
        let refusal = Refusal::from(refused);
        let route = pipeline.metrics.unrouted();
        route.record_rejection(refusal.reason);
        route.record_response(refusal.status(), took);
        info!(reason = refusal.reason.word(), detail = %refusal.detail, "the connection was refused before its request was complete");
        refusal.into_reply()
    }
}

/// A request, and the pipeline that serves it.
struct PipelineRequest {
    incoming: IncomingRequest,
    metrics: Rc<WorkerMetrics>,
    sinks: Option<Rc<PlanTelemetrySinks>>,
    clock: Option<Rc<ClockHeader>>,
    cors: Option<Rc<CorsHeaders>>,
    role: LocalProcessRole,
    draining: Rc<Cell<bool>>,
    counted_entry: PipelineEntryGuard,
}

/// Hides the type of a pipeline behind one pointer. That type contains the types of all steps, nested. Without the
/// pointer, the code that serves connections would be compiled for it once more, at several times the size of
/// everything else.
trait Pipeline {
    fn answer(self: Rc<Self>, request: PipelineRequest) -> ResponseFuture;
}

impl<S: Handler<RawRequest>> Pipeline for S {
    fn answer(self: Rc<Self>, request: PipelineRequest) -> ResponseFuture {
        let PipelineRequest { incoming, metrics, sinks, clock, cors, role, draining, counted_entry } =
            request;
        let IncomingRequest { http, peer, exchange, tracker: answering, head } = incoming;
        let version = http.version();
        // A client of HTTP/1.0 knows no interim responses, and peers do not wait for them.
        let allows_interim = http.version() == Version::HTTP_11 && role != LocalProcessRole::Peer;
        let origin = cors.as_ref().and_then(|cors| cors.allowed_origin(http.headers()));
        Box::pin(async move {
            let context = Rc::<RequestContext>::default();
            let begin = |sinks| RequestTelemetry::begin(sinks, http.method(), http.uri(), &peer, &context);
            let entry = sinks.as_ref().map(begin);
            let in_progress = RequestInProgress::begin(metrics, context.clone(), role, clock, entry);
            let informational = allows_interim.then(|| exchange.informational().cloned()).flatten();
            let interims = match &informational {
                Some(interims) => Some(poll_fn(|cx| Poll::Ready(interims.open(cx.waker()))).await),
                None => None,
            };
            let arrival =
                RequestArrival { peer, from_gateways: role == LocalProcessRole::Peer, interims, head };
            // The entry moves into the request: a request that is answered without a route must not hold up a reload
            // while its answer is sent.
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
            if let Some(cors) = cors {
                cors.add_cors_headers(reply.headers_mut(), origin);
            }
            let switches = reply.status() == StatusCode::SWITCHING_PROTOCOLS;
            if !switches && (draining.get() || !has_visible_end(version, &reply)) {
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

/// True if a client of this version can see the end of the body while the connection stays open. HTTP/1.0 has no
/// chunks.
fn has_visible_end(version: Version, reply: &Reply) -> bool {
    version != Version::HTTP_10
        || reply.body().size_hint().exact().is_some()
        || reply.headers().contains_key(CONTENT_LENGTH)
}

/// Makes the response announce that the connection ends after it. In HTTP/2 the HTTP library sends a frame for that.
fn close_connection(version: Version, reply: &mut Reply) {
    if version == Version::HTTP_2 {
        return;
    }
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if version == Version::HTTP_10 {
        // If a client of HTTP/1.0 asks to keep the connection, the library overwrites `Connection` with `keep-alive` on
        // each response of HTTP/1.1.
        *reply.version_mut() = Version::HTTP_10;
    }
}

/// Makes another refusal of one that the client caused, because it did not send the rest of its body in time.
fn slow_client_refusal(refusal: &Refusal) -> Refusal {
    let reason = match refusal.outcome() {
        DispatchOutcome::NotDispatched => RefusalReason::SlowRequest,
        DispatchOutcome::Done | DispatchOutcome::Replayed | DispatchOutcome::Unknown => {
            RefusalReason::SlowUpload
        }
    };
    Refusal::new(reason, format!("the rest of the body did not come; {}", refusal.detail))
}

#[cfg(test)]
mod tests;
