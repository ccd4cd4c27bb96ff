//! The operations of a guard: those for operators on its admin listener, and the one for gateways on its public
//! listener.

use fencegate_guard::identity::{ANNOUNCEMENT, GuardIdentityResponse};
use fencegate_refusal::RefusalProblemJson;

use super::document::OpenApiDocumentBuilder;
use crate::{
    error::AdminErrorCode,
    models::{DrainResponse, ResolveOperationResponse},
    outcomes::{ForgetOperationResponse, GuardKeyJson, GuardResolveBody, GuardUnresolvedList, StaleRefusals},
};

const DESCRIPTION: &str = "What the admin listener of a guard tells and does, and what it says of itself where requests come in. \
                    `gateway/API.md` describes it for people. The pages for people are not described here.";

pub(super) fn document() -> OpenApiDocumentBuilder {
    let mut api = OpenApiDocumentBuilder::new(
        "The admin API of a Fencegate guard",
        "http://127.0.0.1:9902",
        DESCRIPTION,
    );
    add_probe_paths(&mut api);
    add_outcome_paths(&mut api);
    add_other_paths(&mut api);
    api.get(
        ANNOUNCEMENT,
        "announcement",
        "Who the guard is: gateways ask before the first request on each connection.",
    )
    .with_operation_server("http://127.0.0.1:8081")
    .json_response::<GuardIdentityResponse>(200, "The announcement of the guard.")
    .typed_response::<RefusalProblemJson>(
        503,
        "application/problem+json",
        "Its store cannot be asked, or it is overloaded.",
    )
    .finish();
    api
}

fn add_probe_paths(api: &mut OpenApiDocumentBuilder) {
    api.get("/live", "live", "All threads on which requests depend turn.")
        .open_to_all()
        .raw_response(200, "text/plain", "They do.")
        .raw_response(503, "text/plain", "One has not responded for five seconds, or has ended, and which.")
        .finish();
    api.get("/ready", "ready", "Whether a request could be let in now.")
        .open_to_all()
        .raw_response(200, "text/plain", "The guard could let requests in, at least on some keys.")
        .raw_response(503, "text/plain", "The guard could let nothing in, and why.")
        .finish();
    api.get("/metrics", "metrics", "The metrics, for Prometheus.")
        .raw_response(200, "text/plain", "All families, in the text format of Prometheus.")
        .finish();
}

fn add_outcome_paths(api: &mut OpenApiDocumentBuilder) {
    const REFERENCE: &str = "The reference from the list of operations.";
    api.get("/api/v1/operations", "operations", "Operations and executions whose outcome is unknown.")
        .json_response::<GuardUnresolvedList>(200, "The first thousand.")
        .error_responses(&[AdminErrorCode::Away])
        .finish();
    api.post(
        "/api/v1/operations/{reference}/resolve",
        "resolveOperation",
        "Records the outcome of an operation or execution.",
    )
    .path_param("reference", REFERENCE)
    .required_body::<GuardResolveBody>()
    .json_response::<ResolveOperationResponse>(200, "The outcome is recorded.")
    .error_responses(&[AdminErrorCode::NotFound, AdminErrorCode::Force, AdminErrorCode::Away])
    .finish();
    api.post(
        "/api/v1/operations/{reference}/forget",
        "forgetOperation",
        "Forgets a finished operation and its kept answer.",
    )
    .path_param("reference", REFERENCE)
    .json_response::<ForgetOperationResponse>(200, "The operation is forgotten.")
    .error_responses(&[AdminErrorCode::NotFound, AdminErrorCode::Away])
    .finish();
}

fn add_other_paths(api: &mut OpenApiDocumentBuilder) {
    api.get(
        "/api/v1/keys/{key}",
        "key",
        "The watermarks of a key, and what is in flight and in doubt under it.",
    )
    .path_param("key", "The key, with `/` as `%2F` or as it is.")
    .json_response::<GuardKeyJson>(200, "The watermarks and requests of the key.")
    .error_responses(&[AdminErrorCode::NotFound, AdminErrorCode::Away])
    .finish();
    api.get("/api/v1/refusals", "refusals", "Stale dispatches since the start, and the last one.")
        .json_response::<StaleRefusals>(200, "Their number, and the last one.")
        .finish();
    api.post("/api/v1/backup", "backup", "A backup of the store, for authenticated callers only.")
        .raw_response(200, "application/octet-stream", "The backup. One that is cut off is not valid.")
        .error_responses(&[AdminErrorCode::Open, AdminErrorCode::Elsewhere, AdminErrorCode::Away])
        .finish();
    api.post("/api/v1/drain", "drain", "As SIGTERM: the process ends when everything that runs has ended.")
        .json_response::<DrainResponse>(202, "It is ending.")
        .finish();
}
