//! What the gateway counts, under the names that its dashboards and alerts use.
//!
//! Labels come from the configuration or from enums, never from a request: traffic cannot make series.

mod guard;
mod session;
mod waits;

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fencegate_policies::plan::{self, Gateway, Mode, Plan, RouteId};
use hyper::StatusCode;
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use self::waits::Waits;
pub use self::{guard::GuardMetrics, session::SessionMetrics, waits::Waiting};
use crate::{lock::keeper::Refused, refusal::Reason};

/// Every family of this process.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    in_flight: IntGaugeVec,
    rejections: IntCounterVec,
    outcome_unknown: IntCounterVec,
    acquisitions: IntCounterVec,
    lock_wait: HistogramVec,
    lock_hold: HistogramVec,
    waiters: IntGaugeVec,
    oldest_waiter: GaugeVec,
    wait_limit: GaugeVec,
    /// By route, in the order of the plan.
    waits: Vec<(Arc<str>, Arc<Waits>)>,
    held: IntGaugeVec,
    upstream_seconds: HistogramVec,
    upstream_errors: IntCounterVec,
    retries: IntCounterVec,
    guard_refusals: IntCounterVec,
    session: SessionMetrics,
    guard: GuardMetrics,
}

/// Label of requests that no route took.
const UNROUTED: &str = "none";

/// Seconds; up to the longest wait and answer that a policy is likely to allow.
const SHORT: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Seconds; holds last as long as what is done under them.
const LONG: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

impl Metrics {
    pub fn of_gateway(gateway: &Gateway) -> Arc<Self> {
        let registry = registry();
        let (session, guard) = (SessionMetrics::register(&registry), GuardMetrics::register(&nobodys()));
        let metrics = Self::new(&gateway.serving, session, guard, registry);
        metrics.describe(gateway);
        Arc::new(metrics)
    }

    pub fn of_guard(guard: &plan::Guard) -> Arc<Self> {
        let registry = registry();
        let (session, own) = (SessionMetrics::register(&nobodys()), GuardMetrics::register(&registry));
        let metrics = Self::new(&guard.serving, session, own, registry);
        metrics.describe_build();
        Arc::new(metrics)
    }

    fn new(serving: &Plan, session: SessionMetrics, guard: GuardMetrics, registry: Registry) -> Self {
        let counters = |name, help, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges = |name, help, labels: &[&str]| {
            registered(&registry, IntGaugeVec::new(Opts::new(name, help), labels))
        };
        let seconds = |name, help, buckets: &[f64], labels: &[&str]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            registered(&registry, HistogramVec::new(opts, labels))
        };
        Self {
            requests: counters("requests_total", "Answers, by route and status.", &["route", "code"]),
            request_seconds: seconds(
                "request_seconds",
                "From request head to answer head.",
                SHORT,
                &["route"],
            ),
            in_flight: gauges("requests_in_flight", "Requests without an answer yet.", &["route"]),
            rejections: counters("rejections_total", "Answers of our own, by reason.", &["route", "reason"]),
            outcome_unknown: counters(
                "outcome_unknown_total",
                "Requests that may have taken effect without a complete answer.",
                &["route"],
            ),
            acquisitions: counters(
                "lock_acquisitions_total",
                "Requests for a lock, by what came of them.",
                &["route", "mode", "result", "contended"],
            ),
            lock_wait: seconds(
                "lock_wait_seconds",
                "From asking for a lock to its grant.",
                SHORT,
                &["route"],
            ),
            lock_hold: seconds("lock_hold_seconds", "From grant to the end of the tenure.", LONG, &["route"]),
            oldest_waiter: registered(
                &registry,
                GaugeVec::new(
                    Opts::new("oldest_waiter_seconds", "How long the oldest waiting request has waited."),
                    &["route"],
                ),
            ),
            wait_limit: registered(
                &registry,
                GaugeVec::new(
                    Opts::new("route_wait_limit_seconds", "How long a request waits for a lock at most."),
                    &["route"],
                ),
            ),
            waits: serving.routes.routes().iter().map(|route| (route.name.clone(), Arc::default())).collect(),
            waiters: gauges("lock_waiters", "Requests that wait for a lock.", &["route"]),
            held: gauges("locks_held", "Locks held.", &["route", "mode"]),
            upstream_seconds: seconds(
                "upstream_seconds",
                "From sending to the head of the answer.",
                SHORT,
                &["upstream", "code"],
            ),
            upstream_errors: counters(
                "upstream_errors_total",
                "Exchanges without an answer.",
                &["upstream", "kind"],
            ),
            retries: counters(
                "retries_total",
                "Requests sent again because nothing of them had been sent.",
                &["upstream"],
            ),
            guard_refusals: counters(
                "guard_refusals_total",
                "Dispatches that a guard did not let in, or whose outcome it does not know, by its word.",
                &["route", "reason"],
            ),
            session,
            guard,
            registry,
        }
    }

    fn describe_build(&self) {
        let build =
            Opts::new("build_info", "The running build.").const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&self.registry, IntGauge::with_opts(build)).set(1);
    }

    fn describe(&self, gateway: &Gateway) {
        self.describe_build();
        let config =
            Opts::new("config_info", "The plan in force; equal among gateways whose locks mean the same.")
                .const_label("fingerprint", format!("{:016x}", gateway.fingerprint));
        registered(&self.registry, IntGauge::with_opts(config)).set(1);
        for route in gateway.serving.routes.routes() {
            if let Some(fence) = &route.fence {
                self.wait_limit.with_label_values(&[&*route.name]).set(fence.wait.as_secs_f64());
            }
        }
    }

    /// Of the session with this number.
    pub fn session(&self, number: usize) -> SessionMetrics {
        self.session.numbered(number)
    }

    pub fn guard(&self) -> GuardMetrics {
        self.guard.clone()
    }

    /// The text format that Prometheus scrapes.
    pub fn render(&self) -> Vec<u8> {
        for (route, waits) in &self.waits {
            self.oldest_waiter.with_label_values(&[&**route]).set(waits.oldest().as_secs_f64());
        }
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("writing to memory does not fail");
        text
    }
}

