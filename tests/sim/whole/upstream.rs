//! The service behind the gateways and the guard. It records every execution, and finishes the execution even if the
//! connection breaks.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use fencegate_http::network::Accept as _;
use fencegate_policies::token::FencingToken;
use fencegate_process::clock::SharedClock;
use fencegate_proxy::steps::filter;
use fencegate_tests::{
    history::{ATTEMPT, Execution},
    origin::AccessMode,
};
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    task::spawn_local,
    time::{Instant, sleep, timeout},
};
use tracing::info;

use super::{
    addresses::{CLOCK_ERROR, OTHER_PORT, PORT},
    exchange::send,
    network::SimHost,
    process::SimProcess,
    schedule::UpstreamPath,
};

/// A request header: the milliseconds that the upstream works on the request.
pub(super) const WORKS: &str = "x-works";
/// A request header: the milliseconds after which a proxy between guard and upstream answers 504, while the upstream
/// works on.
pub(super) const RELAYED: &str = "x-relayed";
/// A request header: the number of the gateway through which the upstream calls back during its work.
pub(super) const CALLS: &str = "x-calls";
/// A header of a callback: the token of the execution that calls back.
const CALLED_FROM: &str = "x-called-from";

pub(super) struct SimUpstream {
    /// The host from which the upstream calls back.
    host: SimHost,
    guarded: RefCell<Vec<UpstreamExecution>>,
    bare: RefCell<Vec<UpstreamExecution>>,
    /// The names of finished operations, of all clients.
    done: RefCell<BTreeSet<String>>,
    busy: Cell<usize>,
    filters: bool,
    /// The clock of the filter.
    clock: SharedClock,
    /// The number of requests that the filter has refused.
    refused: Cell<u64>,
    /// The total time that the upstream has been paused.
    stood_still: Cell<Duration>,
    stands: Cell<bool>,
    running: RefCell<Option<SimProcess>>,
}

/// One execution.
struct UpstreamExecution {
    execution: Execution,
    /// The token of the execution that made this callback. It waits for the callback, so both are in flight
    /// together.
    caller: Option<FencingToken>,
}

/// The error by which the filter closes the connection of a late request, so that no proxy takes the refusal for a
/// response of the service.
#[derive(Debug)]
struct ExpiredRequestError;

impl fmt::Display for ExpiredRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too late")
    }
}

impl std::error::Error for ExpiredRequestError {}

/// The port at which a request arrived.
#[derive(Debug, Clone, Copy)]
enum UpstreamEntrance {
    Guarded,
    Bare,
}

impl SimUpstream {
    /// Starts the upstream, which listens at both ports.
    pub(super) fn start(host: &SimHost, way: UpstreamPath, clock: SharedClock) -> Rc<Self> {
        let upstream = Rc::new(Self {
            host: host.clone(),
            guarded: RefCell::default(),
            bare: RefCell::default(),
            done: RefCell::default(),
            busy: Cell::new(0),
            filters: way == UpstreamPath::Filtered,
            clock,
            refused: Cell::new(0),
            stood_still: Cell::default(),
            stands: Cell::default(),
            running: RefCell::default(),
        });
        if way == UpstreamPath::Direct {
            upstream.spawn_listeners();
        } else {
            let serves = upstream.clone();
            let process = SimProcess::start("upstream", async move {
                serves.spawn_listeners();
                std::future::pending().await
            });
            upstream.running.replace(Some(process));
        }
        upstream
    }

    /// Pauses the upstream for this time. Requests that arrive meanwhile stay in its buffer. If it is paused
    /// already, the call does nothing.
    pub(super) async fn stall(&self, time: Duration) {
        if self.stands.replace(true) {
            return;
        }
        self.with_process(SimProcess::freeze);
        sleep(time).await;
        self.stood_still.set(self.stood_still.get() + time);
        self.stands.set(false);
        self.with_process(SimProcess::thaw);
    }

