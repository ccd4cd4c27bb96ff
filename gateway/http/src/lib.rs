//! An HTTP proxy without its rules: listeners, bodies, pooled connections to upstreams, and a gate in every write.
//!
//! In reading order:
//!
//! - [`network`]: sockets behind small traits, so that a simulation brings its own
//! - [`listen`]: connections of clients, from the first byte to the last; [`peer`] is who is at their other end, [`share`]
//!   counts what each has under way
//! - [`body`]: a request or response body: where its bytes come from, and who is told of its end
//! - [`course`]: what a client's connection is about at the moment, told by bodies and listeners to each other; [`parting`]
//!   is a connection that has stopped speaking HTTP
//! - [`buffered`]: the room that bodies in memory have
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
