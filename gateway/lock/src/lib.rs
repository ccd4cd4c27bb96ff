//! Locks of keys in ZooKeeper. Each lock has a fencing token, and counts as held only while its session is proven
//! alive.
//!
//! [`client`] is for a program that wants locks and nothing else. Behind it, in reading order:
//!
//! - [`session`]: one ZooKeeper session, kept alive by one thread, with its proof
//! - [`recipe`]: lock nodes, how they are made, ordered, waited for and removed
//! - [`tenures`]: the locks that this process holds, and who waits here for them; [`tenures::keeper`] gives them out
//! - [`once`]: operations that are written down before they are sent, so that they happen at most once
//! - [`state`]: how far tokens have come, remembered beyond the life of the process
//! - [`reach`] and [`pass`]: how the processes of one installation find and know each other
//! - [`meta`]: what the installation says of itself; [`not_granted`]: why there is no lock; [`bounds`]: limits that we
//!   keep
//! - [`metrics`]: the metrics of all this

pub mod bounds;
pub mod client;
pub mod delay_metrics;
pub mod meta;
pub mod metrics;
pub mod not_granted;
pub mod once;
pub mod pass;
pub mod reach;
pub mod recipe;
pub mod session;
pub mod state;
pub mod tenures;
