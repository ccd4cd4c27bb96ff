//! What an operator asks a running guard, or says to it: requests whose outcome nobody saw.

mod guard_client;
mod text;
mod verb;

pub(super) use self::{
    guard_client::run as ask,
    verb::{RunningGuard, Verb},
};
