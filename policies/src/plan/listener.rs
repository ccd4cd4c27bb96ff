//! The public listener: where clients come in, who of them is believed, and what each may take.

use std::time::Duration;

use super::{bind::Bind, served_tls::ServedTls};
use crate::{host::Hosts, trusted_proxies::Trust};

/// The public listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub address: Bind,
    pub protocols: Protocols,
    /// `None` for plain text.
    pub tls: Option<ServedTls>,
    pub proxy_protocol: ProxyProtocol,
    /// Whose word on the client is believed.
    pub trusted: Trust,
    /// What is served here.
    pub hosts: Hosts,
    pub limits: Limits,
    pub timeouts: Timeouts,
}

impl Listener {
    /// What becomes of it with a new plan: all of that but what an open socket cannot change.
    #[must_use]
    pub fn taken_over(&self, new: &Self) -> Self {
        Self {
            name: self.name.clone(),
            address: self.address.clone(),
            protocols: self.protocols,
            tls: self.tls.clone(),
            proxy_protocol: self.proxy_protocol,
            limits: Limits { connections: self.limits.connections, ..new.limits.clone() },
            ..new.clone()
        }
    }
}

/// What is spoken on a listener; told apart by the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocols {
    Both,
    Http1,
    /// Without TLS by prior knowledge.
    Http2,
}

/// Whether a proxy before us says who its client is, before anything else (version 1 or 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    Off,
    /// From peers that are trusted; others are hung up on.
    Require,
}

/// What one listener takes at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections over all workers.
    pub connections: usize,
    /// Of those, from one client. Default: all.
    pub connections_per_client: Option<usize>,
    /// Requests in flight over all workers.
    pub in_flight: usize,
    /// Of those, for one client. Default: all.
    pub per_client: Option<usize>,
    /// Requests at once on one HTTP/2 connection. Default 100.
    pub streams: usize,
    /// Bytes of request head. Default 64 KiB.
    pub max_header: usize,
    /// Header fields in a request. Default 100.
    pub max_fields: usize,
    /// Bytes of request body on fenced routes (unfenced ones stream). Default 1 MiB.
    pub max_body: usize,
    /// Bytes that all bodies together may take which are here in full. Default: as much as the process may have allows.
    pub buffered: Option<usize>,
}

/// How long a listener waits for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For the handshake of TLS. Default 5 s.
    pub tls_handshake: Duration,
    /// From the connection to the bytes that tell its protocol. Default 5 s.
    pub detect: Duration,
    /// From the first byte of a request head to its end; for a connection's first, from its beginning. Default 10 s.
    pub request_headers: Duration,
    /// Between two requests of a connection. Default 60 s.
    pub idle: Duration,
    /// For the whole body on fenced routes, between two pieces of it on others. Default 10 s.
    pub request_body: Duration,
    /// For a client to take something of its answer. Default 30 s.
    pub response_write: Duration,
    /// From the signal to stop to the end of the process. Default 30 s.
    pub drain: Duration,
}
