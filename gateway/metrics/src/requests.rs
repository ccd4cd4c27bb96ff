//! Metrics of requests and of their locks, by route.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use fencegate_policies::plan::{FencingLevel, GatewayPlan, PeerForwardPolicy};
use fencegate_process::{
    gauge_guard::GaugeGuard,
    histogram::HistogramBucketCounts,
    registry::{LONG, MetricRegistry, SHORT},
    sharded::ShardedMetric,
};
use fencegate_refusal::RefusalReason;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use super::labels::{PeerForwardLabel, acquire_labels};

/// The families by route. Families that each request changes are counted by thread.
pub(super) struct RequestMetricFamilies {
    pub(super) requests: ShardedMetric<IntCounterVec>,
    pub(super) seconds: ShardedMetric<HistogramVec>,
    pub(super) in_flight: ShardedMetric<IntGaugeVec>,
    pub(super) rejections: IntCounterVec,
    pub(super) outcome_unknown: IntCounterVec,
    pub(super) acquisitions: ShardedMetric<IntCounterVec>,
    pub(super) lock_wait: ShardedMetric<HistogramVec>,
    pub(super) lock_hold: ShardedMetric<HistogramVec>,
    pub(super) held: ShardedMetric<IntGaugeVec>,
    pub(super) waiters: IntGaugeVec,
    pub(super) handoffs: IntCounterVec,
    pub(super) forwarded: IntCounterVec,
    pub(super) tunnels: IntGaugeVec,
    pub(super) refused_stale: IntCounterVec,
    pub(super) guard_refusals: IntCounterVec,
    oldest_waiter: GaugeVec,
    wait_limit: GaugeVec,
    /// The waiting requests, by route. A route that a reload has removed stays here, because its requests may still
    /// run.
    waits: Mutex<HashMap<Arc<str>, Arc<RouteWaitTracker>>>,
}

