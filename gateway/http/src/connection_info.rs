//! The other end of a client's connection.

use std::{
    cell::OnceCell,
    net::{IpAddr, SocketAddr},
};

use hyper::header::HeaderValue;

/// The client's end of a connection, as the connection itself shows it. Header fields in which a proxy names its
/// client are not considered here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// The local address that it was made to.
    pub local: SocketAddr,
    /// `None` for plain text.
    pub tls: Option<Box<TlsInfo>>,
    /// The IP address as the value of a field. It is created once, because every request of the connection needs it.
    written: OnceCell<HeaderValue>,
}

/// The facts from a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    /// The server name that the client requested.
    pub server_name: Option<String>,
    /// The client's verified certificate, if the listener requests one and the client has shown one.
    pub client: Option<ClientIdentity>,
}

/// The identity in a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The subject in the form of RFC 4514. For display only, because a part of it may look like another part.
    pub subject: String,
    /// The common names of the subject, as they are.
    pub common_names: Vec<String>,
    /// Its alternative names, each with its kind: `DNS:`, `URI:` or `email:`.
    pub names: Vec<String>,
    /// SHA-256 of the certificate, in lower-case hex.
    pub fingerprint: String,
}

impl ConnectionInfo {
    /// A peer without TLS; see [`Self::with_tls`].
    pub fn new(address: SocketAddr, local: SocketAddr) -> Self {
        Self { address, local, tls: None, written: OnceCell::new() }
    }

    /// Replaces the address by that of the client that a trusted proxy names.
    #[must_use]
    pub(crate) fn with_client_address(self, client: SocketAddr) -> Self {
        Self { tls: self.tls, ..Self::new(client, self.local) }
    }

    /// Adds the facts of a TLS handshake.
    #[must_use]
    pub fn with_tls(self, handshake: TlsInfo) -> Self {
        Self { tls: Some(Box::new(handshake)), ..self }
    }

    /// The identity in the client's certificate, if it has shown one.
    pub fn certificate(&self) -> Option<&ClientIdentity> {
        self.tls.as_ref()?.client.as_ref()
    }

    /// The IP address; an IPv4 address that is written as IPv6 is given as IPv4.
    pub fn ip(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// The IP address as the value of a field.
    pub fn ip_header(&self) -> &HeaderValue {
        self.written.get_or_init(|| {
            HeaderValue::try_from(self.ip().to_string()).expect("an address is visible ASCII")
        })
    }

    /// `https` with TLS, else `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
