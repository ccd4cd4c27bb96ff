//! Decides which guards are believed. A gateway asks each guard who it is before it sends anything there, and
//! remembers the answer.

mod announced;
mod guards;
mod processes;

pub use self::guards::{GuardIdentityError, GuardRegistry};
