//! What a request names as its host: its one canonical spelling, and the hosts that a listener serves.

mod canonical;
mod served;

pub use canonical::{BadHost, CanonicalHost};
pub use served::{BadServed, Hosts, Served};
