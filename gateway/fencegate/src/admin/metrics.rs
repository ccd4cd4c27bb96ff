//! What the gateway counts, under the names that its dashboards and alerts use.
//!
//! Labels come from the configuration or from enums, never from a request: traffic cannot make series.

mod waits;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

pub use fencegate_guard::metrics::GuardMetrics;
use fencegate_http::{
    buffered::metrics::BufferedMetrics, listen::metrics::ClientMetrics, upstream::metrics::EndpointMetrics,
};
use fencegate_lock::metrics::SessionMetrics;
use fencegate_policies::plan::{Forward, Gateway, Level};
use fencegate_process::families::{Families, LONG, SHORT};
pub use fencegate_process::gathered::Gathered;
pub use fencegate_process::{families::Family, spread::Spread};
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};
use serde::{Deserialize, Serialize};

use self::waits::Waits;
pub use self::{
    waits::Waiting,
    worker::{Acquired, Forwarding, Holding, RouteMetrics, WorkerMetrics},
};
use crate::refusal::Reason;

/// Every family of this process.
pub struct Metrics {
    families: Families,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    in_flight: IntGaugeVec,
    rejections: IntCounterVec,
    outcome_unknown: IntCounterVec,
    acquisitions: IntCounterVec,
    lock_wait: HistogramVec,
    lock_hold: HistogramVec,
    waiters: IntGaugeVec,
    handoffs: IntCounterVec,
    forwarded: IntCounterVec,
    keys: IntGauge,
    /// How many there are, where anybody counts.
    counted_keys: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
    tunnels: IntGaugeVec,
    oldest_waiter: GaugeVec,
    wait_limit: GaugeVec,
    /// By route. One that a reload has removed stays, because requests of it may still run.
    waits: Mutex<HashMap<Arc<str>, Arc<Waits>>>,
    config: IntGaugeVec,
    reloads: IntCounterVec,
    reload_successful: IntGauge,
    access_lost: IntCounter,
    spans_lost: IntCounter,
    held: IntGaugeVec,
    upstream_seconds: HistogramVec,
    upstream_errors: IntCounterVec,
    retries: IntCounterVec,
    refused_stale: IntCounterVec,
    guard_refusals: IntCounterVec,
    session: SessionMetrics,
    guard: GuardMetrics,
    endpoints: EndpointMetrics,
    clients: ClientMetrics,
    buffered: BufferedMetrics,
}

/// What came of reading the file again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reloaded {
    Applied,
    /// It means what the plan in force means.
    Unchanged,
    Refused,
    /// Nothing was to be changed.
    Dry,
}

impl Reloaded {
    pub fn word(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
            Self::Dry => "dry",
        }
    }
}

/// Why an exchange with an upstream had no answer.
const UPSTREAM_ERRORS: [&str; 7] = ["connect", "full", "timeout", "proof", "protocol", "unsent", "broken"];

impl Metrics {
    pub fn of_gateway(gateway: &Gateway) -> Arc<Self> {
        let families = Families::new().with_process();
        let (session, guard) = (SessionMetrics::register(&families), GuardMetrics::register(&nobodys()));
        let metrics = Self::new(session, guard, families);
        metrics.describe_build();
        metrics.turn_to(gateway);
        Arc::new(metrics)
    }

    pub fn of_guard() -> Arc<Self> {
        let families = Families::new().with_process();
        let (session, own) = (SessionMetrics::register(&nobodys()), GuardMetrics::register(&families));
        let metrics = Self::new(session, own, families);
        metrics.describe_build();
        Arc::new(metrics)
    }

