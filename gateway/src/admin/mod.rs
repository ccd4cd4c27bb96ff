//! The admin listener: is it alive, can it grant locks, what has it counted.

pub mod metrics;

use std::{io, net::TcpListener, sync::Arc, thread};

use axum::{
    Router,
    extract::State,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{admin::metrics::Metrics, lock::keeper::Keeper, session::live::View};

/// What the admin listener shows.
#[derive(Clone)]
pub struct Seen {
    pub keeper: Keeper,
    pub metrics: Arc<Metrics>,
    pub drain: CancellationToken,
}

/// Serves on a thread of its own, for as long as the process lives: it answers also while it drains.
pub fn start(listener: TcpListener, seen: Seen) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let routes = Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(seen);
    thread::Builder::new().name("admin".into()).spawn(move || {
        runtime.block_on(async {
            let served = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => axum::serve(listener, routes).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                error!(%error, "the admin listener ended");
            }
        });
    })?;
    Ok(())
}

/// 200 when a lock could be granted now. A gateway that is not ready still serves unfenced routes.
async fn ready(State(seen): State<Seen>) -> (StatusCode, String) {
    if seen.drain.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into());
    }
    if seen.keeper.is_ready() {
        return (StatusCode::OK, "ready\n".into());
    }
    let why = match seen.keeper.view() {
        View::Away(why) => format!("no ZooKeeper session: {why}\n"),
        View::Live { connected: false, .. } => "the connection to ZooKeeper is lost\n".into(),
        View::Live { connected: true, .. } => "the ZooKeeper session is not proven yet\n".into(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, why)
}

async fn metrics(State(seen): State<Seen>) -> ([(HeaderName, &'static str); 1], Vec<u8>) {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], seen.metrics.render())
}
