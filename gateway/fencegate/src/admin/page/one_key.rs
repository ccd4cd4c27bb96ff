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
    first_sentence::FirstSentence,
    known::KnownOfKey,
    related::{LeaseRow, Link, Past},
    waiters::{Node, WaitingRow},
    whose::Holder,
};
use super::{
    frame::{After, FaultPage, Page, VERSION},
    overview::operations,
    parts::InDoubt,
    times::now,
};
use crate::admin::{documents::encoded, gateway_seen::GatewaySeen};

#[derive(Template)]
#[template(path = "key.html")]
struct OneKey<'a> {
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
    holders: Vec<Holder>,
    /// What releases the key at the latest.
    ends: Vec<String>,
    waiting: Vec<WaitingRow>,
    /// How many more requests wait here than are shown.
    more: usize,
    nodes: Result<Vec<Node>, String>,
    over: Vec<Past>,
    leases: Vec<LeaseRow>,
    operations: Option<Result<Vec<InDoubt>, String>>,
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
pub(super) struct About {
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
    State(seen): State<GatewaySeen>,
    Path(text): Path<String>,
    Query(About { request }): Query<About>,
    Query(after): Query<After>,
) -> Result<Response, FaultPage> {
    let forced = !seen.compares(&text)?;
    let plan = seen.in_force.plan();
    let known = KnownOfKey::of(&seen, &text).await?;
    let in_doubt = operations(&seen, &plan, Some(&known.key)).await;
    let request = request.trim();
    let sentence = FirstSentence::of(&known, &seen.name, request);
    let line = known.line.as_deref().unwrap_or_default();
    let page = OneKey {
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
        over: known.over.iter().map(Past::of).collect(),
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
