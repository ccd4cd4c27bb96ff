//! What a guard does: it stands in front of a service and checks tokens for the service.

use std::{path::PathBuf, time::Duration};

use super::{
    fence::Enforcement, serving::CommonServingPlan, tickets::TicketVerificationKeys, tls::ClientTls,
};
use crate::words::words;

/// The checked configuration of a guard. Made by [`crate::file::load_guard`] only.
#[derive(Debug, Clone)]
pub struct GuardPlan {
    /// One upstream, no route: every admitted request goes there.
    pub serving: CommonServingPlan,
    pub store: StoreLocation,
    /// How long a newer tenure waits for older executions. Default 10 s.
    pub settle: Duration,
    /// An execution whose end was not seen counts as over this long after the last byte was sent. Default 30 s.
    pub max_execution: Duration,
    /// Nothing is written upstream later than this after admission. Default 5 s.
    pub send_within: Duration,
    /// By how much the wall clocks of gateways may differ from this machine's. Default 500 ms.
    pub clock_error: Duration,
    /// The watermark of a key that was not used for this long is dropped, and the floor takes its place. Default 1 h.
    pub evict_after: Duration,
    /// Methods that pass without a token. Default none.
    pub unfenced: Vec<String>,
    pub missing: MissingTokenPolicy,
    pub enforce: Enforcement,
    /// The keys that verify tickets; `None` where no tickets are required.
    pub tickets: Option<TicketVerificationKeys>,
    pub journal: JournalSettings,
}

/// The store of watermarks and journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// A file of this guard alone.
    Redb(PathBuf),
    /// A database that all guards of the upstream share.
    Postgres(PostgresLocation),
    /// No store. The process is a filter: it compares no tokens, and refuses only requests that come after their
    /// `Fencing-Not-After`.
    Stateless,
}

/// The database of several guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresLocation {
    /// The file with the address of the database, and with its password.
    pub url_file: PathBuf,
    /// The TLS settings of the connection; `None` for plain text.
    pub tls: Option<ClientTls>,
}

/// What happens to a request that has to carry a token and does not: a bypass of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingTokenPolicy {
    Refuse,
    /// It passes, is counted and reported.
    Observe,
}

words! { MissingTokenPolicy { Refuse = "refuse", Observe = "observe" } }

/// How operations of `once` are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSettings {
    /// How long a finished operation is stored where its gateway does not set it. Default 24 h.
    pub keep: Duration,
    /// Bytes of an answer's body that are kept for a replay; 0 keeps none. Default 64 KiB.
    pub max_body: usize,
    /// The most bytes of the whole journal; beyond that, new operations are refused. Default 1 GiB.
    pub most: u64,
    /// Statuses from 500 on that are the certain end of an operation.
    pub final_statuses: Vec<u16>,
    /// How to probe the upstream for the outcome of an operation.
    pub probe: Option<OutcomeProbeSettings>,
}

/// A probe of the upstream, about one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeProbeSettings {
    /// Path and query; `{operation}` stands for the percent-encoded idempotency key.
    pub path: String,
    /// Statuses that mean: the operation was done.
    pub done: Vec<u16>,
    /// Statuses that mean: the operation was not done.
    pub not_done: Vec<u16>,
    /// Whether the service closes the name of the operation when it reports "not done": a later request under this
    /// name, with a token that is not above that of the probe, is refused there. Default false.
    pub closes: bool,
    /// The time limit for one answer. Default 3 s.
    pub timeout: Duration,
}
