//! The listener of this gateway for other gateways of the installation.

use std::{net::SocketAddr, path::PathBuf};

use serde::Serialize;

use super::{CertificateFiles, shown};
use crate::words::words;

/// The listener for other gateways, and its advertised address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerListenerSettings {
    pub address: SocketAddr,
    /// `host:port` by which other gateways reach it.
    pub advertise: String,
    /// `None` for plain text.
    #[serde(serialize_with = "shown::presence")]
    pub tls: Option<PeerTls>,
}

/// The certificate of this gateway, and the CA for those of other gateways. Both sides show a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    /// Shown both on accepted connections and on those that this gateway opens.
    pub pair: CertificateFiles,
    /// The CA that is trusted in both directions.
    pub ca_file: PathBuf,
}

/// What happens to a request whose key another gateway holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PeerForwardPolicy {
    /// The request waits here for the key.
    #[default]
    Never,
    /// The request is sent to the gateway that holds the key, and waits there.
    Holder,
}

words! { PeerForwardPolicy { Never = "never", Holder = "holder" } }
