//! The lock nodes of ZooKeeper: ephemeral and sequential below one parent per key, after ZooKeeper's recipe for locks.
//!
//! [`attempt`] is the life of one node, and [`set`] that of several nodes made in one transaction. Both use
//! [`candidate`] for one key, `line` to wait, [`layout`] to name and order nodes, and `made` to remember them.
//! [`rotate`] begins the numbers anew when they run out; `foreign_parent` makes parents of other programs' locks;
//! [`grant`] is the result. Where nobody compares tokens, [`delayed`] hands a key over, by its [`grant_record`].
//! [`exclusive_node`] is a lock without a line, and [`semaphore`] one that several hold. Both use `contested_node`, a
//! node outside of the line, with [`saying`] as its data. [`registered`] and [`janitor`] see that no node is forgotten.
//! [`signpost`] finds out which gateway holds a key.

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
