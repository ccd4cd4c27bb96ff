//! One worker's view of what is counted: the series of its routes, looked up once.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use fencegate_http::listen::metrics::ClientMetrics;
use fencegate_lock::tenures::keeper::Refused;
use fencegate_policies::plan::{Mode, Plan, Route, RouteId};
use fencegate_process::counted::Counted;
use hyper::StatusCode;
use prometheus::{Histogram, IntCounter, IntGauge};

use super::{
    Metrics,
    waits::{Waiting, Waits},
};
use crate::refusal::Reason;

/// Label of requests that no route took.
const UNROUTED: &str = "none";

/// One worker's view: the series of its routes, looked up once.
pub struct WorkerMetrics {
    all: Arc<Metrics>,
    routes: Vec<RouteMetrics>,
    unrouted: RouteMetrics,
    /// Those met so far; a handful.
    upstreams: RefCell<Vec<Answers>>,
}

/// The answers of one upstream that are of one class.
struct Answers {
    upstream: String,
    class: &'static str,
    seconds: Histogram,
}

/// The series of one route. Those that a request keeps are counted here, and not by all workers together.
pub struct RouteMetrics {
    all: Arc<Metrics>,
    name: Arc<str>,
    seconds: Histogram,
    in_flight: Rc<IntGauge>,
    waiters: Rc<IntGauge>,
    tunnels: Rc<IntGauge>,
    waits: Arc<Waits>,
    /// By mode.
    held: [Rc<IntGauge>; 2],
    warm: [IntCounter; 2],
    hold: Rc<Histogram>,
    wait: Histogram,
    handoffs: IntCounter,
    /// Those met so far.
    codes: RefCell<Vec<(StatusCode, IntCounter)>>,
}

/// In the order of their discriminants.
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// What came of asking for a lock.
pub enum Acquired<'a> {
    /// Held by this gateway, and free.
    Warm,
    AtOnce,
    Waited,
    /// From a request of this gateway that was before.
    HandedOn,
    ClientGone,
    Refused(&'a Refused),
}

impl Acquired<'_> {
    /// What came of it, and whether another holder was before us.
    fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Warm => ("warm", "no"),
            Self::AtOnce => ("granted", "no"),
            Self::Waited | Self::HandedOn => ("granted", "yes"),
            Self::ClientGone => ("client-gone", "yes"),
            Self::Refused(Refused::Locked) => ("locked", "yes"),
            Self::Refused(Refused::QueueFull) => ("queue-full", "yes"),
            Self::Refused(Refused::Elsewhere(_)) => SENT_ON,
            Self::Refused(Refused::NotHolder) => ("not-holder", "yes"),
            Self::Refused(Refused::KeyLimit(_)) => ("key-limit", "no"),
            Self::Refused(Refused::Service(_) | Refused::NotInitialised(_)) => ("lock-service", "no"),
            Self::Refused(Refused::RolledBack(_)) => ("rolled-back", "no"),
        }
    }
}

/// Another gateway keeps the key, and is asked instead.
const SENT_ON: (&str, &str) = ("forwarded", "yes");

/// What came of sending a request on to the gateway that keeps its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// That gateway's answer was passed on.
    Answered,
    /// Nothing was dispatched, and it queued here.
    Back,
    /// Its client went away while the other gateway had it.
    Gone,
    /// Nobody knows what came of it.
    Unknown,
}

impl Forwarding {
    pub(super) const ALL: [Self; 4] = [Self::Answered, Self::Back, Self::Gone, Self::Unknown];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Back => "back",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

/// All that can be counted of asking for locks: mode, and what came of it.
pub(super) fn acquisitions() -> impl Iterator<Item = (&'static str, (&'static str, &'static str))> {
    let refused = [
        Refused::Locked,
        Refused::QueueFull,
        Refused::NotHolder,
        Refused::KeyLimit(""),
        Refused::Service(String::new()),
        Refused::RolledBack(String::new()),
    ];
    let refused = refused.map(|refused| Acquired::Refused(&refused).words()).into_iter().chain([SENT_ON]);
    let others = [Acquired::Warm, Acquired::AtOnce, Acquired::Waited, Acquired::ClientGone];
    let words = others.map(|result| result.words()).into_iter().chain(refused);
    words.flat_map(|words| MODES.map(|mode| (mode.word(), words)))
}

impl WorkerMetrics {
    pub fn new(all: Arc<Metrics>, plan: &Plan) -> Self {
        let route =
            |route: &Route| RouteMetrics::new(all.clone(), route.name.clone(), all.waits(&route.name));
        Self {
            routes: plan.routes.routes().iter().map(route).collect(),
            unrouted: RouteMetrics::new(all.clone(), UNROUTED.into(), Arc::default()),
            upstreams: RefCell::default(),
            all: all.clone(),
        }
    }

    pub fn route(&self, id: RouteId) -> &RouteMetrics {
        self.routes.get(id.0).unwrap_or(&self.unrouted)
    }

    pub fn unrouted(&self) -> &RouteMetrics {
        &self.unrouted
    }

