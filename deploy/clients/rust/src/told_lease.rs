//! How leases are spoken of: the field of their requests, and the JSON of questions and answers.

use http::HeaderName;
use serde::{Deserialize, Serialize};

/// The field with which a request goes under a lease.
pub const FENCING_LEASE: HeaderName = HeaderName::from_static("fencing-lease");

/// `POST /.fencegate/v1/leases`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AskedLease {
    pub(crate) keys: Vec<String>,
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permits: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) wait_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// A lease, as its client is told of it. What else is said is for others.
#[derive(Deserialize)]
pub(crate) struct ToldLease {
    /// The secret.
    pub(crate) lease: Option<String>,
    pub(crate) reference: String,
    pub(crate) state: String,
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
pub(crate) struct Problem {
    pub(crate) reason: String,
    pub(crate) title: String,
    /// What its client can do about it.
    pub(crate) detail: Option<String>,
}

impl ToldLease {
    pub(crate) fn is_held(&self) -> bool {
        self.state == "held"
    }
}
