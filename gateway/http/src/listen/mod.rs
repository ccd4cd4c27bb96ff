//! Takes connections and serves HTTP on them, until told to drain.
//!
//! [`acceptor`] accepts connections and finds each a place. [`accept_connection`] finds out the client and the protocol. [`serve_connection`]
//! serves the connection; [`handler`] is the trait that answers.

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
mod response_observer;
mod serve_connection;
pub mod time_limit;
mod timed_io;
mod wake_gated;

pub use self::{
    acceptor::Acceptor, connection_limit::ConnectionRejection, connection_service::ConnectionService,
};
