//! A connection of a pool, with the endpoint that it leads to and the permit that it holds there.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{
    address::ResolvedEndpoint,
    connection::UpstreamConnection,
    endpoint::{ConnectionPermit, Endpoint},
};

/// One of an endpoint's connections.
pub struct PooledConnection {
    /// Dropped first, so that the connection ends before its permit is free.
    pub(super) connection: UpstreamConnection,
    pub(super) endpoint: Arc<Endpoint>,
    /// The address that the connection leads to.
    pub(super) address: Arc<ResolvedEndpoint>,
    /// The name of the process at the other end, if identity checks are needed.
    pub(super) process: Option<Arc<str>>,
    /// How often it went from one request directly to a waiting one.
    pub(super) handed_on: u32,
    /// The permit at the endpoint, which is free again when this connection has ended.
    pub(super) _place: ConnectionPermit,
}

impl PooledConnection {
    /// Whether it may carry another exchange.
    pub(super) fn is_usable(&self) -> bool {
        !self.address.is_gone_from_dns() && self.connection.is_usable()
    }

    /// `host:port`.
    pub fn endpoint(&self) -> &Arc<str> {
        &self.endpoint.name
    }

    /// The address at its other end.
    pub fn address(&self) -> &Arc<ResolvedEndpoint> {
        &self.address
    }
}

impl Deref for PooledConnection {
    type Target = UpstreamConnection;

    fn deref(&self) -> &UpstreamConnection {
        &self.connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut UpstreamConnection {
        &mut self.connection
    }
}
