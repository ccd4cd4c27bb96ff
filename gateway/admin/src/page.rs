//! The pages for people. The server renders each page as a whole, so that it works without scripts. One small script
//! replaces parts by newer ones.
//!
//! All text is escaped by the templates. Nothing is inline, so the content security policy needs no exception.

mod forms;
mod guard_key_page;
mod guard_page;
mod key_page;
mod layout;
mod overview;
mod peers;
mod plot;
mod runbook;

use axum::{
    Router,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::task::spawn_blocking;

use self::{
    layout::{FlashMessage, HtmlPage, asset_routes},
    overview::OverviewPage,
};
use crate::{outcomes::state::GuardAdminState, state::GatewayAdminState};

pub(super) fn gateway_page_routes() -> Router<GatewayAdminState> {
    Router::new()
        .route("/", get(overview))
        .route("/locks", get(key_page::redirect_to_key))
        .route("/locks/{key}", get(key_page::key_page))
        .route("/locks/{key}/break", post(forms::break_lock))
        .route("/operations/{reference}", get(forms::operation))
        .route("/operations/{reference}/resolve", post(forms::resolve))
        .route("/runbook", get(runbook::runbook))
        .merge(asset_routes())
}

pub(super) fn guard_page_routes() -> Router<GuardAdminState> {
    guard_page::routes()
        .route("/keys", get(guard_key_page::redirect_to_key))
        .route("/keys/{*key}", get(guard_key_page::guard_key_page))
        .route("/runbook", get(runbook::runbook))
}

async fn overview(State(seen): State<GatewayAdminState>, Query(after): Query<FlashMessage>) -> Response {
    let page = OverviewPage::load(&seen, after.message_text()).await;
    // With thousands of routes rendering takes long, and probes are answered on this thread, so another thread
    // renders.
    match spawn_blocking(|| HtmlPage(page).into_response()).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
