//! The answers to operators that are alike for a gateway and a guard.

use axum::{Extension, Json, http::StatusCode};
use serde::Serialize;

use super::{deed::Deed, fault::Fault};

/// The answer to an operator who looks at something.
pub(super) type Looked<T> = Result<Json<T>, Fault>;

/// The answer to an operator who had something done. What was done goes with it into the log.
pub(super) type Done<T> = Result<(Extension<Deed>, Json<T>), Fault>;

/// The process ends when everything that runs has ended.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct DrainBegun {
    draining: bool,
}

/// What came of the operation is written down.
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
