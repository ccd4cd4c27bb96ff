//! Connections to services, and to other gateways. Begin with [`upstream::gate`]: no byte of a request is written
//! without a permission that holds, and the written bytes are counted.
//!
//! - [`upstream`]: connections of the request path: [`upstream::endpoint_set`] has the endpoints, [`upstream::health`]
//!   their state, and [`upstream::pool`] the connections to them
//! - [`http1`]: one HTTP/1.1 connection, for everything but the request path
//! - [`json_client`]: a client that keeps one HTTP/1.1 connection and exchanges JSON, for verbs and for the demo
//!
//! The permission is a trait of `fencegate-process`; this crate knows no lock and no guard. Sockets and bodies are in
//! `fencegate-http`.

pub mod http1;
pub mod json_client;
pub mod upstream;
