//! What a guard remembers of an operation that happens at most once.

use bytes::Bytes;
use fencegate_policies::{key::ResourceKey, operation::Operation, token::Token};
use serde::{Deserialize, Serialize};

/// An operation as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of the written form.
    pub format: u32,
    pub fingerprint: String,
    pub keys: Vec<ResourceKey>,
    pub token: Token,
    pub method: String,
    /// Path and query, for the operator who has to find out.
    pub target: String,
    /// The `Idempotency-Key` that it came with, for people.
    pub name: Option<String>,
    /// That names it, and nothing else does: the upstream can be asked by it. What a build before this one wrote does
    /// not say so.
    #[serde(default)]
    pub askable: bool,
    /// Seconds of the wall clock, for people.
    pub admitted: u64,
    /// Seconds of the store's time; a build that knew only the wall clock has written none.
    #[serde(default)]
    pub began: Option<u64>,
    pub keep: u64,
    pub state: State,
}

/// How far an operation is known to have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// Let through. Unless it is running now, nobody knows what came of it.
    Admitted,
    /// Over, and this was the answer. `at` is in seconds of the store's time, here as below.
    Done { at: u64, answer: Option<Kept> },
    /// Over; by the word of the upstream or an operator, and nobody saw the answer.
    Resolved { at: u64, how: Resolution },
}

/// What becomes of the entry of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writing {
    /// It stays as it is.
    Nothing,
    Entry(Box<Entry>),
    Forget,
}

/// Who said that it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    Probe,
    Operator,
}

/// A complete answer of the upstream, kept to be given again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub status: u16,
    /// Those that mean the same when the answer is given again.
    pub fields: Vec<(String, String)>,
    /// `None` where it was larger than what is kept. Stored beside the rest: it may be any bytes.
    #[serde(skip)]
    pub body: Option<Bytes>,
}

impl Entry {
    /// A repeat asks for the same thing.
    pub fn is_of(&self, operation: &Operation) -> bool {
        self.fingerprint == operation.fingerprint.to_string()
    }
}
