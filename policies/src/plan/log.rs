//! What is told of requests.

use std::sync::Arc;

/// What is written beside the process's own log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    pub access: Access,
    pub keys: KeysShown,
    /// `None`: no spans are sent.
    pub traces: Option<Arc<Traces>>,
}

/// Where the spans of requests go, by the protocol of OpenTelemetry (OTLP).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    /// `host:port` of what collects them.
    pub collector: String,
    /// By which they are told from those of others. Default `fencegate`.
    pub service_name: String,
    /// Of traces that begin here one in so many is recorded; of others what their beginning has decided. Default 1.
    pub one_in: u32,
}

/// Where the line per request goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    #[default]
    Off,
    Stdout,
}

/// How resource keys stand in the access log and in spans. They may be names of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeysShown {
    #[default]
    Plain,
    /// The same number for the same keys, 16 hex digits. No secret: who can guess a key finds its number.
    Hash,
    Off,
}
