//! Locks of keys in ZooKeeper. Each lock has a fencing token, and counts as held only until its session deadline.
//!
//! [`client`] is for a program that wants locks and nothing else. Behind it, in reading order:
//!
//! - [`session`]: one ZooKeeper session, kept alive by one thread, with its deadline
//! - [`recipe`]: lock nodes, how they are created, ordered, waited for and removed
//! - [`manager`]: the locks that this process holds, and the requests that wait for them; [`manager::lock_manager`]
//!   grants them
//! - [`idempotency`]: operations that are recorded before they are sent, so that they are executed at most once
//! - [`state`]: the highest tokens, stored beyond the life of the process
//! - [`peer_endpoint`] and [`peer_secret`]: how the processes of one installation find and authenticate each other
//! - [`installation`]: the identity of an installation; [`error`]: errors of a lock attempt; [`limits`]: the limits of
//!   this crate
//! - [`metrics`]: the metrics of the sessions

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
