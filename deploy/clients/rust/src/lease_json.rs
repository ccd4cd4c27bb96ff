//! The HTTP interface of leases: the header field of requests, and the JSON of requests and responses.

use http::HeaderName;
use serde::{Deserialize, Serialize};

/// The header field that names the lease under which a request is sent.
pub const FENCING_LEASE: HeaderName = HeaderName::from_static("fencing-lease");

/// The reason of a 409: an earlier request with the same `Idempotency-Key` has no result yet.
pub(crate) const IN_PROGRESS: &str = "in-progress";

/// The body of `POST /.fencegate/v1/leases`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LeaseRequestBody {
    pub(crate) keys: Vec<String>,
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    /// The longest wait for the lock, in milliseconds. `None`: a lease in the queue waits for as long as it
    /// is renewed, and any other request does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A lease as the gateway describes it. Further fields are ignored.
#[derive(Deserialize)]
pub(crate) struct LeaseResponseBody {
    /// The secret id of the lease.
    pub(crate) lease: Option<String>,
    pub(crate) reference: String,
    pub(crate) state: String,
    /// The reason for which the lease is over.
    pub(crate) why: Option<String>,
    /// The number of the latest change of the lease; it grows with each change.
    #[serde(default)]
    pub(crate) revision: u64,
    #[serde(default)]
    pub(crate) ttl_ms: u64,
    pub(crate) token: Option<String>,
    pub(crate) number: Option<u64>,
    pub(crate) permit: Option<u16>,
    pub(crate) ticket: Option<String>,
    pub(crate) held_for_ms: Option<u64>,
    pub(crate) revocation: Option<String>,
}

/// The body of a refusal (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProblemDetails {
    pub(crate) reason: String,
    pub(crate) title: String,
    /// The advice for the client.
    pub(crate) detail: Option<String>,
}

impl LeaseResponseBody {
    pub(crate) fn is_held(&self) -> bool {
        self.state == "held"
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.state == "waiting"
    }
}
