//! The lock nodes of ZooKeeper: ephemeral and sequential below one parent per key, after ZooKeeper's recipe for locks.
//! Begin with [`attempt`], the life of one node, and [`layout`], the names and the order of nodes.
//!
//! - [`lock_node`], `wait_queue`, `create_tracker`: one attempt at one key, its wait, and the known state of its nodes;
//!   [`grant`] is the result
//! - [`set`]: several nodes that are created in one transaction; [`semaphore`]: a lock with several holders
//! - [`exclusive_node`]: a lock that is one node without a queue, with [`node_data`] as its data; `exclusive_create` creates
//!   it while the attempt has a lock node in a queue
//! - [`delayed_handover`], [`grant_record`]: how a key is given on where the upstream compares no tokens
//! - [`registry_guard`], [`janitor`]: no node is left behind; [`sequence_rollover`]: the numbers begin anew when they run
//!   out
//! - [`find_holder`]: the gateway that holds a key; `foreign_parent`: the parents of other programs' locks
//!
//! Who waits in this process, and what it holds, is in `fencegate-lock`.

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
