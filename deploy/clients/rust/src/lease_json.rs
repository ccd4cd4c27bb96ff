//! The interface of leases: the header field of requests, and the JSON of questions and answers.

use http::HeaderName;
use serde::{Deserialize, Serialize};

/// The header field that puts a request under a lease.
pub const FENCING_LEASE: HeaderName = HeaderName::from_static("fencing-lease");

/// The reason of a refusal with 409: an earlier request of the same name has no result yet.
pub(crate) const IN_PROGRESS: &str = "in-progress";

/// `POST /.fencegate/v1/leases`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LeaseRequestBody {
    pub(crate) keys: Vec<String>,
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    /// Without it a lease in the queue waits for as long as it is renewed, and any other not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A lease as the gateway describes it. Further fields are ignored.
#[derive(Deserialize)]
pub(crate) struct LeaseResponseBody {
    /// The secret of the lease.
    pub(crate) lease: Option<String>,
    pub(crate) reference: String,
    pub(crate) state: String,
    /// Why it is over.
    pub(crate) why: Option<String>,
    /// Grows with each change.
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

/// A refusal (RFC 9457).
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
