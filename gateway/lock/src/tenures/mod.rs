//! What one process holds, and who waits for it here.
//!
//! [`keeper`] is what a worker sees, [`tenure`] what it gets. Cached keys: [`queue`] decides who goes next, under which
//! [`tenured`] lock, [`slot`] shares it between workers, [`attend`] works for one key. Locks for one request only:
//! [`strict`], as [`own_node`] to whoever works under it; a client that keeps one for longer has a [`leased_lock`]. Why there is none, [`lock_refused`];
//! who asks otherwise than others do, `other_number`. What a service calls back for the key that it holds runs inside
//! its [`chain`], by [`calls`]. [`desk`] puts the work on the session's thread as [`work`], also where it is [`caught`] in a panic;
//! [`ended`] tells why a tenure is over. Kept by another gateway: [`ways`] remembers by which. For operators:
//! [`survey`] shows what is held here, with [`roll`]; [`inquiry`] asks ZooKeeper.

pub mod ahead;
pub mod attend;
pub mod calls;
pub mod caught;
pub mod chain;
pub mod chores;
pub mod deadline;
pub mod desk;
pub mod ended;
pub mod inquiry;
pub mod keeper;
pub mod leased_lock;
mod leftovers;
pub mod lock_refused;
pub mod occupancy;
mod other_number;
pub mod own_node;
pub mod question;
pub mod queue;
pub mod roll;
pub mod slot;
pub mod strict;
pub mod survey;
pub mod tenure;
pub mod tenured;
pub mod ways;
pub mod wish;
pub mod work;
