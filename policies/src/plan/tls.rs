//! The TLS settings for the endpoints of an upstream, for ZooKeeper, or for a database.

use std::path::PathBuf;

use serde::Serialize;

/// The TLS settings of a client: how the server authenticates itself, and how we do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTls {
    /// The CAs for the server's certificate. Default: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The name that the certificate must have. Default: the host of the address.
    pub server_name: Option<String>,
    /// The certificate that we show if the server requests one.
    pub client: Option<ClientCertificateFiles>,
}

/// A client certificate, in two PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificateFiles {
    /// The certificate with its chain.
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// How TLS is spoken with a server, without the paths of files.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveClientTls {
    /// The name that the certificate must have; absent means the host of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Whether the policy names the CAs; otherwise those count that the system trusts.
    pub own_ca: bool,
    /// Whether a certificate is shown to a server that requests one.
    pub client_certificate: bool,
}

impl EffectiveClientTls {
    pub fn new(tls: &ClientTls) -> Self {
        let ClientTls { ca_file, server_name, client } = tls;
        Self {
            server_name: server_name.clone(),
            own_ca: ca_file.is_some(),
            client_certificate: client.is_some(),
        }
    }
}
