//! The page of one key: a sentence that explains why requests wait, and below it the facts.

mod holders;
mod key_facts;
mod related;
mod summary;
mod waiters;

use askama::Template;
use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use self::{
    holders::HolderRow,
    key_facts::KeyFacts,
    related::{FinishedRequestRow, LeaseRow, Link},
    summary::KeySummary,
    waiters::{LockNodeRow, WaiterRow},
};
use super::{
    layout::{ErrorPage, FlashMessage, HtmlPage, UnresolvedOperationRow, VERSION, format_now},
    overview::operation_rows,
};
use crate::{models::encode_path_segment, state::GatewayAdminState};

#[derive(Template)]
#[template(path = "key.html")]
struct KeyDetailPage<'a> {
    key: String,
    /// The key as a segment of a path.
    link: String,
    gateway: &'a str,
    at: String,
    note: Option<&'static str>,
    opening: String,
    /// The id of the request that the reader asks about; empty for none. `yours` is its state.
    asked: String,
    yours: Option<String>,
    holders: Vec<HolderRow>,
    /// The conditions that release the key at the latest.
    ends: Vec<String>,
    waiting: Vec<WaiterRow>,
    /// The number of requests that wait here beyond those that are shown.
    more: usize,
    nodes: Result<Vec<LockNodeRow>, String>,
    over: Vec<FinishedRequestRow>,
    leases: Vec<LeaseRow>,
    operations: Option<Result<Vec<UnresolvedOperationRow>, String>>,
    mark: Option<String>,
    elsewhere: Vec<Link>,
    /// The node that can be broken.
    breakable: Option<String>,
    forced: bool,
    csrf: &'a str,
    version: &'static str,
}

/// The form that finds a key.
#[derive(Deserialize)]
pub(super) struct KeySearchForm {
    key: String,
    #[serde(default)]
    request: String,
}

/// The query about a key.
#[derive(Deserialize)]
pub(super) struct KeyDetailPageQuery {
    /// The `X-Request-Id` of an answer, or of a request that waits.
    #[serde(default)]
    request: String,
}

/// Redirects from the form to the page: a form cannot build a path.
pub(super) async fn redirect_to_key(Query(KeySearchForm { key, request }): Query<KeySearchForm>) -> Redirect {
    let key = encode_path_segment(key.trim());
    let request = encode_path_segment(request.trim());
    match request.is_empty() {
        true => Redirect::to(&format!("/locks/{key}")),
        false => Redirect::to(&format!("/locks/{key}?request={request}")),
    }
}

pub(super) async fn key_page(
    State(seen): State<GatewayAdminState>,
    Path(text): Path<String>,
    Query(KeyDetailPageQuery { request }): Query<KeyDetailPageQuery>,
    Query(after): Query<FlashMessage>,
) -> Result<Response, ErrorPage> {
    let forced = !seen.services_compare_tokens(&text)?;
    let plan = seen.config.plan();
    let known = KeyFacts::load(&seen, &text).await?;
    let in_doubt = operation_rows(&seen, &plan, Some(&known.key)).await;
    let request = request.trim();
    let sentence = KeySummary::new(&known, &seen.name, request);
    let line = known.line.as_deref().unwrap_or_default();
    let page = KeyDetailPage {
        link: known.link.clone(),
        gateway: &seen.name,
        at: format_now(),
        note: after.message_text(),
        opening: sentence.headline(),
        yours: sentence.describe_queried_request(),
        asked: request.to_owned(),
        holders: holders::holder_rows(&known, &seen.name),
        ends: holders::release_conditions(&known, &seen.name, &plan),
        waiting: waiters::local_waiters(&known),
        more: known.local.as_ref().map_or(0, |here| here.waiting).saturating_sub(waiters::SHOWN),
        nodes: known.line.as_deref().map(waiters::node_rows).map_err(Clone::clone),
        over: known.finished.iter().map(FinishedRequestRow::new).collect(),
        leases: known.leases.iter().map(LeaseRow::new).collect(),
        operations: in_doubt,
        mark: related::inferred_watermark_text(&known, &plan),
        elsewhere: related::peer_links(&known, &seen.name, request),
        breakable: line.iter().find(|node| node.holds).map(|node| node.node.clone()),
        key: known.display_name,
        forced,
        csrf: seen.csrf.as_str(),
        version: VERSION,
    };
    Ok(HtmlPage(page).into_response())
}
