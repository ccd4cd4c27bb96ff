//! The plan of a guard: the process in front of a service that compares tokens for the service.

use std::{path::PathBuf, time::Duration};

use super::{
    fence::Enforcement, serving::CommonServingPlan, tickets::TicketVerificationKeys, tls::ClientTls,
};
use crate::words::words;

/// The checked configuration of a guard. Made by [`crate::file::load_guard`] only.
#[derive(Debug, Clone)]
pub struct GuardPlan {
    /// The served traffic, with one upstream and no route: every admitted request goes to the upstream.
    pub serving: CommonServingPlan,
    pub store: GuardStoreLocation,
    /// The longest time that a request of a newer tenure waits for older executions. Default 10 s.
    pub settle: Duration,
    /// The time after the last byte was sent at which an execution counts as over, if its end was not seen. Default
    /// 30 s.
    pub max_execution: Duration,
    /// The time after its admission in which a request must be sent upstream; later nothing is written. Default 5 s.
    pub send_within: Duration,
    /// The most by which the wall clocks of gateways may differ from this machine's. Default 500 ms.
    pub clock_error: Duration,
    /// The time after its last use at which the watermark of a key is dropped and the floor takes its place. Default
    /// 1 h.
    pub evict_after: Duration,
    /// Methods that pass without a token. Default none.
    pub unfenced: Vec<String>,
    pub missing: MissingFencingTokenPolicy,
    pub enforce: Enforcement,
    /// The keys that verify tickets; `None` if no tickets are required.
    pub tickets: Option<TicketVerificationKeys>,
    pub journal: IdempotencyJournalSettings,
}

/// The store of watermarks and journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardStoreLocation {
    /// A file of this guard alone.
    Redb(PathBuf),
    /// A database that all guards of the upstream share.
    Postgres(PostgresLocation),
    /// No store. The process is a filter: it compares no tokens, and only refuses requests that come after their
    /// `Fencing-Not-After`.
    Stateless,
}

/// The database that several guards share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresLocation {
    /// The file with the address of the database, which contains its password.
    pub url_file: PathBuf,
    /// The TLS settings of the connection; `None` for plain text.
    pub tls: Option<ClientTls>,
}

/// The treatment of a request that must carry a token and does not, because it has bypassed the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingFencingTokenPolicy {
    Refuse,
    /// The request passes, and is counted and reported.
    Observe,
}

words! { MissingFencingTokenPolicy { Refuse = "refuse", Observe = "observe" } }

/// The settings for operations of `once`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyJournalSettings {
    /// The time for which a finished operation is stored if its gateway does not set it. Default 24 h.
    pub keep: Duration,
    /// The most bytes of a response body that are stored for a replay; 0 stores none. Default 64 KiB.
    pub max_body: usize,
    /// The most bytes of the whole journal. Above that, new operations are refused. Default 1 GiB.
    pub most: u64,
    /// The statuses from 500 on that certainly end an operation.
    pub final_statuses: Vec<u16>,
    /// The probe of the upstream for the outcome of an operation.
    pub probe: Option<OutcomeProbeSettings>,
}

/// The request by which the upstream is probed for the outcome of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeProbeSettings {
    /// The path and query. `{operation}` stands for the percent-encoded idempotency key.
    pub path: String,
    /// The statuses that mean that the operation was done.
    pub done: Vec<u16>,
    /// The statuses that mean that the operation was not done.
    pub not_done: Vec<u16>,
    /// Whether the service closes the name of the operation when it reports "not done": a later request under this
    /// name, with a token that is not above that of the probe, is refused there. Default false.
    pub closes: bool,
    /// The time limit for one response. Default 3 s.
    pub timeout: Duration,
}
