//! The member node by which a gateway is registered, in the form that all gateways of the installation read.

use serde::{Deserialize, Serialize};

use crate::peer_endpoint::{AdminPageAddress, PeerEndpoint};

/// Data of a member node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    pub format: u32,
    pub version: String,
    /// Fingerprint of the part of the plan that determines keys and lock paths: 16 hex digits.
    pub plan: String,
    /// The endpoint at which peers reach the gateway. Builds before this field neither write nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerEndpoint>,
    /// The admin page of the gateway. Builds before this field do not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<AdminPageAddress>,
    /// Whether the gateway publishes its plan, and gives way to gateways that published an incompatible plan before.
    /// Older builds do not have this field, and do neither.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub publishes: bool,
    /// Whether the gateway drains: requests that run there go on, and it accepts no new ones. Older builds do not have
    /// this field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

impl MemberRecord {
    /// Whether the member is a program that names its keys itself, such as `fencegate lock`. It has no plan that could
    /// differ from the plans of gateways.
    pub fn is_lock_client(&self) -> bool {
        is_no_plan(&self.plan)
    }
}

/// The fingerprint of a program that names its keys itself.
pub const NO_PLAN: u64 = 0;

/// Whether this is the fingerprint of a program that names its keys itself.
pub fn is_no_plan(fingerprint: &str) -> bool {
    fingerprint == format_fingerprint(NO_PLAN)
}

/// Formats a fingerprint as member nodes contain it.
pub(super) fn format_fingerprint(plan: u64) -> String {
    format!("{plan:016x}")
}

/// The gateway's name, from the name of a member node. In that name the session's id follows it, see
/// [`super::paths::ZkPaths::member_path`].
pub fn gateway_name(node: &str) -> &str {
    node.rsplit_once('-').map_or(node, |(gateway, _)| gateway)
}

/// The gateway that owns the session with the id `session`, among the names of member nodes. The id is written as in
/// those names.
pub fn find_gateway(members: &[String], session: &str) -> Option<String> {
    members.iter().find_map(|member| member.strip_suffix(session)?.strip_suffix('-')).map(str::to_owned)
}

/// The node that a session creates beside its member node after a reconnect, to determine the owner of the new
/// connection. It has no data, and is removed at once, or with its session.
pub(super) fn reconnect_probe_name(member: &str) -> String {
    format!("{member}{RECONNECT_PROBE}")
}

/// Whether this name below the members is a [`reconnect_probe_name`], and so not a gateway. The name of a member ends with a
/// session id.
pub(super) fn is_reconnect_probe_name(node: &str) -> bool {
    node.ends_with(RECONNECT_PROBE)
}

const RECONNECT_PROBE: &str = "-probe";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::paths::ZkPaths;

    /// Only the fingerprint of a program that names its keys itself is no plan.
    #[test]
    fn no_plan_is_recognized() {
        assert!(is_no_plan("0000000000000000"));
        for plan in ["0000000000000001", "0", "", "ffffffffffffffff"] {
            assert!(!is_no_plan(plan), "{plan}");
        }
    }

    /// A reconnect probe is recognized by its name, and no member name is taken for a probe.
    #[test]
    fn reconnect_probe_differs_from_member() {
        for gateway in ["gw-1", "probe", "gw-probe"] {
            let member = ZkPaths::member_name(gateway, -1);
            assert!(!is_reconnect_probe_name(&member), "{member}");
            assert!(is_reconnect_probe_name(&reconnect_probe_name(&member)), "{member}");
        }
    }
}
