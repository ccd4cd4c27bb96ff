//! The side of an HTTP proxy that faces clients, without rules for requests: sockets, listeners, bodies, and the memory
//! for buffered bodies. Connections to services, with the gate in every write, are in `fencegate-http-client`.
//!
//! In reading order:
//!
//! - [`network`]: sockets behind small traits, so that a simulation can use a network of its own
//! - [`listen`]: connections of clients, from the first byte to the last; [`connection_info`] describes their remote
//!   ends, [`client_quota`] counts the requests of each client
//! - [`body`]: request and response bodies: their sources, and observers of their ends
//! - [`connection_state`]: the present state of a client's connection, shared by bodies and listeners; [`upgrade`] is a
//!   connection that has switched to another protocol
//! - [`buffered`]: the memory for buffered bodies
//! - [`header_list`]: lists in header fields

pub mod body;
pub mod buffered;
pub mod client_quota;
pub mod connection_info;
pub mod connection_state;
pub mod header_list;
pub mod listen;
pub mod network;
pub mod upgrade;
