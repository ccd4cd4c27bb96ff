//! How TLS is spoken on a listener.

use std::path::PathBuf;

/// What a listener shows its clients, and what it asks them for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedTls {
    /// At least one. The first is shown to who asks for a name that no other has.
    pub certificates: Vec<Pair>,
    pub client_auth: ClientAuth,
    pub min_version: TlsVersion,
}

/// Two files in PEM: a certificate with those that lead to one that clients believe, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Whether clients show a certificate, and the file with those that have to have signed it.
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
