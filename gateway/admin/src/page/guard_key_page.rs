//! The page of one key at a guard: the watermarks with which tokens are compared, and the requests that run or are in
//! doubt.

use askama::Template;
use axum::{
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
};
use fencegate_policies::{key::ResourceKey, token::FencingToken};
use serde::Deserialize;

use super::{
    guard_page::operation_rows,
    layout::{ErrorPage, HtmlPage, UnresolvedOperationRow, VERSION, format_now},
};
use crate::{
    error::{AdminErrorCode, AdminRefusal},
    models::encode_path_segment,
    outcomes::state::{GuardAdminState, store_unavailable_error},
};

#[derive(Template)]
#[template(path = "marked_key.html")]
struct GuardKeyDetailPage {
    key: String,
    link: String,
    at: String,
    opening: String,
    write: Option<String>,
    read: Option<String>,
    running: Vec<String>,
    operations: Vec<UnresolvedOperationRow>,
    version: &'static str,
}

#[derive(Deserialize)]
pub(super) struct GuardKeyForm {
    key: String,
}

/// Redirects from the form to the page: a form cannot build a path.
pub(super) async fn redirect_to_key(Query(GuardKeyForm { key }): Query<GuardKeyForm>) -> Redirect {
    Redirect::to(&format!("/keys/{}", encode_path_segment(key.trim())))
}

pub(super) async fn guard_key_page(
    State(seen): State<GuardAdminState>,
    Path(text): Path<String>,
) -> Result<Response, ErrorPage> {
    let key = ResourceKey::parse(&text)
        .map_err(|bad| AdminRefusal::new(AdminErrorCode::Malformed, bad.to_string()))?;
    let known = seen.guard.key_view(&key).await.map_err(|refused| store_unavailable_error(&refused))?;
    let (write, read) = known.as_ref().map_or((None, None), |known| (known.write, known.read));
    let named = seen.names.display(&key);
    let mut operations =
        operation_rows(&seen).await.map_err(|message| AdminRefusal::new(AdminErrorCode::Away, message))?;
    operations.retain(|one| one.of.contains(&named));
    let shown = |token: &FencingToken| format!("{token} (number {})", token.number());
    let running: Vec<String> =
        known.iter().flat_map(|known| &known.running).map(|running| shown(&running.token)).collect();
    let page = GuardKeyDetailPage {
        opening: headline(&named, write.max(read), running.len(), operations.len()),
        write: write.as_ref().map(shown),
        read: read.as_ref().map(shown),
        running,
        operations,
        link: encode_path_segment(&text),
        key: named,
        at: format_now(),
        version: VERSION,
    };
    Ok(HtmlPage(page).into_response())
}

fn headline(key: &str, newest: Option<FencingToken>, running: usize, doubts: usize) -> String {
    let Some(newest) = newest else {
        return format!("No request under the key {key} is remembered by this guard.");
    };
    let now = match (running, doubts) {
        (0, 0) => "nothing is at work under it".to_owned(),
        (0, doubts) => format!("of {doubts} of its requests nobody knows what came of them"),
        (running, 0) => format!("{running} of its requests are at work"),
        (running, doubts) => format!("{running} of its requests are at work, and {doubts} are in doubt"),
    };
    format!("The newest token of the key {key} has number {}; {now}.", newest.number())
}
