//! How TLS is spoken on a listener.

use std::path::PathBuf;

/// The certificates that a listener shows its clients, and those that it requires of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerTls {
    /// At least one. A client that requests a name without a certificate gets the first.
    pub certificates: Vec<CertificateFiles>,
    pub client_auth: ClientAuth,
    pub min_version: TlsVersion,
}

/// Two PEM files: a certificate with its chain, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Whether clients show a certificate, and the file of the CAs that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAuth {
    Off,
    Optional(PathBuf),
    Required(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Tls12,
    Tls13,
}
