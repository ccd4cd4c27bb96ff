//! What `fencegate run` is told beside the policy.

use std::path::PathBuf;

/// The options of the verb.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Where the policy was read from, and is read from again.
    pub file: PathBuf,
    /// Read it again when it changes.
    pub watch: bool,
    /// Make the installation's nodes in ZooKeeper, where missing.
    pub init: bool,
    /// Beside a gateway with the same addresses, which is about to stop.
    pub beside: bool,
    pub workers: usize,
}
