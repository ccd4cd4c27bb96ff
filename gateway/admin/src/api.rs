//! The admin API of a gateway. Every response is produced on the admin listener's own thread, from memory or from
//! ZooKeeper; no worker is queried.

use axum::{
    Extension, Json, Router,
    extract::State,
    http::{HeaderName, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use fencegate_idempotency::unresolved::UnresolvedOperation;
use fencegate_lock::manager::{
    admin_query::{ResolveOperationOutcome, ResolveOperationRequest},
    listing::{LockListFilter, LockListOrder},
};
use fencegate_metrics::ReloadResult;
use serde::Deserialize;

use super::{
    break_lock,
    config_dump::EffectiveConfig,
    error::{AdminErrorCode, AdminRefusal},
    models::{
        ActionResult, DrainResponse, QueryResult, ResolveOperationResponse, drain_response, resolve_response,
    },
};
use crate::{
    error::AuditAction,
    extract::{PathParam, QueryParams, RequestBodyBytes, ResolvedOutcome, parse_body},
    models::{
        self, ContentionReport, HotKeyJson, LockDetailJson, LockListJson, MemberListJson,
        UnresolvedOperationJson, UnresolvedOperationList, millis,
    },
    state::GatewayAdminState,
};

/// The most keys of one answer.
const MOST: usize = 1000;
const USUAL: usize = 100;

pub(super) fn routes() -> Router<GatewayAdminState> {
    Router::new()
        .route("/jwks.json", get(jwks))
        .route("/api/v1/locks", get(locks))
        .route("/api/v1/locks/{key}", get(lock_detail))
        .route("/api/v1/locks/{key}/break", post(break_lock::break_lock))
        .route("/api/v1/contention", get(contention))
        .route("/api/v1/config", get(config))
        .route("/api/v1/members", get(members))
        .route("/api/v1/operations", get(operations))
        .route("/api/v1/operations/{reference}/resolve", post(resolve))
        .route("/api/v1/reload", post(reload))
        .route("/api/v1/drain", post(drain))
}

async fn jwks(
    State(seen): State<GatewayAdminState>,
) -> Result<([(HeaderName, &'static str); 1], String), AdminRefusal> {
    let none =
        || AdminRefusal::new(AdminErrorCode::NotFound, "the policy has no `tickets`, so there are no keys");
    let jwks = seen.jwks.ok_or_else(none)?;
    Ok(([(CONTENT_TYPE, "application/jwk-set+json")], jwks.to_string()))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(crate) struct LockListQuery {
    #[cfg_attr(feature = "openapi", param(value_type = i64, required = false, minimum = 0, maximum = 4_294_967_295_i64))]
    limit: Option<u32>,
    /// The last key of the list before.
    #[cfg_attr(feature = "openapi", param(value_type = String, required = false, pattern = "^[!-~]+$"))]
    after: Option<String>,
    /// Only keys that somebody waits for.
    #[serde(default)]
    wanted: bool,
    /// List the keys that are waited for longest first, and not in the order of keys.
    #[serde(default)]
    by_interest: bool,
}

async fn locks(
    State(seen): State<GatewayAdminState>,
    QueryParams(page): QueryParams<LockListQuery>,
) -> QueryResult<LockListJson> {
    let names = seen.key_redaction();
    let after = page.after.map(|after| seen.parse_list_cursor(&after)).transpose()?;
    let survey = seen.locks.list_locks(LockListFilter {
        after: after.as_ref(),
        wanted: page.wanted,
        limit: page.limit.map_or(USUAL, clamp_limit),
        order: if page.by_interest { LockListOrder::Interest } else { LockListOrder::Key },
    });
    Ok(Json(models::locks_model(&seen.name, survey, names)))
}

async fn lock_detail(
    State(seen): State<GatewayAdminState>,
    PathParam(key): PathParam,
) -> QueryResult<LockDetailJson> {
    seen.lock_detail(&key).await.map(Json)
}

impl GatewayAdminState {
    pub(super) async fn lock_detail(&self, text: &str) -> Result<LockDetailJson, AdminRefusal> {
        let names = self.key_redaction();
        let key = self.resolve_key(text)?;
        let line = self.locks.queue_entries(&key, self.config.site(&key)).await;
        let here = self.locks.lock_info(&key);
        if here.is_none() && line.as_ref().is_ok_and(Vec::is_empty) {
            let message = format!("nobody holds or wants `{text}`, at this gateway or in ZooKeeper");
            return Err(AdminRefusal::new(AdminErrorCode::NotFound, message));
        }
        let (line, line_error) = match line {
            Ok(line) => (Some(line), None),
            Err(untold) => (None, Some(untold.to_string())),
        };
        Ok(LockDetailJson {
            gateway: self.name.to_string(),
            says: models::describe_waiting(&self.name, here.as_ref(), line.as_deref()),
            key: names.display(&key),
            here: here.map(|here| models::lock_model(&here, names)),
            line,
            line_error,
            // If ZooKeeper cannot be queried, the queue is unknown, too, and `line_error` reports that.
            record: self.locks.grant_record(&key).await.ok().flatten(),
        })
    }
}

#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(crate) struct HotKeyQuery {
    #[cfg_attr(feature = "openapi", param(value_type = i64, required = false, minimum = 0, maximum = 4_294_967_295_i64))]
    top: Option<u32>,
}

async fn contention(
    State(seen): State<GatewayAdminState>,
    QueryParams(HotKeyQuery { top }): QueryParams<HotKeyQuery>,
) -> Json<ContentionReport> {
    Json(seen.contention(top.map_or(20, clamp_limit)))
}

/// The requested number, but at most `MOST`.
fn clamp_limit(requested: u32) -> usize {
    usize::try_from(requested).unwrap_or(MOST).min(MOST)
}

impl GatewayAdminState {
    pub(super) fn contention(&self, top: usize) -> ContentionReport {
        let names = self.key_redaction();
        let (hot, since) = self.hot_keys.top(top);
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a few minutes")]
        let millis_of = |micros: u64| micros as f64 / 1000.0;
        let hot = hot.into_iter().map(|(key, count)| HotKeyJson {
            key: names.display(&key),
            requests: count.requests,
            refused: count.refused,
            waited_ms: millis_of(count.waited),
            over_ms: millis_of(count.over),
        });
        ContentionReport { gateway: self.name.to_string(), over_ms: millis(since), hot: hot.collect() }
    }
}

async fn config(State(seen): State<GatewayAdminState>) -> Json<EffectiveConfig> {
    Json(EffectiveConfig::new(&seen.config.plan()))
}

async fn members(State(seen): State<GatewayAdminState>) -> QueryResult<MemberListJson> {
    let members = seen.locks.members().await?;
    Ok(Json(MemberListJson { gateway: seen.name.to_string(), sessions: seen.locks.sessions(), members }))
}

async fn operations(State(seen): State<GatewayAdminState>) -> QueryResult<UnresolvedOperationList> {
    let names = seen.key_redaction();
    let open = seen.locks.unresolved_operations().await?;
    let unfinished = |open: UnresolvedOperation| {
        let record = open.record;
        UnresolvedOperationJson {
            reference: open.reference,
            keys: names.display_each(&record.keys),
            token: record.token,
            method: record.method,
            target: names.shows_targets().then_some(record.target),
            idempotency_key: record.name,
            admitted: record.admitted,
            may_run: open.may_run,
        }
    };
    Ok(Json(UnresolvedOperationList { operations: open.into_iter().map(unfinished).collect() }))
}

#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ResolveAtGateway))]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewayResolveBody {
    outcome: ResolvedOutcome,
    #[serde(default)]
    force: bool,
}

async fn resolve(
    State(seen): State<GatewayAdminState>,
    PathParam(reference): PathParam,
    body: RequestBodyBytes,
) -> ActionResult<ResolveOperationResponse> {
    let GatewayResolveBody { outcome, force } = parse_body(&body)?;
    let did = seen.resolve(&reference, outcome, force).await?;
    Ok(resolve_response(did, reference))
}

impl GatewayAdminState {
    pub(super) async fn resolve(
        &self,
        reference: &str,
        outcome: ResolvedOutcome,
        force: bool,
    ) -> Result<AuditAction, AdminRefusal> {
        let done = outcome == ResolvedOutcome::Done;
        let within = self.config.plan().max_dispatch_start_delay();
        let resolution = ResolveOperationRequest { reference: reference.to_owned(), done, force, within };
        let how = format!("{} as {}", reference.escape_debug(), if done { "done" } else { "not done" });
        let resolved = self.locks.resolve_operation(resolution).await.map_err(|untold| {
            match AdminRefusal::from(untold) {
                nothing if nothing.code == AdminErrorCode::Away => nothing,
                perhaps => perhaps.with_action(AuditAction(format!("may have resolved operation {how}"))),
            }
        })?;
        match resolved {
            ResolveOperationOutcome::Written => Ok(AuditAction(format!("resolved operation {how}"))),
            ResolveOperationOutcome::NotFound(said) => Err(AdminRefusal::new(AdminErrorCode::NotFound, said)),
            ResolveOperationOutcome::MayRun(said) => Err(AdminRefusal::new(AdminErrorCode::Force, said)),
        }
    }
}

#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(crate) struct ReloadQuery {
    #[serde(default)]
    dry_run: bool,
    /// Also compare the file with other gateways; only for a dry run.
    #[serde(default)]
    fleet: bool,
}

/// Reads the file again. 200 if it is in force, or would be; 422 if it has mistakes or needs a restart, and then
/// nothing has changed.
async fn reload(
    State(seen): State<GatewayAdminState>,
    QueryParams(ReloadQuery { dry_run, fleet }): QueryParams<ReloadQuery>,
) -> Result<Response, AdminRefusal> {
    let stopping = || AdminRefusal::new(AdminErrorCode::Away, "the gateway is stopping");
    if fleet && !dry_run {
        return Err(AdminRefusal::new(AdminErrorCode::Malformed, "`fleet` is told of a dry run only"));
    }
    let mut report = seen.commands.reload(dry_run).await.ok_or_else(stopping)?;
    // A file that needs a restart is compared, too: the comparison matters before that restart.
    if fleet && (report.result != ReloadResult::Refused || !report.difference.restart.is_empty()) {
        match seen.commands.compare().await.ok_or_else(stopping)? {
            Ok(fleet) => report.fleet = Some(fleet),
            Err(error) => {
                return Err(AdminRefusal::new(AdminErrorCode::Away, format!("the other gateways: {error}")));
            }
        }
    }
    let status = match report.result {
        ReloadResult::Refused => StatusCode::UNPROCESSABLE_ENTITY,
        ReloadResult::Applied | ReloadResult::Unchanged | ReloadResult::Dry => StatusCode::OK,
    };
    let did = AuditAction(format!("reload: {}", report.result.as_str()));
    Ok((status, Extension(did), Json(report)).into_response())
}

/// Ends the process as SIGTERM does, when everything that runs has ended.
async fn drain(
    State(seen): State<GatewayAdminState>,
) -> (StatusCode, Extension<AuditAction>, Json<DrainResponse>) {
    seen.commands.request_process_drain();
    drain_response()
}
