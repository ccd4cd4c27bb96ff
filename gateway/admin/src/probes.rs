//! The paths of both roles for probes and for Prometheus.

use std::sync::Arc;

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use fencegate_metrics::AllMetricFamilies;
use fencegate_process::{liveness::ThreadMonitor, log_writer::dropped_lines};
use tokio::task::spawn_blocking;

/// The route of the metrics. `count` updates the gauges before each answer.
pub(super) fn metrics_routes(
    metrics: Arc<AllMetricFamilies>,
    count: impl Fn() + Clone + Send + Sync + 'static,
) -> Router {
    let rendered = async move || {
        let count = count.clone();
        let metrics = metrics.clone();
        // With thousands of routes rendering takes a while, and probes are answered on this thread, so another
        // thread renders.
        let rendered = spawn_blocking(move || {
            count();
            metrics.render()
        });
        let rendered = rendered.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok::<_, StatusCode>(([(CONTENT_TYPE, "text/plain; version=0.0.4")], rendered))
    };
    Router::new().route("/metrics", get(rendered))
}

/// The route `/live`: 200 while all threads on which requests and locks depend are responsive.
pub(super) fn live_routes(threads: ThreadMonitor) -> Router {
    let lives = async move || probe_response(threads.hung_thread(), "live");
    Router::new().route("/live", get(lives))
}

/// The answer to a probe: 503 with the reason `not` if there is one, and 200 otherwise.
pub(super) fn probe_response(not: Option<String>, word: &str) -> (StatusCode, String) {
    match not {
        None => (StatusCode::OK, healthy_body(word)),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// The body of a good answer to a probe. It also reports lost log lines: nothing waits for the reader of the
/// log, so a restart would not help.
pub(super) fn healthy_body(word: &str) -> String {
    match dropped_lines() {
        0 => format!("{word}\n"),
        dropped => {
            format!("{word}\nlines of the log that were dropped, because nobody took them: {dropped}\n")
        }
    }
}
