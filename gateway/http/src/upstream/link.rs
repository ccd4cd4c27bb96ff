//! A connection to an endpoint of an upstream.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{
    address::Address,
    connection::Connection,
    endpoint::{Endpoint, Place},
};

/// One of those that an endpoint may have.
pub struct Link {
    /// Ends before its place is free.
    pub(super) connection: Connection,
    pub(super) endpoint: Arc<Endpoint>,
    /// Where it leads.
    pub(super) address: Arc<Address>,
    /// The process that has said who it is, where that is asked.
    pub(super) process: Option<Arc<str>>,
    /// How often it went from one request straight to the next that waited for it.
    pub(super) handed_on: u32,
    /// Free for another connection when this one has ended.
    pub(super) _place: Place,
}

impl Link {
    /// May it carry another exchange?
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

impl Deref for Link {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
