//! All metric families of this process: those of its requests, upstreams, leases and plans, and those that its other
//! parts have registered.

use std::sync::{Arc, OnceLock};

use fencegate_guard_store::metrics::GuardMetrics;
use fencegate_http::{buffered::metrics::BufferMetrics, listen::metrics::ClientConnectionMetrics};
use fencegate_http_client::upstream::metrics::EndpointMetrics;
use fencegate_policies::plan::{GatewayPlan, Upstream};
use fencegate_process::{
    histogram::HistogramBucketCounts,
    log_writer::{ErrorCounter, dropped_count, dropped_lines},
    registry::{MetricDesc, MetricRegistry, MetricSnapshot, SHORT},
    sharded::ShardedMetric,
};
use fencegate_zookeeper::metrics::SessionMetrics;
use prometheus::{
    GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use super::{
    issuer_keys::IssuerKeyMetrics,
    labels::{ReloadResult, UPSTREAM_ERRORS},
    requests::RequestMetricFamilies,
};

/// All metric families of this process.
pub struct AllMetricFamilies {
    families: MetricRegistry,
    pub(super) requests: Arc<RequestMetricFamilies>,
    pub(super) upstreams: UpstreamMetricFamilies,
    plans: ReloadMetricFamilies,
    keys: IntGauge,
    /// The function that counts the keys, if one was set.
    counted_keys: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
    log_lost: IntCounter,
    access_lost: IntCounter,
    /// The counter of lost lines that the queue of the access log keeps itself.
    access_lines: OnceLock<ErrorCounter>,
    spans_lost: IntCounter,
    hung_seconds: IntCounterVec,
    session: SessionMetrics,
    guard: GuardMetrics,
    endpoints: EndpointMetrics,
    clients: ClientConnectionMetrics,
    buffered: BufferMetrics,
    /// The metrics of leases; exposed in a gateway only.
    leases: LeaseMetrics,
    /// The metrics of issuers' keys; exposed in a gateway only.
    issuer_keys: IssuerKeyMetrics,
}

impl AllMetricFamilies {
    pub fn for_gateway(gateway: &GatewayPlan) -> Arc<Self> {
        let families = MetricRegistry::new().with_process();
        let session = SessionMetrics::register(&families);
        let guard = GuardMetrics::register(&unexposed_families());
        let leases = LeaseMetrics::register(&families);
        let issuer_keys = IssuerKeyMetrics::register(&families);
        let metrics = Self { issuer_keys, ..Self::new(session, guard, leases, families) };
        metrics.describe_build();
        metrics.apply_plan_to_metrics(gateway);
        Arc::new(metrics)
    }

    pub fn for_guard() -> Arc<Self> {
        let families = MetricRegistry::new().with_process();
        let session = SessionMetrics::register(&unexposed_families());
        let own = GuardMetrics::register(&families);
        let metrics = Self::new(session, own, LeaseMetrics::register(&unexposed_families()), families);
        metrics.describe_build();
        Arc::new(metrics)
    }

    pub fn for_filter() -> Arc<Self> {
        let families = MetricRegistry::new().with_process();
        let session = SessionMetrics::register(&unexposed_families());
        let guard = GuardMetrics::register(&unexposed_families());
        let metrics = Self::new(session, guard, LeaseMetrics::register(&unexposed_families()), families);
        metrics.describe_build();
        Arc::new(metrics)
    }

    fn new(
        session: SessionMetrics,
        guard: GuardMetrics,
        leases: LeaseMetrics,
        families: MetricRegistry,
    ) -> Self {
        let hung_seconds = Opts::new(
            "thread_hung_seconds_total",
            "Seconds for which a thread hung, counted from when that was noticed.",
        );
        Self {
            requests: Arc::new(RequestMetricFamilies::register(&families)),
            upstreams: UpstreamMetricFamilies::register(&families),
            plans: ReloadMetricFamilies::register(&families),
            keys: families.register(IntGauge::new(
                "keys_tracked",
                "Keys that somebody in this gateway wants or holds.",
            )),
            counted_keys: OnceLock::new(),
            log_lost: families.register(IntCounter::new(
                "log_lost_total",
                "Lines of the process log that were lost because the reader of stderr was too slow.",
            )),
            access_lines: OnceLock::new(),
            access_lost: families.register(IntCounter::new(
                "access_log_lost_total",
                "Lines of the access log that were lost because the reader was too slow.",
            )),
            spans_lost: families.register(IntCounter::new(
                "spans_lost_total",
                "Spans that were lost because no collector took them in time.",
            )),
            hung_seconds: families.register(IntCounterVec::new(hung_seconds, &["thread"])),
            endpoints: EndpointMetrics::register(&families),
            clients: ClientConnectionMetrics::register(&families),
            buffered: BufferMetrics::register(&families),
            session,
            guard,
            leases,
            issuer_keys: IssuerKeyMetrics::unexposed(),
            families,
        }
    }

    fn describe_build(&self) {
        let build =
            Opts::new("build_info", "The running build.").const_label("version", env!("CARGO_PKG_VERSION"));
        self.families.register(IntGauge::with_opts(build)).set(1);
    }

    /// Adapts the series to another plan that is in force.
    pub fn apply_plan_to_metrics(&self, gateway: &GatewayPlan) {
        self.plans.set_config_info(gateway);
        gateway.serving.upstreams.iter().for_each(|upstream| self.upstreams.init_series(upstream));
        self.requests.apply_plan(gateway);
    }

    pub fn record_policy_reload(&self, result: ReloadResult) {
        self.plans.record_policy_reload(result);
    }

    /// Sets the number of routes that are refused because other gateways lock them in another way.
    pub fn set_refused_routes(&self, routes: usize) {
        self.plans.set_refused_routes(routes);
    }

    /// Sets the counter of lost lines of the access log. If it is set twice, the first counter is kept.
    pub fn set_access_line_counter(&self, counter: ErrorCounter) {
        drop(self.access_lines.set(counter));
    }

    /// Copies the counts of lost lines from the counters outside of this registry.
    fn refresh_lost_lines(&self) {
        let access = self.access_lines.get().map_or(0, dropped_count);
        for (metric, lost) in [(&self.log_lost, dropped_lines()), (&self.access_lost, access)] {
            metric.inc_by(lost.saturating_sub(metric.get()));
        }
    }

    /// The counter of lost spans.
    pub fn spans_lost(&self) -> IntCounter {
        self.spans_lost.clone()
    }

    /// The counter of the seconds for which threads hung, by their work.
    pub fn hung_seconds(&self) -> IntCounterVec {
        self.hung_seconds.clone()
    }

    /// Sets the function that counts the keys that requests want or hold. It is called for each scrape.
    pub fn set_key_counter(&self, count: impl Fn() -> usize + Send + Sync + 'static) {
        // If a function was set before, it is kept: a process has one lock manager.
        drop(self.counted_keys.set(Box::new(count)));
    }

    pub fn leases(&self) -> LeaseMetrics {
        self.leases.clone()
    }

    pub fn issuer_keys(&self) -> &IssuerKeyMetrics {
        &self.issuer_keys
    }

    /// The metrics of the session with this number.
    pub fn session(&self, number: usize) -> SessionMetrics {
        self.session.for_session(number)
    }

    pub fn endpoints(&self) -> &EndpointMetrics {
        &self.endpoints
    }

    pub fn clients(&self) -> &ClientConnectionMetrics {
        &self.clients
    }

    pub fn buffered(&self) -> &BufferMetrics {
        &self.buffered
    }

    /// The present values of all families. With thousands of routes this takes a while, so do not call it on a thread
    /// on which requests are served.
    pub fn gather(&self) -> MetricSnapshot {
        MetricSnapshot::new(self.families.gather())
    }

    /// The distribution of the times that requests waited for their locks, over all routes.
    pub fn wait_distribution(&self) -> HistogramBucketCounts {
        self.requests.wait_distribution()
    }

    /// The distribution of the times that requests held their locks, over all routes.
    pub fn hold_distribution(&self) -> HistogramBucketCounts {
        self.requests.hold_distribution()
    }

    pub fn guard(&self) -> GuardMetrics {
        self.guard.clone()
    }

    /// All families in the text format that Prometheus scrapes.
    pub fn render(&self) -> Vec<u8> {
        self.requests.refresh_oldest_waits();
        self.endpoints.update_gauges();
        self.refresh_lost_lines();
        if let Some(count) = self.counted_keys.get() {
            self.keys.set(count().try_into().unwrap_or(i64::MAX));
        }
        self.families.encode()
    }

    /// All families, sorted by name.
    pub fn families(&self) -> Vec<MetricDesc> {
        self.families.descriptions()
    }
}

/// A registry for families that this role of process does not have. It is not exposed.
fn unexposed_families() -> MetricRegistry {
    MetricRegistry::new()
}

/// The lease counters of one gateway. All clones share the same counters.
#[derive(Clone)]
pub struct LeaseMetrics {
    leases: IntGaugeVec,
    ended: IntCounterVec,
}

/// The reasons for the end of a lease, as labels.
pub const END_REASONS: [&str; 8] =
    ["released", "expired", "gave-up", "broken", "session-lost", "retired", "too-old", "refused"];

const WAITING: &str = "waiting";
const HELD: &str = "held";

impl LeaseMetrics {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        let leases =
            Opts::new("leases", "Leases of this gateway that wait for their lock, and that hold it.");
        let ended = Opts::new("leases_ended_total", "Leases that are over, by why.");
        let metrics = Self {
            leases: families.register(IntGaugeVec::new(leases, &["state"])),
            ended: families.register(IntCounterVec::new(ended, &["why"])),
        };
        metrics.set_counts(0, 0);
        for reason in END_REASONS {
            metrics.ended.with_label_values(&[reason]);
        }
        metrics
    }

    pub fn set_counts(&self, waiting: i64, held: i64) {
        self.leases.with_label_values(&[WAITING]).set(waiting);
        self.leases.with_label_values(&[HELD]).set(held);
    }

    pub fn record_end(&self, reason: &'static str) {
        self.ended.with_label_values(&[reason]).inc();
    }
}

