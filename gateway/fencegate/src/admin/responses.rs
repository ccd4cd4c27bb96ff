//! Responses to operators that gateway and guard share.

use axum::{Extension, Json, http::StatusCode};
use serde::Serialize;

use super::{audit::AuditAction, error::ApiError};

/// The response to a query.
pub(super) type QueryResult<T> = Result<Json<T>, ApiError>;

/// The response to an action, with a description of it for the log.
pub(super) type ActionResult<T> = Result<(Extension<AuditAction>, Json<T>), ApiError>;

/// The process ends when everything that runs has ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct DrainBegun {
    draining: bool,
}

/// The outcome of the operation is recorded.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct ResolvedOperation {
    /// Its reference.
    resolved: String,
}

/// The answer to `drain`.
pub(super) fn drain_response() -> (StatusCode, Extension<AuditAction>, Json<DrainBegun>) {
    (StatusCode::ACCEPTED, Extension(AuditAction("drain".into())), Json(DrainBegun { draining: true }))
}

/// The answer to `resolve`.
pub(super) fn resolve_response(
    deed: AuditAction,
    reference: String,
) -> (Extension<AuditAction>, Json<ResolvedOperation>) {
    (Extension(deed), Json(ResolvedOperation { resolved: reference }))
}
