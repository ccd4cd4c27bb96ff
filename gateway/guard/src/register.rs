//! Decides which dispatches may run: the marks of every key, what is in flight, and what is in doubt.
//!
//! No clock, no storage, no waiting. Whoever calls holds the lock over the register, brings the time, and commits the
//! changes that it asks for before anything is sent.

mod claim;
mod decide;
mod forget;
mod key_state;
mod quarantine;
mod rest;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::key_state::recovered;
pub use self::{
    claim::{Claim, DispatchId, InDoubt, Open},
    decide::{Ended, Register, Settled, Told},
    forget::{Forgotten, Round},
    key_state::{Doubt, Mark, Running},
    quarantine::{Quarantined, Scope, Why},
    view::Seen,
};
