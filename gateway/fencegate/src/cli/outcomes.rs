//! What an operator asks a running guard, or says to it: requests whose outcome nobody saw.

mod ask;
mod text;
mod verb;

pub(super) use self::{ask::run as ask, verb::Verb};
