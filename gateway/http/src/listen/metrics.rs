//! The metrics of client connections, which have no route.

use std::path::Path;

use fencegate_process::registry::MetricRegistry;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts};

use super::{connection_limit::ConnectionRejection, handler::ListenerTimeLimit};

/// The families of client connections. Clones count into the same families.
#[derive(Debug, Clone)]
pub struct ClientConnectionMetrics {
    timeouts: IntCounterVec,
    handshakes: IntCounterVec,
    proxy_headers: IntCounterVec,
    made_room: IntCounter,
    turned_away: IntCounterVec,
    reloads: IntCounterVec,
    not_after: IntGaugeVec,
}

impl ClientConnectionMetrics {
    pub fn register(families: &MetricRegistry) -> Self {
        let counters =
            |name, help, label| families.register(IntCounterVec::new(Opts::new(name, help), &[label]));
        let not_after = Opts::new(
            "tls_certificate_not_after_timestamp_seconds",
            "When a certificate that is shown to clients expires, by its file.",
        );
        let metrics = Self {
            timeouts: counters(
                "client_timeouts_total",
                "Clients that were too slow, by the time limit that ended the wait.",
                "limit",
            ),
            handshakes: counters("tls_handshakes_total", "Handshakes with clients.", "result"),
            proxy_headers: counters(
                "proxy_headers_total",
                "Connections that had to begin with a PROXY header, by what they sent.",
                "result",
            ),
            made_room: families.register(IntCounter::new(
                "client_connections_made_room_total",
                "Idle connections that were closed to make room for a new one, because all places were taken.",
            )),
            turned_away: counters(
                "client_connections_turned_away_total",
                "New connections that were closed at once, by reason.",
                "reason",
            ),
            reloads: counters("tls_reloads_total", "Files of a listener's TLS that have changed.", "result"),
            not_after: families.register(IntGaugeVec::new(not_after, &["certificate"])),
        };
        for limit in ListenerTimeLimit::ALL {
            // Creates every series with the value zero: an alert sees the growth of a series only if it exists before
            // its first event.
            metrics.timeouts.with_label_values(&[limit.as_str()]);
        }
        for reason in [ConnectionRejection::ConnectionLimit, ConnectionRejection::ClientLimit] {
            metrics.turned_away.with_label_values(&[reason.as_str()]);
        }
        for result in RESULTS {
            metrics.handshakes.with_label_values(&[result]);
        }
        metrics
    }

    pub(crate) fn record_handshake(&self, succeeded: bool) {
        self.handshakes.with_label_values(&[RESULTS[usize::from(!succeeded)]]).inc();
    }

    pub(crate) fn record_proxy_header(&self, result: &'static str) {
        self.proxy_headers.with_label_values(&[result]).inc();
    }

    pub fn record_tls_reload(&self, taken_over: bool) {
        self.reloads.with_label_values(&[if taken_over { "ok" } else { "bad" }]).inc();
    }

    /// `until` is the end of validity in seconds since 1970.
    pub(crate) fn set_certificate_expiry(&self, file: &Path, until: u64) {
        let until = i64::try_from(until).unwrap_or(i64::MAX);
        self.not_after.with_label_values(&[&*file.to_string_lossy()]).set(until);
    }

    /// Counts an idle connection that was closed to free its slot for a new one.
    pub(crate) fn record_eviction(&self) {
        self.made_room.inc();
    }

    pub fn record_rejection(&self, reason: ConnectionRejection) {
        self.turned_away.with_label_values(&[reason.as_str()]).inc();
    }

    pub fn record_timeout(&self, limit: ListenerTimeLimit) {
        self.timeouts.with_label_values(&[limit.as_str()]).inc();
    }
}

const RESULTS: [&str; 2] = ["ok", "failed"];
