//! The public listener: its address, the proxies that it trusts, and its limits.

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
    /// The TLS settings; `None` for plain text.
    pub tls: Option<ListenerTls>,
    pub proxy_protocol: ProxyProtocolMode,
    /// The proxies that are trusted when they name their clients.
    #[serde(rename = "trusted_peers")]
    pub trusted: TrustedProxies,
    /// The hosts that the listener serves.
    pub hosts: HostMatcher,
    /// The pages of other origins that may read responses; `None` if no such page may.
    pub cors: Option<CorsSettings>,
    pub limits: ListenerLimits,
    pub timeouts: ListenerTimeouts,
}

impl ListenerSettings {
    /// The listener after a reload: the settings of `new`, except those of the open socket.
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

/// The protocols that a listener speaks. The first bytes of a connection show which one a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtocols {
    Both,
    Http1,
    /// HTTP/2, without TLS by prior knowledge.
    Http2,
}

impl ListenerProtocols {
    /// The words in the list of a policy; both words together mean [`ListenerProtocols::Both`].
    pub(crate) const WORDS: [(&str, Self); 2] = [("http1", Self::Http1), ("http2", Self::Http2)];
}

/// Serializes the list as a policy has it.
impl Serialize for ListenerProtocols {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_served = |(_, protocol): &&(&str, Self)| *self == Self::Both || self == protocol;
        serializer.collect_seq(Self::WORDS.iter().filter(is_served).map(|(word, _)| word))
    }
}

/// Whether a proxy in front of the listener names its client at the beginning of a connection (PROXY protocol,
/// version 1 or 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocolMode {
    Off,
    /// Trusted peers must name their clients. Connections of other peers are closed.
    Require,
}

words! { ProxyProtocolMode { Off = "off", Require = "require" } }

/// The limits of one listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerLimits {
    /// The most open client connections over all workers.
    pub connections: usize,
    /// The most connections of one client. Default: no limit of its own.
    pub connections_per_client: Option<usize>,
    /// The most requests in flight over all workers.
    pub in_flight: usize,
    /// The most requests in flight of one client. Default: no limit of its own.
    pub per_client: Option<usize>,
    /// The most concurrent requests on one HTTP/2 connection. Default 100.
    pub streams: usize,
    /// The most bytes of a request head. Default 64 KiB.
    pub max_header: usize,
    /// The most header fields of a request. Default 100.
    pub max_fields: usize,
    /// The most bytes of a request body on fenced routes; unfenced routes stream bodies. Default 1 MiB.
    pub max_body: usize,
    /// The most bytes of all buffered bodies together. Default: depends on the memory of the process.
    pub buffered: Option<usize>,
}

/// The longest times that a listener waits for a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListenerTimeouts {
    /// The time limit for the TLS handshake. Default 5 s.
    #[serde(serialize_with = "shown::duration")]
    pub tls_handshake: Duration,
    /// The time limit from the connection to the bytes that show its protocol. Default 5 s.
    #[serde(serialize_with = "shown::duration")]
    pub detect: Duration,
    /// The time limit from the first byte of a request head to its end; for the first request of a connection, from
    /// the connection. Default 10 s.
    #[serde(serialize_with = "shown::duration")]
    pub request_headers: Duration,
    /// The time limit between two requests of a connection. Default 75 s.
    #[serde(serialize_with = "shown::duration")]
    pub idle: Duration,
    /// The time limit for the whole body on fenced routes, and between two pieces of the body on others. Default 10
    /// s.
    #[serde(serialize_with = "shown::duration")]
    pub request_body: Duration,
    /// The longest time in which a client reads nothing of its response. Default 30 s.
    #[serde(serialize_with = "shown::duration")]
    pub response_write: Duration,
    /// The time from the signal to stop to the end of the process. Default 45 s.
    #[serde(serialize_with = "shown::duration")]
    pub drain: Duration,
}
