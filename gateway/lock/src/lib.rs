//! Locks of keys in ZooKeeper. Each lock has a fencing token, and counts as held only until its session deadline.
//!
//! - [`client`]: for a program that wants locks and nothing else. Begin here
//! - [`manager`]: the locks that this process holds, and the requests that wait for them; [`manager::lock_manager`]
//!   grants them
//!
//! Below this crate, in reading order: [`fencegate_zookeeper`] is one session with its deadline, [`fencegate_recipe`] the
//! lock nodes, and [`fencegate_idempotency`] records operations before they are sent. None of them knows HTTP, routes or
//! guards.

pub mod client;
pub mod manager;
