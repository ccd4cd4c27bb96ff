//! The host of a request: its one canonical spelling, and the hosts that a listener serves.

mod canonical;
mod served;

pub use canonical::{BadHost, CanonicalHost};
pub use served::{BadServed, Hosts, Served};
