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
    frame::{FlashMessage, Page, assets},
    overview::OverviewPage,
};
use crate::admin::{gateway_seen::GatewayState, outcomes::guard_seen::GuardState};

pub(super) fn of_gateway() -> Router<GatewayState> {
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

pub(super) fn of_guard() -> Router<GuardState> {
    doubts::routes()
        .route("/keys", get(marked_key::find))
        .route("/keys/{*key}", get(marked_key::marked_key))
        .route("/runbook", get(runbook::runbook))
}

async fn overview(State(seen): State<GatewayState>, Query(after): Query<FlashMessage>) -> Response {
    let page = OverviewPage::of(&seen, after.note()).await;
    // With thousands of routes it is long, and probes are answered on this thread.
    match spawn_blocking(|| Page(page).into_response()).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
