//! The stored record of an operation that happens at most once.

use bytes::Bytes;
use fencegate_policies::{key::ResourceKey, operation::FencingOperationHeader, token::FencingToken};
use serde::{Deserialize, Serialize};

/// The idempotency record of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationJournalEntry {
    /// Version of the written form.
    pub format: u32,
    pub fingerprint: String,
    pub keys: Vec<ResourceKey>,
    pub token: FencingToken,
    pub method: String,
    /// Path and query, for the operator who investigates.
    pub target: String,
    /// The `Idempotency-Key` of the request, for display only.
    pub name: Option<String>,
    /// Whether the `Idempotency-Key` header alone names the operation, so that a probe can query the upstream by
    /// it. Older builds did not write this.
    #[serde(default)]
    pub askable: bool,
    /// Seconds of the wall clock, for display only.
    pub admitted: u64,
    /// The time of the admission in seconds of the store's time. Builds that knew only the wall clock did not
    /// write it.
    #[serde(default)]
    pub began: Option<u64>,
    pub keep: u64,
    pub state: JournalEntryState,
}

/// How far an operation is known to have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum JournalEntryState {
    /// The operation was admitted. If it is not running now, its outcome is unknown.
    Admitted,
    /// The operation is over, with this response; `None` if the response is not known. `at` is in seconds of the
    /// store's time.
    Done { at: u64, answer: Option<StoredResponse> },
    /// The operation is over, as the upstream or an operator reports; the response is not known. `at` is in
    /// seconds of the store's time.
    Resolved { at: u64, how: ResolutionSource },
}

/// A change to the entry of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalUpdate {
    /// The entry stays as it is.
    Nothing,
    Entry(Box<OperationJournalEntry>),
    Forget,
}

/// The source of the report that an operation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResolutionSource {
    Probe,
    Operator,
}

/// A complete response of the upstream, kept for replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredResponse {
    pub status: u16,
    /// The header fields that are still true when the response is replayed.
    pub fields: Vec<(String, String)>,
    /// `None` if it was too large to keep. It may be any bytes, so it is stored beside the JSON.
    #[serde(skip)]
    pub body: Option<Bytes>,
}

impl OperationJournalEntry {
    /// Whether this operation has the same content as the recorded one.
    pub fn matches(&self, operation: &FencingOperationHeader) -> bool {
        self.fingerprint == operation.fingerprint.to_string()
    }
}
