//! Answers to operators that gateway and guard share.

use axum::{Extension, Json, http::StatusCode};
use serde::Serialize;

use super::{deed::Deed, fault::Fault};

/// The answer to a question.
pub(super) type Looked<T> = Result<Json<T>, Fault>;

/// The answer to an action, with a description of it for the log.
pub(super) type Done<T> = Result<(Extension<Deed>, Json<T>), Fault>;

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
pub(super) fn draining() -> (StatusCode, Extension<Deed>, Json<DrainBegun>) {
    (StatusCode::ACCEPTED, Extension(Deed("drain".into())), Json(DrainBegun { draining: true }))
}

/// The answer to `resolve`.
pub(super) fn resolved(deed: Deed, reference: String) -> (Extension<Deed>, Json<ResolvedOperation>) {
    (Extension(deed), Json(ResolvedOperation { resolved: reference }))
}
