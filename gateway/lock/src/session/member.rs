//! The member node by which a gateway is registered, as all gateways of the installation read it.

use serde::{Deserialize, Serialize};

use crate::reach::{PageAddress, Reach};

/// Data of a member node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub format: u32,
    pub version: String,
    /// Fingerprint of what decides keys and lock paths, 16 hex digits.
    pub plan: String,
    /// Where other gateways reach it. Builds before this field do not say it, and do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Reach>,
    /// Where people look at it. Builds before this field do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<PageAddress>,
    /// It publishes its plan, and gives way to who has published another one before. Builds before this field neither do
    /// nor read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub publishes: bool,
    /// It drains: what runs there goes on, and nothing new is taken. Builds before this field do not say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// The gateway that a member node is of: behind its name stands the session, see [`super::paths::Paths::member`].
pub fn gateway_of(node: &str) -> &str {
    node.rsplit_once('-').map_or(node, |(gateway, _)| gateway)
}

/// Of that session, among the names of member nodes; `session`: as they have it.
pub fn gateway_among(members: &[String], session: &str) -> Option<String> {
    members.iter().find_map(|member| member.strip_suffix(session)?.strip_suffix('-')).map(str::to_owned)
}
