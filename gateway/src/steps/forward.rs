//! The end of the path: takes a connection, stamps the request, sends it, and says what is known of its fate.

use std::{
    error::Error as _,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use fencegate_policies::{
    key::{ResourceKey, listed},
    pick,
    plan::{Level, Mode, Plan, TokenFields, Upstream},
    retry::{self, Again, Cause, Sent},
    token::Token,
};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Version,
    body::{Body as _, Incoming},
    header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING},
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info, warn};

use super::{
    hygiene::{self, Trailers},
    upgrade::{self, Asked},
};
use crate::{
    admin::metrics::WorkerMetrics,
    body::{Body, BodyError, Reply},
    guard::present::{self, FENCING_HOPS},
    lock::tenure::Dispatch,
    network::Network,
    refusal::{Reason, Refusal},
    session::{clock::SharedClock, evidence::Evidence},
    stage::{Held, Notes, Right},
    step::Serve,
    upstream::{
        fleet::Fleets,
        gate::{Gate, Why},
        guards::{Distrust, Guards},
        link::{Lend, Progress},
        pool::{NotConnected, Pool},
        speak::NotAnswered,
        tunnel::{self, Counts, Switched, Tunnel},
        verdict::Account,
    },
};

/// Sends requests to the upstreams of a plan.
pub struct Forward<N> {
    pub pool: Rc<Pool<N>>,
    pub clock: SharedClock,
    pub metrics: Rc<WorkerMetrics>,
    pub guards: Arc<Guards>,
    pub fleets: Arc<Fleets>,
    /// Tunnels of unfenced requests.
    pub running: TaskTracker,
    pub drain: CancellationToken,
}

pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
pub const FENCING_NUMBER: HeaderName = HeaderName::from_static("fencing-number");
pub const FENCING_KEY: HeaderName = HeaderName::from_static("fencing-key");
pub const FENCING_MODE: HeaderName = HeaderName::from_static("fencing-mode");
pub const FENCING_REFUSAL: HeaderName = HeaderName::from_static("fencing-refusal");

/// An attempt that got no answer.
enum Failed {
    /// Not one byte was written, and the request is still here. `reused`: the connection had carried others before.
    Unsent {
        back: Box<Request<Body>>,
        reused: bool,
    },
    Refused(Refusal),
}

impl<N: Network, H: Right> Serve<Held<H>> for Forward<N> {
    async fn serve(&self, request: Held<H>) -> Result<Reply, Refusal> {
        let Held { mut http, notes, plan, upstream, hold } = request;
        let mut tour = self.fleets.fleet(upstream).tour(|| affinity(&http, hold.as_ref()));
        let upstream = plan.upstream(upstream);
        *http.version_mut() = Version::HTTP_11;
        frame(&mut http);
        let route = notes.route.get().map(|id| plan.routes.get(id));
        let asked = upgrade::ask(&mut http, route);
        loop {
            let lend = self.pool.checkout(&mut tour).await.map_err(|error| {
                self.metrics.upstream_error(&upstream.name, not_connected_kind(&error));
                not_connected(&error)
            })?;
            let dispatch = hold.as_ref().map(|hold| stamp(http.headers_mut(), hold, upstream)).transpose()?;
            notes.token.set(dispatch.as_ref().map(|dispatch| dispatch.token));
            let way = Way { asked: asked.clone(), upstream, plan: &plan, notes: &notes };
            match self.exchange(lend, http, dispatch, way).await {
                Ok(reply) => return Ok(reply),
                Err(Failed::Refused(refusal)) => return Err(refusal),
                Err(Failed::Unsent { back, reused }) => {
                    self.metrics.retried(&upstream.name);
                    tour.died(reused);
                    http = *back;
                }
            }
        }
    }
}

/// What requests that belong to one endpoint have in common.
fn affinity(http: &Request<Body>, hold: Option<&impl Right>) -> u64 {
    pick::hash(&hold.map_or_else(|| http.uri().path().to_owned(), |hold| listed(hold.keys())))
}

