//! What a process serves and where it sends it: the part that gateway and guard have in common.

use super::routing::RouteTable;
use super::{
    admin::Admin,
    fields::ReservedFields,
    listener::Listener,
    log::Log,
    upstream::{Upstream, UpstreamId},
};

/// What a process serves and where it sends it: the part that gateway and guard have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The process's name in logs and in its member node; the host name unless configured.
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

/// A request that no route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmatched {
    Reject,
    /// Forwarded unfenced.
    Pass(UpstreamId),
}
