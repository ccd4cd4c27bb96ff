//! The guard: stands in front of a service that compares no tokens, and lets in one tenure at a time, the newest.
//!
//! In reading order:
//!
//! - [`register`]: decides, in memory: the marks of every key, what is in flight, what is in doubt
//! - [`store`]: remembers, durably: marks, the keys at work, the journal
//! - [`postgres`]: decides and remembers in a database, for several guards of one upstream
//! - [`Guard`]: the guard of a process. Its arbiter is `alone`, a register [opened][open] on a store, or `shared`, a
//!   database that it has [joined][join]
//! - [`moving`]: moves a store from a file into a database
//! - [`admit`]: lets a dispatch in; its announcement is durable before a byte is sent. [`waiter`]: the client that
//!   waits for that
//! - [`doubt`]: a dispatch until its end, and executions whose end nobody saw; [`place`]: where it was sent
//! - [`operation`], [`reserve`], [`journal`]: keep an operation from happening twice
//! - [`ticket`], [`vouch`]: how a gateway proves that it may say what it says
//! - [`refused`]: why something is not let in; [`announce`]: what a guard says of itself
//! - [`rules`]: its times and bounds; [`metrics`]: its metrics

pub mod admit;
mod alone;
pub mod announce;
mod arbiter;
mod arbitration;
pub mod doubt;
mod guard;
pub mod join;
pub mod journal;
pub mod metrics;
pub mod moving;
pub mod open;
pub mod operation;
pub mod place;
pub mod postgres;
pub mod refused;
pub mod register;
pub mod reserve;
pub mod rules;
mod shared;
pub mod store;
#[cfg(test)]
mod tests;
pub mod ticket;
mod time;
pub mod vouch;
pub mod waiter;
mod wall_clock;

pub use self::{
    guard::{BackupError, Guard, RejectionStats, StaleDispatch},
    rules::GuardConfig,
};
