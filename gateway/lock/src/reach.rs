//! Where the gateways of an installation reach each other, as their member nodes in ZooKeeper say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pass::Pass;

/// What a gateway's member node says of its listener for other gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// `host:port`.
    pub address: String,
    pub pass: Pass,
}

/// Where another gateway is, and what it asks for to listen to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub gateway: Arc<str>,
    /// `host:port`.
    pub address: Arc<str>,
    pub pass: Pass,
}
