//! The JSON of the admin API about locks, waits and members, and the responses that gateway and guard share, as
//! `gateway/API.md` describes them.

use axum::{Extension, Json, http::StatusCode};
use fencegate_lock::manager::{
    admin::SessionStatus,
    admin_query::{LockQueueEntry, RegisteredGateway},
    listing::{self, LockListing, NodeCachingMode, WaitReason},
};
use fencegate_policies::{plan::LockMode, token::FencingToken};
use fencegate_process::key_redaction::KeyRedaction;
use fencegate_recipe::grant_record::GrantRecord;
use serde::{Deserialize, Serialize};

use super::error::{AdminRefusal, AuditAction};
pub use fencegate_protocol::path_segment::encode_path_segment;

/// `GET /api/v1/locks`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Locks))]
pub struct LockListJson {
    pub gateway: String,
    /// All keys that are held here.
    pub held: usize,
    /// All requests that wait here.
    pub waiting: usize,
    /// The keys for which they wait.
    pub wanted: usize,
    pub locks: Vec<LockJson>,
    /// There are more keys: ask again with `after`, the last key of this list.
    pub more: bool,
}

/// One key at this gateway.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Lock))]
pub struct LockJson {
    pub key: String,
    pub held: Vec<HeldLockJson>,
    pub waiting: usize,
    /// The first waiting requests.
    pub line: Vec<WaiterJson>,
    pub why: Option<String>,
    /// How long this gateway still waits for a delay, after a holder that ended without releasing the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_rest_ms: Option<u64>,
}

/// A tenure of this gateway.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Held))]
pub struct HeldLockJson {
    pub route: Option<String>,
    pub mode: LockMode,
    pub token: Option<FencingToken>,
    /// `Fencing-Number`.
    pub number: Option<u64>,
    /// `cached` or `strict`.
    pub keeping: String,
    pub age_ms: u64,
    pub in_flight: u32,
    /// Somebody waits who cannot hold the key at the same time.
    pub contended: bool,
    /// The session is proven, so a request under this tenure may write now.
    pub proven: bool,
    /// Nothing new is started under it.
    pub ending: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Waiter))]
pub struct WaiterJson {
    pub route: String,
    pub mode: LockMode,
    pub waits_ms: u64,
}

/// `GET /api/v1/locks/KEY`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = KeyTold))]
pub struct LockDetailJson {
    pub gateway: String,
    pub key: String,
    /// The key at this gateway; null if nobody here wants it.
    pub here: Option<LockJson>,
    /// All lock nodes of the key in ZooKeeper, of all gateways; null if ZooKeeper does not answer.
    pub line: Option<Vec<LockQueueEntry>>,
    pub line_error: Option<String>,
    /// How the last holder ended, where nobody compares tokens: `clean`, or `held` if the holder has not ended or has
    /// not said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<GrantRecord>,
    /// Why requests wait for the key, in a sentence.
    pub says: String,
}

/// `GET /api/v1/contention`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Contention))]
pub struct ContentionReport {
    pub gateway: String,
    /// How long ago counting began.
    pub over_ms: u64,
    pub hot: Vec<HotKeyJson>,
}

#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = HotKey))]
pub struct HotKeyJson {
    pub key: String,
    /// Requests that had to ask for the lock.
    pub requests: u64,
    pub refused: u64,
    /// The waits of these requests together. The true value is at most `over_ms` less.
    pub waited_ms: f64,
    pub over_ms: f64,
}

/// `GET /api/v1/members`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Members))]
pub struct MemberListJson {
    pub gateway: String,
    /// Those of this gateway.
    pub sessions: Vec<SessionStatus>,
    /// Each gateway once for each of its sessions.
    pub members: Vec<RegisteredGateway>,
}

/// `GET /api/v1/operations`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Operations))]
pub(crate) struct UnresolvedOperationList {
    pub operations: Vec<UnresolvedOperationJson>,
}

/// An operation whose outcome is unknown.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Unfinished))]
pub struct UnresolvedOperationJson {
    pub reference: String,
    pub keys: Vec<String>,
    pub token: FencingToken,
    pub method: String,
    /// Path and query; null if the log does not show keys.
    pub target: Option<String>,
    pub idempotency_key: Option<String>,
    /// Seconds since 1970.
    pub admitted: u64,
    /// The lock under which it was sent is still held, so it may be running.
    pub may_run: bool,
}

/// `POST /api/v1/locks/KEY/break`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = BrokenLock))]
pub(crate) struct BreakLockResponse {
    /// The nodes that were removed.
    pub broken: Vec<LockQueueEntry>,
    pub key: String,
}

pub(crate) fn locks_model(gateway: &str, survey: LockListing, names: KeyRedaction) -> LockListJson {
    LockListJson {
        gateway: gateway.to_owned(),
        held: survey.held,
        waiting: survey.waiting,
        wanted: survey.wanted,
        locks: survey.locks.iter().map(|one| lock_model(one, names)).collect(),
        more: survey.more,
    }
}

