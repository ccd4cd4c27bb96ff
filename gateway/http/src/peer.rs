//! Who is at the other end of a client's connection.

use std::{
    cell::OnceCell,
    net::{IpAddr, SocketAddr},
};

use hyper::header::HeaderValue;

/// The client's end of a connection, as far as the connection itself tells. What a proxy before us says of its own
/// client in header fields is another matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// The address of ours that it was made to.
    pub local: SocketAddr,
    /// `None` for plain text.
    pub tls: Option<Box<Handshake>>,
    /// Its address as fields say it. Each of its requests says it, and it never changes.
    written: OnceCell<HeaderValue>,
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
    /// Over plain text, as far as is known.
    pub fn at(address: SocketAddr, local: SocketAddr) -> Self {
        Self { address, local, tls: None, written: OnceCell::new() }
    }

    /// The one that stands before us speaks for this one.
    #[must_use]
    pub fn speaking_for(self, client: SocketAddr) -> Self {
        Self { tls: self.tls, ..Self::at(client, self.local) }
    }

    /// It has shaken hands.
    #[must_use]
    pub fn over(self, handshake: Handshake) -> Self {
        Self { tls: Some(Box::new(handshake)), ..self }
    }

    /// An IPv4 address is one, however the socket writes it.
    pub fn ip(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }

    /// The same, as fields say it.
    pub fn written_ip(&self) -> &HeaderValue {
        self.written.get_or_init(|| {
            HeaderValue::try_from(self.ip().to_string()).expect("an address is visible ASCII")
        })
    }

    /// What the client speaks to us.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}