/// The families about the plan and its reloads.
pub(super) struct ReloadMetricFamilies {
    config: IntGaugeVec,
    reloads: IntCounterVec,
    reload_successful: IntGauge,
    refused_routes: IntGauge,
}

impl ReloadMetricFamilies {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        Self {
            config: families.register(IntGaugeVec::new(
                Opts::new(
                    "config_info",
                    "The plan in force; equal among gateways whose locks mean the same.",
                ),
                &["fingerprint"],
            )),
            reloads: families.register(IntCounterVec::new(
                Opts::new("config_reloads_total", "Readings of the file, by result."),
                &["result"],
            )),
            reload_successful: families.register(
                IntGauge::with_opts(Opts::new(
                    "config_last_reload_successful",
                    "1 while the file as last read is in force.",
                ))
                .inspect(|gauge| gauge.set(1)),
            ),
            refused_routes: families.register(IntGauge::new(
                "config_refused_routes",
                "Routes that gateways which were there before lock otherwise, so that they are refused here.",
            )),
        }
    }

    pub(super) fn set_config_info(&self, gateway: &GatewayPlan) {
        self.config.reset();
        self.config.with_label_values(&[&format!("{:016x}", gateway.fingerprint)]).set(1);
    }

    pub(super) fn set_refused_routes(&self, routes: usize) {
        self.refused_routes.set(routes.try_into().unwrap_or(i64::MAX));
    }

    pub(super) fn record_policy_reload(&self, result: ReloadResult) {
        self.reloads.with_label_values(&[result.as_str()]).inc();
        self.reload_successful.set(i64::from(result != ReloadResult::Refused));
    }
}

