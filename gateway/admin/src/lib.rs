//! The admin listener of a gateway or guard. It reports whether the process lives and can grant locks, shows metrics
//! and locks, and executes commands of operators. It has a thread of its own, so it responds while the workers are
//! busy, and no worker waits for it.
//!
//! - [`listen`]: accepts callers; `connection_limit`: bounds their connections; [`auth`]: admits callers
//! - [`api`], [`models`]: the interface for programs and its JSON, described in `gateway/API.md` and, with the feature
//!   `openapi`, in `gateway/openapi`; `page`: the pages for people; `probes`: for load balancers and Prometheus
//! - [`extract`], `key_names`: read the input of operators, and resolve the key that they mean; [`error`]: the
//!   answer to input that is refused
//! - [`leases`]: the leases of clients; [`outcomes`]: requests in doubt, which operators of a guard resolve;
//!   [`config_dump`]: the plan in force; `backup_download`: backups; `break_lock`: ends a lock for an operator
//! - `state`: the state of a gateway that is shown; [`history`]: the times of the last minutes; [`command`]:
//!   commands to the process
//!
//! The listeners of both roles are assembled here. This crate does not know the request path
//! (`fencegate-proxy`): what it shows of requests comes from `fencegate-metrics`.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod auth;
mod backup_download;
pub(crate) mod break_lock;
pub mod command;
pub mod config_dump;
mod connection_limit;
pub mod error;
pub mod extract;
pub mod history;
mod key_names;
pub mod leases;
pub mod listen;
pub mod models;
#[cfg(feature = "openapi")]
pub mod openapi;
pub mod outcomes;
mod page;
mod probes;
mod state;

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use fencegate_metrics::AllMetricFamilies;
use fencegate_process::liveness::ThreadMonitor;

pub use self::{auth::CsrfToken, outcomes::state::GuardAdminState, state::GatewayAdminState};
use self::{
    error::{AdminErrorCode, AdminRefusal},
    probes::{live_routes, metrics_routes, probe_response},
};

/// The routes of a gateway's admin listener.
pub fn gateway_routes(seen: GatewayAdminState) -> Router {
    let metrics = seen.process.metrics.clone();
    let threads = seen.process.threads.clone();
    Router::new()
        .route("/ready", get(ready))
        .merge(api::routes())
        .merge(leases::routes())
        .merge(page::gateway_page_routes())
        .with_state(seen)
        .merge(live_routes(threads))
        .merge(metrics_routes(metrics, || ()))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// The routes of a guard's admin listener.
pub fn guard_routes(seen: GuardAdminState) -> Router {
    let metrics = seen.process.metrics.clone();
    let threads = seen.process.threads.clone();
    let counted = seen.guard.clone();
    Router::new()
        .merge(outcomes::routes())
        .merge(backup_download::routes())
        .merge(page::guard_page_routes())
        .with_state(seen)
        .merge(live_routes(threads))
        .merge(metrics_routes(metrics, move || counted.update_gauges()))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// The routes of a filter's admin listener. A filter depends on no other process, so it is ready as long as its
/// threads are responsive.
pub fn filter_admin_routes(metrics: Arc<AllMetricFamilies>, threads: ThreadMonitor) -> Router {
    let asked = threads.clone();
    let ready = async move || probe_response(asked.unready_thread(), "ready");
    Router::new()
        .route("/ready", get(ready))
        .merge(live_routes(threads))
        .merge(metrics_routes(metrics, || ()))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

async fn not_found() -> AdminRefusal {
    AdminRefusal::new(AdminErrorCode::NotFound, "nothing is told or done here")
}

async fn method_not_allowed() -> AdminRefusal {
    AdminRefusal::new(AdminErrorCode::Method, "it is asked for by another method, which `Allow` names")
}

/// Answers a probe: 200 if a lock could be granted now. A gateway that is not ready still serves unfenced
/// routes.
async fn ready(State(seen): State<GatewayAdminState>) -> (StatusCode, String) {
    probe_response(seen.not_ready_reason(), "ready")
}
