//! Accepts connections and serves HTTP on them, until the drain begins.
//!
//! [`acceptor`] accepts connections and assigns each a slot. [`accept_connection`] determines the client and the
//! protocol. [`serve_connection`] serves the connection; [`handler`] is the trait that answers requests.

mod accept_connection;
mod acceptor;
pub mod certificates;
mod connection_limit;
mod connection_service;
mod detect;
pub mod handler;
mod heads;
pub mod identity;
pub mod linger;
pub mod metrics;
mod proxy_protocol;
mod serve_connection;
mod timed_io;
mod wake_gated;

pub use self::{
    acceptor::ConnectionAcceptor, connection_limit::ConnectionRejection,
    connection_service::ConnectionService,
};
