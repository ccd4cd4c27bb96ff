//! The metrics of a guard.

use std::time::Duration;

use fencegate_process::registry::{MetricRegistry, SHORT, unknown_operations_gauge};
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
};

use crate::error::RefusalCode;

/// The series of a guard.
#[derive(Clone)]
pub struct GuardMetrics {
    /// The kind of store, for the series of stores.
    store: &'static str,
    decisions: IntCounterVec,
    in_flight: IntGauge,
    settle: Histogram,
    in_doubt: IntGauge,
    not_seen: IntGauge,
    resolved: IntCounterVec,
    store_seconds: HistogramVec,
    store_errors: IntCounterVec,
    store_keys: IntGauge,
    disk_free: IntGaugeVec,
    disk_size: IntGaugeVec,
    at_work: IntGauge,
    quarantined: IntGauge,
    journal_entries: IntGauge,
    journal_bytes: IntGauge,
    journal_most: IntGauge,
    operations: IntCounterVec,
    unknown: IntGauge,
    guards: IntGaugeVec,
    lease: GaugeVec,
    group: HistogramVec,
    reconnects: IntCounterVec,
    rolled_back: IntGaugeVec,
}

/// The label of the store that is a file.
const ALONE: &str = "redb";

/// The labels of a store's operations: first those of a file, then those of a database.
const FILE_OPS: [&str; 2] = ["read", "commit"];
const SHARED_OPS: [&str; 8] = ["read", "admit", "end", "journal", "reserve", "resolve", "beat", "leave"];

/// Buckets for the number of dispatches and ends in one statement.
const GROUPS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

impl GuardMetrics {
    pub fn register(families: &MetricRegistry) -> Self {
        let counters =
            |name, help, label| families.register(IntCounterVec::new(Opts::new(name, help), &[label]));
        let gauge = |name, help| families.register(IntGauge::new(name, help));
        let by_store = |name, help| families.register(IntGaugeVec::new(Opts::new(name, help), &["store"]));
        // A gauge of one kind of store has no series if the store is of the other kind.
        let shared = by_store;
        let of_file = by_store;
        let seconds = |name, help| HistogramOpts::new(name, help).buckets(SHORT.to_vec());
        let metrics = Self {
            store: ALONE,
            decisions: counters("guard_decisions_total", "Claims, by the guard's decision.", "decision"),
            in_flight: gauge("guard_in_flight", "Dispatches that were let in and have not ended."),
            settle: families.register(Histogram::with_opts(seconds(
                "guard_settle_seconds",
                "From a claim to its admission.",
            ))),
            in_doubt: gauge("guard_in_doubt", "Executions whose end was not seen."),
            not_seen: gauge(
                "guard_in_doubt_not_seen",
                "Executions in doubt for which no time passes, because their endpoint does not answer.",
            ),
            resolved: counters("guard_in_doubt_resolved_total", "Doubts that ended early, by who ended them.", "how"),
            store_seconds: families.register(HistogramVec::new(
                seconds("guard_store_seconds", "Time that the store took."),
                &["store", "op"],
            )),
            store_errors: families.register(IntCounterVec::new(
                Opts::new("guard_store_errors_total", "Failures of the store."),
                &["store", "op"],
            )),
            store_keys: gauge("guard_store_keys", "Keys whose watermarks are remembered."),
            disk_free: of_file("guard_store_disk_free_bytes", "Bytes that are free on the disk of the store."),
            disk_size: of_file("guard_store_disk_size_bytes", "Size of the disk of the store, in bytes."),
            at_work: gauge(
                "guard_keys_at_work",
                "Keys that would be in quarantine after an unclean stop at this moment.",
            ),
            quarantined: gauge(
                "guard_keys_in_quarantine",
                "Keys that an earlier guard may have at work; all remembered keys if it is not known which.",
            ),
            journal_entries: gauge("guard_journal_operations", "Operations that the journal remembers."),
            journal_bytes: gauge("guard_journal_bytes", "Bytes that the operations in the journal take up."),
            journal_most: gauge("guard_journal_max_bytes", "Bound of the journal in bytes; beyond it new operations are refused."),
            operations: counters(
                "journal_operations_total",
                "Operations that happen at most once, by what was written down.",
                "state",
            ),
            unknown: families.register(unknown_operations_gauge()).with_label_values(&["guard"]),
            guards: shared("guard_store_guards", "Guards that share the store now, this one among them."),
            lease: families.register(GaugeVec::new(
                Opts::new(
                    "guard_store_lease_seconds",
                    "How long the other guards of a shared store cannot take this one for dead; at 0 it sends nothing.",
                ),
                &["store"],
            )),
            group: families.register(HistogramVec::new(
                HistogramOpts::new(
                    "guard_store_group_size",
                    "Dispatches and ends in one statement to a shared store.",
                )
                .buckets(GROUPS.to_vec()),
                &["store"],
            )),
            reconnects: counters(
                "guard_store_reconnects_total",
                "Connections for decisions that were made to a shared store: the first one, and one after each break.",
                "store",
            ),
            rolled_back: shared(
                "guard_store_rolled_back",
                "1 while every key is closed because a shared store has lost what it had acknowledged.",
            ),
        };
        metrics.init_series();
        metrics
    }