/// The families by upstream.
pub(super) struct UpstreamMetricFamilies {
    /// Counted per thread, because each request changes it.
    pub(super) seconds: ShardedMetric<HistogramVec>,
    pub(super) errors: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) clock_offset: GaugeVec,
    pub(super) clock_error: GaugeVec,
}

impl UpstreamMetricFamilies {
    pub(super) fn register(families: &MetricRegistry) -> Self {
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let seconds = || {
            let opts = HistogramOpts::new("upstream_seconds", "From sending to the head of the answer.");
            HistogramVec::new(opts.buckets(SHORT.to_vec()), &["upstream", "code"])
        };
        let gauges =
            |name, help| families.register(GaugeVec::new(Opts::new(name, help), &["upstream", "endpoint"]));
        Self {
            clock_offset: gauges(
                "clock_offset_seconds",
                "How far the clock of a filter before the service is ahead of ours, by its last answer.",
            ),
            clock_error: gauges(
                "clock_error_seconds",
                "The largest offset with which that filter lets nothing in too late: its `clock_error`.",
            ),
            seconds: families.register(ShardedMetric::new(seconds)),
            errors: counters("upstream_errors_total", "Exchanges without an answer.", &["upstream", "kind"]),
            retries: counters(
                "retries_total",
                "Requests sent again: nothing of them had been sent, or they were reads without a fence whose pooled connection died.",
                &["upstream"],
            ),
        }
    }

    /// Creates the series that alerts read, before the first event is counted.
    pub(super) fn init_series(&self, upstream: &Upstream) {
        self.retries.with_label_values(&[&*upstream.name]);
        for kind in UPSTREAM_ERRORS {
            self.errors.with_label_values(&[&*upstream.name, kind]);
        }
    }
}
