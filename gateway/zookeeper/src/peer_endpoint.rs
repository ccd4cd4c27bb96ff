//! The addresses of the gateways of an installation, for their peers and for people, as in their member nodes in
//! ZooKeeper.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::peer_secret::PeerSecret;

/// The address of a gateway's peer listener, as in its member node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerEndpoint {
    /// `host:port`.
    pub address: String,
    pub pass: PeerSecret,
}

/// The address of a gateway's admin page: its admin listener, as a URL for a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PageAddress))]
pub struct AdminPageAddress {
    /// `http` or `https`, with a slash at the end.
    pub url: String,
    /// The host name of its machine; only set if the address works from that machine only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_on: Option<String>,
}

/// How to forward a request to another gateway: its address, and its peer secret.
#[derive(Debug, Clone)]
pub struct HolderRoute {
    pub gateway: Arc<str>,
    /// The member node of the session that holds the key.
    pub member: Arc<str>,
    /// `host:port`.
    pub address: Arc<str>,
    pub secret: PeerSecret,
}

/// Routes to the same process are equal: all sessions of a process have one address and one peer secret.
impl PartialEq for HolderRoute {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address && self.secret == other.secret
    }
}

impl Eq for HolderRoute {}
