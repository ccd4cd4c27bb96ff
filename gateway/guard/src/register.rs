//! Decides which dispatches may run: the marks of every key, what is in flight, and what is in doubt.
//!
//! No clock, no storage, no waiting. Whoever calls holds the lock over the register, brings the time, and commits the
//! changes that it asks for before anything is sent.

mod claim;
mod decide;
mod forget;
mod quarantine;
mod record;
mod rest;
#[cfg(test)]
mod tests;
mod view;

pub use self::{
    claim::{Claim, DispatchId, InDoubt, Open},
    decide::{Ended, Register, Settled, Told},
    forget::{Forgotten, Round},
    quarantine::{Quarantined, Scope, Why},
    record::{Doubt, Mark, Running},
    view::Seen,
};
