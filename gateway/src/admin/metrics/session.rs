//! What is counted of the ZooKeeper sessions.

use std::time::Duration;

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use super::{SHORT, registered};
use crate::session::link::State;

/// The series of one ZooKeeper session.
#[derive(Clone)]
pub struct SessionMetrics {
    /// Which of the gateway's sessions.
    label: String,
    state: IntGaugeVec,
    expirations: IntCounter,
    timeout: Gauge,
    proof: GaugeVec,
    ephemerals: IntGaugeVec,
    bytes: IntGaugeVec,
    heartbeat: Histogram,
    errors: IntCounterVec,
    pause: Histogram,
    mismatch: IntGauge,
}

impl SessionMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let histogram = |name, help| {
            registered(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(SHORT.to_vec())))
        };
        let gauge = |name, help| registered(registry, Gauge::new(name, help));
        let gauges = |name, help| registered(registry, IntGaugeVec::new(Opts::new(name, help), &["session"]));
        Self {
            state: registered(
                registry,
                IntGaugeVec::new(
                    Opts::new("zk_session_state", "1 for the state that the session is in."),
                    &["session", "state"],
                ),
            ),
            expirations: registered(
                registry,
                IntCounter::new("zk_session_expirations_total", "Sessions that ended unasked."),
            ),
            timeout: gauge("zk_session_timeout_seconds", "Negotiated session timeout."),
            proof: registered(
                registry,
                GaugeVec::new(
                    Opts::new(
                        "zk_proof_remaining_seconds",
                        "How long a session was proven for at its last heartbeat.",
                    ),
                    &["session"],
                ),
            ),
            ephemerals: gauges("zk_ephemerals", "Lock nodes that a session has or may have."),
            bytes: gauges("zk_ephemeral_bytes", "Bytes of the paths of a session's lock nodes."),
            mismatch: registered(
                registry,
                IntGauge::new("config_mismatch", "Gateways of this installation that lock other keys."),
            ),
            label: "0".into(),
            heartbeat: histogram("zk_heartbeat_seconds", "From sending a heartbeat to its answer."),
            errors: registered(
                registry,
                IntCounterVec::new(Opts::new("zk_errors_total", "Failed operations."), &["op"]),
            ),
            pause: histogram(
                "process_pause_seconds",
                "Heartbeats sent late by more than half a tick, by how much.",
            ),
        }
    }

    pub(super) fn numbered(&self, number: usize) -> Self {
        Self { label: number.to_string(), ..self.clone() }
    }

    pub fn established(&self, timeout: Duration) {
        self.timeout.set(timeout.as_secs_f64());
    }

    pub fn state(&self, state: State) {
        self.in_state(match state {
            State::Connected => "connected",
            State::Disconnected => "disconnected",
            State::Over => "none",
        });
    }

    pub fn away(&self) {
        self.in_state("none");
    }

    pub fn ended(&self) {
        self.expirations.inc();
        self.proof.with_label_values(&[&self.label]).set(0.0);
        self.nodes(0, 0);
        self.in_state("none");
    }

    /// So many gateways of the installation lock other keys.
    pub fn unlike(&self, gateways: usize) {
        self.mismatch.set(i64::try_from(gateways).unwrap_or(i64::MAX));
    }

    pub fn paused(&self, late: Duration) {
        self.pause.observe(late.as_secs_f64());
    }

    pub fn beat(&self, took: Duration, acknowledged: bool) {
        self.heartbeat.observe(took.as_secs_f64());
        if !acknowledged {
            self.errors.with_label_values(&["heartbeat"]).inc();
        }
    }

    pub fn proof(&self, remaining: Duration) {
        self.proof.with_label_values(&[&self.label]).set(remaining.as_secs_f64());
    }

    pub fn nodes(&self, nodes: usize, bytes: usize) {
        let gauge = |gauges: &IntGaugeVec, value: usize| {
            gauges.with_label_values(&[&self.label]).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        gauge(&self.ephemerals, nodes);
        gauge(&self.bytes, bytes);
    }

    fn in_state(&self, current: &str) {
        for state in ["connected", "disconnected", "none"] {
            self.state.with_label_values(&[self.label.as_str(), state]).set(i64::from(state == current));
        }
    }
}
