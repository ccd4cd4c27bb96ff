//! The time limits for a client, by name.

use std::time::Duration;

use fencegate_policies::plan::ListenerTimeouts;

/// The names of the time limits, as they stand in the policy and in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerTimeLimit {
    TlsHandshake,
    Detect,
    RequestHeaders,
    RequestBody,
    Idle,
    ResponseWrite,
}

impl ListenerTimeLimit {
    pub const ALL: [Self; 6] = [
        Self::TlsHandshake,
        Self::Detect,
        Self::RequestHeaders,
        Self::RequestBody,
        Self::Idle,
        Self::ResponseWrite,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsHandshake => "tls_handshake",
            Self::Detect => "detect",
            Self::RequestHeaders => "request_headers",
            Self::RequestBody => "request_body",
            Self::Idle => "idle",
            Self::ResponseWrite => "response_write",
        }
    }

    pub fn duration(self, timeouts: &ListenerTimeouts) -> Duration {
        match self {
            Self::TlsHandshake => timeouts.tls_handshake,
            Self::Detect => timeouts.detect,
            Self::RequestHeaders => timeouts.request_headers,
            Self::RequestBody => timeouts.request_body,
            Self::Idle => timeouts.idle,
            Self::ResponseWrite => timeouts.response_write,
        }
    }
}