    fn new(session: SessionMetrics, guard: GuardMetrics, families: Families) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges =
            |name, help, labels: &[&str]| families.register(IntGaugeVec::new(Opts::new(name, help), labels));
        let seconds = |name, help, buckets: &[f64], labels: &[&str]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            families.register(HistogramVec::new(opts, labels))
        };
        Self {
            requests: counters("requests_total", "Answers, by route and status.", &["route", "code"]),
            request_seconds: seconds(
                "request_seconds",
                "From request head to answer head.",
                SHORT,
                &["route"],
            ),
            in_flight: gauges("requests_in_flight", "Requests whose answer is not complete yet.", &["route"]),
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
            oldest_waiter: families.register(GaugeVec::new(
                Opts::new("oldest_waiter_seconds", "How long the oldest waiting request has waited."),
                &["route"],
            )),
            wait_limit: families.register(GaugeVec::new(
                Opts::new("route_wait_limit_seconds", "How long a request waits for a lock at most."),
                &["route"],
            )),
            waits: Mutex::default(),
            config: gauges(
                "config_info",
                "The plan in force; equal among gateways whose locks mean the same.",
                &["fingerprint"],
            ),
            reloads: counters(
                "config_reloads_total",
                "Readings of the file, by what came of them.",
                &["result"],
            ),
            access_lost: families.register(IntCounter::new(
                "access_log_lost_total",
                "Lines of the access log that nobody took in time.",
            )),
            spans_lost: families
                .register(IntCounter::new("spans_lost_total", "Spans that no collector took in time.")),
            reload_successful: families.register(
                IntGauge::with_opts(Opts::new(
                    "config_last_reload_successful",
                    "1 while the file as last read is in force.",
                ))
                .inspect(|gauge| gauge.set(1)),
            ),
            tunnels: gauges("tunnels", "Connections that have switched protocols.", &["route"]),
            waiters: gauges("lock_waiters", "Requests that wait for a lock.", &["route"]),
            forwarded: counters(
                "forwarded_total",
                "Requests sent on to the gateway that kept their key, by what came of it.",
                &["route", "result"],
            ),
            handoffs: counters(
                "handoffs_total",
                "Locks handed on to a request that waited in the same gateway, without ZooKeeper.",
                &["route"],
            ),
            keys: families.register(IntGauge::new(
                "keys_tracked",
                "Keys that somebody in this gateway wants or holds.",
            )),
            counted_keys: OnceLock::new(),
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
                "Requests sent again: nothing of them had been sent, or they were reads without a fence whose pooled connection died.",
                &["upstream"],
            ),
            refused_stale: counters(
                "upstream_stale_refusals_total",
                "Dispatches that an upstream refused because it knew a newer token.",
                &["route"],
            ),
            guard_refusals: counters(
                "guard_refusals_total",
                "Requests that a guard or a comparing upstream refused, by its word; also those whose outcome a guard \
                 does not know.",
                &["route", "reason"],
            ),
            endpoints: EndpointMetrics::register(&families),
            clients: ClientMetrics::register(&families),
            buffered: BufferedMetrics::register(&families),
            session,
            guard,
            families,
        }
    }

    fn describe_build(&self) {
        let build =
            Opts::new("build_info", "The running build.").const_label("version", env!("CARGO_PKG_VERSION"));
        self.families.register(IntGauge::with_opts(build)).set(1);
    }

    /// Another plan is in force.
    pub fn turn_to(&self, gateway: &Gateway) {
        self.config.reset();
        self.config.with_label_values(&[&format!("{:016x}", gateway.fingerprint)]).set(1);
        self.wait_limit.reset();
        for upstream in &gateway.serving.upstreams {
            self.retries.with_label_values(&[&*upstream.name]);
            for kind in UPSTREAM_ERRORS {
                self.upstream_errors.with_label_values(&[&*upstream.name, kind]);
            }
        }
        for route in gateway.serving.routes.routes() {
            if let Some(fence) = &route.fence {
                self.wait_limit.with_label_values(&[&*route.name]).set(fence.wait.as_secs_f64());
                if fence.forward == Forward::Holder {
                    for result in Forwarding::ALL {
                        self.forwarded.with_label_values(&[&*route.name, result.word()]);
                    }
                }
                self.begin(&route.name, gateway.serving.upstream(route.upstream).fencing);
            }
        }
    }

    /// A series that is there before it counts is one that an alert can compare with: the first stale token is one
    /// too many.
    fn begin(&self, route: &str, level: Level) {
        self.outcome_unknown.with_label_values(&[route]);
        for (mode, (result, contended)) in worker::acquisitions() {
            self.acquisitions.with_label_values(&[route, mode, result, contended]);
        }
        let words: &[Reason] = match level {
            Level::None => &[],
            Level::Upstream => &[Reason::Stale],
            Level::Guard => Reason::ALL,
        };
        for reason in words.iter().filter(|reason| reason.is_of_a_guard()) {
            self.guard_refusals.with_label_values(&[route, reason.word()]);
        }
    }

    pub fn reloaded(&self, result: Reloaded) {
        self.reloads.with_label_values(&[result.word()]).inc();
        self.reload_successful.set(i64::from(result != Reloaded::Refused));
    }

    /// What waits for the locks of a route; one count for all workers.
    fn waits(&self, route: &Arc<str>) -> Arc<Waits> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.entry(route.clone()).or_default().clone()
    }

    /// Lines of the access log that nobody took in time.
    pub fn access_lost(&self) -> IntCounter {
        self.access_lost.clone()
    }

    /// Spans that no collector took in time.
    pub fn spans_lost(&self) -> IntCounter {
        self.spans_lost.clone()
    }

    /// Who knows how many keys somebody wants or holds; asked when somebody scrapes.
    pub fn count_keys(&self, count: impl Fn() -> usize + Send + Sync + 'static) {
        // The first one stays: a process has one keeper.
        drop(self.counted_keys.set(Box::new(count)));
    }

    /// Of the session with this number.
    pub fn session(&self, number: usize) -> SessionMetrics {
        self.session.numbered(number)
    }

    pub fn endpoints(&self) -> &EndpointMetrics {
        &self.endpoints
    }

    pub fn clients(&self) -> &ClientMetrics {
        &self.clients
    }

    pub fn buffered(&self) -> &BufferedMetrics {
        &self.buffered
    }

    /// Everything as it is now. With thousands of routes that takes a while: not for a thread that others wait for.
    pub fn gathered(&self) -> Gathered {
        Gathered::of(self.families.gather())
    }

    /// How long requests waited for their locks, over all routes.
    pub fn waits_so_far(&self) -> Spread {
        Spread::gather(&self.lock_wait, SHORT)
    }

    /// How long they held them.
    pub fn holds_so_far(&self) -> Spread {
        Spread::gather(&self.lock_hold, LONG)
    }

    pub fn guard(&self) -> GuardMetrics {
        self.guard.clone()
    }

    /// The text format that Prometheus scrapes.
    pub fn render(&self) -> Vec<u8> {
        for (route, waits) in self.waits.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.oldest_waiter.with_label_values(&[&**route]).set(waits.oldest().as_secs_f64());
        }
        self.endpoints.refresh();
        if let Some(count) = self.counted_keys.get() {
            self.keys.set(count().try_into().unwrap_or(i64::MAX));
        }
        self.families.text()
    }

    /// What is exposed, sorted by name.
    pub fn families(&self) -> Vec<Family> {
        self.families.described()
    }
}

/// Of the other role's families: nobody scrapes it.
fn nobodys() -> Families {
    Families::new()
}
