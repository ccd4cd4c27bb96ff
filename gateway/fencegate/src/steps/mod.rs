//! The steps of the request path, one file each; their order is in [`crate::stack`].
//!
//! Beside each step stands the stage that it makes: a type that says what is known about a request after the step.
//! Only its step makes a stage, so two steps in the wrong order do not compile. The parts of a step stand in its
//! folder. Several steps share [`incoming`], [`permitted`], [`presence`], [`parameters`], [`answer`] and [`upgrade`].

pub mod answer;
pub mod arbitrate;
pub mod buffer;
pub mod caller;
pub mod claim;
pub mod detach;
pub mod fence;
pub mod filter;
pub mod forward;
pub mod forward_auth;
pub mod hop;
pub mod hygiene;
pub mod incoming;
pub mod key;
pub mod lease_questions;
pub mod limit;
pub mod parameters;
pub mod permitted;
pub mod presence;
pub mod route;
pub mod screen;
pub mod sibling;
pub mod trace;
pub mod upgrade;