    fn with_process(&self, does: impl FnOnce(&SimProcess)) {
        if let Some(process) = &*self.running.borrow() {
            does(process);
        }
    }

    fn spawn_listeners(self: &Rc<Self>) {
        for (port, entrance) in [(PORT, UpstreamEntrance::Guarded), (OTHER_PORT, UpstreamEntrance::Bare)] {
            let listener = self.host.bind_port(port);
            let served = self.clone();
            spawn_local(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let served = served.clone();
                    let taken_of = stream.last_accepted_at();
                    let answers =
                        service_fn(move |request| served.clone().serve(entrance, taken_of.clone(), request));
                    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answers);
                    // An error is ignored: accidents break connections on purpose.
                    spawn_local(async move { drop(connection.await) });
                }
            });
        }
    }

    /// The executions of requests from the guard.
    pub(super) fn guarded_executions(&self) -> Vec<Execution> {
        join_nested_calls(&self.guarded.borrow())
    }

    /// The executions of requests that came from gateways without a guard.
    pub(super) fn bare_executions(&self) -> Vec<Execution> {
        join_nested_calls(&self.bare.borrow())
    }

    /// The number of requests that the filter has refused.
    pub(super) fn refused_count(&self) -> u64 {
        self.refused.get()
    }

    /// True if nothing is executed at this moment.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.get() == 0
    }

    async fn serve(
        self: Rc<Self>,
        entrance: UpstreamEntrance,
        taken_of: Rc<Cell<Option<Instant>>>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, ExpiredRequestError> {
        let (head, body) = request.into_parts();
        if let Some(operation) = head.uri.path().strip_prefix("/probe/") {
            let done = self.done.borrow().contains(operation);
            info!(operation, done, "upstream.asked");
            return Ok(answer(if done { 200 } else { 404 }));
        }
        if body.collect().await.is_err() {
            return Ok(answer(400));
        }
        let path = head.uri.path().to_owned();
        let sent = taken_of.get();
        if self.is_refused(entrance, &head.headers) {
            info!(path, "upstream.refuses");
            self.refused.set(self.refused.get() + 1);
            return Err(ExpiredRequestError);
        }
        let (number, work) = self.begin(entrance, &path, &head.headers, sent);
        let relayed = head.headers.get(RELAYED).and_then(|patience| patience.to_str().ok()?.parse().ok());
        // Spawned, so that the work goes on when its connection ends.
        let working = spawn_local(async move {
            self.work(work / 2).await;
            self.call_back(&path, &head.headers).await;
            self.work(work / 2).await;
            self.end(entrance, number, &head.headers);
        });
        match relayed.map(Duration::from_millis) {
            None => drop(working.await),
            Some(patience) if timeout(patience, working).await.is_err() => {
                info!("upstream.answered_for");
                return Ok(answer(504));
            }
            Some(_) => {}
        }
        Ok(answer(200))
    }

    /// Acts as the filter: reads `Fencing-Not-After` by the real filter's code and another machine's clock. True if
    /// the request is late.
    fn is_refused(&self, entrance: UpstreamEntrance, headers: &HeaderMap) -> bool {
        let filtered = self.filters && matches!(entrance, UpstreamEntrance::Guarded);
        filtered && !matches!(filter::start_deadline(headers, &*self.clock, CLOCK_ERROR), Ok(Some(_)))
    }

    /// Works for this time. Time in which the upstream is paused does not count.
    async fn work(&self, time: Duration) {
        let mut left = time;
        loop {
            let before = self.stood_still.get();
            sleep(left).await;
            left = self.stood_still.get() - before;
            if left.is_zero() {
                return;
            }
        }
    }

    /// Calls back as a service does: it passes its token on, and requests its resource on a route with the same key.
    async fn call_back(&self, path: &str, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(gateway), Some(ticket)) = (text(CALLS), text("fencing-ticket")) else { return };
        let token = text("fencing-token").unwrap_or_default();
        let attempt = text(ATTEMPT).unwrap_or_default();
        let request = Request::post(format!("/call/{}", path.split('/').nth(2).unwrap_or_default()))
            .header("fencing-ticket", ticket)
            .header("fencing-token", token)
            .header(ATTEMPT, format!("called by {attempt}"))
            .header(CALLED_FROM, token)
            .header(WORKS, "40");
        let called = send(&self.host, gateway.parse().unwrap_or_default(), request, String::new());
        // With a short time limit for the callback, after which the execution goes on.
        let answered = timeout(Duration::from_secs(2), called).await;
        let status = answered.ok().and_then(|answered| answered.ok()).map(|(head, _)| head.status.as_u16());
        info!(token, status, "upstream.called");
    }

    fn executions(&self, entrance: UpstreamEntrance) -> &RefCell<Vec<UpstreamExecution>> {
        match entrance {
            UpstreamEntrance::Guarded => &self.guarded,
            UpstreamEntrance::Bare => &self.bare,
        }
    }

    /// Records the beginning of an execution. A request for several resources counts as one execution of each.
    fn begin(
        &self,
        entrance: UpstreamEntrance,
        path: &str,
        headers: &HeaderMap,
        sent: Option<Instant>,
    ) -> (Vec<usize>, Duration) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let token = text("fencing-token")
            .and_then(|token| FencingToken::parse(token).ok())
            .expect("a fenced request");
        let access = match text("fencing-mode") {
            Some("shared") => AccessMode::Shared,
            _ => AccessMode::Exclusive,
        };
        info!(%token, path, attempt = text(ATTEMPT), "upstream.begins");
        self.busy.set(self.busy.get() + 1);
        let mut executions = self.executions(entrance).borrow_mut();
        let mut numbers = Vec::new();
        for (at, resource) in path.split('/').skip(2).enumerate() {
            numbers.push(executions.len());
            let execution = Execution {
                // The resource itself, because the name of the gateway's key may change.
                key: resource.to_owned(),
                access,
                token,
                gateway: text("via").unwrap_or_default().to_owned(),
                attempt: text(ATTEMPT).filter(|_| at == 0).map(str::to_owned),
                sent: sent.map(Instant::into_std),
                began: Instant::now().into_std(),
                ended: None,
            };
            let caller = text(CALLED_FROM).and_then(|token| FencingToken::parse(token).ok());
            executions.push(UpstreamExecution { execution, caller });
        }
        let works = text(WORKS).and_then(|works| works.parse().ok()).expect("told by its client");
        (numbers, Duration::from_millis(works))
    }

    fn end(&self, entrance: UpstreamEntrance, numbers: Vec<usize>, headers: &HeaderMap) {
        let mut executions = self.executions(entrance).borrow_mut();
        for number in numbers {
            let UpstreamExecution { execution, .. } = &mut executions[number];
            execution.ended = Some(Instant::now().into_std());
            info!(token = %execution.token, "upstream.ends");
        }
        if let Some(operation) = headers.get("idempotency-key").and_then(|name| name.to_str().ok()) {
            self.done.borrow_mut().insert(operation.to_owned());
        }
        self.busy.set(self.busy.get() - 1);
    }
}

/// Joins each execution with its callbacks. They count as one execution, which ends when the last of them has ended.
fn join_nested_calls(all: &[UpstreamExecution]) -> Vec<Execution> {
    let mut alone: Vec<Execution> = Vec::new();
    for UpstreamExecution { execution, caller } in all {
        let called = |before: &&mut Execution| before.key == execution.key && Some(before.token) == *caller;
        match alone.iter_mut().find(called) {
            // `zip` gives `None`, an execution that has not ended, if either of the two has not ended.
            Some(caller) => {
                caller.ended = caller.ended.zip(execution.ended).map(|(one, other)| one.max(other))
            }
            None => alone.push(execution.clone()),
        }
    }
    alone
}

fn answer(status: u16) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(b"{}")));
    *answer.status_mut() = status.try_into().expect("a status");
    answer
}
