//! The answers to operators that are alike for a gateway and a guard.

use axum::{Extension, Json, http::StatusCode};
use serde_json::{Value, json};

use super::{deed::Deed, fault::Fault};

/// The answer to an operator who looks at something.
pub(super) type Looked<T> = Result<Json<T>, Fault>;

/// The answer to an operator who had something done. What was done goes with it into the log.
pub(super) type Done = Result<(Extension<Deed>, Json<Value>), Fault>;

/// The answer to `drain`: the process ends when everything that runs has ended.
pub(super) fn draining() -> (StatusCode, Extension<Deed>, Json<Value>) {
    (StatusCode::ACCEPTED, Extension(Deed("drain".into())), Json(json!({ "draining": true })))
}

/// The answer to `resolve`: what came of the operation is written down.
pub(super) fn resolved(deed: Deed, reference: &str) -> (Extension<Deed>, Json<Value>) {
    (Extension(deed), Json(json!({ "resolved": reference })))
}
