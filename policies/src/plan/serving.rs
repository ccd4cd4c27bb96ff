//! What a process serves, and its upstreams: the part of a plan that gateway and guard share.

use super::routing::RouteTable;
use super::{
    admin::Admin,
    fields::ReservedFields,
    listener::Listener,
    log::Log,
    upstream::{Upstream, UpstreamId},
};

/// What a process serves, and its upstreams: the part of a plan that gateway and guard share.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The name of the process in logs and in its member node. Default: the host name.
    pub name: Option<String>,
    pub listener: Listener,
    pub admin: Admin,
    pub upstreams: Vec<Upstream>,
    pub routes: RouteTable,
    pub unmatched: Unmatched,
    pub fields: ReservedFields,
    pub log: Log,
}

impl Plan {
    pub fn upstream(&self, id: UpstreamId) -> &Upstream {
        &self.upstreams[id.0]
    }
}

/// What happens to a request that no route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmatched {
    Reject,
    /// The request is forwarded without a lock.
    Pass(UpstreamId),
}
