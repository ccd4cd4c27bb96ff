//! Locks of keys in ZooKeeper. Each lock has a fencing token, and counts as held only while its session is proven
//! alive.
//!
//! [`client`] is for a program that wants locks and nothing else. Behind it, in reading order:
//!
//! - [`session`]: one ZooKeeper session, kept alive by one thread, with its proof
//! - [`recipe`]: lock nodes, how they are made, ordered, waited for and removed
//! - [`manager`]: the locks that this process holds, and who waits here for them; [`manager::lock_manager`] gives them out
//! - [`idempotency`]: operations that are written down before they are sent, so that they happen at most once
//! - [`state`]: how far tokens have come, remembered beyond the life of the process
//! - [`peer_endpoint`] and [`peer_secret`]: how the processes of one installation find and know each other
//! - [`installation`]: what the installation says of itself; [`error`]: why there is no lock; [`limits`]: limits that we
//!   keep
//! - [`metrics`]: the metrics of all this

pub mod client;
pub mod delay_metrics;
pub mod error;
pub mod idempotency;
pub mod installation;
pub mod limits;
pub mod manager;
pub mod metrics;
pub mod peer_endpoint;
pub mod peer_secret;
pub mod recipe;
pub mod session;
pub mod state;
