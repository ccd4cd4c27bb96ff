//! The page of a guard: requests with an unknown outcome, and the decisions about claims.

use askama::Template;
use axum::{
    Extension, Form, Router,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use fencegate_process::registry::MetricSnapshot;

use super::{
    forms::{ResolveForm, ResolveOperationPage, check_confirmation, not_in_doubt_error},
    layout::{
        CounterRow, ErrorPage, FlashMessage, HtmlPage, ProcessStatusBadge, Tile, UnresolvedOperationRow,
        VERSION, asset_routes, format_millis, format_now, format_time, format_unix_seconds,
    },
};
use crate::{
    error::AuditAction,
    models::encode_path_segment,
    outcomes::{
        AWAY,
        state::{GuardAdminState, GuardUnresolvedEntry, quarantine_text, store_unavailable_error},
    },
};

#[derive(Template)]
#[template(path = "guard.html")]
struct GuardOverviewPage {
    version: &'static str,
    at: String,
    state: ProcessStatusBadge,
    note: Option<&'static str>,
    tiles: Vec<Tile>,
    operations: Result<Vec<UnresolvedOperationRow>, String>,
    decisions: Vec<CounterRow>,
    stale: Option<String>,
}

pub(super) fn routes() -> Router<GuardAdminState> {
    Router::new()
        .route("/", get(overview))
        .route("/operations/{reference}", get(operation))
        .route("/operations/{reference}/resolve", post(resolve))
        .merge(asset_routes())
}

async fn overview(State(seen): State<GuardAdminState>, Query(after): Query<FlashMessage>) -> Response {
    seen.guard.update_gauges();
    let operations = operation_rows(&seen).await;
    let in_doubt = operations.as_ref().map_or(0, Vec::len);
    let refusals = seen.guard.stale_dispatch_stats();
    let counted = seen.process.metrics.gather();
    let sum = |name: &str| counted.sum(&format!("fencegate_{name}"), None);
    let tile = |value: String, label, warn: bool| Tile {
        value,
        label,
        means: "",
        class: if warn { "warn" } else { "" },
    };
    let stale = refusals.latest.map(|stale| {
        format!(
            "{} for {}, where {} had been",
            stale.presented,
            seen.names.display_list(&stale.keys),
            stale.newest
        )
    });
    let page = GuardOverviewPage {
        version: VERSION,
        at: format_now(),
        state: process_status(&seen),
        note: after.message_text(),
        tiles: vec![
            tile(format!("{:.0}", sum("guard_in_flight")), "let in and not ended", false),
            tile(in_doubt.to_string(), "in doubt", in_doubt > 0),
            tile(refusals.stale.to_string(), "stale, refused", refusals.stale > 0),
            tile(format!("{:.0}", sum("guard_store_keys")), "keys remembered", false),
        ],
        operations,
        decisions: decisions(&seen, &counted),
        stale,
    };
    HtmlPage(page).into_response()
}

fn process_status(seen: &GuardAdminState) -> ProcessStatusBadge {
    if seen.process.drain.is_cancelled() {
        return ProcessStatusBadge { word: "draining", class: "warn", why: None };
    }
    if !seen.guard.is_store_available() {
        return ProcessStatusBadge { word: "away", class: "bad", why: Some(AWAY.into()) };
    }
    match seen.guard.quarantine() {
        None => ProcessStatusBadge { word: "ready", class: "good", why: None },
        Some(closed) => {
            let why = quarantine_text(closed, seen.guard.now());
            ProcessStatusBadge { word: "quarantine", class: "warn", why: Some(why) }
        }
    }
}

/// The decisions about claims: the label of the metric, its name for people, and its meaning for an operator.
const DECISIONS: [(&str, &str, &str); 25] = [
    ("admit", "Let in", "of the tenure that was there before, or of a new key"),
    ("admit_new_tenure", "Let in, of a newer tenure", "the key had changed hands"),
    ("stale", "Refused: the token is too old", "a newer one was there before: the service is whole"),
    ("recovered", "Refused once after an unclean stop", "it comes back with a larger token"),
    ("duplicate", "Refused: this dispatch was here before", "something on the way sent it twice"),
    ("floor", "Refused: below the floor", "watermarks of so old tokens are forgotten"),
    ("token-future", "Refused: the token is far too large", "forged, or of another installation"),
    ("token-malformed", "Refused: the token cannot be read", "no gateway writes such a token"),
    ("expired", "Refused: it came too late to be begun", "it lay somewhere for too long, or clocks differ"),
    ("not-after-missing", "Refused: no moment until which it may be begun", "only a filter says this"),
    ("token-missing", "Refused: no token", "somebody reaches the guard without a gateway"),
    ("bypass", "Came without a token", "somebody reaches the guard without a gateway"),
    ("ticket-missing", "Refused: no ticket", "a gateway without `tickets`, or none"),
    ("ticket-invalid", "Refused: the ticket is not valid", "forged, or of a key that is not known here"),
    ("ticket-expired", "Refused: the ticket has expired", "it was on its way for too long, or clocks differ"),
    ("ticket-key", "Refused: the ticket is of another key, token or mode", "taken from another request"),
    ("deadlock-avoided", "Refused: called from a dispatch", "the guard has no `tickets` to tell who calls"),
    ("busy", "Refused: an older request did not end in time", "the service takes longer than `settle`"),
    (
        "in-doubt",
        "Refused: the end of an older request was not seen",
        "its keys are closed for `max_execution`",
    ),
    ("quarantine", "Refused: the guard has just started", "what was let in before it may still run"),
    ("store", "Refused: the store takes nothing", "its disk or its database"),
    ("journal-full", "Refused: the journal is full", "finished operations leave it after `keep`"),
    ("in-progress", "Told: the same operation is running", "a repeat came early"),
    ("idempotency-mismatch", "Refused: the operation was another request", "a client has used a name twice"),
    ("outcome-unknown", "Told: what came of the operation is not known", "somebody has to say so"),
];

/// The decisions that were counted at least once.
fn decisions(seen: &GuardAdminState, counted: &MetricSnapshot) -> Vec<CounterRow> {
    let counter = |(word, count): (String, f64)| {
        let known = DECISIONS.iter().find(|(decision, ..)| *decision == word);
        let (what, means) = known.map_or((word.as_str(), ""), |(_, what, means)| (*what, *means));
        let last = seen.rejected_callers.last(&word).map(|caller| {
            let behalf = caller.client.map(|client| format!(" for {client}")).unwrap_or_default();
            format!("last at {}, {} from {}{behalf}", format_time(caller.at), caller.method, caller.peer)
        });
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
        CounterRow { what: what.to_owned(), means, count: count as u64, last }
    };
    let decisions = counted.by_label("fencegate_guard_decisions_total", "decision").into_iter();
    decisions.filter(|(_, count)| *count > 0.0).map(counter).collect()
}

pub(super) async fn operation_rows(seen: &GuardAdminState) -> Result<Vec<UnresolvedOperationRow>, String> {
    let open = seen.unknown_outcomes().await.map_err(|refused| refused.to_string())?;
    Ok(open.into_iter().map(operation_row).collect())
}

fn operation_row(open: GuardUnresolvedEntry) -> UnresolvedOperationRow {
    UnresolvedOperationRow {
        link: encode_path_segment(&open.reference),
        reference: open.reference,
        request: match (open.method, open.target) {
            (Some(method), Some(target)) => format!("{method} {target}"),
            (Some(method), None) => format!("{method} (target not shown)"),
            _ => "an execution that is no operation".into(),
        },
        keys: open.keys.join(", "),
        of: open.keys,
        token: open.token.to_string(),
        named: open.idempotency_key,
        since: open.admitted.map_or_else(|| "not known".into(), format_unix_seconds),
        may_run: open.closes_key_for_ms.is_some(),
        closes: open.closes_key_for_ms.map(|ms| match &open.endpoint {
            Some(endpoint) if open.endpoint_silent => {
                format!("{}, and {endpoint} does not answer", format_millis(ms))
            }
            _ => format_millis(ms),
        }),
    }
}

async fn operation(
    State(seen): State<GuardAdminState>,
    Path(reference): Path<String>,
) -> Result<Response, ErrorPage> {
    let open = seen.unknown_outcomes().await.map_err(|refused| store_unavailable_error(&refused))?;
    let one = open
        .into_iter()
        .find(|one| one.reference == reference)
        .ok_or_else(|| not_in_doubt_error(&reference))?;
    let page = ResolveOperationPage { one: operation_row(one), csrf: seen.csrf.as_str(), version: VERSION };
    Ok(HtmlPage(page).into_response())
}

async fn resolve(
    State(seen): State<GuardAdminState>,
    Path(reference): Path<String>,
    Form(form): Form<ResolveForm>,
) -> Result<(Extension<AuditAction>, Redirect), ErrorPage> {
    seen.csrf.verify_form_token(&form.csrf)?;
    check_confirmation(&form.confirm, &reference)?;
    let did = seen.resolve(&reference, form.outcome, form.force.is_some()).await?;
    Ok((Extension(did), Redirect::to("/?done=resolved")))
}

#[cfg(test)]
mod tests {
    use fencegate_guard_store::error::RefusalCode;

    use super::*;

    /// Every word for a refused claim has a row in `DECISIONS`.
    #[test]
    fn claim_refusals_have_descriptions() {
        for word in RefusalCode::ALL.iter().map(|word| word.as_str()) {
            assert!(DECISIONS.iter().any(|(decision, ..)| *decision == word), "{word}");
        }
    }
}
