//! The paths of both roles for probes and for Prometheus.

use std::sync::Arc;

use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio::task::spawn_blocking;

use crate::metrics::Metrics;

/// `count` updates the gauges.
pub(super) fn exposed(metrics: Arc<Metrics>, count: impl Fn() + Clone + Send + Sync + 'static) -> Router {
    let rendered = async move || {
        let (count, metrics) = (count.clone(), metrics.clone());
        // With thousands of routes it takes a while, and probes are answered on this thread.
        let rendered = spawn_blocking(move || {
            count();
            metrics.render()
        });
        let rendered = rendered.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok::<_, StatusCode>(([(CONTENT_TYPE, "text/plain; version=0.0.4")], rendered))
    };
    Router::new().route("/live", get(async || "live\n")).route("/metrics", get(rendered))
}
