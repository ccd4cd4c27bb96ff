//! The listener of a gateway for other gateways of the installation.

use std::{net::SocketAddr, path::PathBuf};

use serde::Serialize;

use super::{CertificateFiles, shown};
use crate::words::words;

/// The listener for other gateways, and its advertised address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerListenerSettings {
    pub address: SocketAddr,
    /// The `host:port` to which other gateways connect.
    pub advertise: String,
    /// The TLS settings; `None` for plain text.
    #[serde(serialize_with = "shown::presence")]
    pub tls: Option<PeerTls>,
}

/// The certificate of this gateway, and the CA for those of other gateways. Both sides show a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    /// The certificate and key for accepted connections, and for those that this gateway opens.
    pub pair: CertificateFiles,
    /// The CA that is trusted in both directions.
    pub ca_file: PathBuf,
}

/// The treatment of a request whose key another gateway holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PeerForwardPolicy {
    /// The request waits here for the key.
    #[default]
    Never,
    /// The request is sent to the gateway that holds the key, and waits there.
    Holder,
}

words! { PeerForwardPolicy { Never = "never", Holder = "holder" } }
