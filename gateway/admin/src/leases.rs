//! Shows operators the leases of this gateway, and lets them end one. The id of a lease is a secret, and is never
//! shown.

use axum::{
    Extension, Json, Router,
    extract::State,
    routing::{get, post},
};
use fencegate_leases::{
    LeaseTable,
    admin_actions::AdminLeaseActionError,
    lease::{Lease, LeaseSnapshot, LeaseStageSnapshot},
    lease_json::end_reason_code,
};
use fencegate_policies::{key::ResourceKey, permits::PermitIndex, plan::LockMode, token::FencingToken};
use fencegate_process::key_redaction::KeyRedaction;
use fencegate_protocol::lease_documents::{HELD, OVER, WAITING};
use serde::{Deserialize, Serialize};

use super::{
    auth::AdminPrincipal,
    error::{AdminErrorCode, AdminRefusal, AuditAction},
    extract::{PathParam, QueryParams, RequestBodyBytes, parse_body},
    models::{ActionResult, QueryResult, millis},
    state::GatewayAdminState,
};

/// `GET /api/v1/leases`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LeasesTold))]
pub struct AdminLeaseList {
    pub gateway: String,
    /// All leases of this gateway that hold their locks.
    pub held: usize,
    /// All leases of this gateway that wait.
    pub waiting: usize,
    /// The oldest first.
    pub leases: Vec<AdminLease>,
    /// There are more: ask again with `after`, the reference of the last one.
    pub more: bool,
}

/// A lease of this gateway. Times are milliseconds.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LeaseTold))]
pub struct AdminLease {
    pub gateway: String,
    /// The name of the lease in logs and paths.
    pub reference: String,
    /// `waiting`, `held` or `over`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^(waiting|held|over)$"))]
    pub state: String,
    /// Why it is over.
    pub why: Option<String>,
    /// In the form in which the policy logs keys.
    pub keys: Vec<String>,
    pub mode: LockMode,
    /// While it is held: the number of its permit, where the key has permits.
    pub permit: Option<u16>,
    pub principal: String,
    /// The note of its client.
    pub note: Option<String>,
    /// The time since the request for the lease.
    pub age_ms: u64,
    /// The time since it got its lock, while it holds the lock.
    pub held_ms: Option<u64>,
    pub ttl_ms: u64,
    /// The lease is over after this time unless its client renews it.
    pub expires_in_ms: u64,
    /// While it waits: the lock nodes before it at the last look.
    pub ahead: Option<usize>,
    /// While it is held.
    pub token: Option<FencingToken>,
    /// `Fencing-Number` of all that is sent under it.
    pub number: Option<u64>,
    /// Running requests under the lease; right after a break, the number before the break.
    pub at_work: usize,
    /// After its end: how long its keys stay locked, because its client was promised that.
    pub kept_for_ms: Option<u64>,
    /// Why the client was asked to give the lease back.
    pub revocation: Option<String>,
}

/// The part of the list that is asked for.
#[derive(Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
pub(crate) struct LeaseListQuery {
    #[cfg_attr(feature = "openapi", param(value_type = i64, required = false, minimum = 0, maximum = 4_294_967_295_i64))]
    limit: Option<u32>,
    /// The last reference of the list before.
    #[cfg_attr(feature = "openapi", param(value_type = String, required = false, pattern = "^[0-9a-f]{16}$"))]
    after: Option<String>,
    /// Only leases of this key.
    #[cfg_attr(feature = "openapi", param(value_type = String, required = false, pattern = "^[!-~]+$"))]
    key: Option<String>,
}

/// The request of an operator to give a lease back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = AskingBack))]
pub(crate) struct AdminRevokeLeaseBody {
    /// The reason for the client: a line of 1 to 256 bytes.
    why: String,
}

/// The request of an operator to end a lease.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = BreakingLease))]
pub(crate) struct AdminBreakLeaseBody {
    /// The reference again, so that a mistake in a script cannot end another lease.
    confirm: String,
    /// The reason for the client and the log: a line of 1 to 256 bytes.
    why: String,
}

/// The most leases of one answer.
const MOST: usize = 1000;
const USUAL: usize = 100;

pub(super) fn routes() -> Router<GatewayAdminState> {
    Router::new()
        .route("/api/v1/leases", get(list))
        .route("/api/v1/leases/{reference}", get(show))
        .route("/api/v1/leases/{reference}/revoke", post(revoke))
        .route("/api/v1/leases/{reference}/break", post(break_lease))
}

