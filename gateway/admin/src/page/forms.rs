//! The actions of the page: break a lock, and resolve an operation. Each needs a word to confirm it, and the CSRF
//! token of the form, which no other site can read.

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use fencegate_idempotency::unresolved::UnresolvedOperation;
use fencegate_process::key_redaction::KeyRedaction;
use serde::Deserialize;

use super::layout::{ErrorPage, HtmlPage, UnresolvedOperationRow, VERSION, format_unix_seconds};
use crate::{
    break_lock::BreakLockBody,
    error::{AdminErrorCode, AdminRefusal, AuditAction},
    extract::ResolvedOutcome,
    models::encode_path_segment,
    state::GatewayAdminState,
};

#[derive(Deserialize)]
pub(super) struct BreakLockForm {
    csrf: String,
    confirm: String,
    holder: Option<String>,
    force: Option<String>,
}

pub(super) async fn break_lock(
    State(seen): State<GatewayAdminState>,
    Path(key): Path<String>,
    Form(form): Form<BreakLockForm>,
) -> Result<(Extension<AuditAction>, Redirect), ErrorPage> {
    seen.csrf.verify_form_token(&form.csrf)?;
    let BreakLockForm { confirm, holder, force, .. } = form;
    let (did, _) = seen.break_lock(&key, BreakLockBody { confirm, holder, force: force.is_some() }).await?;
    Ok((Extension(did), Redirect::to("/?done=broken")))
}

#[derive(Template)]
#[template(path = "operation.html")]
pub(super) struct ResolveOperationPage<'a> {
    pub(super) one: UnresolvedOperationRow,
    pub(super) csrf: &'a str,
    pub(super) version: &'static str,
}

pub(super) async fn operation(
    State(seen): State<GatewayAdminState>,
    Path(reference): Path<String>,
) -> Result<Response, ErrorPage> {
    let open = seen.locks.unresolved_operations().await.map_err(AdminRefusal::from)?;
    let one =
        open.iter().find(|one| one.reference == reference).ok_or_else(|| not_in_doubt_error(&reference))?;
    let page = ResolveOperationPage {
        one: operation_row(one, seen.key_redaction()),
        csrf: seen.csrf.as_str(),
        version: VERSION,
    };
    Ok(HtmlPage(page).into_response())
}

#[derive(Deserialize)]
pub(super) struct ResolveForm {
    pub(super) csrf: String,
    pub(super) confirm: String,
    pub(super) outcome: ResolvedOutcome,
    pub(super) force: Option<String>,
}

pub(super) async fn resolve(
    State(seen): State<GatewayAdminState>,
    Path(reference): Path<String>,
    Form(form): Form<ResolveForm>,
) -> Result<(Extension<AuditAction>, Redirect), ErrorPage> {
    seen.csrf.verify_form_token(&form.csrf)?;
    check_confirmation(&form.confirm, &reference)?;
    let did = seen.resolve(&reference, form.outcome, form.force.is_some()).await?;
    Ok((Extension(did), Redirect::to("/?done=resolved")))
}

pub(super) fn check_confirmation(confirm: &str, reference: &str) -> Result<(), AdminRefusal> {
    let differs =
        || AdminRefusal::new(AdminErrorCode::Confirm, "what was written to confirm is not the reference");
    (confirm.trim() == reference).then_some(()).ok_or_else(differs)
}

pub(super) fn not_in_doubt_error(reference: &str) -> AdminRefusal {
    AdminRefusal::new(
        AdminErrorCode::NotFound,
        format!("nothing is in doubt under the reference `{reference}` any more"),
    )
}

pub(super) fn operation_row(open: &UnresolvedOperation, names: KeyRedaction) -> UnresolvedOperationRow {
    let record = &open.record;
    let target = if names.shows_targets() { record.target.as_str() } else { "(target not shown)" };
    UnresolvedOperationRow {
        reference: open.reference.clone(),
        link: encode_path_segment(&open.reference),
        request: format!("{} {target}", record.method),
        keys: names.display_list(&record.keys),
        of: names.display_each(&record.keys),
        token: record.token.to_string(),
        named: record.name.clone(),
        since: format_unix_seconds(record.admitted),
        may_run: open.may_run,
        closes: None,
    }
}
