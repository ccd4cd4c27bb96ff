//! The admin listener: is it alive, can it grant locks, what has it counted.

pub mod guard;
pub mod metrics;

use std::{io, net::TcpListener, sync::Arc, thread};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    admin::metrics::{Metrics, Reloaded},
    lock::keeper::Keeper,
    serve::reload::Asking,
    session::live::View,
};

/// What the admin listener shows.
#[derive(Clone)]
pub struct Seen {
    pub keeper: Keeper,
    pub metrics: Arc<Metrics>,
    /// The public keys of our tickets, for guards to fetch.
    pub jwks: Option<Arc<str>>,
    pub drain: CancellationToken,
    pub asking: Asking,
}

/// Serves on a thread of its own, for as long as the process lives: it answers also while it drains.
pub fn start(listener: TcpListener, routes: Router) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
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

/// Of a gateway.
pub fn routes(seen: Seen) -> Router {
    let metrics = seen.metrics.clone();
    Router::new()
        .route("/ready", get(ready))
        .route("/jwks.json", get(jwks))
        .route("/api/v1/reload", post(reload))
        .with_state(seen)
        .merge(expose(metrics, || ()))
}

/// What both roles show. `count` brings gauges up to date.
fn expose(metrics: Arc<Metrics>, count: impl Fn() + Clone + Send + Sync + 'static) -> Router {
    let rendered = async move || {
        count();
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render())
    };
    Router::new().route("/live", get(async || "live\n")).route("/metrics", get(rendered))
}

async fn jwks(State(seen): State<Seen>) -> Result<([(HeaderName, &'static str); 1], String), StatusCode> {
    let jwks = seen.jwks.ok_or(StatusCode::NOT_FOUND)?;
    Ok(([(CONTENT_TYPE, "application/jwk-set+json")], jwks.to_string()))
}

#[derive(Deserialize)]
struct Dry {
    #[serde(default)]
    dry_run: bool,
}

/// 200 when the file is in force, or would be; 422 when it is not sound, and then nothing has changed.
async fn reload(
    State(seen): State<Seen>,
    Query(Dry { dry_run }): Query<Dry>,
) -> Result<Response, StatusCode> {
    let report = seen.asking.reload(dry_run).await.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let status = match report.result {
        Reloaded::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        Reloaded::Applied | Reloaded::Unchanged | Reloaded::Dry => StatusCode::OK,
    };
    Ok((status, Json(report)).into_response())
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
