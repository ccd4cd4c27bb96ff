//! The TLS settings for the endpoints of an upstream, for ZooKeeper, or for a database.

use std::path::PathBuf;

/// How a server authenticates itself, and how we authenticate ourselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTls {
    /// The CAs of the server. Default: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The name that the certificate must have. Default: the host of the address.
    pub server_name: Option<String>,
    /// The certificate that we show if the server requests one.
    pub client: Option<ClientCertificate>,
}

/// Two files in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate with its chain.
    pub chain: PathBuf,
    pub key: PathBuf,
}
