//! The host of a request in its canonical spelling, and the hosts that a listener serves.

mod canonical;
mod host_pattern;

pub use canonical::{CanonicalHost, ParseHostError};
pub use host_pattern::{HostMatcher, HostPattern, ParseHostPatternError};
