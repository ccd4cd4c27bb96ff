//! The pages for people. Each is made here as a whole, so that it works without scripts. One small script replaces
//! parts by newer ones.
//!
//! All text is escaped by the templates. Nothing is inline, so the content security policy needs no exception.

mod doubts;
mod forms;
mod frame;
mod marked_key;
mod neighbours;
mod one_key;
mod overview;
mod parts;
mod plot;
mod runbook;
mod times;

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::task::spawn_blocking;

use self::{
    frame::{After, Page, assets},
    overview::Overview,
};
use crate::admin::{gateway_seen::GatewaySeen, outcomes::guard_seen::GuardSeen};

pub(super) fn of_gateway() -> Router<GatewaySeen> {
    Router::new()
        .route("/", get(overview))
        .route("/locks", get(one_key::find))
        .route("/locks/{key}", get(one_key::one_key))
        .route("/locks/{key}/break", post(forms::break_lock))
        .route("/operations/{reference}", get(forms::operation))
        .route("/operations/{reference}/resolve", post(forms::resolve))
        .route("/runbook", get(runbook::runbook))
        .merge(assets())
}

pub(super) fn of_guard() -> Router<GuardSeen> {
    doubts::routes()
        .route("/keys", get(marked_key::find))
        .route("/keys/{*key}", get(marked_key::marked_key))
        .route("/runbook", get(runbook::runbook))
}

async fn overview(State(seen): State<GatewaySeen>, Query(after): Query<After>) -> Response {
    let page = Overview::of(&seen, after.note()).await;
    // With thousands of routes it is long, and probes are answered on this thread.
    match spawn_blocking(|| Page(page).into_response()).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
