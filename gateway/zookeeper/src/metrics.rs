//! The metrics of the ZooKeeper sessions.

use std::time::Duration;

use fencegate_process::{
    registry::MetricRegistry,
    registry::{SHORT, unknown_operations_gauge},
};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts,
};

use crate::{
    delay_metrics::DelayedHandoverMetrics, limits::MAX_SESSION_PATH_BYTES, tenure_end::TenureEndCause,
};

/// The series of one ZooKeeper session.
#[derive(Clone)]
pub struct SessionMetrics {
    /// The label that tells the sessions of the gateway apart.
    label: String,
    state: IntGaugeVec,
    expirations: IntCounter,
    reconnects: IntCounter,
    timeout: Gauge,
    proof: GaugeVec,
    ephemerals: IntGaugeVec,
    bytes: IntGaugeVec,
    highest: IntGauge,
    heartbeat: Histogram,
    seconds: HistogramVec,
    errors: IntCounterVec,
    together: IntCounterVec,
    pause: Histogram,
    pauses: IntCounterVec,
    granted: Histogram,
    dispatches: Histogram,
    tenures: IntCounterVec,
    lost: IntCounterVec,
    mismatch: IntGauge,
    unknown: IntGaugeVec,
    rolled_back: IntGaugeVec,
    state_failures: IntCounter,
    tls_reloads: IntCounterVec,
    pub delays: DelayedHandoverMetrics,
}

/// The bucket bounds for the number of dispatches under one tenure.
const DISPATCH_BUCKETS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 10_000.0];