/// The HTTP library sends no body with a GET unless a field announces one.
fn frame(http: &mut Request<Body>) {
    let announced = http.headers().contains_key(CONTENT_LENGTH);
    if !announced && !http.body().is_end_stream() && http.body().size_hint().exact().is_none() {
        http.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Last of all, so that nothing can strip it. A new connection means a new dispatch, with the next G.
fn stamp(headers: &mut HeaderMap, hold: &impl Right, upstream: &Upstream) -> Result<Dispatch, Refusal> {
    let no_token = || Refusal::new(Reason::KeyLimit, "the tenure has no further token");
    let dispatch = hold.dispatch().ok_or_else(no_token)?;
    claim(headers, dispatch.token, hold.keys(), hold.mode(), upstream);
    hold.stamp(dispatch.token, headers);
    Ok(dispatch)
}

/// What every dispatch says of itself.
pub fn claim(headers: &mut HeaderMap, token: Token, keys: &[ResourceKey], mode: Mode, upstream: &Upstream) {
    let value = |text: &str| HeaderValue::from_str(text).expect("tokens and keys are visible ASCII");
    let named = |name: &str| HeaderName::from_bytes(name.as_bytes()).expect("the plan holds field names");
    // A guard reads the fields by their own names, whatever the service behind it calls them.
    let fields = match upstream.fencing {
        Level::Guard => &TokenFields::default(),
        Level::None | Level::Upstream => &upstream.fields,
    };
    headers.insert(named(&fields.token), value(&token.to_string()));
    headers.insert(named(&fields.number), HeaderValue::from(token.number()));
    headers.insert(FENCING_KEY, value(&listed(keys)));
    headers.insert(FENCING_MODE, HeaderValue::from_static(mode.word()));
    if upstream.fencing == Level::Guard {
        headers.insert(FENCING_HOPS, HeaderValue::from(present::hops(headers)));
    }
}

/// What one attempt is made with, beside its connection.
struct Way<'a> {
    /// The client wants to go on in another protocol.
    asked: Option<Asked>,
    upstream: &'a Upstream,
    plan: &'a Arc<Plan>,
    notes: &'a Notes,
}

impl<N: Network> Forward<N> {
    async fn exchange(
        &self,
        mut lend: Lend,
        http: Request<Body>,
        dispatch: Option<Dispatch>,
        way: Way<'_>,
    ) -> Result<Reply, Failed> {
        let Way { asked, upstream, plan, notes } = way;
        let began = Instant::now();
        notes.gate.replace(Some(lend.gate().clone()));
        let evidence = dispatch.as_ref().map(|dispatch| dispatch.evidence.clone());
        lend.gate().arm(evidence.clone());
        let switched = asked.as_ref().and_then(|_| lend.link().stream());
        let answer = lend.link().send(http);
        let limit = upstream.response_timeout;
        let answered = tokio::select! {
            answered = answer => answered,
            () = too_late(lend.link().progress(), limit, evidence.is_some()) => {
                self.metrics.upstream_error(&upstream.name, "timeout");
                lend.failed();
                return Err(Failed::Refused(given_up(lend.gate(), Reason::OutcomeLate, format!("no answer within {limit:?}"))));
            }
            () = evidence_needed(evidence.as_deref(), upstream.fencing, &self.clock) => {
                self.metrics.upstream_error(&upstream.name, "proof");
                let why = "the session could not be proven any more".to_owned();
                return Err(Failed::Refused(given_up(lend.gate(), Reason::OutcomeUnknown, why)));
            }
        };
        match answered {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                if let (Some(asked), Some(switched)) = (asked, switched)
                    && asked.is_granted(&response)
                {
                    self.metrics.upstream_answered(&upstream.name, response.status(), began.elapsed());
                    return Ok(self.switch(response, asked, switched, lend, evidence, plan, notes));
                }
                self.metrics.upstream_error(&upstream.name, "protocol");
                let why = format!("{} switched protocols unasked", lend.endpoint());
                Err(Failed::Refused(Refusal::new(Reason::OutcomeUnknown, why)))
            }
            Ok(response) if is_coded(response.headers()) => {
                self.metrics.upstream_error(&upstream.name, "protocol");
                let why = format!("{} answered in a transfer coding other than `chunked`", lend.endpoint());
                Err(Failed::Refused(Refusal::new(Reason::OutcomeUnknown, why)))
            }
            Ok(response) => {
                notes.upstream.set(Some(began.elapsed()));
                self.metrics.upstream_answered(&upstream.name, response.status(), began.elapsed());
                judge_endpoint(&lend, &response);
                let answer = Answer { response, lend, upstream, plan };
                match dispatch {
                    Some(dispatch) => self.fenced(answer, dispatch.token, notes).await,
                    None => Ok(answer.reply(false)),
                }
            }
            Err(error) => Err(self.failed(error, &mut lend, upstream)),
        }
    }

    /// The upstream has switched protocols: what goes on is a tunnel. Under a dispatch it is run by who keeps the key.
    #[expect(clippy::too_many_arguments, reason = "both ends, and all that they go on under")]
    fn switch(
        &self,
        response: Response<Incoming>,
        asked: Asked,
        switched: oneshot::Receiver<Switched>,
        lend: Lend,
        evidence: Option<Arc<Evidence>>,
        plan: &Arc<Plan>,
        notes: &Notes,
    ) -> Reply {
        let upstream = lend.upstream();
        let bounds = tunnel::Bounds {
            idle: upstream.tunnel_idle,
            farewell: upstream.response_timeout,
            drain: plan.listener.timeouts.drain / 2,
        };
        let (mut head, _) = response.into_parts();
        hygiene::clean(&mut head.headers, &plan.fields);
        asked.grant(&mut head.headers);
        let route = notes.route.get().map_or(self.metrics.unrouted(), |id| self.metrics.route(id));
        let fenced = evidence.is_some();
        let (taker, client) = oneshot::channel();
        let body = Body::parting(taker);
        let tunnel = Tunnel {
            client,
            upstream: switched,
            lend,
            evidence,
            clock: self.clock.clone(),
            bounds,
            drain: self.drain.clone(),
            counts: Counts { _permit: notes.permit.get().cloned(), _tunnels: route.tunnel() },
        };
        if fenced {
            return Response::from_parts(head, body.tunnel(tunnel));
        }
        self.running.spawn_local(async move { tunnel.run(UNBOUNDED).await });
        Response::from_parts(head, body)
    }

    /// The answer to a dispatch: what a guard says of it is read here, and so is the word of an upstream that compares.
    async fn fenced(&self, answer: Answer<'_>, token: Token, notes: &Notes) -> Result<Reply, Failed> {
        let (upstream, headers) = (answer.upstream, answer.response.headers());
        match upstream.fencing {
            Level::None => return Ok(answer.reply(true)),
            Level::Upstream => {
                if refused_stale(answer.response.status(), headers) {
                    info!(upstream = %upstream.name, %token, "upstream.refused_stale");
                    self.metrics.guard_refused(notes.route.get(), Reason::Stale);
                    notes.retires.set(true);
                }
                return Ok(answer.reply(true));
            }
            Level::Guard => {}
        }
        let account = Account::read(headers);
        if !account.is_of_a_guard() {
            error!(upstream = %upstream.name, %token, "an answer to a dispatch that no guard has seen");
            notes.retires.set(true);
        }
        if account.hop_seen {
            self.guards.relayed(upstream);
        }
        notes.replayed.set(account.replayed);
        notes.observed.set(account.observed);
        let judged = account.judge(answer.response.status(), self.guards.is_direct(upstream));
        if let (true, Some(store)) = (account.has_let_in(), answer.lend.store()) {
            self.guards.let_in(store, token.number());
        }
        let Err(refusal) = judged else { return Ok(answer.reply(true)) };
        self.metrics.guard_refused(notes.route.get(), account.word().unwrap_or(refusal.reason));
        answer.spent().await;
        Err(Failed::Refused(refusal))
    }

    /// The exchange broke before its answer. The gate, not the HTTP library, knows what was written.
    fn failed(&self, failed: NotAnswered, lend: &mut Lend, upstream: &Upstream) -> Failed {
        // From here on the count cannot grow.
        lend.gate().shut(Why::Abandoned);
        let sent = if lend.gate().written() == 0 { Sent::Nothing } else { Sent::Something };
        let cause = if lend.gate().lost_its_proof() { Cause::ProofLost } else { Cause::Closed };
        let detail = format!("{}: {}", lend.endpoint(), failed.why);
        if is_of_the_client(&failed.why) {
            let reason = if sent == Sent::Nothing { Reason::Malformed } else { Reason::BodyBroken };
            return Failed::Refused(Refusal::new(reason, detail));
        }
        self.metrics.upstream_error(&upstream.name, if sent == Sent::Nothing { "unsent" } else { "broken" });
        let reused = lend.link().reused;
        if cause == Cause::Closed && !(reused && sent == Sent::Nothing) {
            lend.failed();
        }
        match (retry::again(cause, sent), sent, failed.back) {
            (Again::FreshConnection | Again::OtherEndpoint, _, Some(back)) => {
                Failed::Unsent { back: Box::new(back), reused }
            }
            (_, Sent::Something, _) => Failed::Refused(Refusal::new(Reason::OutcomeUnknown, detail)),
            (_, Sent::Nothing, _) if cause == Cause::ProofLost => {
                Failed::Refused(Refusal::new(Reason::Suspended, detail))
            }
            (_, Sent::Nothing, _) => Failed::Refused(Refusal::new(Reason::UpstreamConnect, detail)),
        }
    }
}

