//! The host of a request: its one canonical spelling, and the hosts that a listener serves.

mod canonical;
mod served;

pub use canonical::{CanonicalHost, ParseHostError};
pub use served::{HostMatcher, HostPattern, ParseHostPatternError};