async fn list(
    State(seen): State<GatewayAdminState>,
    QueryParams(page): QueryParams<LeaseListQuery>,
) -> QueryResult<AdminLeaseList> {
    let key = page.key.map(|key| seen.resolve_key(&key)).transpose()?;
    let limit =
        page.limit.map_or(USUAL, |asked| usize::try_from(asked).map_or(MOST, |asked| asked.min(MOST)));
    seen.list_leases(key.as_ref(), page.after.as_deref(), limit).map(Json)
}

async fn show(
    State(seen): State<GatewayAdminState>,
    PathParam(reference): PathParam,
) -> QueryResult<AdminLease> {
    match seen.leases.as_ref().map(|leases| leases.find_by_reference(&reference)) {
        Some(Ok(lease)) => Ok(Json(seen.lease_view(&lease))),
        Some(Err(_)) | None => Err(seen.unknown_lease_error().await),
    }
}

async fn revoke(
    State(seen): State<GatewayAdminState>,
    Extension(principal): Extension<AdminPrincipal>,
    PathParam(reference): PathParam,
    body: RequestBodyBytes,
) -> ActionResult<AdminLease> {
    let AdminRevokeLeaseBody { why } = parse_body(&body)?;
    let done = seen.leases.as_ref().map(|leases| leases.request_release(&reference, &why, &principal.0));
    let lease = match done.unwrap_or(Err(AdminLeaseActionError::NotFound)) {
        Ok(lease) => lease,
        Err(unheeded) => return Err(seen.action_error(unheeded).await),
    };
    Ok((Extension(seen.audit_action("asked for", &lease, &why)), Json(seen.lease_view(&lease))))
}

async fn break_lease(
    State(seen): State<GatewayAdminState>,
    Extension(principal): Extension<AdminPrincipal>,
    PathParam(reference): PathParam,
    body: RequestBodyBytes,
) -> ActionResult<AdminLease> {
    let AdminBreakLeaseBody { confirm, why } = parse_body(&body)?;
    if confirm != reference {
        return Err(AdminRefusal::new(AdminErrorCode::Confirm, "say the reference once more in `confirm`"));
    }
    let at_work =
        seen.leases.as_ref().and_then(|leases| active_request_count(leases, &reference)).unwrap_or_default();
    let done = seen.leases.as_ref().map(|leases| leases.break_lease(&reference, Some(&why), &principal.0));
    let lease = match done.unwrap_or(Err(AdminLeaseActionError::NotFound)) {
        Ok(lease) => lease,
        Err(unheeded) => return Err(seen.action_error(unheeded).await),
    };
    let view = AdminLease { at_work, ..seen.lease_view(&lease) };
    Ok((Extension(seen.audit_action("broke", &lease, &why)), Json(view)))
}

fn active_request_count(leases: &LeaseTable, reference: &str) -> Option<usize> {
    match leases.find_by_reference(reference).ok()?.snapshot().stage {
        LeaseStageSnapshot::Held { lock, .. } => Some(lock.active_request_count()),
        LeaseStageSnapshot::Waiting { .. } | LeaseStageSnapshot::Over { .. } => None,
    }
}

