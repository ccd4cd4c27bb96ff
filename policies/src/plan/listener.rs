//! The public listener: where clients connect, which of them are trusted, and how much each may take.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{bind_address::BindAddress, cors::CorsSettings, served_tls::ListenerTls, shown};
use crate::{host::HostMatcher, trusted_proxies::TrustedProxies, words::words};

/// The public listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerSettings {
    #[serde(skip)]
    pub name: String,
    #[serde(flatten)]
    pub address: BindAddress,
    pub protocols: ListenerProtocols,
    /// `None` for plain text.
    pub tls: Option<ListenerTls>,
    pub proxy_protocol: ProxyProtocol,
    /// The proxies that are trusted when they name their clients.
    #[serde(rename = "trusted_peers")]
    pub trusted: TrustedProxies,
    /// The hosts that are served here.
    pub hosts: HostMatcher,
    /// The pages of other origins that may read answers. `None`: pages of no other origin.
    pub cors: Option<CorsSettings>,
    pub limits: ListenerLimits,
    pub timeouts: ListenerTimeouts,
}

impl ListenerSettings {
    /// The listener as it is after a reload: everything of `new`, but the address and the other settings of the open
    /// socket.
    #[must_use]
    pub fn with_reloaded_settings(&self, new: &Self) -> Self {
        Self {
            name: self.name.clone(),
            address: self.address.clone(),
            protocols: self.protocols,
            tls: self.tls.clone(),
            proxy_protocol: self.proxy_protocol,
            limits: ListenerLimits { connections: self.limits.connections, ..new.limits.clone() },
            ..new.clone()
        }
    }
}

/// The protocols of a listener. The first bytes of a connection show which one a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtocols {
    Both,
    Http1,
    /// Without TLS by prior knowledge.
    Http2,
}

impl ListenerProtocols {
    /// The words in the list of a policy.
    pub(crate) const WORDS: [(&str, Self); 2] = [("http1", Self::Http1), ("http2", Self::Http2)];
}

/// The list of a policy.
impl Serialize for ListenerProtocols {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_served = |(_, protocol): &&(&str, Self)| *self == Self::Both || self == protocol;
        serializer.collect_seq(Self::WORDS.iter().filter(is_served).map(|(word, _)| word))
    }
}

/// Whether a proxy in front of us names its client at the beginning of the connection (PROXY protocol, version 1 or
/// 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    Off,
    /// Trusted peers must name their client; connections of others are closed.
    Require,
}

words! { ProxyProtocol { Off = "off", Require = "require" } }

/// The limits of one listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerLimits {
    /// Open client connections over all workers.
    pub connections: usize,
    /// Connections of one client. Default: no own limit.
    pub connections_per_client: Option<usize>,
    /// Requests in flight over all workers.
    pub in_flight: usize,
    /// Requests in flight of one client. Default: no own limit.
    pub per_client: Option<usize>,
    /// Requests at once on one HTTP/2 connection. Default 100.
    pub streams: usize,
    /// Bytes of request head. Default 64 KiB.
    pub max_header: usize,
    /// Header fields in a request. Default 100.
    pub max_fields: usize,
    /// Bytes of request body on fenced routes (unfenced ones stream). Default 1 MiB.
    pub max_body: usize,
    /// Bytes of all bodies together that are buffered. Default: as many as the memory of the process allows.
    pub buffered: Option<usize>,
}

/// How long a listener waits for a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerTimeouts {
    /// The TLS handshake. Default 5 s.
    #[serde(serialize_with = "shown::duration")]
    pub tls_handshake: Duration,
    /// From the connection to the bytes that show its protocol. Default 5 s.
    #[serde(serialize_with = "shown::duration")]
    pub detect: Duration,
    /// From the first byte of a request head to its end; for the first request of a connection, from the connection.
    /// Default 10 s.
    #[serde(serialize_with = "shown::duration")]
    pub request_headers: Duration,
    /// Between two requests of a connection. Default 75 s.
    #[serde(serialize_with = "shown::duration")]
    pub idle: Duration,
    /// For the whole body on fenced routes, between two pieces of it on others. Default 10 s.
    #[serde(serialize_with = "shown::duration")]
    pub request_body: Duration,
    /// How long a client may read nothing of its answer. Default 30 s.
    #[serde(serialize_with = "shown::duration")]
    pub response_write: Duration,
    /// From the signal to stop to the end of the process. Default 45 s.
    #[serde(serialize_with = "shown::duration")]
    pub drain: Duration,
}
