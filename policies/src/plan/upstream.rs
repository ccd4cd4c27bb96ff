//! The upstreams: the endpoints of each, and its settings.

use std::{sync::Arc, time::Duration};

use super::{
    balancing::EndpointSettings, bind_address::socket_path, inconclusive_statuses::InconclusiveStatuses,
    reserved_fields::TokenHeaderNames, service::UpstreamService, tls::ClientTls,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamId(pub usize);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub name: Arc<str>,
    /// `host:port` or `unix:/path` each, at least one.
    pub endpoints: Vec<Arc<str>>,
    /// How TLS is spoken with all of them; `None` for plain text.
    pub tls: Option<ClientTls>,
    pub protocol: UpstreamProtocol,
    pub fencing: FencingLevel,
    /// No hop between here and the guard, or the filter, sends a request twice, so a request that it refuses has
    /// reached no service. Default false.
    pub direct: bool,
    /// What happens to a dispatch that comes after its `Fencing-Not-After`. Default [`LateDispatchPolicy::Ignored`].
    pub expiry: LateDispatchPolicy,
    pub fields: TokenHeaderNames,
    /// The lower-case name under which the upstream gets the value of `Idempotency-Key`; `None` for its own name.
    pub operation_field: Option<Arc<str>>,
    /// The statuses of an answer to a fenced request that do not prove that its execution is over. Default 502 and
    /// 504. Without a meaning at [`FencingLevel::Guard`]: the guard reports how an execution ended.
    pub unfinished: InconclusiveStatuses,
    /// Default 3 s.
    pub connect_timeout: Duration,
    /// From the first byte sent to the head of the response. Default 15 s; 45 s with [`FencingLevel::Guard`], 9 s with
    /// [`FencingLevel::None`]. With [`FencingLevel::Delay`] 15 s, or the delay if that is shorter.
    pub response_timeout: Duration,
    /// The kernel drops the connection of a fenced request when a byte stays unacknowledged for longer
    /// (`TCP_USER_TIMEOUT`), also while this process is stopped. Behind a gateway it is the response timeout: for so
    /// long every level waits for sent requests, since a delay is never shorter. Behind a guard it is `send_within`,
    /// if that is shorter.
    pub deliver_within: Duration,
    /// Between two pieces of a response body. Default 30 s.
    pub response_body_idle: Duration,
    /// The time in which a client must read an answer while its key is held. Default 2 min.
    pub response_body_total: Duration,
    /// The most fields of an answer over HTTP/1.1; an answer with more fields is refused. Default 100.
    pub response_fields: usize,
    /// A pooled connection is not used again after this long. Default 30 s.
    pub idle: Duration,
    /// A tunnel ends after this long without a byte. Default 10 min.
    pub tunnel_idle: Duration,
    pub sharing: EndpointSettings,
    /// Some route fences requests to this upstream.
    pub has_fenced_routes: bool,
    pub service: UpstreamService,
}

/// The component that compares tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FencingLevel {
    /// None: the token is stamped all the same.
    None,
    /// None. After a holder that ended without releasing the lock, the next holder waits for this long. By then every
    /// request of the former holder is over.
    Delay(Duration),
    /// A guard beside the upstream, for a service without support for tokens.
    Guard,
    /// The upstream, in the transaction of the effect.
    Upstream,
}

/// How the upstream treats a dispatch that comes after the moment until which it may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LateDispatchPolicy {
    /// It may be started at any time.
    #[default]
    Ignored,
    /// The last component before the service, or the service itself, refuses it. Waits then count from that moment,
    /// where it is later than the last byte.
    Enforced,
}

impl LateDispatchPolicy {
    /// The word of `not_after` in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::Enforced => "enforced",
        }
    }
}

/// The protocol of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpstreamProtocol {
    #[default]
    Http1,
    Http2,
    /// The protocol that the upstream chooses by ALPN; HTTP/1.1 without TLS.
    Auto,
}

impl Upstream {
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// An endpoint as a policy writes it.
    pub fn endpoint_url(&self, endpoint: &str) -> String {
        match socket_path(endpoint) {
            Some(_) => endpoint.to_owned(),
            None => format!("{}://{endpoint}", self.scheme()),
        }
    }
}

impl FencingLevel {
    /// True if tokens are compared and stale requests refused.
    pub fn compares_tokens(self) -> bool {
        match self {
            FencingLevel::None | FencingLevel::Delay(_) => false,
            FencingLevel::Guard | FencingLevel::Upstream => true,
        }
    }

    /// How long the next holder waits after a holder that ended without releasing the lock; `None` if it does not
    /// wait.
    pub fn delay(self) -> Option<Duration> {
        match self {
            FencingLevel::Delay(delay) => Some(delay),
            FencingLevel::None | FencingLevel::Guard | FencingLevel::Upstream => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            FencingLevel::None => "none",
            FencingLevel::Delay(_) => "delay",
            FencingLevel::Guard => "guard",
            FencingLevel::Upstream => "upstream",
        }
    }
}
