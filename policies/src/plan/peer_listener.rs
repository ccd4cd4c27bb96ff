//! Where a gateway is reached by the other gateways of its installation.

use std::{net::SocketAddr, path::PathBuf};

use super::Pair;

/// The listener for other gateways, and what they are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerListener {
    pub address: SocketAddr,
    /// `host:port` by which the others reach it.
    pub advertise: String,
    /// `None` for plain text.
    pub tls: Option<PeerTls>,
}

/// Gateways show each other certificates, both ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    /// Shown to those who connect, and to those who are connected to.
    pub pair: Pair,
    /// Whose signatures are believed, both ways.
    pub ca_file: PathBuf,
}

/// What becomes of a request whose key another gateway keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Forward {
    /// It queues for the key.
    #[default]
    Never,
    /// It is sent on to the gateway that keeps it, and queues there.
    Holder,
}