/// The library takes `chunked` off, and nothing else: the client would get bytes in a coding that no field tells of.
fn is_coded(headers: &HeaderMap) -> bool {
    headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// It was the body of the request that broke or did not come, not the service: slow clients must not look like an
/// endpoint that is ill.
fn is_of_the_client(error: &hyper::Error) -> bool {
    let body = error.source().and_then(|cause| cause.downcast_ref::<BodyError>());
    error.is_user() && matches!(body, Some(BodyError::Http(_) | BodyError::Stalled(_)))
}

/// Returns when the hold may be over and nobody at the upstream would notice. Where the upstream compares tokens, what
/// was written in full is waited for: its answer is the truth.
pub async fn evidence_needed(evidence: Option<&Evidence>, level: Level, clock: &SharedClock) {
    match (evidence, level) {
        (Some(evidence), Level::None) => evidence.lapsed(clock).await,
        (None, _) | (_, Level::Guard | Level::Upstream) => std::future::pending().await,
    }
}

/// Given up before an answer: what was written decides what is known.
fn given_up(gate: &Gate, reason: Reason, detail: String) -> Refusal {
    gate.shut(Why::Abandoned);
    match gate.written() {
        0 if reason == Reason::OutcomeUnknown => Refusal::new(Reason::Suspended, detail),
        0 => Refusal::new(Reason::UpstreamConnect, format!("not a byte could be written; {detail}")),
        _ => Refusal::new(reason, detail),
    }
}

/// A fenced request was here in full, so its time runs from its dispatch. An unfenced one may be a long upload: its
/// time runs from the last byte that went up.
fn too_late(progress: Progress, limit: Duration, fenced: bool) -> impl Future<Output = ()> {
    let began = Instant::now();
    async move {
        let mut last = began;
        loop {
            sleep_until(last + limit).await;
            let moved = progress.last().max(began);
            if fenced || moved == last {
                return;
            }
            last = moved;
        }
    }
}

/// `Keep-Alive: timeout=N`: how long the upstream keeps an idle connection.
fn keep_alive(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("keep-alive")?.to_str().ok()?;
    let timeout = text.split(',').find_map(|parameter| parameter.trim().strip_prefix("timeout="))?;
    timeout.parse().ok().map(Duration::from_secs)
}

/// The head of an answer, and the connection that the rest of it comes from.
struct Answer<'a> {
    response: Response<Incoming>,
    lend: Lend,
    upstream: &'a Upstream,
    plan: &'a Arc<Plan>,
}

