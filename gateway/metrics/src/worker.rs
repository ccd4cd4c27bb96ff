//! One worker's view of the metrics: the series of its routes, looked up once.

use std::{cell::RefCell, sync::Arc, time::Duration};

use fencegate_http::listen::metrics::ClientConnectionMetrics;
use fencegate_policies::plan::{CommonServingPlan, Route, RouteId};
use fencegate_protocol::clock_header::ClockOffset;
use fencegate_refusal::RefusalReason;
use hyper::StatusCode;
use prometheus::Histogram;

use super::{labels::status_class, registry::AllMetricFamilies, route::RouteMetrics};

/// The label of requests without a route.
const UNROUTED: &str = "none";

/// The metrics as one worker uses them: the series of its routes are looked up once.
pub struct WorkerMetrics {
    all: Arc<AllMetricFamilies>,
    routes: Vec<RouteMetrics>,
    unrouted: RouteMetrics,
    /// The series of the upstreams and classes seen so far; there are only a few.
    upstreams: RefCell<Vec<UpstreamResponseSeries>>,
}

/// The series of the answers of one upstream in one class.
struct UpstreamResponseSeries {
    upstream: String,
    class: &'static str,
    seconds: Histogram,
}

impl WorkerMetrics {
    pub fn new(all: Arc<AllMetricFamilies>, plan: &CommonServingPlan) -> Self {
        let families = &all.requests;
        let route = |route: &Route| {
            RouteMetrics::new(families.clone(), route.name.clone(), families.waiters(&route.name))
        };
        Self {
            routes: plan.routes.routes().iter().map(route).collect(),
            unrouted: RouteMetrics::new(families.clone(), UNROUTED.into(), Arc::default()),
            upstreams: RefCell::default(),
            all,
        }
    }

    pub fn route(&self, id: RouteId) -> &RouteMetrics {
        self.routes.get(id.0).unwrap_or(&self.unrouted)
    }

    pub fn unrouted(&self) -> &RouteMetrics {
        &self.unrouted
    }

    pub fn clients(&self) -> &ClientConnectionMetrics {
        self.all.clients()
    }

    pub fn record_upstream_response(&self, upstream: &str, status: StatusCode, took: Duration) {
        let class = status_class(status);
        let mut known = self.upstreams.borrow_mut();
        let seconds = known.iter().find(|series| series.class == class && series.upstream == upstream);
        match seconds {
            Some(series) => series.seconds.observe(took.as_secs_f64()),
            None => {
                let seconds = self.all.upstreams.seconds.local().with_label_values(&[upstream, class]);
                seconds.observe(took.as_secs_f64());
                known.push(UpstreamResponseSeries { upstream: upstream.to_owned(), class, seconds });
            }
        }
    }

    /// Records the clock offset of a filter, as an answer shows it.
    pub fn record_clock_offset(&self, upstream: &str, endpoint: &str, offset: ClockOffset) {
        let families = &self.all.upstreams;
        families.clock_offset.with_label_values(&[upstream, endpoint]).set(offset.seconds);
        families.clock_error.with_label_values(&[upstream, endpoint]).set(offset.error);
    }

    pub fn record_upstream_error(&self, upstream: &str, kind: &'static str) {
        self.all.upstreams.errors.with_label_values(&[upstream, kind]).inc();
    }

    /// Records that an upstream that compares tokens had a newer token.
    pub fn record_stale_refusal(&self, route: Option<RouteId>) {
        let route = route.map_or(&self.unrouted, |id| self.route(id));
        self.all.requests.refused_stale.with_label_values(&[route.name()]).inc();
    }

    pub fn record_guard_refusal(&self, route: Option<RouteId>, reason: RefusalReason) {
        let route = route.map_or(&self.unrouted, |id| self.route(id));
        self.all.requests.guard_refusals.with_label_values(&[route.name(), reason.word()]).inc();
    }

    pub fn record_retry(&self, upstream: &str) {
        self.all.upstreams.retries.with_label_values(&[upstream]).inc();
    }
}
