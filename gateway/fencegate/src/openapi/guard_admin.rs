//! The operations of a guard: those for operators on its admin listener, and the one for gateways on its public
//! listener.

use fencegate_guard::announce::{ANNOUNCEMENT, Announcement};

use super::described::ApiDocument;
use crate::{
    admin::{
        fault::ApiErrorCode,
        outcomes::{Doubtful, Forgotten, KnownKey, ResolveAtGuard, StaleRefusals},
        replies::{DrainBegun, ResolvedOperation},
    },
    refusal::Problem,
};

const DESCRIPTION: &str = "What the admin listener of a guard tells and does, and what it says of itself where requests come in. \
                    `gateway/API.md` describes it for people. The pages for people are not described here.";

pub(super) fn described() -> ApiDocument {
    let mut api =
        ApiDocument::new("The admin API of a Fencegate guard", "http://127.0.0.1:9902", DESCRIPTION);
    probes(&mut api);
    outcomes(&mut api);
    others(&mut api);
    api.get(
        ANNOUNCEMENT,
        "announcement",
        "Who the guard is: gateways ask before the first request on each connection.",
    )
    .elsewhere("http://127.0.0.1:8081")
    .tells::<Announcement>(200, "The announcement of the guard.")
    .tells_as::<Problem>(503, "application/problem+json", "Its store cannot be asked, or it is overloaded.")
    .end();
    api
}

fn probes(api: &mut ApiDocument) {
    api.get("/live", "live", "All threads on which requests depend turn.")
        .open()
        .shows(200, "text/plain", "They do.")
        .shows(503, "text/plain", "One has not turned for five seconds, or has ended, and which.")
        .end();
    api.get("/ready", "ready", "Whether a request could be let in now.")
        .open()
        .shows(200, "text/plain", "The guard could let requests in, at least on some keys.")
        .shows(503, "text/plain", "The guard could let nothing in, and why.")
        .end();
    api.get("/metrics", "metrics", "The metrics, for Prometheus.")
        .shows(200, "text/plain", "All families, in the text format of Prometheus.")
        .end();
}

fn outcomes(api: &mut ApiDocument) {
    const REFERENCE: &str = "The reference from the list of operations.";
    api.get("/api/v1/operations", "operations", "Operations and executions whose outcome is unknown.")
        .tells::<Doubtful>(200, "The first thousand.")
        .fails(&[ApiErrorCode::Away])
        .end();
    api.post(
        "/api/v1/operations/{reference}/resolve",
        "resolveOperation",
        "Records the outcome of an operation or execution.",
    )
    .named("reference", REFERENCE)
    .given::<ResolveAtGuard>()
    .tells::<ResolvedOperation>(200, "The outcome is recorded.")
    .fails(&[ApiErrorCode::NotFound, ApiErrorCode::Force, ApiErrorCode::Away])
    .end();
    api.post(
        "/api/v1/operations/{reference}/forget",
        "forgetOperation",
        "Forgets a finished operation and its kept answer.",
    )
    .named("reference", REFERENCE)
    .tells::<Forgotten>(200, "The operation is forgotten.")
    .fails(&[ApiErrorCode::NotFound, ApiErrorCode::Away])
    .end();
}

fn others(api: &mut ApiDocument) {
    api.get("/api/v1/keys/{key}", "key", "The marks of a key, and what is in flight and in doubt under it.")
        .named("key", "The key, with `/` as `%2F` or as it is.")
        .tells::<KnownKey>(200, "The marks and requests of the key.")
        .fails(&[ApiErrorCode::NotFound, ApiErrorCode::Away])
        .end();
    api.get("/api/v1/refusals", "refusals", "Stale dispatches since the start, and the last one.")
        .tells::<StaleRefusals>(200, "Their number, and the last one.")
        .end();
    api.post("/api/v1/backup", "backup", "A backup of the store, for authenticated callers only.")
        .shows(200, "application/octet-stream", "The backup. One that is cut off is not valid.")
        .fails(&[ApiErrorCode::Open, ApiErrorCode::Elsewhere, ApiErrorCode::Away])
        .end();
    api.post("/api/v1/drain", "drain", "As SIGTERM: the process ends when everything that runs has ended.")
        .tells::<DrainBegun>(202, "It is ending.")
        .end();
}
