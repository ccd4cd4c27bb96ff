//! What tickets are signed and verified with.

use std::path::PathBuf;

/// The key that a gateway signs its tickets with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signing {
    /// An Ed25519 private key, as `fencegate keys new` writes it.
    Ed25519(PathBuf),
    /// A secret that the guards have, too.
    Secret(PathBuf),
}

/// Who signs tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    /// A JWKS file, as `fencegate keys public` prints it.
    PublicKeys(PathBuf),
    /// `http://` address of a JWKS, such as a gateway's admin listener has one.
    Jwks(String),
    /// A secret that the gateways have, too.
    Secret(PathBuf),
}