    /// The same metrics for another kind of store.
    #[must_use]
    pub fn with_store(self, store: &'static str) -> Self {
        // Removes the series of the store kind with which the metrics were registered.
        for op in FILE_OPS {
            drop(self.store_errors.remove_label_values(&[self.store, op]));
        }
        let metrics = Self { store, ..self };
        SHARED_OPS.iter().for_each(|op| drop(metrics.store_errors.with_label_values(&[store, op])));
        metrics.reconnects.with_label_values(&[store]);
        metrics
    }

    /// Creates every series at zero: an alert can only see the growth of a series that exists before its first event.
    fn init_series(&self) {
        let words = RefusalCode::ALL.iter().map(|word| word.as_str());
        for decision in
            ["admit", "admit_new_tenure", "recovered", "bypass", "journal-full"].into_iter().chain(words)
        {
            self.decisions.with_label_values(&[decision]);
        }
        for op in FILE_OPS {
            self.store_errors.with_label_values(&[self.store, op]);
        }
        for state in ["admitted", "done", "unknown", "forgotten", "resolved-done", "resolved-not-done"] {
            self.operations.with_label_values(&[state]);
        }
    }

    pub fn record_decision(&self, decision: &'static str) {
        self.decisions.with_label_values(&[decision]).inc();
    }

    pub fn record_admission(&self, new_tenure: bool, waited: Duration) {
        self.record_decision(if new_tenure { "admit_new_tenure" } else { "admit" });
        self.settle.observe(waited.as_secs_f64());
    }

    pub fn add_in_flight(&self, by: i64) {
        self.in_flight.add(by);
    }

    pub fn set_in_doubt(&self, executions: usize) {
        self.in_doubt.set(i64::try_from(executions).unwrap_or(i64::MAX));
    }

    pub fn set_silent_executions(&self, executions: usize) {
        self.not_seen.set(i64::try_from(executions).unwrap_or(i64::MAX));
    }

    pub fn record_doubt_resolved(&self, how: &'static str) {
        self.resolved.with_label_values(&[how]).inc();
    }

    pub fn observe_store_duration(&self, op: &'static str, took: Duration) {
        self.store_seconds.with_label_values(&[self.store, op]).observe(took.as_secs_f64());
    }

    pub fn record_store_error(&self, op: &'static str) {
        self.store_errors.with_label_values(&[self.store, op]).inc();
    }

    /// Records that one statement with this many dispatches and ends was sent to the store.
    pub fn observe_batch_size(&self, dispatches: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a statement has far less")]
        self.group.with_label_values(&[self.store]).observe(dispatches as f64);
    }

    pub fn record_reconnect(&self) {
        self.reconnects.with_label_values(&[self.store]).inc();
    }

    pub fn set_guards(&self, guards: usize) {
        self.guards.with_label_values(&[self.store]).set(i64::try_from(guards).unwrap_or(i64::MAX));
    }

    pub fn set_lease(&self, left: Duration) {
        self.lease.with_label_values(&[self.store]).set(left.as_secs_f64());
    }

    pub fn set_rolled_back(&self, rolled_back: bool) {
        self.rolled_back.with_label_values(&[self.store]).set(i64::from(rolled_back));
    }

    pub fn set_store_keys(&self, keys: usize) {
        self.store_keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    pub fn set_disk(&self, free: u64, size: u64) {
        let gauge = |family: &IntGaugeVec, value| {
            family.with_label_values(&[self.store]).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.disk_free, free);
        gauge(&self.disk_size, size);
    }

    pub fn set_active_keys(&self, keys: usize) {
        self.at_work.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    pub fn set_quarantined(&self, keys: usize) {
        self.quarantined.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    pub fn set_journal(&self, entries: u64, bytes: u64, most: u64) {
        let gauge = |gauge: &IntGauge, value| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge(&self.journal_entries, entries);
        gauge(&self.journal_bytes, bytes);
        gauge(&self.journal_most, most);
    }

    /// Sets the number of operations that have an unknown outcome.
    pub fn set_unknown_operations(&self, operations: usize) {
        self.unknown.set(i64::try_from(operations).unwrap_or(i64::MAX));
    }

    pub fn record_operation(&self, state: &'static str) {
        self.operations.with_label_values(&[state]).inc();
    }
}
