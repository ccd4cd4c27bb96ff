//! The metrics of the endpoints of upstreams. The names in labels come from the policy.

use std::{
    fmt::Debug,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use fencegate_process::{gauge_guard::GaugeGuard, registry::MetricRegistry};
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use super::endpoint::EndpointState;

/// The families of the endpoints. Clones count into the same families.
#[derive(Debug, Clone)]
pub struct EndpointMetrics {
    endpoints: IntGaugeVec,
    connections: IntGaugeVec,
    ejections: IntCounterVec,
    waits: IntCounterVec,
    waiting: IntGaugeVec,
    checks: IntCounterVec,
    tls_files: IntCounterVec,
    resolutions: IntCounterVec,
    /// The source of the gauges: the endpoints of the plan in force.
    shown: Arc<Mutex<Option<Weak<dyn EndpointMetricsSource>>>>,
}

/// Supplies the endpoints for the gauges.
pub trait EndpointMetricsSource: Debug + Send + Sync {
    fn visit(&self, see: &mut dyn FnMut(EndpointSetSnapshot<'_>));
}

/// One upstream's endpoints at one moment.
pub struct EndpointSetSnapshot<'a> {
    pub upstream: &'a str,
    pub states: Vec<EndpointState>,
    /// The number of connections to all endpoints.
    pub connections: usize,
}

/// The result of a wait for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolWaitResult {
    Connected,
    Failed,
}

impl EndpointMetrics {
    pub fn register(families: &MetricRegistry) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges =
            |name, help, labels: &[&str]| families.register(IntGaugeVec::new(Opts::new(name, help), labels));
        Self {
            endpoints: gauges("upstream_endpoints", "Endpoints, by state.", &["upstream", "state"]),
            connections: gauges(
                "upstream_connections",
                "Connections to an upstream, in use or idle.",
                &["upstream"],
            ),
            ejections: counters(
                "upstream_ejections_total",
                "Ejections of endpoints that kept failing.",
                &["upstream", "endpoint"],
            ),
            waits: counters(
                "upstream_pool_waits_total",
                "Requests that waited for a connection, because every endpoint had as many as it may have.",
                &["upstream", "result"],
            ),
            waiting: gauges("upstream_pool_waiting", "Requests that wait for a connection.", &["upstream"]),
            checks: counters(
                "upstream_health_checks_total",
                "Health checks, by result.",
                &["upstream", "endpoint", "result"],
            ),
            tls_files: counters(
                "upstream_tls_files_total",
                "Files for TLS that have changed, by whether they could be used.",
                &["upstream", "result"],
            ),
            resolutions: counters(
                "upstream_resolutions_total",
                "Lookups of the names of endpoints, by whether they found an address.",
                &["upstream", "result"],
            ),
            shown: Arc::default(),
        }
    }

    /// Sets the endpoints that the metrics show.
    pub(crate) fn set_source(&self, endpoints: Weak<dyn EndpointMetricsSource>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(endpoints);
    }

    pub(crate) fn record_ejection(&self, upstream: &str, endpoint: &str) {
        self.ejections.with_label_values(&[upstream, endpoint]).inc();
    }

    pub fn record_wait(&self, upstream: &str, waited: PoolWaitResult) {
        let result = match waited {
            PoolWaitResult::Connected => "got",
            PoolWaitResult::Failed => "in-vain",
        };
        self.waits.with_label_values(&[upstream, result]).inc();
    }

    pub(crate) fn count_waiting(&self, upstream: &str) -> GaugeGuard {
        GaugeGuard::new(&Rc::new(self.waiting.with_label_values(&[upstream])))
    }

    pub(crate) fn record_check(&self, upstream: &str, endpoint: &str, good: bool) {
        let result = if good { "good" } else { "bad" };
        self.checks.with_label_values(&[upstream, endpoint, result]).inc();
    }

    pub fn record_tls_reload(&self, upstream: &str, good: bool) {
        let result = if good { "good" } else { "bad" };
        self.tls_files.with_label_values(&[upstream, result]).inc();
    }

    pub(crate) fn record_dns_lookup(&self, upstream: &str, found: bool) {
        let result = if found { "good" } else { "bad" };
        self.resolutions.with_label_values(&[upstream, result]).inc();
    }

    /// Counts the states of the endpoints. It is called at each scrape, because an ejection ends without an
    /// event.
    pub fn update_gauges(&self) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(shown) = shown.and_then(|shown| shown.upgrade()) else { return };
        self.endpoints.reset();
        self.connections.reset();
        shown.visit(&mut |EndpointSetSnapshot { upstream, states, connections }| {
            for state in EndpointState::ALL {
                let count = states.iter().filter(|one| **one == state).count();
                self.endpoints
                    .with_label_values(&[upstream, state.as_str()])
                    .set(count.try_into().unwrap_or(0));
            }
            self.connections.with_label_values(&[upstream]).set(connections.try_into().unwrap_or(0));
        });
    }
}
