//! The operations of a gateway's admin listener.

use super::document::OpenApiDocumentBuilder;
use crate::{
    api::{GatewayResolveBody, HotKeyQuery, LockListQuery, ReloadQuery},
    break_lock::BreakLockBody,
    command::ReloadReport,
    config_dump::EffectiveConfig,
    error::AdminErrorCode,
    leases::{AdminBreakLeaseBody, AdminLease, AdminLeaseList, AdminRevokeLeaseBody, LeaseListQuery},
    models::{
        BreakLockResponse, ContentionReport, DrainResponse, LockDetailJson, LockListJson, MemberListJson,
        ResolveOperationResponse, UnresolvedOperationList,
    },
};

const DESCRIPTION: &str = "What the admin listener of a gateway tells and does. `gateway/API.md` describes it for people: who gets in, \
                    how keys are called, and what breaking a lock does to safety. The pages for people are not described here.";

pub(super) fn document() -> OpenApiDocumentBuilder {
    let mut api = OpenApiDocumentBuilder::new(
        "The admin API of a Fencegate gateway",
        "http://127.0.0.1:9901",
        DESCRIPTION,
    );
    add_probe_paths(&mut api);
    add_lock_paths(&mut api);
    add_lease_paths(&mut api);
    add_other_paths(&mut api);
    add_reload_drain_paths(&mut api);
    api
}

fn add_probe_paths(api: &mut OpenApiDocumentBuilder) {
    api.get("/live", "live", "All threads on which requests and locks depend turn.")
        .open_to_all()
        .raw_response(200, "text/plain", "They do.")
        .raw_response(503, "text/plain", "One has not responded for five seconds, or has ended, and which.")
        .finish();
    api.get("/ready", "ready", "A lock could be granted now. Services and guards are not asked.")
        .open_to_all()
        .raw_response(200, "text/plain", "It could.")
        .raw_response(503, "text/plain", "No lock could be granted, and why.")
        .finish();
    api.get("/metrics", "metrics", "The metrics, for Prometheus.")
        .raw_response(200, "text/plain", "All families, in the text format of Prometheus.")
        .finish();
    api.get("/jwks.json", "ticketKeys", "The public keys of our tickets, for guards to fetch.")
        .open_to_all()
        .typed_response::<JwkSet>(200, "application/jwk-set+json", "A JSON Web Key Set (RFC 7517).")
        .error_responses(&[AdminErrorCode::NotFound])
        .finish();
}

fn add_lock_paths(api: &mut OpenApiDocumentBuilder) {
    api.get("/api/v1/locks", "locks", "The keys that this gateway holds or waits for.")
        .query_params::<LockListQuery>()
        .json_response::<LockListJson>(200, "A page of the list.")
        .error_responses(&[AdminErrorCode::Changed])
        .finish();
    api.get("/api/v1/locks/{key}", "lock", "One key: here, and in ZooKeeper with the nodes of all gateways.")
        .path_param("key", KEY_DESCRIPTION)
        .json_response::<LockDetailJson>(200, "The holders and waiters of the key.")
        .error_responses(&[AdminErrorCode::Malformed, AdminErrorCode::NotFound, AdminErrorCode::Changed])
        .finish();
    api.post("/api/v1/locks/{key}/break", "breakLock", "Removes the lock node of whoever holds the key.")
        .path_param("key", KEY_DESCRIPTION)
        .required_body::<BreakLockBody>()
        .json_response::<BreakLockResponse>(200, "The nodes that were removed.")
        .error_responses(&[
            AdminErrorCode::Confirm,
            AdminErrorCode::Changed,
            AdminErrorCode::Force,
            AdminErrorCode::Away,
        ])
        .finish();
}

