//! The page of one key: a sentence that says why somebody waits, and below it the facts.

mod first_sentence;
mod known;
mod related;
mod waiters;
mod whose;

use askama::Template;
use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use self::{
    first_sentence::KeySummary,
    known::KeyFacts,
    related::{FinishedRequestRow, LeaseRow, Link},
    waiters::{NodeRow, WaiterRow},
    whose::HolderRow,
};
use super::{
    frame::{ErrorPage, FlashMessage, Page, VERSION},
    overview::operations,
    parts::OperationRow,
    times::now,
};
use crate::admin::{documents::encoded, gateway_seen::GatewayState};

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage<'a> {
    key: String,
    /// The key as a segment of a path.
    link: String,
    gateway: &'a str,
    at: String,
    note: Option<&'static str>,
    opening: String,
    /// The request in question, and its state.
    asked: String,
    yours: Option<String>,
    holders: Vec<HolderRow>,
    /// What releases the key at the latest.
    ends: Vec<String>,
    waiting: Vec<WaiterRow>,
    /// How many more requests wait here than are shown.
    more: usize,
    nodes: Result<Vec<NodeRow>, String>,
    over: Vec<FinishedRequestRow>,
    leases: Vec<LeaseRow>,
    operations: Option<Result<Vec<OperationRow>, String>>,
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
pub(super) struct KeyForm {
    key: String,
    #[serde(default)]
    request: String,
}

/// The question about a key.
#[derive(Deserialize)]
pub(super) struct KeyQuery {
    /// The `X-Request-Id` of an answer, or of a request that waits.
    #[serde(default)]
    request: String,
}

/// Leads from the form to the page: a form cannot write a path.
pub(super) async fn find(Query(KeyForm { key, request }): Query<KeyForm>) -> Redirect {
    let (key, request) = (encoded(key.trim()), encoded(request.trim()));
    match request.is_empty() {
        true => Redirect::to(&format!("/locks/{key}")),
        false => Redirect::to(&format!("/locks/{key}?request={request}")),
    }
}

pub(super) async fn one_key(
    State(seen): State<GatewayState>,
    Path(text): Path<String>,
    Query(KeyQuery { request }): Query<KeyQuery>,
    Query(after): Query<FlashMessage>,
) -> Result<Response, ErrorPage> {
    let forced = !seen.compares(&text)?;
    let plan = seen.in_force.plan();
    let known = KeyFacts::of(&seen, &text).await?;
    let in_doubt = operations(&seen, &plan, Some(&known.key)).await;
    let request = request.trim();
    let sentence = KeySummary::of(&known, &seen.name, request);
    let line = known.line.as_deref().unwrap_or_default();
    let page = KeyPage {
        link: known.link.clone(),
        gateway: &seen.name,
        at: now(),
        note: after.note(),
        opening: sentence.opening(),
        yours: sentence.yours(),
        asked: request.to_owned(),
        holders: whose::of(&known, &seen.name),
        ends: whose::ends(&known, &seen.name, &plan),
        waiting: waiters::here(&known),
        more: known.here.as_ref().map_or(0, |here| here.waiting).saturating_sub(waiters::SHOWN),
        nodes: known.line.as_deref().map(waiters::nodes).map_err(Clone::clone),
        over: known.over.iter().map(FinishedRequestRow::of).collect(),
        leases: known.leases.iter().map(LeaseRow::of).collect(),
        operations: in_doubt,
        mark: related::mark(&known, &plan),
        elsewhere: related::elsewhere(&known, &seen.name, request),
        breakable: line.iter().find(|node| node.holds).map(|node| node.node.clone()),
        key: known.named,
        forced,
        csrf: seen.csrf.text(),
        version: VERSION,
    };
    Ok(Page(page).into_response())
}
