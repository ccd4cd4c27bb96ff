//! The keys that sign and verify tickets.

use std::path::PathBuf;

/// The key with which a gateway signs its tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketSigningKey {
    /// An Ed25519 private key, as `fencegate keys new` writes it.
    Ed25519(PathBuf),
    /// The file with a secret that the guards have as well.
    Secret(PathBuf),
}

/// The keys that verify tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketVerificationKeys {
    /// A JWKS file, as `fencegate keys public` prints it.
    PublicKeys(PathBuf),
    /// The `http://` address of a JWKS, such as the one on a gateway's admin listener.
    Jwks(String),
    /// The file with a secret that the gateways have as well.
    Secret(PathBuf),
}
