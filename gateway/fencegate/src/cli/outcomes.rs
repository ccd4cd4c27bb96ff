//! Lets an operator list and resolve requests whose outcome is unknown, at a running guard.

mod guard_client;
mod text;
mod verb;

pub(super) use self::{
    guard_client::run as ask,
    verb::{OutcomesCommand, RunningGuardArgs},
};