fn add_lease_paths(api: &mut OpenApiDocumentBuilder) {
    api.get("/api/v1/leases", "leases", "The leases of this gateway that are not over, the oldest first.")
        .query_params::<LeaseListQuery>()
        .json_response::<AdminLeaseList>(200, "A page of them.")
        .error_responses(&[AdminErrorCode::Changed])
        .finish();
    api.get(
        "/api/v1/leases/{reference}",
        "lease",
        "One lease of this gateway, also for a while after its end.",
    )
    .path_param_like("reference", REFERENCE, REFERENCE_DESCRIPTION)
    .json_response::<AdminLease>(200, "The lease.")
    .error_responses(&[AdminErrorCode::NotFound])
    .finish();
    api.post(
        "/api/v1/leases/{reference}/revoke",
        "revokeLease",
        "Asks the client of a lease to give it back.",
    )
    .path_param_like("reference", REFERENCE, REFERENCE_DESCRIPTION)
    .required_body::<AdminRevokeLeaseBody>()
    .json_response::<AdminLease>(200, "The client sees the reason when it renews or watches.")
    .error_responses(&[AdminErrorCode::NotFound, AdminErrorCode::Changed])
    .finish();
    api.post("/api/v1/leases/{reference}/break", "breakLease", "Ends a lease without its client.")
        .path_param_like("reference", REFERENCE, REFERENCE_DESCRIPTION)
        .required_body::<AdminBreakLeaseBody>()
        .json_response::<AdminLease>(
            200,
            "The lease is over. Its keys are released when the promise to its client is over, too.",
        )
        .error_responses(&[AdminErrorCode::Confirm, AdminErrorCode::NotFound, AdminErrorCode::Changed])
        .finish();
}

const REFERENCE: &str = "^[0-9a-f]{16}$";
const REFERENCE_DESCRIPTION: &str = "The reference of the lease in lists and logs: 16 hex digits.";

const KEY_DESCRIPTION: &str = "The key, with `/` as `%2F`; or its number, where keys are not shown in plain.";

fn add_other_paths(api: &mut OpenApiDocumentBuilder) {
    api.get(
        "/api/v1/contention",
        "contention",
        "The keys that requests waited for longest in the last minutes.",
    )
    .query_params::<HotKeyQuery>()
    .json_response::<ContentionReport>(200, "The first keys.")
    .finish();
    api.get("/api/v1/config", "config", "The plan in force, with all defaults, and without secrets.")
        .json_response::<EffectiveConfig>(200, "The plan.")
        .finish();
    api.get(
        "/api/v1/members",
        "members",
        "The gateways that are registered in ZooKeeper, and our own sessions.",
    )
    .json_response::<MemberListJson>(200, "All of them.")
    .error_responses(&[AdminErrorCode::Away])
    .finish();
    api.get("/api/v1/operations", "operations", "Operations whose outcome is unknown.")
        .json_response::<UnresolvedOperationList>(200, "The first thousand.")
        .error_responses(&[AdminErrorCode::Away])
        .finish();
    api.post(
        "/api/v1/operations/{reference}/resolve",
        "resolveOperation",
        "Records the outcome of an operation.",
    )
    .path_param("reference", "The reference from the list of operations.")
    .required_body::<GatewayResolveBody>()
    .json_response::<ResolveOperationResponse>(200, "The outcome is recorded.")
    .error_responses(&[AdminErrorCode::NotFound, AdminErrorCode::Force, AdminErrorCode::Away])
    .finish();
}

fn add_reload_drain_paths(api: &mut OpenApiDocumentBuilder) {
    api.post("/api/v1/reload", "reload", "Reads the file of the policy again.")
        .query_params::<ReloadQuery>()
        .json_response::<ReloadReport>(200, "The file is in force, or would be.")
        .json_response::<ReloadReport>(422, "The file has mistakes, and nothing has changed.")
        .error_responses(&[AdminErrorCode::Away])
        .finish();
    api.post("/api/v1/drain", "drain", "As SIGTERM: the process ends when everything that runs has ended.")
        .json_response::<DrainResponse>(202, "It is ending.")
        .finish();
}

/// A JSON Web Key Set (RFC 7517, 5).
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "its form is described, and the keys are written elsewhere")]
struct JwkSet {
    keys: Vec<serde_json::Map<String, serde_json::Value>>,
}
