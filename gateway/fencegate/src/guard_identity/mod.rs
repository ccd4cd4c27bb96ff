//! Decides which guards are believed. A gateway asks each guard who it is before it sends anything there, and
//! remembers the answer.

mod introduction;
mod processes;
mod registry;

pub use self::registry::{GuardIdentityError, GuardRegistry};
