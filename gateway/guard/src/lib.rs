//! The guard: beside an upstream that knows nothing of tokens, it lets through one tenure at a time, the newest.
//!
//! [`register`] decides, [`store`] remembers, [`admit`] puts the two together: nothing is sent before what announces it
//! is durable. [`journal`] keeps operations from happening twice. [`doubt`] is about executions whose end nobody saw.
//! [`time`] says how long ago something was, whatever the wall clock does. [`ticket`] is how a gateway proves that it
//! may say what it says.

pub mod admit;
pub mod announce;
pub mod doubt;
mod guard;
pub mod journal;
pub mod metrics;
pub mod operation;
pub mod refused;
pub mod register;
pub mod store;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod ticket;
mod time;
pub mod vouch;

pub use self::guard::{Guard, Refusals, Rules, Stale};
