//! What a guard does: the process beside an upstream that checks tokens for it.

use std::{path::PathBuf, time::Duration};

use super::{fence::Enforce, serving::Plan, tickets::Verification, tls::Tls};

/// Everything a guard does, decided. Made by [`crate::file::load_guard`] only.
#[derive(Debug, Clone)]
pub struct Guard {
    /// One upstream, no route: whatever is admitted goes there.
    pub serving: Plan,
    pub store: Store,
    /// How long a newer tenure waits for older executions. Default 10 s.
    pub settle: Duration,
    /// This long after the last byte sent upstream, an execution whose end was not seen counts as over. Default 30 s.
    pub max_execution: Duration,
    /// Nothing is written upstream later than this after admission. Default 5 s.
    pub send_within: Duration,
    /// Marks of keys that nobody used for this long give way to the floor. Default 1 h.
    pub evict_after: Duration,
    /// Methods that pass without a token. Default none.
    pub unfenced: Vec<String>,
    pub missing: Missing,
    pub enforce: Enforce,
    /// Where tickets are required, what they are verified with.
    pub tickets: Option<Verification>,
    pub journal: Journal,
}

/// Where marks and journal live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// A file of this guard alone.
    Redb(PathBuf),
    /// A database that all guards of the upstream share.
    Postgres(Postgres),
}

/// Where the database of several guards is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    /// Has the address of the database in it, and the password.
    pub url_file: PathBuf,
    /// How TLS is spoken with it; `None` for plain text.
    pub tls: Option<Tls>,
}

/// What becomes of a request that has to carry a token and does not: a bypass of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Refuse,
    /// It passes, is counted and reported.
    Observe,
}

/// What is kept of `once` operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// How long a finished operation is remembered where its gateway does not say. Default 24 h.
    pub keep: Duration,
    /// Bytes of an answer's body that are kept for a replay; 0 keeps none. Default 64 KiB.
    pub max_body: usize,
    /// Bytes that all of it may take up; beyond, new operations are refused. Default 1 GiB.
    pub most: u64,
    /// Statuses of 500 and more that say for certain how the operation ended.
    pub final_statuses: Vec<u16>,
    /// How to ask the upstream what became of an operation.
    pub probe: Option<Probe>,
}

/// A question to the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Path and query; `{operation}` stands for the percent-encoded idempotency key.
    pub path: String,
    /// Statuses that mean: it was done.
    pub done: Vec<u16>,
    /// Statuses that mean: it was not done, and will not be.
    pub not_done: Vec<u16>,
    /// For one answer. Default 3 s.
    pub timeout: Duration,
}
