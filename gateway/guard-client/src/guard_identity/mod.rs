//! Decides which guards are trusted. A gateway requests the identity of each guard before it sends anything there,
//! and remembers the announcement.

mod introduction;
mod processes;
mod registry;

pub use self::registry::{GuardIdentityError, UpstreamGuardRegistry};