fn registry() -> Registry {
    Registry::new_custom(Some("fencegate".into()), None).expect("the prefix is a name")
}

/// Of the other role's families: nobody scrapes it.
fn nobodys() -> Registry {
    registry()
}

fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let collector = made.expect("names and labels are well-formed");
    registry.register(Box::new(collector.clone())).expect("every name is registered once");
    collector
}

/// One worker's view: the series of its routes, looked up once.
pub struct WorkerMetrics {
    all: Arc<Metrics>,
    routes: Vec<RouteMetrics>,
    unrouted: RouteMetrics,
}

/// The series of one route.
pub struct RouteMetrics {
    all: Arc<Metrics>,
    name: Arc<str>,
    seconds: Histogram,
    in_flight: IntGauge,
    waiters: IntGauge,
    waits: Arc<Waits>,
    /// By mode.
    held: [IntGauge; 2],
    warm: [IntCounter; 2],
    hold: Histogram,
    wait: Histogram,
    codes: RefCell<HashMap<StatusCode, IntCounter>>,
}

/// In the order of their discriminants.
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// What came of asking for a lock.
pub enum Acquired<'a> {
    /// Held by this gateway, and free.
    Warm,
    AtOnce,
    Waited,
    ClientGone,
    Refused(&'a Refused),
}

impl WorkerMetrics {
    /// `all` was made of the same plan.
    pub fn new(all: Arc<Metrics>) -> Self {
        let route = |(name, waits): &(Arc<str>, Arc<Waits>)| {
            RouteMetrics::new(all.clone(), name.clone(), waits.clone())
        };
        Self {
            routes: all.waits.iter().map(route).collect(),
            unrouted: RouteMetrics::new(all.clone(), UNROUTED.into(), Arc::default()),
            all: all.clone(),
        }
    }

    pub fn route(&self, id: RouteId) -> &RouteMetrics {
        self.routes.get(id.0).unwrap_or(&self.unrouted)
    }

    pub fn unrouted(&self) -> &RouteMetrics {
        &self.unrouted
    }

    pub fn upstream_answered(&self, upstream: &str, status: StatusCode, took: Duration) {
        self.all.upstream_seconds.with_label_values(&[upstream, class(status)]).observe(took.as_secs_f64());
    }

    pub fn upstream_error(&self, upstream: &str, kind: &'static str) {
        self.all.upstream_errors.with_label_values(&[upstream, kind]).inc();
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
            in_flight: all.in_flight.with_label_values(label),
            waiters: all.waiters.with_label_values(label),
            waits,
            held: MODES.map(|mode| all.held.with_label_values(&[&*name, mode.word()])),
            warm: MODES.map(|mode| all.acquisitions.with_label_values(&[&*name, mode.word(), "warm", "no"])),
            hold: all.lock_hold.with_label_values(label),
            wait: all.lock_wait.with_label_values(label),
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
        let code = status.as_u16();
        // A number that is no known status is counted by its class: an upstream could send any.
        let known = status.canonical_reason().map_or_else(|| class(status).to_owned(), |_| code.to_string());
        let counter = codes
            .entry(status)
            .or_insert_with(|| self.all.requests.with_label_values(&[&*self.name, &known]));
        counter.inc();
    }

    /// The client went away before its answer: counted under 499, as nginx does.
    pub fn abandoned(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        self.all.requests.with_label_values(&[&*self.name, "499"]).inc();
    }

    pub fn rejected(&self, reason: Reason) {
        self.all.rejections.with_label_values(&[&*self.name, reason.word()]).inc();
    }

    pub fn outcome_unknown(&self) {
        self.all.outcome_unknown.with_label_values(&[&self.name]).inc();
    }

    pub fn in_flight(&self) -> Counted {
        Counted::up(&self.in_flight)
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
        let (result, contended) = match result {
            Acquired::Warm => ("warm", "no"),
            Acquired::AtOnce => ("granted", "no"),
            Acquired::Waited => ("granted", "yes"),
            Acquired::ClientGone => ("client-gone", "yes"),
            Acquired::Refused(Refused::Locked) => ("locked", "yes"),
            Acquired::Refused(Refused::QueueFull) => ("queue-full", "yes"),
            Acquired::Refused(Refused::KeyLimit(_)) => ("key-limit", "no"),
            Acquired::Refused(Refused::Service(_)) => ("lock-service", "no"),
        };
        if result == "granted" {
            self.wait.observe(waited.as_secs_f64());
        }
        self.all.acquisitions.with_label_values(&[&*self.name, mode.word(), result, contended]).inc();
    }
}

/// Adds one to a gauge while it lives.
pub struct Counted(IntGauge);

impl Counted {
    fn up(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A lock while it is held.
pub struct Holding {
    _held: Counted,
    seconds: Histogram,
    since: Instant,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.seconds.observe(self.since.elapsed().as_secs_f64());
    }
}
