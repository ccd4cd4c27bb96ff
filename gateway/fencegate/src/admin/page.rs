//! The page for people: made here as a whole, so that it works without scripts; one small script takes newer parts in.
//!
//! Every text goes through the templates' escaping; nothing is inline that a content security policy would have to allow.

pub(super) mod doubts;
mod forms;
mod frame;
mod overview;
mod parts;
mod plot;
mod times;

use askama::Template;
use axum::{
    Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use tokio::task::spawn_blocking;

use self::{
    frame::{After, FaultPage, Page, VERSION, assets},
    overview::Overview,
};
use crate::admin::{
    documents::{self, One},
    gateway_seen::GatewaySeen,
};

pub(super) fn routes() -> Router<GatewaySeen> {
    Router::new()
        .route("/", get(overview))
        .route("/locks/{key}", get(lock))
        .route("/locks/{key}/break", post(forms::break_lock))
        .route("/operations/{reference}", get(forms::operation))
        .route("/operations/{reference}/resolve", post(forms::resolve))
        .merge(assets())
}

async fn overview(State(seen): State<GatewaySeen>, Query(after): Query<After>) -> Response {
    let page = Overview::of(&seen, after.note()).await;
    // With thousands of routes it is long, and probes are answered on this thread.
    match spawn_blocking(|| Page(page).into_response()).await {
        Ok(answer) => answer,
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[derive(Template)]
#[template(path = "lock.html")]
struct Lock<'a> {
    one: One,
    link: String,
    /// The node that can be broken.
    holder: Option<String>,
    forced: bool,
    csrf: &'a str,
    version: &'static str,
}

async fn lock(State(seen): State<GatewaySeen>, Path(key): Path<String>) -> Result<Response, FaultPage> {
    let forced = !seen.compares(&key)?;
    let one = seen.one(&key).await?;
    let holder = one.line.iter().flatten().find(|node| node.holds).map(|node| node.node.clone());
    let link = documents::encoded(&key);
    let page = Lock { one, link, holder, forced, csrf: seen.csrf.text(), version: VERSION };
    Ok(Page(page).into_response())
}