impl SessionMetrics {
    pub fn register(families: &MetricRegistry) -> Self {
        let histogram = |name, help, buckets: &[f64]| {
            families.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
        };
        let gauges =
            |name, help, labels: &[&str]| families.register(IntGaugeVec::new(Opts::new(name, help), labels));
        let counters = |name, help, labels: &[&str]| {
            families.register(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let limit = families.register(IntGauge::new(
            "zk_ephemeral_bytes_limit",
            "Bytes of paths that one session may have; then keys are refused.",
        ));
        limit.set(MAX_SESSION_PATH_BYTES.try_into().unwrap_or(i64::MAX));
        let metrics = Self {
            label: "0".into(),
            state: gauges(
                "zk_session_state",
                "1 for the state that the session is in.",
                &["session", "state"],
            ),
            expirations: families
                .register(IntCounter::new("zk_session_expirations_total", "Sessions that ended unasked.")),
            reconnects: families.register(IntCounter::new(
                "zk_reconnects_total",
                "Connections to ZooKeeper that came back while their session lived.",
            )),
            timeout: families
                .register(Gauge::new("zk_session_timeout_seconds", "Negotiated session timeout.")),
            proof: families.register(GaugeVec::new(
                Opts::new(
                    "zk_proof_remaining_seconds",
                    "How long a session was proven for at its last heartbeat.",
                ),
                &["session"],
            )),
            ephemerals: gauges("zk_ephemerals", "Lock nodes that a session has or may have.", &["session"]),
            bytes: gauges(
                "zk_ephemeral_bytes",
                "Bytes of the paths of a session's lock nodes.",
                &["session"],
            ),
            rolled_back: gauges(
                "zk_rolled_back",
                "1 while no session is made because ZooKeeper was wiped or restored to an older state.",
                &["session"],
            ),
            state_failures: families.register(IntCounter::new(
                "state_write_failures_total",
                "Writes to `state_dir` that failed: a restart would know less than this process.",
            )),
            mismatch: families.register(IntGauge::new(
                "config_mismatch",
                "Gateways of this installation that lock other keys.",
            )),
            unknown: families.register(unknown_operations_gauge()),
            highest: families.register(IntGauge::new(
                "zk_sequence_max",
                "Highest number of a lock node so far; above 2^30 its parent is replaced.",
            )),
            heartbeat: histogram("zk_heartbeat_seconds", "From sending a heartbeat to its answer.", SHORT),
            seconds: families.register(HistogramVec::new(
                HistogramOpts::new("zk_request_seconds", "From sending an operation to its answer.")
                    .buckets(SHORT.to_vec()),
                &["op"],
            )),
            errors: counters(
                "zk_errors_total",
                "Operations that failed: refused by the server, without an answer, or without a session.",
                &["op", "error"],
            ),
            together: counters(
                "zk_shared_transactions_total",
                "Transactions with nodes of several keys that are mostly free, by result: done, or refused, and each part \
                 sent again by itself.",
                &["result"],
            ),
            pause: histogram(
                "process_pause_seconds",
                "Pauses of the process of more than half a tick.",
                SHORT,
            ),
            pauses: counters(
                "process_pauses_total",
                "Pauses of the process, counted once under each length that they passed.",
                &["over"],
            ),
            granted: histogram(
                "zk_lock_wait_seconds",
                "From asking ZooKeeper for a lock to its grant.",
                SHORT,
            ),
            dispatches: histogram(
                "tenure_dispatches",
                "How many dispatches a cached tenure was used for.",
                DISPATCH_BUCKETS,
            ),
            tenures: counters("tenures_ended_total", "Tenures that were given up, by why.", &["cause"]),
            lost: counters(
                "tenures_lost_total",
                "Tenures that lost their lock while they were in use.",
                &["cause"],
            ),
            delays: DelayedHandoverMetrics::register(families),
            tls_reloads: counters(
                "zk_tls_reloads_total",
                "Files of the TLS with ZooKeeper that have changed.",
                &["result"],
            ),
        };
        metrics.init_series();
        metrics
    }

    /// Creates every series with the value zero: an alert can only see the growth of a series that exists before its
    /// first event.
    fn init_series(&self) {
        for cause in TenureEndCause::ALL {
            self.end_counter(cause).with_label_values(&[cause.label()]);
        }
        for op in OPERATIONS {
            self.seconds.with_label_values(&[op]);
            for error in ERRORS {
                self.errors.with_label_values(&[op, error]);
            }
        }
        for (over, _) in THRESHOLDS {
            self.pauses.with_label_values(&[over]);
        }
        for result in SHARED_RESULTS {
            self.together.with_label_values(&[result]);
        }
        for result in ["ok", "bad"] {
            self.tls_reloads.with_label_values(&[result]);
        }
    }

    pub fn for_session(&self, number: usize) -> Self {
        Self { label: number.to_string(), ..self.clone() }
    }

    pub(crate) fn record_session_established(&self, timeout: Duration) {
        self.timeout.set(timeout.as_secs_f64());
    }

    /// Records that the session has a connection.
    pub(crate) fn set_connected(&self) {
        self.set_state("connected");
    }

    /// Records that the session has no connection; it may still be alive.
    pub(crate) fn set_disconnected(&self) {
        self.set_state("disconnected");
    }

    /// Records that there is no session.
    pub(crate) fn set_no_session(&self) {
        self.set_state("none");
    }

    pub(crate) fn record_session_ended(&self) {
        self.expirations.inc();
        self.proof.with_label_values(&[&self.label]).set(0.0);
        self.set_ephemeral_nodes(0, 0);
        self.set_state("none");
    }

    /// Counts a reconnect.
    pub fn record_reconnect(&self) {
        self.reconnects.inc();
    }

    /// Counts a failed write to `state_dir`.
    pub fn record_state_write_failure(&self) {
        self.state_failures.inc();
    }

    /// Sets whether no session is made because of a rollback of ZooKeeper.
    pub fn set_rolled_back(&self, refused: bool) {
        self.rolled_back.with_label_values(&[&self.label]).set(i64::from(refused));
    }

    /// Counts a change of the TLS files for ZooKeeper. `good`: they could be used, and were applied.
    pub fn record_tls_reload(&self, good: bool) {
        self.tls_reloads.with_label_values(&[if good { "ok" } else { "bad" }]).inc();
    }

    /// Sets the number of gateways of the installation that lock other keys than this one.
    pub(crate) fn set_config_mismatch(&self, gateways: usize) {
        self.mismatch.set(i64::try_from(gateways).unwrap_or(i64::MAX));
    }

    /// Sets the number of operations in ZooKeeper whose outcome is unknown. The series begins with the first call: a
    /// number that is too small would look as if operations had been resolved.
    pub fn set_unknown_operations(&self, operations: usize) {
        let unknown = self.unknown.with_label_values(&["zookeeper"]);
        unknown.set(i64::try_from(operations).unwrap_or(i64::MAX));
    }

    /// Counts a pause of the process. `late`: the length of the pause; `timeout`: the session timeout.
    pub(crate) fn record_process_pause(&self, late: Duration, timeout: Duration) {
        self.pause.observe(late.as_secs_f64());
        for (over, parts) in THRESHOLDS {
            if late * parts >= timeout {
                self.pauses.with_label_values(&[over]).inc();
            }
        }
    }

    pub fn record_heartbeat(&self, took: Duration) {
        self.heartbeat.observe(took.as_secs_f64());
    }

    /// Counts a completed ZooKeeper operation; `error`: one of [`ERRORS`].
    pub(crate) fn record_zookeeper_request(
        &self,
        op: &'static str,
        took: Duration,
        error: Option<&'static str>,
    ) {
        self.seconds.with_label_values(&[op]).observe(took.as_secs_f64());
        if let Some(error) = error {
            self.errors.with_label_values(&[op, error]).inc();
        }
    }

    /// Counts an answered transaction of several keys. `done`: whether it was done, not refused.
    pub(crate) fn record_shared_transaction(&self, done: bool) {
        self.together.with_label_values(&[SHARED_RESULTS[usize::from(!done)]]).inc();
    }

    /// Records a grant. `waited`: the time from the request to the grant, including the time of other holders.
    pub fn record_grant(&self, waited: Duration) {
        self.granted.observe(waited.as_secs_f64());
    }

    /// Records the sequence number of a lock node of this process. Only the highest number is shown.
    pub fn record_node_sequence(&self, number: u32) {
        // All sessions run on one thread, so the gauge does not change between read and write.
        self.highest.set(self.highest.get().max(number.into()));
    }

    pub fn record_tenure_end(&self, cause: TenureEndCause) {
        self.end_counter(cause).with_label_values(&[cause.label()]).inc();
    }

    /// Records the dispatches of a cached tenure that has ended.
    pub fn record_tenure_dispatches(&self, dispatches: u32) {
        self.dispatches.observe(dispatches.into());
    }

    fn end_counter(&self, cause: TenureEndCause) -> &IntCounterVec {
        if cause.is_lock_loss() { &self.lost } else { &self.tenures }
    }

    pub(crate) fn set_proof_remaining(&self, remaining: Duration) {
        self.proof.with_label_values(&[&self.label]).set(remaining.as_secs_f64());
    }

    pub(crate) fn set_ephemeral_nodes(&self, nodes: usize, bytes: usize) {
        let gauge = |gauges: &IntGaugeVec, value: usize| {
            gauges.with_label_values(&[&self.label]).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.ephemerals, nodes);
        gauge(&self.bytes, bytes);
    }

    fn set_state(&self, current: &str) {
        for state in ["connected", "disconnected", "none"] {
            self.state.with_label_values(&[self.label.as_str(), state]).set(i64::from(state == current));
        }
    }
}

/// The lengths of a pause that are counted: the label of each, and the divisor of the session timeout that gives it.
const THRESHOLDS: [(&str, u32); 2] = [("session_third", 3), ("session", 1)];

/// The results of a shared transaction, as labels.
const SHARED_RESULTS: [&str; 2] = ["done", "refused"];

/// The kinds of failures of an operation, as labels.
const ERRORS: [&str; 3] = ["refused", "ambiguous", "over"];

/// Operations of a session, by the names that [`crate::session::instrumented`] gives them.
const OPERATIONS: [&str; 11] = [
    "connect",
    "create",
    "delete",
    "list",
    "stat",
    "read",
    "watch",
    "watch-list",
    "sync",
    "commit",
    "ephemerals",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The gauge of operations with an unknown outcome is exported only after a session has counted them.
    #[test]
    fn unknown_operations_absent_until_counted() {
        let families = MetricRegistry::new();
        let metrics = SessionMetrics::register(&families);
        let text = || String::from_utf8(families.encode()).expect("metrics are text");
        assert!(!text().contains("operations_unknown{"));
        metrics.set_unknown_operations(2);
        assert!(text().contains("operations_unknown{store=\"zookeeper\"} 2\n"), "{}", text());
    }
}
