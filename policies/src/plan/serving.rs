//! The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.

use super::routing::RouteTable;
use super::{
    admin::AdminListenerSettings,
    fence::FenceRule,
    listener::ListenerSettings,
    log::LogSettings,
    reserved_fields::ReservedHeaderNames,
    upstream::{Upstream, UpstreamId},
};
use crate::key::{ParseKeyError, ResourceKey, check_spelling};

/// The served traffic of a process, and its upstreams: the part of a plan that gateway and guard share.
#[derive(Debug, Clone)]
pub struct ServingPlan {
    /// The name of the process in logs and in its member node. Default: the host name.
    pub name: Option<String>,
    pub listener: ListenerSettings,
    pub admin: AdminListenerSettings,
    pub upstreams: Vec<Upstream>,
    pub routes: RouteTable,
    pub unmatched: UnmatchedPolicy,
    pub fields: ReservedHeaderNames,
    pub log: LogSettings,
}

impl ServingPlan {
    pub fn upstream(&self, id: UpstreamId) -> &Upstream {
        &self.upstreams[id.0]
    }

    /// Reads a key that a job or a client of leases wants to lock.
    ///
    /// # Errors
    /// It is no key, or no request has a key in this spelling; then the error has the right spelling.
    pub fn parse_key(&self, text: &str) -> Result<ResourceKey, ParseKeyError> {
        let key = ResourceKey::parse_user_input(text)?;
        let fences = self.routes.routes().iter().filter_map(|route| route.fence.as_ref());
        check_spelling(&key, fences.flat_map(FenceRule::templates))?;
        Ok(key)
    }
}

/// What happens to a request that matches no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmatchedPolicy {
    Reject,
    /// The request is forwarded without a lock.
    Pass(UpstreamId),
}
