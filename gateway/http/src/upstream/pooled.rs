//! A connection of a pool, with the endpoint that it leads to and the place that it takes there.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{
    address::Address,
    connection::Connection,
    endpoint::{ConnectionPermit, Endpoint},
};

/// One of the connections that an endpoint may have.
pub struct Pooled {
    /// Dropped first, so that the connection ends before its place is free.
    pub(super) connection: Connection,
    pub(super) endpoint: Arc<Endpoint>,
    /// The address that the connection leads to.
    pub(super) address: Arc<Address>,
    /// The name of the process at the other end, where it is asked who it is.
    pub(super) process: Option<Arc<str>>,
    /// How often it went from one request straight to the next that waited for it.
    pub(super) handed_on: u32,
    /// The place at the endpoint: free for another connection when this one has ended.
    pub(super) _place: ConnectionPermit,
}

impl Pooled {
    /// Whether it may carry another exchange.
    pub(super) fn is_usable(&self) -> bool {
        !self.address.is_gone() && self.connection.is_usable()
    }

    /// `host:port`.
    pub fn endpoint(&self) -> &Arc<str> {
        &self.endpoint.name
    }

    /// Where it leads.
    pub fn address(&self) -> &Arc<Address> {
        &self.address
    }
}

impl Deref for Pooled {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
