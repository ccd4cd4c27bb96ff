//! An HTTP proxy without its rules: listeners, bodies, pooled connections to upstreams, and a gate in every write.
//!
//! In reading order:
//!
//! - [`network`]: sockets behind small traits, so that a simulation can bring its own
//! - [`listen`]: connections of clients, from the first byte to the last; [`peer`] is who is at their other end, [`share`]
//!   counts what each has under way
//! - [`body`]: request and response bodies: their sources, and observers of their ends
//! - [`course`]: the present state of a client's connection, shared by bodies and listeners; [`parting`] is a
//!   connection that has stopped speaking HTTP
//! - [`buffered`]: the memory for buffered bodies
//! - [`upstream`]: names, endpoints, pools and connections to services; [`upstream::gate`] lets no byte leave without a
//!   permission that holds
//! - [`entries`]: lists in header fields

pub mod body;
pub mod buffered;
pub mod course;
pub mod entries;
pub mod listen;
pub mod network;
pub mod parting;
pub mod peer;
pub mod share;
pub mod upstream;
