//! The guard: stands in front of a service that compares no tokens, and admits one tenure at a time, the newest.
//!
//! In reading order:
//!
//! - [`Guard`]: the guard of a process, in `guard`. Its `backend` is a `local_backend`, an admission table [opened][open] on
//!   a store, or a `postgres_backend`, a database that it has [joined][join]; `backend_types` are their requests and replies
//! - [`admit`]: admits a dispatch; its announcement is durable before a byte is sent. [`waiter`]: the client
//!   that waits for its admission
//! - [`execution`]: a dispatch until its end, and executions whose end was not observed
//! - [`reserve`], [`journal`]: keep an operation from happening twice
//! - [`verify_ticket`]: verifies the ticket of a dispatch; [`identity`]: the announcement of a guard
//!
//! Below this crate: [`fencegate_guard_store`] decides in memory and remembers in a file,
//! [`fencegate_guard_postgres`] does both in a database for several guards, and [`fencegate_ticket`] has the
//! tickets. None of them contains HTTP or locks.

pub mod admit;
mod backend;
mod backend_types;
pub mod execution;
mod guard;
pub mod identity;
pub mod join;
pub mod journal;
mod local_backend;
pub mod open;
mod postgres_backend;
pub mod reserve;
#[cfg(test)]
mod tests;
pub mod verify_ticket;
pub mod waiter;

pub use self::guard::{BackupError, Guard, StaleDispatch, StaleRefusalStats};
pub use fencegate_guard_store::config::GuardConfig;
