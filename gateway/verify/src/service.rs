//! The service under test: its address, its requests, and its claims.

use std::time::Duration;

use super::{
    connection::InstanceAddress, effects::EffectSource, template::RequestTemplate,
    token_headers::ComparedTokenHeaders,
};

/// A service, as its user describes it.
pub struct TestedService {
    /// At least one. All instances share one database.
    pub instances: Vec<InstanceAddress>,
    pub write: RequestTemplate,
    pub read: RequestTemplate,
    /// A write of another kind, about the same key.
    pub also: Option<RequestTemplate>,
    /// A write that takes long, where there is one.
    pub slow: Option<RequestTemplate>,
    pub fields: ComparedTokenHeaders,
    /// The gateway's form of a key, with the placeholder `{key}` in it.
    pub fencing_key: String,
    pub sharing: SharedModeSupport,
    pub reach: KeysPerRequest,
    pub names: HeaderNameMapping,
    pub deadlines: DeadlineSupport,
    /// The probe for the outcome of an operation, if there is one.
    pub probe: Option<OutcomeProbeTemplate>,
    pub sight: EffectSource,
    /// How long a watermark must be stored while its key is unused.
    pub remember: Option<Duration>,
    /// The pause before effects are read.
    pub settle: Duration,
    /// The time limit for one answer.
    pub patience: Duration,
    /// A shell command that ends the service as a crash would, and starts it.
    pub restart: Option<String>,
    /// How often a race is run.
    pub rounds: u32,
    /// The selected cases; empty means all.
    pub only: Vec<String>,
}

/// The probe with which a guard queries the service for the outcome of an operation, and the meaning of its
/// answers.
#[derive(Debug, Clone)]
pub struct OutcomeProbeTemplate {
    /// A GET, with the placeholder `{operation}` in it.
    pub ask: RequestTemplate,
    pub done: Vec<u16>,
    pub not_done: Vec<u16>,
}

/// Whether readers share a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedModeSupport {
    /// One watermark.
    Exclusive,
    /// Two watermarks, one of writes and one of reads.
    TwoMarks,
}

/// Whether the service refuses requests that come after `Fencing-Not-After`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadlineSupport {
    /// Not known, so no request has the field.
    Unclaimed,
    /// The service claims to refuse them, so every request has the field, as a gateway writes it.
    Enforced,
}

/// The number of keys that a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysPerRequest {
    One,
    Several,
}

/// The form in which field names reach the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderNameMapping {
    Spelled,
    /// As variables in which `-` and `_` are the same, as in CGI and WSGI.
    Folded,
}
