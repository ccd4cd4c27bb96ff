//! Who is at the other end of a client's connection.

use std::net::SocketAddr;

/// The client's end of a connection, as far as the connection itself tells. What a proxy before us says of its own
/// client in header fields is another matter, see [`crate::steps::hygiene`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// The address of ours that it was made to.
    pub local: SocketAddr,
}

impl Peer {
    /// What the client speaks to us.
    pub fn scheme(&self) -> &'static str {
        "http"
    }
}
