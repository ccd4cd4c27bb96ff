//! Responses to operators that gateway and guard share.

use axum::{Extension, Json, http::StatusCode};
use serde::Serialize;

use super::{audit::AuditAction, error::AdminApiError};

/// The response to a query.
pub(super) type QueryResult<T> = Result<Json<T>, AdminApiError>;

/// The response to an action, with a description of it for the log.
pub(super) type ActionResult<T> = Result<(Extension<AuditAction>, Json<T>), AdminApiError>;

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