impl Answer<'_> {
    /// `fenced`: whoever reads it to its end gives the connection back.
    fn reply(self, fenced: bool) -> Reply {
        let Self { response, mut lend, upstream, plan } = self;
        let (mut head, incoming) = response.into_parts();
        if head.headers.contains_key(TRANSFER_ENCODING) {
            // The library took the coding; a length beside it would be believed by the client (RFC 9112, 6.3).
            head.headers.remove(CONTENT_LENGTH);
        }
        if let Some(longest) = keep_alive(&head.headers) {
            lend.keep_at_most(longest);
        }
        hygiene::clean(&mut head.headers, &plan.fields);
        // Of this hop: an answer of unknown length to HTTP/1.0 would look complete when it breaks.
        head.version = Version::HTTP_11;
        let (trailers, idle) = (Trailers::Clean(plan.clone()), upstream.response_body_idle);
        Response::from_parts(head, Body::from_upstream(incoming, trailers, idle, lend, fenced))
    }

    /// A refusal of a guard is read to its end, so that the connection can be used again. It is short.
    async fn spent(self) {
        let mut body = self.reply(true).into_body();
        let mut left = LONGEST_REFUSAL;
        while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
        body.settled().await;
    }
}

const LONGEST_REFUSAL: usize = 64 << 10;
/// A tunnel that holds nothing ends when it is idle.
const UNBOUNDED: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A comparing upstream says that it has refused; of any other 412 it is not known why.
fn refused_stale(status: StatusCode, headers: &HeaderMap) -> bool {
    match headers.get(FENCING_REFUSAL) {
        Some(word) if status == StatusCode::PRECONDITION_FAILED && word == "stale" => true,
        Some(word) => {
            warn!(?word, "unknown refusal of an upstream");
            false
        }
        None => false,
    }
}

/// An endpoint that says that it, or what it speaks for, is out of order. A guard's refusal is no such word.
fn judge_endpoint(lend: &Lend, response: &Response<Incoming>) {
    let sick = matches!(response.status().as_u16(), 502..=504);
    if sick && !Account::read(response.headers()).is_of_a_guard() { lend.failed() } else { lend.worked() }
}

fn not_connected_kind(error: &NotConnected) -> &'static str {
    match error {
        NotConnected::Full => "full",
        NotConnected::Io { .. } | NotConnected::Distrusted { .. } | NotConnected::Everywhere => "connect",
    }
}

fn not_connected(error: &NotConnected) -> Refusal {
    let reason = match error {
        NotConnected::Io { .. } | NotConnected::Everywhere => Reason::UpstreamConnect,
        NotConnected::Full => Reason::Overloaded,
        NotConnected::Distrusted { why: Distrust::Split, .. } => Reason::GuardSplit,
        NotConnected::Distrusted { .. } => Reason::Guard,
    };
    Refusal::new(reason, error.to_string())
}
