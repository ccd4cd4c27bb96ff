//! Shows operations and executions with an unknown outcome, and lets an operator resolve them.

pub mod state;

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use fencegate_guard::StaleRefusalStats;
use fencegate_guard_store::admission::QuarantineScope;
use fencegate_policies::{key::ResourceKey, token::FencingToken};
use serde::{Deserialize, Serialize};

use self::state::{GuardAdminState, quarantine_text, store_unavailable_error, unknown_operation_error};
pub use self::state::{GuardUnresolvedEntry, UnresolvedEntryKind};
use super::models::{
    ActionResult, DrainResponse, QueryResult, ResolveOperationResponse, drain_response, resolve_response,
};
use crate::{
    error::AuditAction,
    extract::{PathParam, RequestBodyBytes, ResolvedOutcome, parse_body},
    probes::healthy_body,
};

/// An operator's word on an operation.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ResolveAtGuard))]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardResolveBody {
    outcome: ResolvedOutcome,
    /// Resolve it as not done although the request may still be begun.
    #[serde(default)]
    force: bool,
}

/// `GET /api/v1/operations`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Doubtful))]
pub(crate) struct GuardUnresolvedList {
    operations: Vec<GuardUnresolvedEntry>,
}

/// `POST /api/v1/operations/REF/forget`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Forgotten))]
pub(crate) struct ForgetOperationResponse {
    /// The reference of the operation.
    forgotten: String,
}

/// `GET /api/v1/keys/KEY`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = KnownKey))]
pub(crate) struct GuardKeyJson {
    key: String,
    /// The newest token that was announced for the key by a writing request.
    write: Option<FencingToken>,
    /// The same for reading requests.
    read: Option<FencingToken>,
    in_flight: Vec<FencingToken>,
    in_doubt: Vec<FencingToken>,
}

/// `GET /api/v1/refusals`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct StaleRefusals {
    /// Dispatches that were refused as stale, since the start.
    stale: u64,
    latest: Option<StaleRefusal>,
}

/// The last of these refusals.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct StaleRefusal {
    keys: Vec<String>,
    presented: FencingToken,
    newest: FencingToken,
}

/// The reason for which a guard that cannot renew its membership in a shared store is not ready: it sends
/// nothing.
pub(super) const AWAY: &str = "the database that the guards share cannot be asked";

pub(super) fn routes() -> Router<GuardAdminState> {
    Router::new()
        .route("/ready", get(ready))
        .route("/api/v1/operations", get(operations))
        .route("/api/v1/operations/{reference}/resolve", post(resolve))
        .route("/api/v1/operations/{reference}/forget", post(forget))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/keys/{*key}", get(key_status))
        .route("/api/v1/refusals", get(refusals))
}

/// Answers a probe: 200 if the guard could admit something now, at least on some keys.
async fn ready(State(seen): State<GuardAdminState>) -> (StatusCode, String) {
    if seen.process.drain.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into());
    }
    // The threads are checked before the guard is queried, because a thread that hangs may hold a lock that the
    // guard needs to answer.
    if let Some(hung) = seen.process.threads.unready_thread() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{hung}\n"));
    }
    if !seen.guard.is_store_available() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{AWAY}\n"));
    }
    match seen.guard.quarantine() {
        None => (StatusCode::OK, healthy_body("ready")),
        Some(closed) => {
            let status = match closed.scope {
                QuarantineScope::Keys(_) => StatusCode::OK,
                QuarantineScope::EveryKey(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{}\n", quarantine_text(closed, seen.guard.now())))
        }
    }
}

/// Ends the process as SIGTERM does, when all running work has ended.
async fn drain(
    State(seen): State<GuardAdminState>,
) -> (StatusCode, Extension<AuditAction>, Json<DrainResponse>) {
    seen.end.cancel();
    drain_response()
}

async fn operations(State(seen): State<GuardAdminState>) -> QueryResult<GuardUnresolvedList> {
    let operations = seen.unknown_outcomes().await.map_err(|refused| store_unavailable_error(&refused))?;
    Ok(Json(GuardUnresolvedList { operations }))
}

async fn resolve(
    State(seen): State<GuardAdminState>,
    PathParam(reference): PathParam,
    body: RequestBodyBytes,
) -> ActionResult<ResolveOperationResponse> {
    let GuardResolveBody { outcome, force } = parse_body(&body)?;
    let did = seen.resolve(&reference, outcome, force).await?;
    Ok(resolve_response(did, reference))
}

/// Forgets a finished operation and its kept response at once.
async fn forget(
    State(seen): State<GuardAdminState>,
    PathParam(reference): PathParam,
) -> ActionResult<ForgetOperationResponse> {
    match seen.guard.forget(&reference).await {
        Ok(true) => {
            let did = AuditAction(format!("forgot operation {}", reference.escape_debug()));
            Ok((Extension(did), Json(ForgetOperationResponse { forgotten: reference })))
        }
        Ok(false) => Err(unknown_operation_error(&reference)),
        Err(refused) => Err(store_unavailable_error(&refused)),
    }
}

async fn key_status(
    State(seen): State<GuardAdminState>,
    PathParam(key): PathParam,
) -> QueryResult<GuardKeyJson> {
    let parsed = ResourceKey::parse(&key).map_err(|_| unknown_operation_error(&key))?;
    let known = seen.guard.key_view(&parsed).await.map_err(|refused| store_unavailable_error(&refused))?;
    let known = known.ok_or_else(|| unknown_operation_error(&key))?;
    Ok(Json(GuardKeyJson {
        key: seen.names.display(&parsed),
        write: known.write,
        read: known.read,
        in_flight: known.running.iter().map(|running| running.token).collect(),
        in_doubt: known.doubts.iter().map(|doubt| doubt.token).collect(),
    }))
}

async fn refusals(State(seen): State<GuardAdminState>) -> Json<StaleRefusals> {
    let StaleRefusalStats { stale, latest } = seen.guard.stale_dispatch_stats();
    let latest = latest.map(|one| StaleRefusal {
        keys: seen.names.display_each(&one.keys),
        presented: one.presented,
        newest: one.newest,
    });
    Json(StaleRefusals { stale, latest })
}
