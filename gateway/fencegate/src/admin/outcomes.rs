//! What a guard shows and lets an operator decide: operations and executions whose outcome nobody saw.

pub mod guard_seen;

use axum::{
    Extension, Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use fencegate_guard::{Refusals, register::Scope};
use fencegate_policies::key::ResourceKey;
use serde::Deserialize;
use serde_json::{Value, json};

use self::guard_seen::{GuardSeen, away, quarantine, unknown};
pub use self::guard_seen::{Kind, Open};
use super::replies::{Done, Looked, draining, resolved};
use crate::admin::{
    deed::Deed,
    input::{ResolvedAs, parsed},
};

/// What an operator says of an operation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolve {
    outcome: ResolvedAs,
}

/// A guard that cannot renew its place in a shared store sends nothing.
pub(super) const AWAY: &str = "the database that the guards share cannot be asked";

pub(super) fn routes() -> Router<GuardSeen> {
    Router::new()
        .route("/ready", get(ready))
        .route("/api/v1/operations", get(operations))
        .route("/api/v1/operations/{reference}/resolve", post(resolve))
        .route("/api/v1/operations/{reference}/forget", post(forget))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/keys/{*key}", get(key))
        .route("/api/v1/refusals", get(refusals))
}

/// 200 when something could be admitted now: on some keys, that is.
async fn ready(State(seen): State<GuardSeen>) -> (StatusCode, String) {
    if seen.drain.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into());
    }
    if !seen.guard.has_its_store() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{AWAY}\n"));
    }
    match seen.guard.quarantine() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(closed) => {
            let status = match closed.scope {
                Scope::Keys(_) => StatusCode::OK,
                Scope::EveryKey(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{}\n", quarantine(closed, seen.guard.now())))
        }
    }
}

/// As SIGTERM: the process ends when everything that runs has ended.
async fn drain(State(seen): State<GuardSeen>) -> (StatusCode, Extension<Deed>, Json<Value>) {
    seen.end.cancel();
    draining()
}

async fn operations(State(seen): State<GuardSeen>) -> Looked<Value> {
    let open = seen.open().await.map_err(|refused| away(&refused))?;
    Ok(Json(json!({ "operations": open })))
}

async fn resolve(State(seen): State<GuardSeen>, Path(reference): Path<String>, body: Bytes) -> Done {
    let Resolve { outcome } = parsed(&body)?;
    let did = seen.resolve(&reference, outcome).await?;
    Ok(resolved(did, &reference))
}

/// A finished operation and its kept answer are forgotten at once.
async fn forget(State(seen): State<GuardSeen>, Path(reference): Path<String>) -> Done {
    match seen.guard.forget(&reference).await {
        Ok(true) => {
            let did = Deed(format!("forgot operation {}", reference.escape_debug()));
            Ok((Extension(did), Json(json!({ "forgotten": reference }))))
        }
        Ok(false) => Err(unknown(&reference)),
        Err(refused) => Err(away(&refused)),
    }
}

async fn key(State(seen): State<GuardSeen>, Path(key): Path<String>) -> Looked<Value> {
    let parsed = ResourceKey::parse(&key).map_err(|_| unknown(&key))?;
    let known = seen.guard.seen(&parsed).await.map_err(|refused| away(&refused))?;
    let known = known.ok_or_else(|| unknown(&key))?;
    let key = seen.names.of(&parsed);
    let running: Vec<_> = known.running.iter().map(|running| running.token).collect();
    let doubts: Vec<_> = known.doubts.iter().map(|doubt| doubt.token).collect();
    Ok(Json(json!({
        "key": key, "write": known.write, "read": known.read, "in_flight": running, "in_doubt": doubts,
    })))
}

async fn refusals(State(seen): State<GuardSeen>) -> Json<Value> {
    let Refusals { stale, latest } = seen.guard.refusals();
    let latest = latest.map(|one| {
        json!({ "keys": seen.names.of_each(&one.keys), "presented": one.presented, "newest": one.newest })
    });
    Json(json!({ "stale": stale, "latest": latest }))
}
