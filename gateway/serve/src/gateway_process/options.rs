//! The options of `fencegate run`.

use std::path::PathBuf;

/// The options of the verb `run`.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The file of the policy. A reload reads it again.
    pub file: PathBuf,
    /// Reload whenever the file changes.
    pub watch: bool,
    /// Make the nodes of the installation in ZooKeeper if they are missing.
    pub init: bool,
    /// Share the addresses with a gateway that is about to stop.
    pub beside: bool,
    pub workers: usize,
}
