//! How TLS is spoken with the endpoints of an upstream, with ZooKeeper, or with a database.

use std::path::PathBuf;

/// What a server is known by, and what it knows us by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Whose signatures are believed; those that the system believes unless given.
    pub ca_file: Option<PathBuf>,
    /// The name in the certificate; the host of the address unless given.
    pub server_name: Option<String>,
    /// What we show when asked who we are.
    pub client: Option<ClientCertificate>,
}

/// Two files in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, then those that lead to one that the server believes.
    pub chain: PathBuf,
    pub key: PathBuf,
}
