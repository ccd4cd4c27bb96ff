//! Real processes for tests and for `fencegate demo`.
//!
//! - [`child`]: a child process that cannot outlive this process
//! - [`zookeeper`]: a private ZooKeeper, one real server
//! - [`relay`]: a TCP relay that withholds bytes
//!
//! With the feature `servers`, for tests alone:
//!
//! - `postgres`, `terminator`: a real PostgreSQL; TLS before a plain server
//! - `tcp_proxy`, `delaying_relay`, `socket_relay`, `balancer`: what stands between two processes, broken, late, or
//!   leading to several
//! - `scratch`, `wait`: a folder for one test process, and how long a test waits
//!
//! Gateways, guards and clients under test are started by the harness in `tests/src`, not here.

// `println!` panics when the reader is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "servers")]
pub mod balancer;
pub mod child;
#[cfg(feature = "servers")]
pub mod delaying_relay;
#[cfg(feature = "servers")]
pub mod postgres;
pub mod relay;
#[cfg(feature = "servers")]
pub mod scratch;
#[cfg(feature = "servers")]
pub mod socket_relay;
#[cfg(feature = "servers")]
pub mod tcp_proxy;
#[cfg(feature = "servers")]
pub mod terminator;
#[cfg(feature = "servers")]
pub mod wait;
pub mod zookeeper;
