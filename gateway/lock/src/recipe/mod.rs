//! The lock nodes of ZooKeeper: ephemeral and sequential below one parent per key, after ZooKeeper's recipe for locks.
//!
//! [`attempt`] is the life of one node, [`set`] that of several made in one transaction; [`candidate`] is what both do
//! at one key, `line` how they wait there, [`layout`] how nodes are named and ordered, `made` what is known of them,
//! [`rotate`] what happens when the numbers run out, `foreign_parent` where other programs have their locks; [`grant`] is what an
//! attempt comes to. Where nobody compares tokens, [`delayed`] hands a key over, by its [`grant_record`]. [`exclusive_node`]
//! is a lock without a line, [`semaphore`] one that several hold; `contested_node` is the node that both make out of the line, and
//! [`saying`] what is written in it. [`registered`] and [`janitor`] see that no node is
//! forgotten. [`signpost`] finds out which gateway holds a key.

pub mod attempt;
pub mod candidate;
mod contested_node;
pub mod delayed;
pub mod exclusive_node;
mod foreign_parent;
pub mod grant;
pub mod grant_record;
pub mod janitor;
pub mod layout;
mod line;
mod made;
pub mod registered;
pub mod rotate;
pub mod saying;
pub mod semaphore;
pub mod set;
pub mod signpost;