impl RequestMetricFamilies {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges =
            |name, help, labels: &[&str]| families.register(IntGaugeVec::new(Opts::new(name, help), labels));
        let often = |name, help, labels: &[&str]| {
            families.register(ShardedMetric::new(|| IntCounterVec::new(Opts::new(name, help), labels)))
        };
        let now = |name, help, labels: &[&str]| {
            families.register(ShardedMetric::new(|| IntGaugeVec::new(Opts::new(name, help), labels)))
        };
        let seconds = |name, help, buckets: &[f64]| {
            let opts = || HistogramOpts::new(name, help).buckets(buckets.to_vec());
            families.register(ShardedMetric::new(|| HistogramVec::new(opts(), &["route"])))
        };
        let limits = |name, help| families.register(GaugeVec::new(Opts::new(name, help), &["route"]));
        Self {
            requests: often("requests_total", "Answers, by route and status.", &["route", "code"]),
            seconds: seconds("request_seconds", "From request head to answer head.", SHORT),
            in_flight: now("requests_in_flight", "Requests whose answer is not complete yet.", &["route"]),
            rejections: counters("rejections_total", "Answers of our own, by reason.", &["route", "reason"]),
            outcome_unknown: counters(
                "outcome_unknown_total",
                "Requests that may have taken effect without a complete answer.",
                &["route"],
            ),
            acquisitions: often(
                "lock_acquisitions_total",
                "Requests for a lock, by result.",
                &["route", "mode", "result", "contended"],
            ),
            lock_wait: seconds("lock_wait_seconds", "From asking for a lock to its grant.", SHORT),
            lock_hold: seconds("lock_hold_seconds", "From grant to the end of the tenure.", LONG),
            held: now("locks_held", "Locks held.", &["route", "mode"]),
            waiters: gauges("lock_waiters", "Requests that wait for a lock.", &["route"]),
            handoffs: counters(
                "handoffs_total",
                "Locks handed on to a request that waited in the same gateway, without ZooKeeper.",
                &["route"],
            ),
            forwarded: counters(
                "forwarded_total",
                "Requests sent to the gateway that kept their key, by result.",
                &["route", "result"],
            ),
            tunnels: gauges("tunnels", "Connections that have switched protocols.", &["route"]),
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
            oldest_waiter: limits("oldest_waiter_seconds", "How long the oldest waiting request has waited."),
            wait_limit: limits("route_wait_limit_seconds", "How long a request waits for a lock at most."),
            waits: Mutex::default(),
        }
    }

    /// Adapts the series to another plan that is in force.
    pub(super) fn apply_plan(&self, gateway: &GatewayPlan) {
        self.wait_limit.reset();
        for route in gateway.serving.routes.routes() {
            if let Some(fence) = &route.fence {
                self.wait_limit.with_label_values(&[&*route.name]).set(fence.wait.as_secs_f64());
                if fence.forward == PeerForwardPolicy::Holder {
                    for result in PeerForwardLabel::ALL {
                        self.forwarded.with_label_values(&[&*route.name, result.as_str()]);
                    }
                }
                self.init_series(&route.name, gateway.serving.upstream(route.upstream).fencing);
            }
        }
    }

    /// Creates the series before the first event is counted, so that an alert can compare with zero: even a single
    /// stale token has to be noticed.
    fn init_series(&self, route: &str, level: FencingLevel) {
        self.outcome_unknown.with_label_values(&[route]);
        for (mode, (result, contended)) in acquire_labels() {
            self.acquisitions.local().with_label_values(&[route, mode, result, contended]);
        }
        let words: &[RefusalReason] = match level {
            FencingLevel::None | FencingLevel::Delay(_) => &[],
            FencingLevel::Upstream => &[RefusalReason::Stale],
            FencingLevel::Guard => RefusalReason::ALL,
        };
        for reason in words.iter().filter(|reason| reason.is_guard_reason()) {
            self.guard_refusals.with_label_values(&[route, reason.word()]);
        }
    }

    /// The tracker of the waiting requests of a route, over all workers.
    pub(super) fn waiters(&self, route: &Arc<str>) -> Arc<RouteWaitTracker> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.entry(route.clone()).or_default().clone()
    }

    /// Updates the gauge of the oldest wait of each route, which changes with time.
    pub(super) fn refresh_oldest_waits(&self) {
        for (route, waits) in self.waits.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.oldest_waiter.with_label_values(&[&**route]).set(waits.oldest_wait().as_secs_f64());
        }
    }

    pub(super) fn wait_distribution(&self) -> HistogramBucketCounts {
        HistogramBucketCounts::from_collector(&self.lock_wait, SHORT)
    }

    pub(super) fn hold_distribution(&self) -> HistogramBucketCounts {
        HistogramBucketCounts::from_collector(&self.lock_hold, LONG)
    }
}

/// All requests of one route that wait for a lock, over all workers, each with the time since when it waits.
#[derive(Debug, Default)]
pub(super) struct RouteWaitTracker(Mutex<RouteWaitersState>);

#[derive(Debug, Default)]
struct RouteWaitersState {
    /// The requests by number, in the order of arrival: the first is the oldest.
    waiting: BTreeMap<u64, Instant>,
    next: u64,
}

/// Counts one request as waiting until this is dropped.
pub struct RouteWaiterGuard {
    waits: Arc<RouteWaitTracker>,
    number: u64,
    _counted: GaugeGuard,
}

impl RouteWaitTracker {
    pub(super) fn enter(self: &Arc<Self>, counted: GaugeGuard) -> RouteWaiterGuard {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = since.next;
        since.next += 1;
        since.waiting.insert(number, Instant::now());
        RouteWaiterGuard { waits: self.clone(), number, _counted: counted }
    }

    /// The time that the oldest request has waited; zero when none waits.
    pub(super) fn oldest_wait(&self) -> Duration {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.waiting.first_key_value().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
}

impl Drop for RouteWaiterGuard {
    fn drop(&mut self) {
        self.waits.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&self.number);
    }
}