    pub fn clients(&self) -> &ClientMetrics {
        &self.all.clients
    }

    pub fn upstream_answered(&self, upstream: &str, status: StatusCode, took: Duration) {
        let class = class(status);
        let mut known = self.upstreams.borrow_mut();
        let seconds = known.iter().find(|series| series.class == class && series.upstream == upstream);
        match seconds {
            Some(series) => series.seconds.observe(took.as_secs_f64()),
            None => {
                let seconds = self.all.upstream_seconds.with_label_values(&[upstream, class]);
                seconds.observe(took.as_secs_f64());
                known.push(Answers { upstream: upstream.to_owned(), class, seconds });
            }
        }
    }

    pub fn upstream_error(&self, upstream: &str, kind: &'static str) {
        self.all.upstream_errors.with_label_values(&[upstream, kind]).inc();
    }

    /// The upstream compares, and knew a newer token.
    pub fn refused_stale(&self, route: Option<RouteId>) {
        let route = route.map_or(&self.unrouted, |id| self.route(id));
        self.all.refused_stale.with_label_values(&[route.name()]).inc();
    }

    pub fn guard_refused(&self, route: Option<RouteId>, reason: Reason) {
        let route = route.map_or(&self.unrouted, |id| self.route(id));
        self.all.guard_refusals.with_label_values(&[route.name(), reason.word()]).inc();
    }

    pub fn retried(&self, upstream: &str) {
        self.all.retries.with_label_values(&[upstream]).inc();
    }
}

/// An upstream may answer any number from 100 to 999; the class of it cannot make series without bound.
fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}

impl RouteMetrics {
    fn new(all: Arc<Metrics>, name: Arc<str>, waits: Arc<Waits>) -> Self {
        let label: &[&str] = &[&name];
        Self {
            seconds: all.request_seconds.with_label_values(label),
            in_flight: Rc::new(all.in_flight.with_label_values(label)),
            waiters: Rc::new(all.waiters.with_label_values(label)),
            tunnels: Rc::new(all.tunnels.with_label_values(label)),
            waits,
            held: MODES.map(|mode| Rc::new(all.held.with_label_values(&[&*name, mode.word()]))),
            warm: MODES.map(|mode| all.acquisitions.with_label_values(&[&*name, mode.word(), "warm", "no"])),
            hold: Rc::new(all.lock_hold.with_label_values(label)),
            wait: all.lock_wait.with_label_values(label),
            handoffs: all.handoffs.with_label_values(label),
            codes: RefCell::default(),
            all: all.clone(),
            name,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A request was answered.
    pub fn answered(&self, status: StatusCode, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        let mut codes = self.codes.borrow_mut();
        match codes.iter().find(|(known, _)| *known == status) {
            Some((_, counter)) => counter.inc(),
            None => {
                // A number that is no known status is counted by its class: an upstream could send any.
                let known = status.canonical_reason().is_some();
                let code = if known { status.as_str() } else { class(status) };
                let counter = self.all.requests.with_label_values(&[&*self.name, code]);
                counter.inc();
                codes.push((status, counter));
            }
        }
    }

    /// The client went away before its answer: counted under 499, as nginx does.
    pub fn abandoned(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        self.all.requests.with_label_values(&[&*self.name, "499"]).inc();
    }

    pub fn rejected(&self, reason: Reason) {
        self.all.rejections.with_label_values(&[&*self.name, reason.word()]).inc();
    }

    pub fn forwarded(&self, result: Forwarding) {
        self.all.forwarded.with_label_values(&[&*self.name, result.word()]).inc();
    }

    pub fn outcome_unknown(&self) {
        self.all.outcome_unknown.with_label_values(&[&self.name]).inc();
    }

    pub fn in_flight(&self) -> Counted {
        Counted::up(&self.in_flight)
    }

    pub fn tunnel(&self) -> Counted {
        Counted::up(&self.tunnels)
    }

    pub fn waiting(&self) -> Waiting {
        self.waits.enter(Counted::up(&self.waiters))
    }

    pub fn holding(&self, mode: Mode) -> Holding {
        Holding {
            _held: Counted::up(&self.held[mode as usize]),
            seconds: self.hold.clone(),
            since: Instant::now(),
        }
    }

    pub fn acquired(&self, result: Acquired<'_>, mode: Mode, waited: Duration) {
        if let Acquired::Warm = result {
            // The hot path: no look-up.
            self.wait.observe(0.0);
            return self.warm[mode as usize].inc();
        }
        if let Acquired::HandedOn = result {
            self.handoffs.inc();
        }
        let (result, contended) = result.words();
        if result == "granted" {
            self.wait.observe(waited.as_secs_f64());
        }
        self.all.acquisitions.with_label_values(&[&*self.name, mode.word(), result, contended]).inc();
    }
}

/// A lock while it is held.
pub struct Holding {
    _held: Counted,
    seconds: Rc<Histogram>,
    since: Instant,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.seconds.observe(self.since.elapsed().as_secs_f64());
    }
}
