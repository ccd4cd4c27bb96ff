//! Where the gateways of an installation are reached, by each other and by people, as their member nodes in ZooKeeper say.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::peer_secret::PeerSecret;

/// What a gateway's member node says of its listener for other gateways.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerEndpoint {
    /// `host:port`.
    pub address: String,
    pub pass: PeerSecret,
}

/// Where people look at a gateway: its admin listener, as a browser is told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PageAddress {
    /// `http` or `https`, with a slash at the end.
    pub url: String,
    /// The host name of its machine; only set where the address works from that machine only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_on: Option<String>,
}

/// How to send a request on to another gateway: its address, and the pass that it asks for.
#[derive(Debug, Clone)]
pub struct HolderRoute {
    pub gateway: Arc<str>,
    /// The member node of the session that has the key.
    pub member: Arc<str>,
    /// `host:port`.
    pub address: Arc<str>,
    pub secret: PeerSecret,
}

/// Each process has one pass, so all its sessions are reached in the same way.
impl PartialEq for HolderRoute {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.secret == other.secret
    }
}

impl Eq for HolderRoute {}
