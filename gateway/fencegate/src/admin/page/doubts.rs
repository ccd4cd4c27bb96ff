//! The page of a guard: what nobody saw the end of, and what became of claims.

use askama::Template;
use axum::{
    Extension, Form, Router,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use fencegate_process::gathered::Gathered;

use super::{
    forms::{OperationPage, Resolve, confirmed, not_open},
    frame::{After, FaultPage, Page, VERSION, assets},
    parts::{Condition, Counter, InDoubt, Tile},
    times::{brief, now, since},
};
use crate::admin::{
    deed::Deed,
    documents::encoded,
    outcomes::{
        AWAY,
        guard_seen::{GuardSeen, Open, away, quarantine},
    },
};

#[derive(Template)]
#[template(path = "guard.html")]
struct Doubts {
    version: &'static str,
    at: String,
    state: Condition,
    note: Option<&'static str>,
    tiles: Vec<Tile>,
    operations: Result<Vec<InDoubt>, String>,
    decisions: Vec<Counter>,
    stale: Option<String>,
}

pub(in crate::admin) fn routes() -> Router<GuardSeen> {
    Router::new()
        .route("/", get(overview))
        .route("/operations/{reference}", get(operation))
        .route("/operations/{reference}/resolve", post(resolve))
        .merge(assets())
}

async fn overview(State(seen): State<GuardSeen>, Query(after): Query<After>) -> Response {
    seen.guard.count();
    let operations = open(&seen).await;
    let in_doubt = operations.as_ref().map_or(0, Vec::len);
    let refusals = seen.guard.refusals();
    let counted = seen.metrics.gathered();
    let sum = |name: &str| counted.sum(&format!("fencegate_{name}"), None);
    let tile =
        |value: String, label, warn: bool| Tile { value, label, class: if warn { "warn" } else { "" } };
    let stale = refusals.latest.map(|stale| {
        format!("{} for {}, where {} had been", stale.presented, seen.names.of_all(&stale.keys), stale.newest)
    });
    let page = Doubts {
        version: VERSION,
        at: now(),
        state: state(&seen),
        note: after.note(),
        tiles: vec![
            tile(format!("{:.0}", sum("guard_in_flight")), "let in and not ended", false),
            tile(in_doubt.to_string(), "in doubt", in_doubt > 0),
            tile(refusals.stale.to_string(), "stale, refused", refusals.stale > 0),
            tile(format!("{:.0}", sum("guard_store_keys")), "keys remembered", false),
        ],
        operations,
        decisions: decisions(&counted),
        stale,
    };
    Page(page).into_response()
}

fn state(seen: &GuardSeen) -> Condition {
    if seen.drain.is_cancelled() {
        return Condition { word: "draining", class: "warn", why: None };
    }
    if !seen.guard.has_its_store() {
        return Condition { word: "away", class: "bad", why: Some(AWAY.into()) };
    }
    match seen.guard.quarantine() {
        None => Condition { word: "ready", class: "good", why: None },
        Some(closed) => {
            let why = quarantine(closed, seen.guard.now());
            Condition { word: "quarantine", class: "warn", why: Some(why) }
        }
    }
}

fn decisions(counted: &Gathered) -> Vec<Counter> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    let counter = |(what, count): (String, f64)| Counter { what, means: "", count: count as u64 };
    counted.by_label("fencegate_guard_decisions_total", "decision").into_iter().map(counter).collect()
}

async fn open(seen: &GuardSeen) -> Result<Vec<InDoubt>, String> {
    let open = seen.open().await.map_err(|refused| refused.to_string())?;
    Ok(open.into_iter().map(in_doubt).collect())
}

fn in_doubt(open: Open) -> InDoubt {
    InDoubt {
        link: encoded(&open.reference),
        reference: open.reference,
        request: match (open.method, open.target) {
            (Some(method), Some(target)) => format!("{method} {target}"),
            (Some(method), None) => format!("{method} (target not shown)"),
            _ => "an execution that is no operation".into(),
        },
        keys: open.keys.join(", "),
        token: open.token.to_string(),
        named: open.idempotency_key,
        since: open.admitted.map_or_else(|| "not known".into(), since),
        may_run: open.closes_key_for_ms.is_some(),
        closes: open.closes_key_for_ms.map(brief),
    }
}

async fn operation(
    State(seen): State<GuardSeen>,
    Path(reference): Path<String>,
) -> Result<Response, FaultPage> {
    let open = seen.open().await.map_err(|refused| away(&refused))?;
    let one = open.into_iter().find(|one| one.reference == reference).ok_or_else(|| not_open(&reference))?;
    let page = OperationPage { one: in_doubt(one), csrf: seen.csrf.text(), version: VERSION };
    Ok(Page(page).into_response())
}

async fn resolve(
    State(seen): State<GuardSeen>,
    Path(reference): Path<String>,
    Form(form): Form<Resolve>,
) -> Result<(Extension<Deed>, Redirect), FaultPage> {
    seen.csrf.check(&form.csrf)?;
    confirmed(&form.confirm, &reference)?;
    let did = seen.resolve(&reference, form.outcome).await?;
    Ok((Extension(did), Redirect::to("/?done=resolved")))
}
