//! The JSON of the lease interface, as clients send and receive it.

use std::time::Duration;

use fencegate_policies::{
    key::{ParseKeyError, ResourceKey},
    plan::LockMode,
    token::FencingToken,
};
use serde::{Deserialize, Serialize};

/// `POST /.fencegate/v1/leases`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LeaseRequest, example = json!({
    "keys": ["job/nightly"], "mode": "exclusive", "ttl_ms": 15_000, "wait_ms": 0, "note": "10.0.0.7:8080"
})))]
pub struct AcquireLeaseBody {
    /// 1 to 64 keys. The lease holds all of them or none.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 64))]
    pub keys: Vec<String>,
    #[serde(default = "exclusive")]
    pub mode: LockMode,
    /// The lock is released after this long without a renewal. The policy has a default and bounds.
    pub ttl_ms: Option<u64>,
    /// How long to wait for another holder. Default: no wait; with `Prefer: respond-async` as long as the lease is
    /// renewed.
    pub wait_ms: Option<u64>,
    /// So many may hold the key at once, each with a permit and marks of its own. All who ask for the key say the same.
    pub permits: Option<u16>,
    /// A note for those who ask who holds the key, such as an address. At most 256 bytes.
    pub note: Option<String>,
}

fn exclusive() -> LockMode {
    LockMode::Exclusive
}

/// `POST /.fencegate/v1/leases/{reference}/renew`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Renewal))]
pub struct RenewLeaseBody {
    /// The new time to live. Default: as before.
    pub ttl_ms: Option<u64>,
}

/// `POST /.fencegate/v1/leases/{reference}/revoke`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Revocation))]
pub struct RevokeLeaseBody {
    /// The reason for the client.
    pub why: String,
}

/// A lease. Times are milliseconds.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseDocument {
    /// The id, a secret of its client: whoever has it may use the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The name of the lease in lists and logs.
    pub reference: String,
    pub gateway: String,
    /// `waiting`, `held` or `over`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^(waiting|held|over)$"))]
    pub state: String,
    /// Why it is over.
    pub why: Option<String>,
    /// Grows with each change.
    pub revision: u64,
    pub principal: String,
    pub keys: Vec<String>,
    pub mode: LockMode,
    pub note: Option<String>,
    /// While it is held: the number of its permit, where the key has permits.
    pub permit: Option<u16>,
    /// While it is held.
    pub token: Option<FencingToken>,
    /// `Fencing-Number` of everything that is sent under the lease.
    pub number: Option<u64>,
    /// For its client, where the policy has tickets: what a guard or a service verifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
    pub age_ms: u64,
    pub ttl_ms: u64,
    /// The lease is over after this time unless it is renewed.
    pub expires_in_ms: u64,
    /// For this long after the *question* nobody else can hold the key, whatever happens to the gateway. Work outside
    /// of the gateway must stop by then.
    pub held_for_ms: Option<u64>,
    /// While it waits: the lock nodes before it at the last look.
    pub ahead: Option<usize>,
    /// Estimated from the times for which recent leases of this gateway held their locks.
    pub expected_wait_ms: Option<u64>,
    /// Why an operator asks the client to give the lease back.
    pub revocation: Option<String>,
}

/// `GET /.fencegate/v1/leases`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseList {
    pub gateway: String,
    pub leases: Vec<LeaseDocument>,
}

/// `GET /.fencegate/v1/keys/{key}`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyDocument {
    pub key: String,
    /// The lock nodes of the key, holders first.
    pub line: Vec<KeyQueueEntry>,
    /// How long a new lease would wait, estimated from recent leases of this gateway.
    pub expected_wait_ms: Option<u64>,
}

/// One lock node.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = LineNode))]
pub struct KeyQueueEntry {
    pub gateway: Option<String>,
    pub mode: LockMode,
    pub holds: bool,
    pub number: Option<u64>,
    /// If this gateway holds the node as a lease.
    pub reference: Option<String>,
    pub note: Option<String>,
    pub age_ms: Option<u64>,
}

/// `GET /.fencegate/v1/elections/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ElectionDocument {
    pub name: String,
    /// The key that candidates hold or wait for.
    pub key: String,
    pub leader: Option<ElectionLeader>,
    /// How many wait behind the leader.
    pub waiting: usize,
}

/// The leader, and its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Leader))]
pub struct ElectionLeader {
    pub gateway: Option<String>,
    pub number: Option<u64>,
    /// Where the leader is a lease of a gateway that could be asked.
    pub token: Option<FencingToken>,
    pub reference: Option<String>,
    /// The note of the candidate.
    pub note: Option<String>,
}

pub const WAITING: &str = "waiting";
pub const HELD: &str = "held";
pub const OVER: &str = "over";

/// Milliseconds, rounded down, so that no time is reported too long.
pub fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

/// True for a key of an election.
pub fn is_election_key(key: &ResourceKey) -> bool {
    key.as_str().starts_with("election/")
}

/// Returns the key of an election.
///
/// # Errors
/// Returns an error if the name cannot be a part of a key.
pub fn election_key(name: &str) -> Result<ResourceKey, ParseKeyError> {
    ResourceKey::parse_user_input(&format!("election/{name}"))
}