pub(crate) fn lock_model(lock: &listing::ListedLock, names: KeyRedaction) -> LockJson {
    let held = lock.held.iter().map(|held| HeldLockJson {
        route: held.route.as_ref().map(ToString::to_string),
        mode: held.mode,
        token: held.token,
        number: held.token.map(|token| token.number()),
        keeping: match held.keeping {
            NodeCachingMode::Cached => "cached".into(),
            NodeCachingMode::Strict => "strict".into(),
        },
        age_ms: millis(held.since),
        in_flight: held.in_flight,
        contended: held.contended,
        proven: held.proven,
        ending: held.ending,
    });
    let line = lock.line.iter().map(|waiter| WaiterJson {
        route: waiter.route.to_string(),
        mode: waiter.mode,
        waits_ms: millis(waiter.since),
    });
    LockJson {
        key: names.display(&lock.key),
        held: held.collect(),
        waiting: lock.waiting,
        line: line.collect(),
        why: lock.why.map(|why| waiting_reason(why).to_owned()),
        delay_rest_ms: lock.rest.map(millis),
    }
}

pub fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn waiting_reason(why: WaitReason) -> &'static str {
    match why {
        WaitReason::HeldHere => "held-here",
        WaitReason::HandingOver => "handing-over",
        WaitReason::Delay => "delay",
        WaitReason::HeldElsewhere => "held-elsewhere",
        WaitReason::Asking => "asking",
    }
}

/// The reason for which requests wait for a key, as far as ZooKeeper and this gateway show it.
pub(crate) fn describe_waiting(
    gateway: &str,
    here: Option<&listing::ListedLock>,
    line: Option<&[LockQueueEntry]>,
) -> String {
    let waiting = here.map_or(0, |lock| lock.waiting);
    let by_us = here.and_then(|lock| lock.held.first());
    let others = |line: &[LockQueueEntry]| line.iter().filter(|one| !one.holds).count();
    if let Some(held) = by_us.filter(|held| held.in_flight > 0) {
        let route = held.route.as_deref().unwrap_or("an earlier plan");
        let work = pluralize(held.in_flight as usize, "request");
        return format!("{gateway} holds it: {work} of route {route} at work for {:.1?}.", held.since);
    }
    if by_us.is_some() && waiting > 0 {
        return format!(
            "{gateway} holds it with nothing at work: it is being handed over, or its session is not proven."
        );
    }
    if by_us.is_some() {
        return format!("{gateway} keeps it for its next request; nobody waits here.");
    }
    if let Some(rest) = here.and_then(|lock| lock.rest) {
        return format!("{gateway} waits for {rest:.1?} yet: its last holder left without a word.");
    }
    match line {
        Some([]) | None if waiting > 0 => "ZooKeeper has not answered the request for it yet.".into(),
        // An exclusive node was removed, and a new one is about to be created.
        Some(line @ [first, ..]) if line.iter().all(|one| !one.holds) => {
            format!("Nobody holds it at this moment; {} is next.", first.owner_name())
        }
        Some([first, ..]) => {
            let who = first.owner_name();
            let behind = others(line.unwrap_or_default());
            let holders = line.unwrap_or_default().iter().filter(|one| one.permit.is_some()).count();
            if holders > 0 {
                let held = pluralize(holders, "permit");
                return format!(
                    "{held} of it taken, by nodes in ZooKeeper; {} waiting there.",
                    pluralize(behind, "node")
                );
            }
            format!(
                "{who} holds it, by its node in ZooKeeper; {} behind it there.",
                pluralize(behind, "node")
            )
        }
        Some([]) => "Nobody holds it, and nobody waits.".into(),
        None => "ZooKeeper does not say who holds it.".into(),
    }
}

pub fn pluralize(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The response to a query.
pub(super) type QueryResult<T> = Result<Json<T>, AdminRefusal>;

/// The response to an action, with a description of it for the log.
pub(super) type ActionResult<T> = Result<(Extension<AuditAction>, Json<T>), AdminRefusal>;

/// The process ends when everything that runs has ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DrainBegun))]
pub(crate) struct DrainResponse {
    draining: bool,
}

/// The outcome of the operation is recorded.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ResolvedOperation))]
pub(crate) struct ResolveOperationResponse {
    /// Its reference.
    resolved: String,
}

/// The answer to `drain`.
pub(super) fn drain_response() -> (StatusCode, Extension<AuditAction>, Json<DrainResponse>) {
    (StatusCode::ACCEPTED, Extension(AuditAction("drain".into())), Json(DrainResponse { draining: true }))
}

/// The answer to `resolve`.
pub(super) fn resolve_response(
    deed: AuditAction,
    reference: String,
) -> (Extension<AuditAction>, Json<ResolveOperationResponse>) {
    (Extension(deed), Json(ResolveOperationResponse { resolved: reference }))
}
