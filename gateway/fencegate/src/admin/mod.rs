//! The admin listener: is it alive, can it grant locks, what has it counted, what does it hold; and what an operator may
//! have it do. It has a thread of its own, so it answers however busy the workers are, and none of them waits for it.
//!
//! [`door`] is who gets in, [`listen`] bounds what each may ask, [`api`] what programs are told and [`page`] what people
//! see. [`told`] is its JSON, described in `gateway/API.md`.

pub mod api;
pub mod bearer;
mod breaking;
pub mod door;
pub mod effective;
pub mod fault;
pub mod guard;
pub mod listen;
pub mod names;
mod page;
mod places;
pub mod told;
pub mod trends;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use fencegate_lock::{session::live::View, tenures::keeper::Keeper};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

pub use self::page::Csrf;
use self::{effective::InForce, trends::Trends};
use crate::{
    metrics::{Metrics, hot::Hot},
    serve::reload::Asking,
};

/// What the admin listener shows.
#[derive(Clone)]
pub struct Seen {
    /// The gateway's.
    pub name: Arc<str>,
    pub keeper: Keeper,
    pub metrics: Arc<Metrics>,
    pub in_force: InForce,
    pub hot: Hot,
    pub trends: Trends,
    /// The public keys of our tickets, for guards to fetch.
    pub jwks: Option<Arc<str>>,
    pub drain: CancellationToken,
    pub asking: Asking,
    pub csrf: Csrf,
}

/// Of a gateway.
pub fn routes(seen: Seen) -> Router {
    let metrics = seen.metrics.clone();
    Router::new()
        .route("/ready", get(ready))
        .merge(api::routes())
        .merge(page::routes())
        .with_state(seen)
        .merge(expose(metrics, || ()))
}

/// What both roles show. `count` brings gauges up to date.
fn expose(metrics: Arc<Metrics>, count: impl Fn() + Clone + Send + Sync + 'static) -> Router {
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

/// 200 when a lock could be granted now. A gateway that is not ready still serves unfenced routes.
async fn ready(State(seen): State<Seen>) -> (StatusCode, String) {
    match seen.not_ready() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

impl Seen {
    /// Why no lock could be granted now.
    fn not_ready(&self) -> Option<String> {
        if self.drain.is_cancelled() {
            return Some("draining".into());
        }
        (!self.keeper.is_ready()).then(|| match self.keeper.view() {
            View::Away(why) => format!("no ZooKeeper session: {why}"),
            View::Unmade(why) | View::RolledBack(why) => why.to_string(),
            View::Live { connected: false, .. } => "the connection to ZooKeeper is lost".into(),
            View::Live { connected: true, .. } => "the ZooKeeper session is not proven yet".into(),
        })
    }
}
