//! The actions of the page: break a lock, and resolve an operation. Each needs a word to confirm it, and the token of
//! the form, which no other site can read.

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use fencegate_lock::once::unresolved::Unresolved;
use fencegate_process::shown::Names;
use serde::Deserialize;

use super::{
    frame::{FaultPage, Page, VERSION},
    parts::InDoubt,
    times::since,
};
use crate::admin::{
    breaking::Breaking,
    deed::Deed,
    documents::encoded,
    fault::{Fault, Word},
    gateway_seen::GatewaySeen,
    input::ResolvedAs,
};

#[derive(Deserialize)]
pub(super) struct Break {
    csrf: String,
    confirm: String,
    holder: Option<String>,
    force: Option<String>,
}

pub(super) async fn break_lock(
    State(seen): State<GatewaySeen>,
    Path(key): Path<String>,
    Form(form): Form<Break>,
) -> Result<(Extension<Deed>, Redirect), FaultPage> {
    seen.csrf.check(&form.csrf)?;
    let Break { confirm, holder, force, .. } = form;
    let (did, _) = seen.break_lock(&key, Breaking { confirm, holder, force: force.is_some() }).await?;
    Ok((Extension(did), Redirect::to("/?done=broken")))
}

#[derive(Template)]
#[template(path = "operation.html")]
pub(super) struct OperationPage<'a> {
    pub(super) one: InDoubt,
    pub(super) csrf: &'a str,
    pub(super) version: &'static str,
}

pub(super) async fn operation(
    State(seen): State<GatewaySeen>,
    Path(reference): Path<String>,
) -> Result<Response, FaultPage> {
    let open = seen.keeper.operations().await.map_err(Fault::from)?;
    let one = open.iter().find(|one| one.reference == reference).ok_or_else(|| not_open(&reference))?;
    let page = OperationPage { one: in_doubt(one, seen.names()), csrf: seen.csrf.text(), version: VERSION };
    Ok(Page(page).into_response())
}

#[derive(Deserialize)]
pub(super) struct Resolve {
    pub(super) csrf: String,
    pub(super) confirm: String,
    pub(super) outcome: ResolvedAs,
    pub(super) force: Option<String>,
}

pub(super) async fn resolve(
    State(seen): State<GatewaySeen>,
    Path(reference): Path<String>,
    Form(form): Form<Resolve>,
) -> Result<(Extension<Deed>, Redirect), FaultPage> {
    seen.csrf.check(&form.csrf)?;
    confirmed(&form.confirm, &reference)?;
    let did = seen.resolve(&reference, form.outcome, form.force.is_some()).await?;
    Ok((Extension(did), Redirect::to("/?done=resolved")))
}

pub(super) fn confirmed(confirm: &str, reference: &str) -> Result<(), Fault> {
    let differs = || Fault::new(Word::Confirm, "what was written to confirm is not the reference");
    (confirm.trim() == reference).then_some(()).ok_or_else(differs)
}

pub(super) fn not_open(reference: &str) -> Fault {
    Fault::new(Word::NotFound, format!("nothing is in doubt under the reference `{reference}` any more"))
}

pub(super) fn in_doubt(open: &Unresolved, names: Names) -> InDoubt {
    let record = &open.record;
    let target = if names.shows_targets() { record.target.as_str() } else { "(target not shown)" };
    InDoubt {
        reference: open.reference.clone(),
        link: encoded(&open.reference),
        request: format!("{} {target}", record.method),
        keys: names.of_all(&record.keys),
        of: names.of_each(&record.keys),
        token: record.token.to_string(),
        named: record.name.clone(),
        since: since(record.admitted),
        may_run: open.may_run,
        closes: None,
    }
}
