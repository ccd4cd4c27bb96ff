//! The guard: stands in front of a service that compares no tokens, and admits one tenure at a time, the newest.
//!
//! In reading order:
//!
//! - [`admission`]: decides, in memory: the watermarks of every key, dispatches in flight and in doubt
//! - [`store`]: remembers, durably: watermarks, the keys at work, the journal
//! - [`postgres`]: decides and remembers in a database, for several guards of one upstream
//! - [`Guard`]: the guard of a process. Its backend is local, an admission table [opened][open] on a store, or a
//!   database that it has [joined][join]
//! - [`migration`]: moves a store from a file into a database
//! - [`admit`]: admits a dispatch; its announcement is durable before a byte is sent. [`waiter`]: the client that
//!   waits for that
//! - [`execution`]: a dispatch until its end, and executions whose end was not observed; [`dispatch_target`]: where
//!   it was sent
//! - [`operation`], [`reserve`], [`journal`]: keep an operation from happening twice
//! - [`ticket`], [`verify_ticket`]: how a gateway proves its claim
//! - [`error`]: why a dispatch is refused; [`identity`]: the announcement of a guard
//! - [`config`]: time limits and bounds; [`metrics`]: its metrics

pub mod admission;
pub mod admit;
mod backend;
mod backend_types;
pub mod config;
pub mod dispatch_target;
pub mod error;
pub mod execution;
mod guard;
pub mod identity;
pub mod join;
pub mod journal;
mod local_backend;
pub mod metrics;
pub mod migration;
pub mod open;
pub mod operation;
pub mod postgres;
mod postgres_backend;
pub mod reserve;
pub mod store;
mod store_clock;
#[cfg(test)]
mod tests;
pub mod ticket;
pub mod verify_ticket;
pub mod waiter;
mod wall_clock;

pub use self::{
    config::GuardConfig,
    guard::{BackupError, Guard, StaleDispatch, StaleDispatchStats},
};
