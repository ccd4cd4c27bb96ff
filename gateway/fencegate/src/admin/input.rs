//! What operators say to both roles, in the bodies and forms that they send.

use axum::body::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::fault::{Fault, Word};

/// What came of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ResolvedAs {
    /// The operation took effect.
    Done,
    /// The operation did not take effect, and never will.
    NotDone,
}

/// Reads the body of a request. Its media type is not asked for: whether its sender is another site, the door has
/// asked.
pub(super) fn parsed<T: DeserializeOwned>(body: &Bytes) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|bad| Fault::new(Word::Malformed, format!("the body: {bad}")))
}
