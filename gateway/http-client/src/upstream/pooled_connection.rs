//! A connection of a pool, with its endpoint and with the permit that it holds at that endpoint.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{
    address::ResolvedEndpoint,
    connection::UpstreamConnection,
    endpoint::{ConnectionPermit, Endpoint},
};

/// A pooled connection to an endpoint.
pub struct PooledConnection {
    /// This is the first field, so that the connection ends before its permit is free.
    pub(super) connection: UpstreamConnection,
    pub(super) endpoint: Arc<Endpoint>,
    /// The address of the other end.
    pub(super) address: Arc<ResolvedEndpoint>,
    /// The name of the process at the other end, if identity checks are needed.
    pub(super) process: Option<Arc<str>>,
    /// The number of times that the connection went from one request directly to a waiting one.
    pub(super) handed_on: u32,
    /// The permit at the endpoint, which is released when this connection has ended.
    pub(super) _place: ConnectionPermit,
}

impl PooledConnection {
    /// True if the connection may carry another exchange.
    pub(super) fn is_usable(&self) -> bool {
        !self.address.is_gone_from_dns() && self.connection.is_usable()
    }

    /// The name of the endpoint: `host:port`, or `unix:/path`.
    pub fn endpoint(&self) -> &Arc<str> {
        &self.endpoint.name
    }

    /// The address of the other end.
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