impl GatewayAdminState {
    /// The leases that are not over, the oldest first. `key`: only leases of this key; `after`: only leases after
    /// this one.
    ///
    /// # Errors
    /// Returns an error if the lease of `after` is not remembered any more.
    fn list_leases(
        &self,
        key: Option<&ResourceKey>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<AdminLeaseList, AdminRefusal> {
        let place = |lease: &Lease| (lease.began, lease.id.reference());
        let known = after.map(|after| {
            let lease = self.leases.as_ref().and_then(|leases| leases.find_by_reference(after).ok());
            lease.map(|lease| place(&lease)).ok_or_else(|| {
                AdminRefusal::new(
                    AdminErrorCode::Changed,
                    "nobody here knows the lease of `after` any more; begin anew",
                )
            })
        });
        let known = known.transpose()?;
        let living = self.leases.as_ref().map(|leases| leases.active()).unwrap_or_default();
        let held = living
            .iter()
            .filter(|lease| matches!(lease.snapshot().stage, LeaseStageSnapshot::Held { .. }))
            .count();
        let waiting = living.len() - held;
        let meant = |lease: &&std::sync::Arc<Lease>| {
            known.is_none_or(|known| place(lease) > known) && key.is_none_or(|key| lease.keys.contains(key))
        };
        let mut meant = living.iter().filter(meant);
        let leases: Vec<_> = meant.by_ref().take(limit).map(|lease| self.lease_view(lease)).collect();
        let gateway = self.name.to_string();
        Ok(AdminLeaseList { gateway, held, waiting, leases, more: meant.next().is_some() })
    }

    /// The leases that hold a key or wait for it.
    pub(super) fn leases_for_key(&self, key: &ResourceKey) -> Vec<AdminLease> {
        let living = self.leases.as_ref().map(|leases| leases.active()).unwrap_or_default();
        living.iter().filter(|lease| lease.keys.contains(key)).map(|lease| self.lease_view(lease)).collect()
    }

    fn lease_view(&self, lease: &Lease) -> AdminLease {
        AdminLease::new(lease, &self.name, self.key_redaction())
    }

    fn audit_action(&self, did: &str, lease: &Lease, why: &str) -> AuditAction {
        let reference = lease.id.reference();
        let keys = self.key_redaction().display_list(&lease.keys);
        AuditAction(format!("{did} lease {reference} of {} on {keys}: {why}", lease.principal))
    }

    async fn action_error(&self, unheeded: AdminLeaseActionError) -> AdminRefusal {
        match unheeded {
            AdminLeaseActionError::NotFound => self.unknown_lease_error().await,
            AdminLeaseActionError::Over => {
                AdminRefusal::new(AdminErrorCode::Changed, "the lease is over already; look again")
            }
            AdminLeaseActionError::InvalidReason => {
                AdminRefusal::new(AdminErrorCode::Malformed, "`why` is a line of 1 to 256 bytes")
            }
        }
    }

    /// The error for an unknown lease. It lists the other gateways, because each lists only its own leases.
    async fn unknown_lease_error(&self) -> AdminRefusal {
        let message = format!("{} knows no lease of that reference", self.name);
        let others = match self.locks.members().await {
            Ok(members) => members,
            Err(error) => {
                let message =
                    format!("{message}; which other gateways could, ZooKeeper does not tell: {error}");
                return AdminRefusal::new(AdminErrorCode::NotFound, message);
            }
        };
        let others = others.into_iter().filter(|other| *other.gateway != *self.name);
        let mut others: Vec<_> = others
            .map(|other| match other.peer {
                Some(peer) => format!("{} (peer {peer})", other.gateway),
                None => other.gateway,
            })
            .collect();
        others.sort_unstable();
        others.dedup();
        AdminRefusal::new(
            AdminErrorCode::NotFound,
            match others.as_slice() {
                [] => format!("{message}, and no other gateway is registered"),
                others => format!("{message}; ask the admin listeners of the others: {}", others.join(", ")),
            },
        )
    }
}

impl AdminLease {
    fn new(lease: &Lease, gateway: &str, names: KeyRedaction) -> Self {
        let LeaseSnapshot { stage, ttl, expires_in, revocation, age, .. } = lease.snapshot();
        let mut seen = Self {
            gateway: gateway.to_owned(),
            reference: lease.id.reference().to_string(),
            state: String::new(),
            why: None,
            keys: names.display_each(&lease.keys),
            mode: lease.mode,
            permit: None,
            principal: lease.principal.to_string(),
            note: lease.note.as_deref().map(str::to_owned),
            age_ms: millis(age),
            held_ms: None,
            ttl_ms: millis(ttl),
            expires_in_ms: millis(expires_in),
            ahead: None,
            token: None,
            number: None,
            at_work: 0,
            kept_for_ms: None,
            revocation: revocation.as_deref().map(str::to_owned),
        };
        match stage {
            LeaseStageSnapshot::Waiting { ahead } => {
                (seen.state, seen.ahead) = (WAITING.into(), Some(ahead));
            }
            LeaseStageSnapshot::Held { lock, since, .. } => {
                let token = lock.token();
                (seen.state, seen.held_ms) = (HELD.into(), Some(millis(since)));
                (seen.token, seen.number) = (Some(token), Some(token.number()));
                (seen.permit, seen.at_work) =
                    (lock.permit().map(PermitIndex::number), lock.active_request_count());
            }
            LeaseStageSnapshot::Over { why, kept_for } => {
                (seen.state, seen.why) = (OVER.into(), Some(end_reason_code(&why)));
                seen.kept_for_ms = Some(millis(kept_for));
            }
        }
        seen
    }
}
