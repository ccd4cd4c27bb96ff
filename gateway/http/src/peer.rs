//! Who is at the other end of a client's connection.

use std::net::SocketAddr;

/// The client's end of a connection, as far as the connection itself tells. What a proxy before us says of its own
/// client in header fields is another matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// The address of ours that it was made to.
    pub local: SocketAddr,
    /// `None` for plain text.
    pub tls: Option<Handshake>,
}

/// What a handshake has told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// Proven, where the listener asks for a certificate and the client has shown one.
    pub client: Option<Identity>,
}

/// Who a client's certificate says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// As RFC 4514 writes it. For people: a part of it may look like another one.
    pub subject: String,
    /// The common names of the subject, as they are.
    pub common_names: Vec<String>,
    /// Its alternative names, each with its kind: `DNS:`, `URI:` or `email:`.
    pub names: Vec<String>,
    /// SHA-256 of the certificate, in lower-case hex.
    pub fingerprint: String,
}

impl Peer {
    /// What the client speaks to us.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
