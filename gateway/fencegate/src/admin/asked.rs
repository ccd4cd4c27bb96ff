//! What operators say to both roles, in the bodies and forms that they send.

use axum::body::Bytes;
use serde::{Deserialize, de::DeserializeOwned};

use super::fault::{Fault, Word};

/// What came of an operation.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    Done,
    NotDone,
}

/// The type of a body is not asked: who may send it is what the door has asked.
pub(super) fn parsed<T: DeserializeOwned>(body: &Bytes) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|bad| Fault::new(Word::Malformed, format!("the body: {bad}")))
}
