//! The operations of a gateway's admin listener.

use super::described::ApiDocument;
use crate::admin::{
    api::{HotKeyQuery, LockListQuery, ReloadQuery, ResolveAtGateway},
    breaking::Breaking,
    command::ReloadReport,
    documents::{BrokenLock, Contention, LockDetail, Locks, Members, Operations},
    effective::Effective,
    fault::ApiErrorCode,
    lease_oversight::{AskingBack, BreakingLease, LeaseListQuery, LeaseTold, LeasesTold},
    replies::{DrainBegun, ResolvedOperation},
};

const DESCRIPTION: &str = "What the admin listener of a gateway tells and does. `gateway/API.md` describes it for people: who gets in, \
                    how keys are called, and what breaking a lock does to safety. The pages for people are not described here.";

pub(super) fn described() -> ApiDocument {
    let mut api =
        ApiDocument::new("The admin API of a Fencegate gateway", "http://127.0.0.1:9901", DESCRIPTION);
    probes(&mut api);
    locks(&mut api);
    leases(&mut api);
    others(&mut api);
    commands(&mut api);
    api
}

fn probes(api: &mut ApiDocument) {
    api.get("/live", "live", "All threads on which requests and locks depend turn.")
        .open()
        .shows(200, "text/plain", "They do.")
        .shows(503, "text/plain", "One has not turned for five seconds, or has ended, and which.")
        .end();
    api.get("/ready", "ready", "A lock could be granted now. Services and guards are not asked.")
        .open()
        .shows(200, "text/plain", "It could.")
        .shows(503, "text/plain", "No lock could be granted, and why.")
        .end();
    api.get("/metrics", "metrics", "The metrics, for Prometheus.")
        .shows(200, "text/plain", "All families, in the text format of Prometheus.")
        .end();
    api.get("/jwks.json", "ticketKeys", "The public keys of our tickets, for guards to fetch.")
        .open()
        .tells_as::<JwkSet>(200, "application/jwk-set+json", "A JSON Web Key Set (RFC 7517).")
        .fails(&[ApiErrorCode::NotFound])
        .end();
}

fn locks(api: &mut ApiDocument) {
    api.get("/api/v1/locks", "locks", "The keys that this gateway holds or waits for.")
        .asks::<LockListQuery>()
        .tells::<Locks>(200, "A page of the list.")
        .fails(&[ApiErrorCode::Changed])
        .end();
    api.get("/api/v1/locks/{key}", "lock", "One key: here, and in ZooKeeper with the nodes of all gateways.")
        .named("key", KEY_DESCRIPTION)
        .tells::<LockDetail>(200, "The holders and waiters of the key.")
        .fails(&[ApiErrorCode::Malformed, ApiErrorCode::NotFound, ApiErrorCode::Changed])
        .end();
    api.post("/api/v1/locks/{key}/break", "breakLock", "Removes the lock node of whoever holds the key.")
        .named("key", KEY_DESCRIPTION)
        .given::<Breaking>()
        .tells::<BrokenLock>(200, "The nodes that were removed.")
        .fails(&[ApiErrorCode::Confirm, ApiErrorCode::Changed, ApiErrorCode::Force, ApiErrorCode::Away])
        .end();
}

fn leases(api: &mut ApiDocument) {
    api.get("/api/v1/leases", "leases", "The leases of this gateway that are not over, the oldest first.")
        .asks::<LeaseListQuery>()
        .tells::<LeasesTold>(200, "A page of them.")
        .fails(&[ApiErrorCode::Changed])
        .end();
    api.get(
        "/api/v1/leases/{reference}",
        "lease",
        "One lease of this gateway, also for a while after its end.",
    )
    .named_like("reference", REFERENCE, REFERENCE_DESCRIPTION)
    .tells::<LeaseTold>(200, "The lease.")
    .fails(&[ApiErrorCode::NotFound])
    .end();
    api.post(
        "/api/v1/leases/{reference}/revoke",
        "revokeLease",
        "Asks the client of a lease to give it back.",
    )
    .named_like("reference", REFERENCE, REFERENCE_DESCRIPTION)
    .given::<AskingBack>()
    .tells::<LeaseTold>(200, "The client sees the reason when it renews or watches.")
    .fails(&[ApiErrorCode::NotFound, ApiErrorCode::Changed])
    .end();
    api.post("/api/v1/leases/{reference}/break", "breakLease", "Ends a lease without its client.")
        .named_like("reference", REFERENCE, REFERENCE_DESCRIPTION)
        .given::<BreakingLease>()
        .tells::<LeaseTold>(
            200,
            "The lease is over. Its keys are released when the promise to its client is over, too.",
        )
        .fails(&[ApiErrorCode::Confirm, ApiErrorCode::NotFound, ApiErrorCode::Changed])
        .end();
}

const REFERENCE: &str = "^[0-9a-f]{16}$";
const REFERENCE_DESCRIPTION: &str = "The reference of the lease in lists and logs: 16 hex digits.";

const KEY_DESCRIPTION: &str = "The key, with `/` as `%2F`; or its number, where keys are not shown in plain.";

fn others(api: &mut ApiDocument) {
    api.get(
        "/api/v1/contention",
        "contention",
        "The keys that requests waited for longest in the last minutes.",
    )
    .asks::<HotKeyQuery>()
    .tells::<Contention>(200, "The first keys.")
    .end();
    api.get("/api/v1/config", "config", "The plan in force, with all defaults, and without secrets.")
        .tells::<Effective>(200, "The plan.")
        .end();
    api.get(
        "/api/v1/members",
        "members",
        "The gateways that are registered in ZooKeeper, and our own sessions.",
    )
    .tells::<Members>(200, "All of them.")
    .fails(&[ApiErrorCode::Away])
    .end();
    api.get("/api/v1/operations", "operations", "Operations whose outcome is unknown.")
        .tells::<Operations>(200, "The first thousand.")
        .fails(&[ApiErrorCode::Away])
        .end();
    api.post(
        "/api/v1/operations/{reference}/resolve",
        "resolveOperation",
        "Records the outcome of an operation.",
    )
    .named("reference", "The reference from the list of operations.")
    .given::<ResolveAtGateway>()
    .tells::<ResolvedOperation>(200, "The outcome is recorded.")
    .fails(&[ApiErrorCode::NotFound, ApiErrorCode::Force, ApiErrorCode::Away])
    .end();
}

fn commands(api: &mut ApiDocument) {
    api.post("/api/v1/reload", "reload", "Reads the file of the policy again.")
        .asks::<ReloadQuery>()
        .tells::<ReloadReport>(200, "The file is in force, or would be.")
        .tells::<ReloadReport>(422, "The file has mistakes, and nothing has changed.")
        .fails(&[ApiErrorCode::Away])
        .end();
    api.post("/api/v1/drain", "drain", "As SIGTERM: the process ends when everything that runs has ended.")
        .tells::<DrainBegun>(202, "It is ending.")
        .end();
}

/// A JSON Web Key Set (RFC 7517, 5).
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "its form is described, and the keys are written elsewhere")]
struct JwkSet {
    keys: Vec<serde_json::Map<String, serde_json::Value>>,
}
