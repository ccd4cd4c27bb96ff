//! The lock nodes of ZooKeeper: ephemeral and sequential below one parent per key, after ZooKeeper's recipe for locks.
//!
//! [`attempt`] is the life of one node, and [`set`] that of several nodes made in one transaction. Both use
//! [`lock_node`] for one key, `line` to wait, [`layout`] to name and order nodes, and `made` to remember them.
//! [`sequence_rollover`] begins the numbers anew when they run out; `foreign_parent` makes parents of other programs' locks;
//! [`grant`] is the result. Where nobody compares tokens, [`delayed_handover`] hands a key over, by its [`grant_record`].
//! [`exclusive_node`] is a lock without a line, and [`semaphore`] one that several hold. Both use `contested_node`, a
//! node outside of the line, with [`node_data`] as its data. [`registry_guard`] and [`janitor`] see that no node is forgotten.
//! [`find_holder`] finds out which gateway holds a key.

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
