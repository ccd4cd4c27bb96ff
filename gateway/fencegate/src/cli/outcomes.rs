//! Lets an operator list and resolve requests whose outcome is unknown, at a running guard.

mod args;
mod guard_client;
mod render;

pub(super) use self::{
    args::{OutcomesCommand, RunningGuardArgs},
    guard_client::run as ask,
};
