//! Real processes for tests and for `fencegate demo`.
//!
//! - [`child`]: a child process that cannot outlive this process
//! - [`zookeeper`]: a private ZooKeeper, one real server
//! - [`fault_proxy`]: a proxy for any protocol that breaks, falls silent, loses or withholds bytes, or leads to several
//!   servers
//! - [`history`]: the judge of executions of one key
//! - [`wait`]: how long a test waits
//!
//! With the feature `servers`, for tests alone:
//!
//! - `postgres`, `terminator`: a real PostgreSQL; TLS before a plain server
//! - `scratch`: a folder for one test process
//!
//! Gateways, guards and clients under test are started by the harness in `tests/src`, not here.

// `println!` panics when its output is a pipe without a reader.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod child;
pub mod fault_proxy;
pub mod history;
#[cfg(feature = "servers")]
pub mod postgres;
#[cfg(feature = "servers")]
pub mod scratch;
#[cfg(feature = "servers")]
pub mod terminator;
pub mod wait;
pub mod zookeeper;
