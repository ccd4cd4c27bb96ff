//! The lock nodes of ZooKeeper: ephemeral and sequential below one parent per key, after ZooKeeper's recipe for locks.
//!
//! [`attempt`] is the life of one node, and [`set`] that of several nodes created in one transaction. Both use
//! [`lock_node`] for one key, `wait_queue` to wait, [`layout`] to name and order nodes, and `create_tracker` to track
//! them. [`sequence_rollover`] begins the numbers anew when they run out; `foreign_parent` creates parents of other
//! programs' locks; [`grant`] is the result. If an upstream does not compare tokens, [`delayed_handover`] hands a key
//! over, by its [`grant_record`]. [`exclusive_node`] is a lock without a queue, and [`semaphore`] one with several
//! holders. Both use `exclusive_create` for a node outside of the queue, with [`node_data`] as its data.
//! [`registry_guard`] and [`janitor`] ensure that no node is left behind. [`find_holder`] finds the gateway that holds
//! a key.

pub mod attempt;
mod create_tracker;
pub mod delayed_handover;
mod exclusive_create;
pub mod exclusive_node;
pub mod find_holder;
mod foreign_parent;
pub mod grant;
pub mod grant_record;
pub mod janitor;
pub mod layout;
pub mod lock_node;
pub mod node_data;
pub mod registry_guard;
pub mod semaphore;
pub mod sequence_rollover;
pub mod set;
mod wait_queue;
